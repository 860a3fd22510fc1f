"""CPython's own tests of dbm and shelve, run on the stores of this package.

They come from the interpreter's `test` package and are not copied. Debian has it in
`libpython3.11-testsuite`.
"""

import dbm
import importlib
import os
import pathlib
import pickle
import shelve
import shutil
import sys
import unittest
from unittest import mock

import splitpoint
import splitpoint.dbm
import splitpoint.shelve
from scratch import Scratch

FIXTURES = pathlib.Path(__file__).parents[2] / "splitpoint-legacy/tests/fixtures"

try:
    from test import mapping_tests, test_dbm, test_shelve
    from test.support import os_helper

    # The tests of gdbm on this module: they take whatever has its name, and are skipped without it.
    with mock.patch.dict(sys.modules, {"dbm.gnu": splitpoint.dbm}), mock.patch.object(
        dbm, "gnu", splitpoint.dbm, create=True
    ):
        from test import test_dbm_gnu
except ImportError as missing:
    print(f"skipped: the tests of dbm and shelve: {missing}: install libpython3-testsuite")
else:

    class InScratch(Scratch):
        """CPython's tests write into the current directory."""

        def setUp(self):
            before = os.getcwd()
            Scratch.setUp(self)
            os.chdir(self.directory)
            self.addCleanup(os.chdir, before)
            super().setUp()

    class Installed(InScratch):
        """The standard modules after `install`."""

        def setUp(self):
            splitpoint.dbm.install()
            self.addCleanup(splitpoint.dbm.uninstall)
            self.module = sys.modules["dbm.splitpoint"]
            self.dbm = dbm
            super().setUp()

    class AnyDbm(Installed, test_dbm.AnyDBMTestCase):
        """`dbm.open` after `install`."""

        def setUp(self):
            Installed.setUp(self)
            test_dbm.AnyDBMTestCase.setUp(self)

        @classmethod
        def setUpClass(cls):
            # A test changes it.
            cls._dict = dict(test_dbm.AnyDBMTestCase._dict)

    class WhichDb(Installed, test_dbm.WhichDBTestCase):
        """`dbm.whichdb` after `install`, for every module that there is."""

        def setUp(self):
            Installed.setUp(self)
            self.filename = test_dbm._fname
            os.mkdir(test_dbm.dirname)

    class Gnu(InScratch, test_dbm_gnu.TestGdbm):
        """The tests of `dbm.gnu`."""

        def setUp(self):
            InScratch.setUp(self)
            # Not the interpreter's own, where it has one.
            self.assertIs(test_dbm_gnu.gdbm, splitpoint.dbm)
            test_dbm_gnu.TestGdbm.setUp(self)

        def test_disallow_instantiation(self):
            """`Table` may be instantiated: it is what `open` does."""
            with splitpoint.Table("t.spt") as table:
                self.assertEqual(len(table), 0)

        def test_context_manager(self):
            """The original compares gdbm's own words."""
            with splitpoint.dbm.open("t.spt", "c") as db:
                db["a"] = "b"
            with self.assertRaisesRegex(splitpoint.dbm.error, "closed table"):
                db.keys()

    class ShelfOnAnyDbm(Installed, test_shelve.TestCase):
        """`shelve.open` after `install`."""

    class MappingOfShelf(InScratch):
        """The mapping tests on `splitpoint.shelve.open`."""

        type2test = splitpoint.shelve.Shelf
        _args = {}

        def _reference(self):
            return {"key1": "value1", "key2": 2, "key3": (1, 2, 3)}

        def _empty_mapping(self):
            self.count = getattr(self, "count", 0) + 1
            shelf = splitpoint.shelve.open(f"shelf{self.count}", **self._args)
            self.addCleanup(shelf.close)
            return shelf

    for _protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        for _writeback in (False, True):
            _name = f"MappingOfShelf{_protocol}{'Writeback' if _writeback else ''}"
            globals()[_name] = type(
                _name,
                (MappingOfShelf, mapping_tests.BasicTestMappingProtocol),
                {"_args": {"protocol": _protocol, "writeback": _writeback}},
            )


