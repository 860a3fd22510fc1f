"""Flags, modes, options, errors, and files of other packages."""

import concurrent.futures
import dbm.dumb
import errno
import itertools
import os
import pathlib
import pickle
import shutil
import signal
import stat
import threading
import unittest

import splitpoint
from scratch import Scratch

FIXTURES = pathlib.Path(__file__).parents[2] / "splitpoint-legacy/tests/fixtures"


class Flags(Scratch):
    """Every flag on every kind of place."""

    def fill(self):
        with splitpoint.open(self.path(), "n") as table:
            table["key"] = "value"

    def test_a_missing_file_is_created_by_c_and_n_only(self):
        for flag in "rw":
            with self.assertRaises(FileNotFoundError) as caught:
                splitpoint.open(self.path(), flag)
            self.assertIsInstance(caught.exception, splitpoint.error)
            self.assertEqual(caught.exception.code, "not_found")
            self.assertEqual(caught.exception.errno, errno.ENOENT)
            self.assertEqual(caught.exception.filename, self.path())
            self.assertIn(self.path(), str(caught.exception))
        for flag in "cn":
            splitpoint.open(self.path(flag), flag).close()
            self.assertTrue(os.path.exists(self.path(flag)))
        self.assertEqual(sorted(os.listdir(self.directory)), ["c", "n"])

    def test_an_existing_file_is_kept_by_all_but_n(self):
        self.fill()
        for flag in "rwc":
            with splitpoint.open(self.path(), flag) as table:
                self.assertEqual(dict(table), {b"key": b"value"})
                self.assertEqual(table.readonly, flag == "r")
        with splitpoint.open(self.path(), "n") as table:
            self.assertEqual(len(table), 0)
        self.assertEqual(os.listdir(self.directory), ["table.spt"])

    def test_reading_refuses_every_change(self):
        self.fill()
        with splitpoint.open(self.path(), "r") as table:
            for call in (
                lambda: table.__setitem__("a", "b"),
                lambda: table.__delitem__("key"),
                lambda: table.clear(),
                lambda: table.put_many({"a": "b"}),
                lambda: table.apply([("a", "b")]),
                lambda: table.setdefault("a"),
                lambda: table.pop("key"),
            ):
                with self.assertRaises(PermissionError) as caught:
                    call()
                self.assertEqual(caught.exception.code, "read_only")
                self.assertEqual(caught.exception.errno, errno.EACCES)
                self.assertEqual(caught.exception.filename, self.path())
                self.assertIn(self.path(), str(caught.exception))
            self.assertEqual(dict(table), {b"key": b"value"})

    def test_other_letters_are_value_errors_that_name_them(self):
        for flag in ("", "x", "rw", "cx"):
            with self.assertRaisesRegex(ValueError, f"flag must be 'r', 'w', 'c' or 'n', not \"{flag}\""):
                splitpoint.open(self.path(), flag)
        self.assertEqual(os.listdir(self.directory), [])
        for flag in ("cf", "rs", "wu", "nfsu"):
            splitpoint.open(self.path(), flag).close()

    def test_a_directory_is_refused_by_every_flag(self):
        for flag in "rwcn":
            with self.assertRaises(IsADirectoryError) as caught:
                splitpoint.open(self.directory, flag)
            self.assertIsInstance(caught.exception, splitpoint.error)

    @unittest.skipUnless(os.geteuid() == 0, "needs another user to be")
    def test_without_permission_every_flag_is_a_permission_error(self):
        self.fill()
        os.chmod(self.path(), 0o600)
        os.chmod(self.directory, 0o755)
        # To import the package, a user other than root must be able to reach it.
        program = (
            "import os, splitpoint, sys\n"
            "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
            "for flag in 'rwcn':\n"
            "    for name in sys.argv[1:] if flag in 'cn' else sys.argv[1:2]:\n"
            "        try:\n"
            "            splitpoint.open(name, flag)\n"
            "        except PermissionError as error:\n"
            "            print(flag, error.errno)\n"
        )
        done = self.python("-c", program, self.path(), self.path("new.spt"))
        self.assertEqual(done.stdout, "r 13\nw 13\nc 13\nc 13\nn 13\nn 13\n")
        self.assertEqual(os.listdir(self.directory), ["table.spt"])
        with splitpoint.open(self.path(), "r") as table:
            self.assertEqual(dict(table), {b"key": b"value"})

    def test_a_foreign_file_is_refused_and_not_touched(self):
        for content in (b"some text\n", b"\x7fELF" + bytes(5000)):
            pathlib.Path(self.path()).write_bytes(content)
            for flag in "rwc":
                with self.assertRaises(splitpoint.error) as caught:
                    splitpoint.open(self.path(), flag)
                self.assertEqual(caught.exception.code, "not_a_store")
            self.assertEqual(pathlib.Path(self.path()).read_bytes(), content)
        with splitpoint.open(self.path(), "n") as table:
            self.assertEqual(len(table), 0)

    def test_n_follows_a_link_and_leaves_an_open_table_alone(self):
        self.fill()
        os.symlink(self.path(), self.path("link"))
        with splitpoint.open(self.path("link"), "n") as table:
            table["new"] = "1"
            with self.assertRaises(splitpoint.error) as caught:
                splitpoint.open(self.path(), "n")
            self.assertEqual(caught.exception.code, "locked")
        self.assertTrue(os.path.islink(self.path("link")))
        with splitpoint.open(self.path(), "r") as table:
            self.assertEqual(dict(table), {b"new": b"1"})
        self.assertEqual(sorted(os.listdir(self.directory)), ["link", "table.spt"])

    def test_one_table_at_a_time_writes_and_any_number_reads(self):
        with splitpoint.open(self.path()) as table:
            for flag in "wcn":
                with self.assertRaisesRegex(BlockingIOError, r"locked by this process \(writer\b") as caught:
                    splitpoint.open(self.path(), flag)
                self.assertEqual(caught.exception.code, "locked")
            with splitpoint.open(self.path(), "r") as one, splitpoint.open(self.path(), "r") as two:
                for i in range(100):
                    table[f"{i}"] = f"{i}"
                    self.assertEqual((one[f"{i}"], two[f"{i}"]), (f"{i}".encode(),) * 2)
                    self.assertEqual((len(one), len(two)), (i + 1, i + 1))
                self.assertEqual(dict(one), dict(table))

    def test_an_exclusive_table_is_alone(self):
        with splitpoint.open(self.path(), sharing="exclusive"):
            for flag in "rwcn":
                with self.assertRaises(BlockingIOError) as caught:
                    splitpoint.open(self.path(), flag)
                self.assertEqual(caught.exception.code, "locked")
        with splitpoint.open(self.path(), "r"), self.assertRaises(BlockingIOError):
            splitpoint.open(self.path(), sharing="exclusive")
        splitpoint.open(self.path(), sharing="one-writer").close()
        with self.assertRaisesRegex(ValueError, "sharing must be 'one-writer', 'exclusive'"):
            splitpoint.open(self.path(), sharing="alone")

    def test_tables_change_a_file_by_turns(self):
        for sharing in ("shared", "per-call"):
            with self.subTest(sharing):
                path = self.path() + sharing
                with (
                    splitpoint.open(path, sharing=sharing) as one,
                    splitpoint.open(path, sharing=sharing) as two,
                ):
                    for i in range(100):
                        (one, two)[i % 2][f"{i}"] = f"{i}"
                        self.assertEqual((two, one)[i % 2][f"{i}"], f"{i}".encode())
                    self.assertEqual(dict(one), dict(two))

    def test_every_flag_opens_beside_a_table_per_call(self):
        """Between its calls it keeps nobody out, whatever the other table is."""
        for flag, sharing in itertools.product("rwc", ("one-writer", "exclusive", "shared", "per-call")):
            with self.subTest(flag, sharing=sharing):
                path = self.path(flag + sharing)
                with splitpoint.open(path, sharing="per-call") as table:
                    table["key"] = "old"
                    with splitpoint.open(path, flag, sharing=sharing) as other:
                        self.assertEqual(dict(other), {b"key": b"old"})
                        self.assertEqual(other.readonly, flag == "r")
                        if flag != "r":
                            other["key"] = "new"
                    found = b"old" if flag == "r" else b"new"
                    self.assertEqual(table["key"], found)
                    table["key"] = "last"
                with splitpoint.open(path, "r") as again:
                    self.assertEqual(dict(again), {b"key": b"last"})

    def test_n_replaces_the_file_of_a_table_per_call_which_goes_on_with_the_old_one(self):
        """Its later changes are lost with that file, as the documentation of `open` says."""
        for sharing in ("one-writer", "exclusive", "shared", "per-call"):
            with self.subTest(sharing):
                path = self.path(sharing)
                with splitpoint.open(path, sharing="per-call") as table:
                    table["key"] = "old"
                    with splitpoint.open(path, "n", sharing=sharing) as new:
                        self.assertEqual(dict(new), {})
                        new["new"] = "1"
                    table["lost"] = "1"
                    self.assertEqual(dict(table), {b"key": b"old", b"lost": b"1"})
                with splitpoint.open(path, "r") as again:
                    self.assertEqual(dict(again), {b"new": b"1"})

    def test_the_flags_of_a_table_per_call_are_those_of_every_table(self):
        def reach(flag):
            return splitpoint.open(self.path(), flag, sharing="per-call")

        for flag in "rw":
            with self.assertRaises(FileNotFoundError):
                reach(flag)
        for flag in "cn":
            with reach(flag) as table:
                self.assertEqual(len(table), 0)
                table["key"] = flag
        for flag in "wc":
            with reach(flag) as table:
                self.assertEqual(dict(table), {b"key": b"n"})
                self.assertFalse(table.readonly)
        with reach("r") as table:
            self.assertTrue(table.readonly)
            with self.assertRaises(PermissionError):
                table["key"] = "r"
            self.assertEqual(dict(table), {b"key": b"n"})
        # A reader keeps only those out that want the file for themselves.
        with splitpoint.open(self.path(), "r"), reach("n") as table:
            self.assertEqual(dict(table), {})
        for holder in ("one-writer", "exclusive", "shared"):
            with self.subTest(holder), splitpoint.open(self.path(), sharing=holder):
                with self.assertRaises(BlockingIOError):
                    reach("n")

    def test_an_exclusive_table_that_reads_keeps_only_writers_out(self):
        splitpoint.open(self.path()).close()
        with splitpoint.open(self.path(), "r", sharing="exclusive") as table:
            with splitpoint.open(self.path(), "r") as other:
                self.assertEqual(dict(other), dict(table))
            for flag in "wcn":
                with self.assertRaises(BlockingIOError):
                    splitpoint.open(self.path(), flag)

    def test_an_open_waits_as_long_as_it_was_told(self):
        table, waiting = splitpoint.open(self.path()), threading.Event()

        def write():
            waiting.set()
            with splitpoint.open(self.path(), "w", lock_timeout=900) as later:
                return later["key"]

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            value = pool.submit(write)
            waiting.wait()
            table["key"] = "value"
            table.close()
            self.assertEqual(value.result(), b"value")
        for seconds in (-1, float("nan"), float("inf")):
            with self.assertRaisesRegex(ValueError, "lock_timeout must be a finite number of seconds"):
                splitpoint.open(self.path(), lock_timeout=seconds)

    def test_an_open_that_takes_turns_waits_no_longer_than_it_was_told(self):
        """The library waits 10 seconds by itself, and not once more for what is left."""
        for _ in range(3):
            table = splitpoint.open(self.path())
            later = threading.Timer(16, table.close)
            later.start()
            try:
                splitpoint.open(self.path(), sharing="per-call", lock_timeout=10.5).close()
            except BlockingIOError:
                later.cancel()
                table.close()
                return
            # Something may have held this process up for seconds.
            later.join()
        self.fail("each open has waited until the table was closed, after 16 seconds")

    def test_ctrl_c_ends_the_wait(self):
        with splitpoint.open(self.path()):
            timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            with self.assertRaises(KeyboardInterrupt):
                splitpoint.open(self.path(), "w", lock_timeout=900)
            timer.join()

    def test_a_table_is_opened_again_as_it_was(self):
        with splitpoint.open(self.path(), durability="buffered") as table:
            table["key"] = "value"
            with self.assertRaises(BlockingIOError):
                table.reopen()
        with table.reopen() as again:
            self.assertEqual((again["key"], again.durability), (b"value", "buffered"))
            self.assertFalse(again.readonly)
        with splitpoint.open(self.path(), "rf") as table, table.reopen() as again:
            self.assertEqual((again["key"], again.readonly), (b"value", True))
        with splitpoint.open_url("mem:") as table, self.assertRaisesRegex(TypeError, "in memory"):
            table.reopen()

    def test_readers_share_a_file(self):
        self.fill()
        with splitpoint.open(self.path(), "r") as one, splitpoint.open(self.path(), "r") as two:
            self.assertEqual(one["key"], two["key"])

    def test_a_private_file_stays_private_when_it_is_replaced(self):
        splitpoint.open(self.path(), "c", 0o600).close()
        splitpoint.open(self.path(), "n").close()
        self.assertEqual(oct(stat.S_IMODE(os.stat(self.path()).st_mode)), "0o600")

    def test_the_mode_is_that_of_a_new_file_before_the_umask(self):
        mask = os.umask(0o022)
        self.addCleanup(os.umask, mask)
        for mode, expected in ((0o666, 0o644), (0o600, 0o600), (0o640, 0o640), (0o622, 0o600)):
            for flag in ("c", "n"):
                splitpoint.open(self.path(), flag, mode).close()
                if flag == "n" or mode == 0o666:
                    found = stat.S_IMODE(os.stat(self.path()).st_mode)
                    self.assertEqual(oct(found), oct(expected), (mode, flag))
        self.assertEqual(os.umask(0o022), 0o022)

    def test_opening_a_private_file_leaves_the_umask_of_other_threads_alone(self):
        """One thread creates private files while the other creates files for everybody."""
        mask = os.umask(0o022)
        self.addCleanup(os.umask, mask)
        start = threading.Barrier(2)

        def create(mode):
            start.wait()
            for i in range(50):
                splitpoint.open(self.path(f"{mode:o} {i}"), "n", mode).close()

        threads = [threading.Thread(target=create, args=(mode,)) for mode in (0o600, 0o666)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        modes = [
            stat.S_IMODE(os.stat(self.path(f"{mode} {i}")).st_mode)
            for mode in ("600", "666")
            for i in range(50)
        ]
        self.assertEqual(modes, [0o600] * 50 + [0o644] * 50)

    def test_paths_may_be_bytes_objects_and_look_like_urls(self):
        splitpoint.open(os.fsencode(self.path("b\udcffytes"))).close()
        self.assertIn(b"b\xffytes", os.listdir(os.fsencode(self.directory)))
        os.chdir(self.directory)
        self.addCleanup(os.chdir, "/")
        with splitpoint.open("mem:") as table:
            self.assertEqual(table.path, pathlib.Path(self.path("mem:")))
        self.assertTrue(os.path.exists("mem:"))
        for place in (7, None, 1.5):
            with self.assertRaises(TypeError):
                splitpoint.open(place)


    def test_a_path_with_a_null_character_is_a_value_error(self):
        with splitpoint.open(self.path()) as table:
            for call in (
                lambda: splitpoint.open("a\0b"),
                lambda: splitpoint.open(b"a\0b", "r"),
                lambda: splitpoint.open_url("file:a\0b"),
                lambda: splitpoint.identify("a\0b"),
                lambda: table.backup("a\0b"),
            ):
                with self.assertRaisesRegex(ValueError, "must not have a null character") as caught:
                    call()
                self.assertIsInstance(caught.exception, splitpoint.error)
                self.assertEqual(caught.exception.code, "invalid")


class Options(Scratch):
    """The keyword arguments of `open`."""

    def test_the_hash_function_is_that_of_the_file(self):
        with splitpoint.open(self.path(), hash="fnv1a-64") as table:
            self.assertEqual(table.stats().hash_name, "fnv1a-64")
        with self.assertRaises(splitpoint.error) as caught:
            splitpoint.open(self.path(), hash="xxh3-64")
        self.assertEqual(caught.exception.code, "hash_mismatch")
        with self.assertRaisesRegex(ValueError, "no hash function is called \"md4\"; there are .*xxh3-64"):
            splitpoint.open(self.path("other"), hash="md4")

    def test_unusable_options_are_value_errors(self):
        with self.assertRaisesRegex(ValueError, "'buffered', 'async' or 'sync'"):
            splitpoint.open(self.path(), durability="fsync")
        with self.assertRaises(TypeError):
            splitpoint.open(self.path(), no_such_option=1)
        self.assertEqual(os.listdir(self.directory), [])

    def test_room_for_the_expected_records_is_made_in_advance(self):
        with splitpoint.open(self.path(), expected_records=100_000, cache_bytes=1 << 24) as table:
            self.assertGreater(table.stats().bucket_count, 10_000)

    def test_a_change_with_sync_is_durable_when_it_returns(self):
        with splitpoint.open(self.path(), durability="sync") as table:
            table["key"] = "value"
            stats = table.stats()
            self.assertEqual(stats.durable_bytes, stats.log_bytes)

    def test_urls_open_other_access_methods(self):
        with splitpoint.open_url(f"file:{self.path()}") as table:
            table["key"] = "value"
        with splitpoint.open_url(f"db185:{self.path('old.db')}") as table:
            table["key"] = "value"
            self.assertEqual(list(table.items()), [(b"key", b"value")])
            self.assertEqual((table.pop("key"), len(table)), (b"value", 0))
            table.clear()
            self.assertTrue(table.check().is_clean)
        for url in ("nobody:x", "mem:"):
            with self.assertRaises(ValueError):
                splitpoint.open_url(url, "r")


class OldFiles(Scratch):
    """Files of other packages."""

    def test_an_old_file_is_read_and_not_written(self):
        with dbm.dumb.open(self.path("old"), "n") as old:
            old["key"] = "value"
        with splitpoint.open(self.path("old"), "r") as table:
            self.assertEqual(dict(table), {b"key": b"value"})
            self.assertTrue(table.readonly)
        for flag in "wc":
            with self.assertRaisesRegex(splitpoint.error, "splitpoint convert") as caught:
                splitpoint.open(self.path("old"), flag)
            self.assertEqual(caught.exception.code, "unsupported")
        self.assertEqual(splitpoint.identify(self.path("old")), "Python dbm.dumb")

    @unittest.skipUnless(FIXTURES.is_dir(), "the old files are in the repository only")
    def test_the_files_of_every_program_are_read_and_those_of_db_1_85_written(self):
        names = sorted(path.name.removesuffix(".expect.txt") for path in FIXTURES.glob("*.expect.txt"))
        self.assertGreater(len(names), 50)
        for name in names:
            with self.subTest(name):
                files = [path for path in FIXTURES.glob(f"{name}.*") if path.suffix != ".txt"]
                for path in files:
                    shutil.copy(path, self.directory)
                place = self.path(files[0].name if len(files) == 1 else name)
                expected = (FIXTURES / f"{name}.expect.txt").read_text().split()
                halves = [b"" if half == "-" else bytes.fromhex(half) for half in expected]
                records = dict(zip(halves[::2], halves[1::2], strict=True))
                with splitpoint.open(place, "r") as table:
                    self.assertEqual(dict(table), records)
                    self.assertTrue(table.readonly)
                self.check_writing(name, place, records)

    def check_writing(self, name, place, records):
        """A file is written in its own format, or refused with what to do instead."""
        # Nobody knows the hash function of that one.
        if name.startswith("db185") and "fnvhash" not in name:
            for flag in "wc":
                with splitpoint.open(place, flag) as table:
                    table["new"] = flag
                    found = dict(table.items())
                self.assertEqual(found, {**records, b"new": flag.encode()})
            return
        for flag in "wc":
            with self.assertRaises(splitpoint.error) as caught:
                splitpoint.open(place, flag)
            if not name.startswith("db185"):
                self.assertEqual(caught.exception.code, "unsupported")
                self.assertIn("splitpoint convert", str(caught.exception))

    def test_a_file_of_db_1_85_is_written_in_its_format(self):
        with splitpoint.open_url(f"db185:{self.path()}") as table:
            table["key"] = "value"
        self.assertEqual(splitpoint.identify(self.path()), "db 1.85 hash")
        for flag in "rwc":
            with splitpoint.open(self.path(), flag) as table:
                self.assertEqual(table["key"], b"value")
                if flag != "r":
                    table["more"] = flag
        self.assertEqual(splitpoint.identify(self.path()), "db 1.85 hash")

    def test_identify_names_stores_and_nothing_else(self):
        splitpoint.open(self.path()).close()
        self.assertEqual(splitpoint.identify(self.path()), "Splitpoint store")
        self.assertIsNone(splitpoint.identify(__file__))
        with self.assertRaises(FileNotFoundError):
            splitpoint.identify(self.path("none"))


class Errors(Scratch):
    """`splitpoint.error`."""

    def test_a_number_that_does_not_fit_is_a_value_error_that_names_it(self):
        longest = (1 << 64) - 1

        def count(by):
            with splitpoint.open_url("mem:") as table:
                table.increment("key", by)

        def attempt(attempts):
            with splitpoint.open_url("mem:") as table:
                table.transact(dict, attempts=attempts)

        def reach(**options):
            return lambda: splitpoint.open(self.path(), **options)

        for call, message in (
            (reach(mode=-1), "mode must be 0 to 4294967295, not -1"),
            (reach(mode=1 << 40), f"mode must be 0 to 4294967295, not {1 << 40}"),
            (reach(expected_records=-1), f"expected_records must be 0 to {longest}, not -1"),
            (reach(cache_bytes=-1), f"cache_bytes must be 0 to {longest}, not -1"),
            (reach(cache_bytes=1 << 64), f"cache_bytes must be 0 to {longest}, not {1 << 64}"),
            (reach(cache_bytes=10**5000), f"cache_bytes must be 0 to {longest}, not a longer number"),
            (lambda: count(1 << 63), f"by must be {-1 << 63} to {(1 << 63) - 1}, not {1 << 63}"),
            (lambda: count(-1 << 64), f"by must be {-1 << 63} to {(1 << 63) - 1}, not {-1 << 64}"),
            (lambda: attempt(0), "attempts must be 1 or more, not 0"),
            (lambda: attempt(-1), "attempts must be 1 or more, not -1"),
        ):
            with self.assertRaises(ValueError) as caught:
                call()
            self.assertEqual((caught.exception.code, str(caught.exception)), ("invalid", message))
        for options in ({"mode": "644"}, {"expected_records": 1.5}, {"cache_bytes": b"1"}):
            (name,) = options
            with self.assertRaises(TypeError) as caught:
                splitpoint.open(self.path(), **options)
            self.assertIn(f"while processing '{name}'", caught.exception.__notes__)
        self.assertEqual(os.listdir(self.directory), [])

    def test_the_error_of_a_damaged_file_names_it(self):
        with splitpoint.open(self.path()) as table:
            table["key"] = "value"
        os.truncate(self.path(), 100)
        with self.assertRaises(splitpoint.error) as caught:
            splitpoint.open(self.path())
        self.assertEqual(caught.exception.code, "corrupt")
        self.assertEqual(caught.exception.filename, self.path())
        self.assertIn(f"`{self.path()}`: corrupt file size at byte 100", str(caught.exception))

    def test_the_error_of_a_damaged_record_names_the_file(self):
        with splitpoint.open(self.path()) as table:
            table["the first"] = "in its segment"
            table["unmistakable"] = "value"
        with open(self.path(), "r+b") as file:
            file.seek(file.read().index(b"unmistakablevalue") - 16)
            file.write(b"\xff" * 16)  # its header
        with splitpoint.open(self.path()) as table, self.assertRaises(splitpoint.error) as caught:
            table["unmistakable"]
        self.assertEqual((caught.exception.code, caught.exception.filename), ("corrupt", self.path()))
        self.assertIn(f"`{self.path()}`: corrupt", str(caught.exception))

    def test_an_error_of_a_program_has_its_words(self):
        for made in (splitpoint.error("its words"), splitpoint.error(7, "its words")):
            self.assertEqual((str(made), str(pickle.loads(pickle.dumps(made)))), ("its words",) * 2)

    def test_an_error_says_once_what_to_do(self):
        with splitpoint.open(self.path(), sharing="per-call") as table:
            table["old"] = "value"
            os.truncate(self.path(), 0)
            with splitpoint.open(self.path(), sharing="per-call") as new:
                new["new"] = "value"
                with self.assertRaises(splitpoint.error) as caught:
                    table["lost"] = "value"
        self.assertEqual((caught.exception.code, caught.exception.filename), ("poisoned", self.path()))
        self.assertRegex(str(caught.exception), "^[^;]*: another store is in the file by now; open it again$")

    def test_an_error_of_a_table_in_memory_names_no_file(self):
        with splitpoint.open_url("mem:") as table:
            transaction = table.transaction()
            transaction["new"] = transaction.get("key", "none")
            table["key"] = "value"
            with self.assertRaises(splitpoint.error) as caught:
                transaction.commit()
        self.assertEqual((caught.exception.code, caught.exception.filename), ("conflict", None))
        self.assertRegex(str(caught.exception), "^the transaction conflicts with another")

    def test_an_error_survives_pickling(self):
        with self.assertRaises(splitpoint.error) as caught:
            splitpoint.open(self.path(), "r")
        again = pickle.loads(pickle.dumps(caught.exception))
        self.assertIsInstance(again, FileNotFoundError)
        self.assertIsInstance(again, splitpoint.error)
        self.assertEqual((again.code, str(again)), (caught.exception.code, str(caught.exception)))
        self.assertEqual((again.errno, again.filename), (errno.ENOENT, self.path()))

    def test_errors_of_a_url_name_the_file_in_it_or_none(self):
        with self.assertRaises(splitpoint.error) as caught:
            splitpoint.open_url("mem:", "r")
        self.assertIsNone(caught.exception.filename)
        for url in ("db185:", "mem:"):
            with splitpoint.open_url(url) as table, self.assertRaises(splitpoint.error) as caught:
                table["key"] = "value"
                table.increment("key") if url == "mem:" else table.snapshot()
            self.assertIsNone(caught.exception.filename, url)
        path = self.path("old.db")
        for url in (f"db185:{path}", f"db185:{path}?bsize=512"):
            with splitpoint.open_url(url) as table:
                for call in (table.snapshot, lambda: splitpoint.open_url(url)):
                    with self.assertRaises(splitpoint.error) as caught:
                        call()
                    self.assertEqual(caught.exception.filename, path)
                # Only stores are written by turns.
                self.assertIn("is locked by another handle; lock_timeout waits", str(caught.exception))
                self.assertNotIn("sharing", str(caught.exception))
        with self.assertRaises(splitpoint.error) as caught:
            splitpoint.open_url(f"db185:{path}?bsize=x")
        self.assertEqual((caught.exception.code, caught.exception.filename), ("invalid", path))

    def test_a_device_is_no_store(self):
        with self.assertRaises(splitpoint.error) as caught:
            splitpoint.open("/dev/null")
        self.assertEqual((caught.exception.code, caught.exception.filename), ("not_a_store", "/dev/null"))


if __name__ == "__main__":
    unittest.main()
