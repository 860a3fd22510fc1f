"""The examples in docstrings and in docs/python.md, and the types in the stubs."""

import doctest
import importlib
import importlib.util
import inspect
import os
import pathlib
import pkgutil
import subprocess
import sys
import unittest

import splitpoint
from scratch import Scratch

MODULES = ["splitpoint"] + [
    module.name
    for module in pkgutil.walk_packages(splitpoint.__path__, "splitpoint.")
    if not module.name.removeprefix("splitpoint.").startswith("_")
]


class Examples(Scratch):
    """Every `>>>` runs, in an empty directory."""

    def setUp(self):
        super().setUp()
        before = os.getcwd()
        os.chdir(self.directory)
        self.addCleanup(os.chdir, before)

    def test_the_examples_of_docstrings_are_right(self):
        count = 0
        for name in MODULES:
            module = importlib.import_module(name)
            result = doctest.testmod(module, extraglobs={"splitpoint": splitpoint})
            self.assertEqual(result.failed, 0, name)
            count += result.attempted
        self.assertGreater(count, 20)

    def test_the_examples_of_the_manual_are_right(self):
        manual = pathlib.Path(__file__).parents[3] / "docs" / "python.md"
        if not manual.is_file():
            self.skipTest("docs/python.md is not beside the tests")
        result = doctest.testfile(str(manual), module_relative=False)
        self.assertEqual(result.failed, 0)
        self.assertGreater(result.attempted, 10)

    def test_every_public_name_is_documented(self):
        for name in MODULES:
            module = importlib.import_module(name)
            self.assertTrue(module.__doc__, name)
            for public in getattr(module, "__all__", []):
                item = getattr(module, public)
                if not (inspect.isclass(item) or inspect.isroutine(item)):
                    continue
                self.assertTrue(inspect.getdoc(item), f"{name}.{public}")
                members = inspect.getmembers(item) if inspect.isclass(item) else []
                for member, value in members:
                    is_ours = "splitpoint" in (getattr(value, "__module__", None) or "splitpoint")
                    is_shown = callable(value) or isinstance(value, property)
                    if not member.startswith("_") and is_ours and is_shown:
                        self.assertTrue(inspect.getdoc(value), f"{name}.{public}.{member}")


class Stubs(Scratch):
    """The types that editors and mypy see."""

    def test_the_stubs_are_those_of_the_modules(self):
        if importlib.util.find_spec("mypy") is None:
            self.skipTest("mypy is not installed")
        # What mypy calls the class that `namedtuple` returns.
        allowed = pathlib.Path(self.path("allowed"))
        allowed.write_text(r"splitpoint\._table\..*@base1" + "\n")
        stubtest = [sys.executable, "-m", "mypy.stubtest", "splitpoint"]
        done = subprocess.run(
            [*stubtest, "--ignore-missing-stub", "--allowlist", str(allowed)],
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_program_with_types_is_accepted_and_wrong_ones_are_not(self):
        if importlib.util.find_spec("mypy") is None:
            self.skipTest("mypy is not installed")
        program = pathlib.Path(self.path("program.py"))
        program.write_text(
            "import splitpoint\n"
            "with splitpoint.open('a.spt', 'c', durability='sync') as table:\n"
            "    table['key'] = 'value'\n"
            "    value: bytes = table[b'key']\n"
            "    maybe: bytes | None = table.get('key')\n"
            "    count: int = table.stats().record_count\n"
            "    for key, stored in table.items():\n"
            "        bytes.join(key, [stored])\n"
            "    found: bool = 'key' in table\n"
            "    popped: bytes | int = table.pop('key', 7)\n"
            "    table |= {'key': b'value'}\n"
            "    with table.snapshot() as snapshot:\n"
            "        found = 'key' in snapshot\n"
            "def pay(changes: splitpoint.Transaction) -> int:\n"
            "    changes |= {'key': b'value'}\n"
            "    old: bytes | None = changes.pop('old', None)\n"
            "    changes.put_many([('new', b'value')])\n"
            "    found: list[bytes | None] = changes.get_many(['key', b'old'])\n"
            "    texts: list[bytes | str] = changes.get_many(['key'], 'none')\n"
            "    return len(changes.pop('key')) if 'key' in changes else 0\n"
            "paid: int = splitpoint.open_url('mem:').transact(pay)\n"
            "class Words(splitpoint.Table):\n"
            "    def __init__(self, path: str) -> None:\n"
            "        super().__init__(path)\n"
            "again: Words = Words('w.spt').reopen()\n"
        )
        mypy = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", self.path("cache")]
        done = subprocess.run(mypy + [str(program)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        program.write_text(
            "import splitpoint, splitpoint.dbm\n"
            "splitpoint.open('a', durability='fsync')\n"
            "splitpoint.open('a', 'x')\n"
            "splitpoint.open_url('mem:', 'x')\n"
            "splitpoint.dbm.open('a', 'x')\n"
            "splitpoint.dbm.open('a', 'rf')\n"
        )
        done = subprocess.run(mypy + [str(program)], capture_output=True, text=True, check=False)
        self.assertEqual(done.stdout.count("[arg-type]"), 4, done.stdout)


if __name__ == "__main__":
    unittest.main()