class Dbm(Scratch):
    """What CPython's tests do not ask of `splitpoint.dbm`."""

    def tearDown(self):
        splitpoint.dbm.uninstall()

    def test_installing_is_undone_and_may_be_repeated(self):
        before = (list(dbm._names), dbm.whichdb, dict(vars(dbm)))
        for _ in range(2):
            splitpoint.dbm.install()
        self.assertEqual(dbm._names.count("dbm.splitpoint"), 1)
        self.assertEqual(dbm._names[0], "dbm.splitpoint")
        self.assertIs(importlib.import_module("dbm.splitpoint"), dbm.splitpoint)
        self.assertEqual(dbm.splitpoint.__name__, "dbm.splitpoint")
        with dbm.open(self.path(), "c") as db:
            self.assertIsInstance(db, splitpoint.Table)
        with shelve.open(self.path("shelf")) as shelf:
            shelf["a"] = [1]
        self.assertEqual(dbm.whichdb(self.path("shelf")), "dbm.splitpoint")
        splitpoint.dbm.uninstall()
        splitpoint.dbm.uninstall()
        self.assertEqual((dbm._names, dbm.whichdb), before[:2])
        self.assertNotIn("dbm.splitpoint", sys.modules)
        self.assertEqual(set(vars(dbm)), set(before[2]))

    def test_installed_last_it_opens_only_its_own_files(self):
        splitpoint.dbm.open(self.path(), "c").close()
        splitpoint.dbm.install(default=False)
        self.assertEqual(dbm._names[-1], "dbm.splitpoint")
        with dbm.open(self.path("new"), "c") as db:
            self.assertNotIsInstance(db, splitpoint.Table)
        with dbm.open(self.path(), "w") as db:
            self.assertIsInstance(db, splitpoint.Table)

    @unittest.skipUnless(FIXTURES.is_dir(), "the old files are in the repository only")
    def test_installed_it_reads_the_files_of_modules_that_python_lacks(self):
        splitpoint.dbm.install()
        # A Python without the library of gdbm, in which importing `dbm.gnu` is an error. No module of the
        # standard library knows the format of db 1.85.
        with mock.patch.dict(sys.modules, {"dbm.gnu": None}):
            for name in "gdbm-std-512.gdbm", "db185-default.db":
                path = self.path(name)
                shutil.copy(FIXTURES / name, path)
                self.assertEqual(dbm.whichdb(path), "dbm.splitpoint")
                with dbm.open(path, "r") as db, splitpoint.open(path, "r") as table:
                    self.assertGreater(len(db), 0)
                    self.assertEqual(dict(db), dict(table))
            with self.assertRaisesRegex(dbm.error, "splitpoint convert"):
                dbm.open(self.path("gdbm-std-512.gdbm"), "w")
        # What nobody opens stays so.
        self.assertEqual(dbm.whichdb(__file__), "")
        self.assertIsNone(dbm.whichdb(self.path("none")))

    def test_importing_patches_nothing(self):
        script = (
            "import dbm\n"
            "before = dict(vars(dbm)), list(dbm._names)\n"
            "import splitpoint.dbm, splitpoint.shelve\n"
            "assert before == (vars(dbm), dbm._names)\n"
        )
        self.python("-c", script)

    def test_whichdb_knows_stores_and_what_the_standard_one_knows(self):
        splitpoint.dbm.open(self.path(), "c").close()
        self.assertEqual(splitpoint.dbm.whichdb(self.path()), "splitpoint")
        importlib.import_module("dbm.dumb")
        dbm.dumb.open(self.path("dumb"), "c").close()
        self.assertEqual(splitpoint.dbm.whichdb(self.path("dumb")), "dbm.dumb")
        self.assertIsNone(splitpoint.dbm.whichdb(self.path("none")))
        self.assertEqual(splitpoint.dbm.whichdb(__file__), "")

    def test_the_default_flag_is_r(self):
        with self.assertRaises(splitpoint.dbm.error):
            splitpoint.dbm.open(self.path())

    def test_except_dbm_error_catches_ours(self):
        with self.assertRaises(dbm.error):
            splitpoint.dbm.open(self.path(), "r")

    def test_reorganize_keeps_the_records_and_gives_back_the_space_of_others(self):
        with splitpoint.dbm.open(self.path(), "c") as db:
            for _ in range(3):
                db.put_many((str(i), "x" * 1000) for i in range(1000))
            before, iterator = db.stats(), iter(db)
            self.assertGreater(before.dead_bytes, 0)
            db.reorganize()
            self.assertLess(db.stats().dead_bytes, before.dead_bytes)
            self.assertLessEqual(os.path.getsize(self.path()), before.file_bytes)
            self.assertEqual(len(db), 1000)
            with self.assertRaises(ValueError):
                next(iterator)
            db["more"] = "1"
            with db.view("more"), self.assertRaises(BufferError):
                db.reorganize()
            self.assertTrue(db.check().is_clean)
        with splitpoint.dbm.open(self.path(), "r") as db:
            self.assertEqual(len(db), 1001)
            with self.assertRaises(PermissionError):
                db.reorganize()
        with splitpoint.open_url("mem:") as table:
            table["a"] = "1"
            table.reorganize()
            self.assertEqual(table["a"], b"1")


