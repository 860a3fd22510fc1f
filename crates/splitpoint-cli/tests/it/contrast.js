// Returns the texts whose color is too close to what is behind them.
(() => {
  const parse = (color) => {
    const parts = color.match(/[\d.]+/g).map(Number);
    return parts.length > 3 ? parts : [...parts, 1];
  };
  const over = (top, below) => top.slice(0, 3).map((c, i) => c * top[3] + below[i] * (1 - top[3]));
  const behind = (element) => {
    if (element === null) return parse(getComputedStyle(document.body).backgroundColor).slice(0, 3);
    return over(parse(getComputedStyle(element).backgroundColor), behind(element.parentElement));
  };
  const light = (color) => {
    const [r, g, b] = color.map((c) => {
      const share = c / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const faint = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (texts.currentNode.data.trim() === "" || element.closest("title, desc, script")) continue;
    const style = getComputedStyle(element);
    const below = behind(element);
    const color = over(parse(element.closest("svg") ? style.fill : style.color), below);
    const [a, b] = [light(color), light(below)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) faint.add(`${ratio.toFixed(2)}: ${texts.currentNode.data.slice(0, 60)}`);
  }
  return [...faint];
})()
