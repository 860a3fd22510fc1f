"""The notebook in `examples/`, and the README's lines of Python, as a user runs them."""

import ast
import json
import os
import pathlib
import re
import unittest

import splitpoint
from scratch import Scratch

PACKAGE = pathlib.Path(__file__).parents[1]
README = PACKAGE.parents[1] / "README.md"


class Examples(Scratch):
    """They run in an empty directory."""

    def setUp(self):
        super().setUp()
        before = os.getcwd()
        os.chdir(self.directory)
        self.addCleanup(os.chdir, before)

    def run_cells(self, notebook):
        """Run the cells of a notebook, and return what each shows: the value of its last line."""
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        names, shown = {"__name__": "__main__"}, []
        for number, cell in enumerate(cells):
            if cell["cell_type"] != "code":
                continue
            self.assertEqual(cell["outputs"], [], "outputs are not kept: they would not be checked")
            lines = ast.parse("".join(cell["source"]))
            last = lines.body.pop() if isinstance(lines.body[-1], ast.Expr) else None
            place = f"{notebook.name}, cell {number}"
            exec(compile(lines, place, "exec"), names)
            if last is None:
                shown.append((None, None))
                continue
            value = eval(compile(ast.Expression(last.value), place, "eval"), names)
            # As a notebook chooses it, at once: the value may change later.
            html = value._repr_html_() if hasattr(value, "_repr_html_") else None
            shown.append((value, html))
        return shown

    def test_the_notebook_runs_and_shows_what_its_text_says(self):
        shown = self.run_cells(PACKAGE / "examples" / "hash_functions.ipynb")
        values, pages = zip(*shown, strict=True)
        self.assertEqual(values[1], b"value of user:00007")
        self.assertIn("20,000 keys", pages[2])
        self.assertIn("ideal", pages[2])
        self.assertEqual(values[3], {"xxh3-64": "fits", "djb2": "worse"})
        for page in pages[4:6]:
            self.assertTrue(page.startswith('<iframe srcdoc="&lt;!DOCTYPE html&gt;'))
        self.assertEqual(values[5].verdicts, {"xxh3-64": "fits", "sum_of_bytes": "worse"})
        self.assertGreater(values[6]["sum_of_bytes"], 10 * values[6]["xxh3-64"])
        self.assertEqual(values[7], {"xxh3-64": "fits"})
        self.assertTrue(values[8].closed)

    def test_the_lines_of_the_readmes_run(self):
        readmes = [PACKAGE / "README.md"] + [README] * README.is_file()
        for readme in readmes:
            with self.subTest(readme.parent.name):
                blocks = re.findall("```python\n(.*?)```", readme.read_text(), re.DOTALL)
                self.assertTrue(blocks)
                for block in blocks:
                    pathlib.Path("lines.py").write_text(block)
                    self.python("-W", "error", "lines.py")
                with splitpoint.open("capitals.spt", "r") as table:
                    self.assertEqual(dict(table), {b"France": b"Paris"})
                os.remove("capitals.spt")


if __name__ == "__main__":
    unittest.main()