class Shelves(Scratch):
    """What CPython's tests do not ask of `splitpoint.shelve`."""

    def test_a_shelf_is_one_of_the_standard_module(self):
        with splitpoint.shelve.open(self.path()) as shelf:
            self.assertIsInstance(shelf, shelve.Shelf)
            shelf["a"] = {"b": [1]}
        with shelve.Shelf(splitpoint.open(self.path(), "r")) as shelf:
            self.assertEqual(shelf["a"], {"b": [1]})
        with self.assertRaises(ValueError):
            shelf["a"]

    def test_a_missing_key_is_a_key_error_with_that_key(self):
        with splitpoint.shelve.open(self.path()) as shelf:
            for call in (shelf.__getitem__, shelf.__delitem__, shelf.pop):
                with self.assertRaises(KeyError) as caught:
                    call("none")
                self.assertEqual(caught.exception.args, ("none",))
            self.assertEqual(shelf.get("none", 7), 7)

    def test_an_error_of_unpickling_is_not_taken_for_a_missing_key(self):
        with splitpoint.shelve.open(self.path()) as shelf:
            shelf.dict["a"] = b"no pickle"
            with self.assertRaises(pickle.UnpicklingError):
                shelf.get("a")

    def test_writeback_writes_all_objects_in_one_batch(self):
        with splitpoint.shelve.open(self.path(), writeback=True) as shelf:
            shelf["a"], shelf["b"] = [], []
            shelf["a"].append(1)
            batches = []
            with mock.patch.object(splitpoint.Table, "apply", lambda _, batch: batches.append(batch)):
                shelf.sync()
            self.assertEqual([len(batch) for batch in batches], [2])
            shelf["a"].append(2)
        with splitpoint.shelve.open(self.path(), "r") as shelf:
            self.assertEqual((shelf["a"], shelf["b"]), ([2], []))

    def test_sync_is_durable(self):
        with splitpoint.shelve.open(self.path(), durability="buffered") as shelf:
            shelf["a"] = 1
            shelf.sync()
            stats = shelf.dict.stats()
            self.assertEqual(stats.durable_bytes, stats.log_bytes)

    def test_serializers_replace_pickle(self):
        options = {
            "serializer": lambda value, protocol: repr(value).encode(),
            "deserializer": lambda value: int(value),
        }
        with splitpoint.shelve.open(self.path(), **options) as shelf:
            shelf["a"] = 7
            self.assertEqual((shelf["a"], shelf.dict["a"]), (7, b"7"))
        with self.assertRaisesRegex(TypeError, "together"):
            splitpoint.shelve.open(self.path(), serializer=repr)
        splitpoint.open(self.path()).close()

    def test_a_shelf_that_is_read_only_can_be_closed(self):
        splitpoint.shelve.open(self.path()).close()
        with splitpoint.shelve.open(self.path(), "r") as shelf:
            self.assertEqual(list(shelf), [])


if __name__ == "__main__":
    unittest.main()
