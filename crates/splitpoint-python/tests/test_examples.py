"""The notebook in `examples/`, and the README's lines of Python, as a user runs them."""

import ast
import functools
import glob
import importlib.util
import json
import os
import pathlib
import pickle
import re
import types
import unittest
import unittest.mock

import splitpoint
from scratch import Scratch
from splitpoint import lab

PACKAGE = pathlib.Path(__file__).parents[1]
README = PACKAGE.parents[1] / "README.md"
MANUAL = PACKAGE.parents[1] / "docs" / "python.md"


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


class Rows:
    """What the manual's program calls of a dataframe of Spark and of its rows."""

    def __init__(self, rows):
        self.rows = rows
        self.rdd = self

    def map(self, function):
        """Call `function` with each row."""
        return Rows([function(row) for row in self.rows])

    def treeReduce(self, function):
        """Merge the rows, each of which has come from a worker."""
        return functools.reduce(function, pickle.loads(pickle.dumps(self.rows)))

    def mapInArrow(self, function, schema):
        """Call `function` with the batches of each file; Spark gives binary columns as bytearrays."""
        from pyarrow import parquet

        tables = [parquet.read_table(path).drop_null() for path in self.rows]
        made = [batch for table in tables for batch in function(iter(table.to_batches(100)))]
        name, _ = schema.split()
        rows = [row for batch in made for row in batch.to_pylist()]
        return Rows([types.SimpleNamespace(part=bytearray(row[name])) for row in rows])


@unittest.skipUnless(MANUAL.is_file(), "docs/python.md is not beside the tests")
@unittest.skipIf(importlib.util.find_spec("pyarrow") is None, "pyarrow is not installed")
class Clusters(Scratch):
    """The manual's programs for Spark and Ray, with stand-ins for both."""

    def setUp(self):
        super().setUp()
        import pyarrow
        from pyarrow import parquet

        keys = [f"user:{i}" for i in range(3000)]
        os.mkdir(self.path("logs"))
        for part in range(11):
            column = pyarrow.array([*keys[part::11], None])
            parquet.write_table(pyarrow.table({"user": column}), self.path(f"logs/{part}.parquet"))
        self.expected = lab.Partial(["xxh3-64", "djb2"], buckets=4096, sample_hashes="auto")
        self.expected.add(keys)
        before = os.getcwd()
        os.chdir(self.directory)
        self.addCleanup(os.chdir, before)
        section = MANUAL.read_text().partition("### Spark and Ray")[2].partition("\n## ")[0]
        self.blocks = re.findall("```python\n(.*?)```", section, re.DOTALL)

    def check(self, block, names):
        """The program prints the report of one pass; its table is smaller here."""
        printed = []
        exec(block.replace("1 << 24", "4096"), {**names, "print": printed.append})
        (report,) = printed
        self.assertEqual(report.to_dict(), self.expected.report().to_dict())

    def test_the_program_for_spark(self):
        frame = Rows(sorted(glob.glob("logs/*")))
        frame.select = lambda column: frame
        frame.dropna = lambda: frame
        reader = types.SimpleNamespace(parquet=lambda path: frame)
        self.check(self.blocks[0], {"spark": types.SimpleNamespace(read=reader)})

    def test_the_program_for_ray(self):
        def remote(function):
            function.remote = lambda *arguments: pickle.loads(pickle.dumps(function(*arguments)))
            return function

        ray = types.ModuleType("ray")
        ray.remote, ray.get = remote, lambda part: part
        with unittest.mock.patch.dict("sys.modules", ray=ray):
            self.check(self.blocks[1], {})


if __name__ == "__main__":
    unittest.main()
