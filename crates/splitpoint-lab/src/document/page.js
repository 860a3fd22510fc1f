"use strict";
// Tables marked data-sort get a button in each heading of a column.
for (const table of document.querySelectorAll("table[data-sort]")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const isUp = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", isUp ? "ascending" : "descending");
      const value = (row) => {
        const cell = row.cells[column];
        return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
      };
      const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, "en"));
      const rows = [...body.rows];
      rows.sort((a, b) => (isUp ? 1 : -1) * compare(value(a), value(b)));
      body.append(...rows);
    });
  });
}
