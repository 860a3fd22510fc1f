"""Threads, forks, workers, Ctrl-C and kills."""

import asyncio
import concurrent.futures
import errno
import functools
import itertools
import multiprocessing
import os
import pathlib
import pickle
import random
import re
import signal
import subprocess
import sys
import threading
import time
import unittest

import splitpoint
import splitpoint.dbm
from scratch import Scratch

# The beginning of a script that gets a signal every 50 ms. The third call of the handler raises. A wait
# that does not look for signals takes all of them as one, and calls the handler once, after it.
INTERRUPTED_AGAIN = """
import os, signal, splitpoint
calls = []
def interrupt(*_):
    calls.append(None)
    if len(calls) == 3:
        raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
"""


def sum_of_values(table):
    """Add up the values of a table that came by pickling: the work of one worker."""
    with table:
        assert table.readonly
        return sum(int(value) for value in table.values())


def follow(table, last):
    """Read two keys that one change writes, until they are the last: the work of a reader."""
    seen = []
    with table:
        while not seen or seen[-1] != last:
            # One moment: the other key may be newer, never older.
            first, second = int(table["first"]), int(table["second"])
            assert first <= second, (first, second)
            if not seen or first != seen[-1]:
                seen.append(first)
            assert len(table) == 102, len(table)
    return seen


class Dataset:
    """Samples by number, as a `DataLoader` takes them."""

    def __init__(self, table):
        self.table = table

    def __len__(self):
        return len(self.table)

    def __getitem__(self, number):
        return int(self.table[f"{number}"])


def load(dataset, batches, samples):
    """Answer batches of numbers with their samples, until there is none: a worker."""
    with dataset.table:
        while (numbers := batches.get()) is not None:
            samples.put((numbers, [dataset[number] for number in numbers]))


def count_by_turns(path, sharing, rounds):
    """Count to `rounds` in a table that others change meanwhile, and leave a key for each step."""
    with splitpoint.open(path, "w", sharing=sharing) as table:
        for _ in range(rounds):
            number = table.increment("count")
            table[f"step {number}"] = str(os.getpid())
    return os.getpid()


class Threads(Scratch):
    """Many threads on one table."""

    def test_threads_on_their_own_keys_agree_with_dicts(self):
        """Eight threads change their own keys at random; each then compares with its dict."""
        failures = []

        def work(table, name, chance):
            model = {}
            for _ in range(3000):
                key, value = b"%d %d" % (name, chance.randrange(100)), chance.randbytes(20)
                action = chance.randrange(4)
                if action == 0:
                    table[key] = model[key] = value
                elif action == 1 and table.pop(key, None) != model.pop(key, None):
                    failures.append((name, "pop"))
                elif action == 2 and table.get_many([key]) != [model.get(key)]:
                    failures.append((name, "get_many"))
                elif table.get(key) != model.get(key):
                    failures.append((name, "get"))
            mine = {key: value for key, value in table.items() if key.startswith(b"%d " % name)}
            if mine != model:
                failures.append((name, "items"))

        seed = random.randrange(1 << 32)
        with self.subTest(seed=seed), splitpoint.open(self.path()) as table:
            threads = [
                threading.Thread(target=work, args=(table, name, random.Random(seed + name)))
                for name in range(8)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(failures, [])
            self.assertTrue(table.check().is_clean)

    def test_tasks_of_asyncio_look_up_in_threads(self):
        with splitpoint.open(self.path()) as table:
            table.update({f"{i}": f"{i}" for i in range(100)})

            async def all_values():
                return await asyncio.gather(*(asyncio.to_thread(table.get, f"{i}") for i in range(100)))

            self.assertEqual(asyncio.run(all_values()), [b"%d" % i for i in range(100)])

    def test_one_of_many_threads_stores_a_missing_key(self):
        with splitpoint.open_url("mem:") as table:
            stored = []

            def claim(name):
                for i in range(500):
                    if table.put_new(f"{i}", name):
                        stored.append(i)

            threads = [threading.Thread(target=claim, args=(str(n),)) for n in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(sorted(stored), list(range(500)))

    def test_closing_under_other_threads_ends_them_with_closed(self):
        table = splitpoint.open(self.path())
        table.put_many((str(i), "x" * 100) for i in range(2000))
        ends, at_work = [], threading.Barrier(5)

        def work():
            try:
                at_work.wait()
                while True:
                    table["key"] = "value"
                    for _ in table.items():
                        pass
                    table.get_many(str(i) for i in range(100))
            except ValueError as error:
                ends.append(error.code)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        at_work.wait()
        table.close()
        for thread in threads:
            thread.join()
        self.assertEqual(ends, ["closed"] * 4)
        with splitpoint.open(self.path()) as table:
            self.assertTrue(table.check().is_clean)

    def test_a_scan_that_begins_while_the_table_is_closed_does_not_keep_it_open(self):
        """Threads begin scans and keep them, also during the close; after it the file is free."""
        splitpoint.open(self.path()).close()
        for _ in range(30):
            table = splitpoint.open(self.path())
            kept, errors, at_work = [], [], threading.Barrier(3)

            def begin(table=table, kept=kept, errors=errors, at_work=at_work):
                at_work.wait()
                try:
                    for _ in range(300):
                        kept.append(iter(table))
                except Exception as error:
                    errors.append(str(error))

            threads = [threading.Thread(target=begin) for _ in range(2)]
            for thread in threads:
                thread.start()
            at_work.wait()
            table.close()
            for thread in threads:
                thread.join()
            self.assertLessEqual(set(errors), {"I/O operation on closed table"})
            splitpoint.open(self.path(), "w").close()
            for scan in kept:
                with self.assertRaisesRegex(ValueError, "closed table"):
                    next(scan)


    def test_one_of_several_threads_pops_a_value(self):
        """Each has copied it before it deletes, and the others see by then that it is gone or another."""
        with splitpoint.open_url("mem:") as table, concurrent.futures.ThreadPoolExecutor(4) as pool:
            for number in range(1000):
                # So long that the copies take a moment.
                table["key"] = value = b"%010000d" % number
                popped = list(pool.map(lambda _: table.pop("key", None), range(4)))
                self.assertEqual([it for it in popped if it is not None], [value])

    def test_long_calls_let_other_threads_run_and_a_lookup_does_not(self):
        """No thread is told to make way, so another one runs only where a call makes way by itself."""
        table = splitpoint.open(self.path())
        self.addCleanup(table.close)
        pairs, missing = [(b"%d" % i, b"x" * 100) for i in range(2000)], itertools.count()
        calls = {
            "put": lambda: table.__setitem__("key", "value"),
            "delete": lambda: table.pop("key", None),
            "delete of none": lambda: self.assertRaises(KeyError, table.__delitem__, f"no {next(missing)}"),
            "put_new": lambda: table.put_new("0", "value"),
            "put_many": lambda: table.put_many(pairs),
            "get_many": lambda: table.get_many([key for key, _ in pairs]),
            "apply": lambda: table.apply(pairs),
            "increment": lambda: table.increment("count"),
            "compare_and_swap": lambda: table.compare_and_swap("0", None, "value"),
            "scan": lambda: list(table.items()),
            "sync": table.sync,
            "stats": table.stats,
            "check": table.check,
        }
        rounds, is_over = [0], threading.Event()

        def run():
            while not is_over.wait(1e-4):
                rounds[0] += 1

        def open_and_look():
            with splitpoint.open(self.path(), "r"):
                # Before the close, which makes way as well.
                return rounds[0]

        def after(call):
            return lambda: (call(), rounds[0])[1]

        looks = {name: after(call) for name, call in calls.items()} | {"open": open_and_look}

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e6)
        other = threading.Thread(target=run)
        try:
            other.start()
            for name, look in looks.items():
                with self.subTest(name):
                    end, made_way = time.monotonic() + 60, False
                    # The other thread may be too slow for one short call.
                    while not made_way and time.monotonic() < end:
                        before = rounds[0]
                        made_way = look() > before
                    self.assertTrue(made_way)
            before = rounds[0]
            for _ in range(2000):
                table.get("0"), table["0"], "0" in table, len(table)
            if getattr(sys, "_is_gil_enabled", lambda: True)():
                self.assertEqual(rounds[0], before)
        finally:
            is_over.set()
            sys.setswitchinterval(interval)
            other.join()


@unittest.skipUnless(hasattr(os, "fork"), "this system has no fork")
class Forks(Scratch):
    """A table that was open at a fork."""

    def in_child(self, work):
        """Run `work` in a fork, and return its result."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.write(writer, pickle.dumps(work()))
                code = 0
            except BaseException as error:
                os.write(writer, repr(error).encode())
            finally:
                os._exit(code)
        os.close(writer)
        with os.fdopen(reader, "rb") as results:
            result = results.read()
        _, status = os.waitpid(child, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 0, result)
        return pickle.loads(result)

    def test_a_child_reads_what_was_opened_to_read(self):
        with splitpoint.open(self.path()) as table:
            table["a"] = "1"
        with splitpoint.open(self.path(), "r") as table:
            found = self.in_child(lambda: (dict(table), table.get("a")))
        self.assertEqual(found, ({b"a": b"1"}, b"1"))

    def test_a_child_reads_beside_a_writer_through_what_its_parent_reads(self):
        with splitpoint.open(self.path()) as writer, splitpoint.open(self.path(), "r") as table:
            writer["a"] = "1"
            self.assertEqual(table["a"], b"1")
            to_child, from_parent = os.pipe()

            def work():
                before = table["a"]
                os.read(to_child, 1)
                return before, table["a"], dict(table)

            changer = threading.Thread(target=self.change_and_tell, args=(writer, from_parent))
            changer.start()
            try:
                found = self.in_child(work)
            finally:
                changer.join()
            # The change may have been made before the child looked.
            self.assertIn(found[0], (b"1", b"2"))
            self.assertEqual(found[1:], (b"2", {b"a": b"2"}))
            self.assertEqual(table["a"], b"2")
            os.close(to_child)
            os.close(from_parent)

    def change_and_tell(self, writer, pipe):
        writer["a"] = "2"
        os.write(pipe, b".")

    def test_a_child_opens_a_table_again_to_write(self):
        table = splitpoint.open(self.path(), lock_timeout=900)
        table["a"] = "1"
        waiting, parent_waits = os.pipe()

        def work():
            os.write(parent_waits, b".")
            with table.reopen() as own:
                own["b"] = "2"
                return dict(own)

        closer = threading.Thread(target=lambda: (os.read(waiting, 1), table.close()))
        closer.start()
        try:
            self.assertEqual(self.in_child(work), {b"a": b"1", b"b": b"2"})
        finally:
            # The child may have failed before it wrote.
            os.write(parent_waits, b".")
            closer.join()
        os.close(waiting)
        os.close(parent_waits)
        with splitpoint.open(self.path(), "r") as table:
            self.assertEqual(dict(table), {b"a": b"1", b"b": b"2"})

    def test_a_child_that_ends_in_order_takes_nothing_from_its_parent(self):
        """The child's interpreter ends with the table open; the parent's is not closed by that."""
        script = (
            "import os, sys, splitpoint\n"
            "table = splitpoint.open('t.spt')\n"
            "table['a'] = '1'\n"
            "if os.fork() == 0:\n"
            "    sys.exit(0)\n"
            "assert os.waitstatus_to_exitcode(os.wait()[1]) == 0\n"
            "table.put_many((str(i), 'x' * 100) for i in range(1000))\n"
            "assert table.check().is_clean\n"
            "table.close()\n"
        )
        self.python("-c", script)
        with splitpoint.open(self.path("t.spt"), "r") as table:
            self.assertEqual((len(table), table["a"]), (1001, b"1"))

    def codes_of(self, calls):
        """Return the code of the error that each call raises, or None."""
        codes = []
        for call in calls:
            try:
                call()
                codes.append(None)
            except splitpoint.error as error:
                codes.append(error.code)
        return codes

    def test_a_child_may_not_change_what_its_parent_writes(self):
        """Neither before it reads, nor through the table that it reads from then on."""
        with splitpoint.open(self.path()) as table:
            table.update(a="1", b="2")
            changes = [
                lambda: table.__setitem__("a", "child"),
                lambda: table.__delitem__("a"),
                lambda: table.pop("a"),
                lambda: table.put_new("c", "child"),
                lambda: table.put_many({"a": "child"}),
                lambda: table.apply([("a", None)]),
                lambda: table.increment("n"),
                lambda: table.compare_and_swap("c", None, "child"),
                lambda: table.transaction(),
                lambda: table.reorganize(),
                lambda: table.clear(),
                lambda: table.sync(),
            ]

            def work():
                before = self.codes_of(changes)
                found, is_forked = table["a"], table._forked
                after = self.codes_of(changes)
                table.close()
                return before, found, is_forked, after, table.closed

            before, found, is_forked, after, is_closed = self.in_child(work)
            self.assertEqual((before, after), (["forked"] * 12, ["forked"] * 12))
            self.assertEqual((found, is_forked, is_closed), (b"1", True, True))
            table["c"] = "3"
            self.assertEqual(dict(table), {b"a": b"1", b"b": b"2", b"c": b"3"})
            self.assertFalse(table._forked)
        with splitpoint.open(self.path(), "r") as table:
            self.assertEqual(len(table), 3)

    def test_a_child_reads_through_what_its_parent_writes(self):
        """Each way to read opens the file again by itself, and sees what the parent stores later."""
        reads = {
            "get": lambda table: table["a"],
            "in": lambda table: "a" in table,
            "len": len,
            "iter": lambda table: sorted(table),
            "items": lambda table: dict(table.items()),
            "get_many": lambda table: table.get_many(["a", "none"]),
            "view": self.viewed,
            "get_into": lambda table: table.get_into("a", bytearray(1)),
            "snapshot": lambda table: dict(table.snapshot()),
            "stats": lambda table: table.stats().record_count,
            "lookups": lambda table: ("a" in table, table.lookups().lookup_count)[1],
            "repr": lambda table: "read-only" in repr(table),
            "backup": lambda table: table.backup(f"{table.path}.copy") > 0,
        }
        expected = {
            "get": b"1", "in": True, "len": 1, "iter": [b"a"], "items": {b"a": b"1"},
            "get_many": [b"1", None], "view": b"1", "get_into": 1, "snapshot": {b"a": b"1"}, "stats": 1,
            "lookups": 1, "repr": True, "backup": True,
        }  # fmt: skip
        for sharing in ("one-writer", "shared", "per-call"):
            path = self.path(f"{sharing}.spt")
            with splitpoint.open(path, sharing=sharing, instrument=True) as table:
                table["a"] = "1"
                for name, read in reads.items():
                    with self.subTest(name, sharing=sharing):
                        found = self.in_child(lambda read=read, table=table: read(table))
                        self.assertEqual(found, expected[name])
                with self.subTest("follows", sharing=sharing):
                    self.check_that_a_child_follows(table)
                self.assertFalse(table.readonly)

    def check_that_a_child_follows(self, table):
        """A child has read before its parent changes the table, and reads again after it."""
        to_child, from_parent = os.pipe()
        waiting, child_waits = os.pipe()

        def work():
            before = table["a"]
            os.write(child_waits, b".")
            os.read(to_child, 1)
            return before, table["a"], table["b"], dict(table)

        def change():
            os.read(waiting, 1)
            table.update(a="2", b="3")
            os.write(from_parent, b".")

        changer = threading.Thread(target=change)
        changer.start()
        try:
            found = self.in_child(work)
        finally:
            # The child may have failed before it wrote.
            os.write(child_waits, b".")
            changer.join()
        self.assertEqual(found, (b"1", b"2", b"3", {b"a": b"2", b"b": b"3"}))
        for pipe in (to_child, from_parent, waiting, child_waits):
            os.close(pipe)

    def test_a_child_that_has_read_per_call_keeps_nobody_out(self):
        """Between its calls, as its parent."""
        table = splitpoint.open(self.path(), sharing="per-call")
        table["a"] = "1"

        def work():
            before = table["a"]
            with splitpoint.open(self.path(), sharing="exclusive") as alone:
                alone["a"] = "2"
            return before, table["a"]

        self.assertEqual(self.in_child(work), (b"1", b"2"))
        table.close()

    def test_a_check_in_a_child_is_one_beside_a_writer(self):
        """It finds nothing, or the writer in its way."""
        for sharing, expected in (("one-writer", ["locked"]), ("shared", [None]), ("per-call", [None])):
            path = self.path(f"{sharing}.spt")
            with self.subTest(sharing), splitpoint.open(path, sharing=sharing) as table:
                table["a"] = "1"
                calls = [lambda table=table: table.check()]
                self.assertEqual(self.in_child(lambda calls=calls: self.codes_of(calls)), expected)

    def test_a_child_waits_as_long_as_its_parent_would(self):
        """The parent has the table for itself, and closes it while the child waits."""
        table = splitpoint.open(self.path(), sharing="exclusive", lock_timeout=900)
        table["a"] = "1"
        waiting, child_waits = os.pipe()

        def work():
            # Ctrl-C ends the wait, and the next one ends by itself.
            signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
            try:
                return table["a"]
            except TimeoutError:
                signal.setitimer(signal.ITIMER_REAL, 0)
            os.write(child_waits, b".")
            return "interrupted", table["a"]

        def interrupt(*_):
            raise TimeoutError

        before = signal.signal(signal.SIGALRM, interrupt)
        closer = threading.Thread(target=lambda: (os.read(waiting, 1), table.close()))
        closer.start()
        try:
            self.assertEqual(self.in_child(work), ("interrupted", b"1"))
        finally:
            # The child may have failed before it wrote.
            os.write(child_waits, b".")
            closer.join()
            signal.signal(signal.SIGALRM, before)
        os.close(waiting)
        os.close(child_waits)

    def viewed(self, table):
        with table.view("a") as value:
            return bytes(value)

    def test_a_grandchild_and_threads_of_a_child_read(self):
        with splitpoint.open(self.path()) as table:
            table["a"] = "1"

            def work():
                with concurrent.futures.ThreadPoolExecutor(8) as pool:
                    found = list(pool.map(lambda _: table["a"], range(64)))
                return set(found), self.in_child(lambda: (table["a"], sorted(table)))

            self.assertEqual(self.in_child(work), ({b"1"}, (b"1", [b"a"])))

    def test_a_child_does_not_read_what_its_parent_has_for_itself(self):
        with splitpoint.open(self.path(), sharing="exclusive") as table:
            table["a"] = "1"
            calls = [lambda: table["a"], lambda: len(table), lambda: iter(table)]
            self.assertEqual(self.in_child(lambda: self.codes_of(calls)), ["locked"] * 3)

    def test_a_child_may_not_go_on_with_what_its_parent_began(self):
        with splitpoint.open(self.path()) as table:
            table.update({f"{i}": "" for i in range(500)})
            snapshot, transaction = table.snapshot(), table.transaction()
            transaction["own"] = ""
            walks = [iter(it) for it in (table, table.items(), snapshot, transaction)]
            for walk in walks[:2]:
                next(walk)

            def work():
                codes = []
                for call in (
                    *(functools.partial(next, walk) for walk in walks),
                    lambda: transaction["1"],
                    lambda: transaction.__setitem__("1", "child"),
                    lambda: iter(transaction),
                    lambda: transaction.savepoint(),
                    lambda: transaction.commit(),
                    lambda: snapshot["1"],
                    lambda: len(snapshot),
                    lambda: iter(snapshot),
                    lambda: table.transaction(),
                ):
                    try:
                        call()
                        codes.append(None)
                    except splitpoint.error as error:
                        codes.append(error.code)
                transaction.close()
                snapshot.close()
                return codes

            self.assertEqual(self.in_child(work), ["forked"] * 13)
            self.assertEqual([len(list(walk)) for walk in walks], [499, 499, 500, 501])
            transaction.commit()
            self.assertEqual((len(snapshot), len(table)), (500, 501))

    def test_a_child_that_drops_the_table_warns_of_nothing(self):
        script = (
            "import os, splitpoint\n"
            "table = splitpoint.open('t.spt')\n"
            "table['a'] = '1'\n"
            "if os.fork() == 0:\n"
            "    del table\n"
            "    print('dropped', flush=True)\n"
            "    os._exit(7)\n"
            "print(os.waitstatus_to_exitcode(os.wait()[1]))\n"
            "table['b'] = '2'\n"
            "print(sorted(table))\n"
            "table.close()\n"
        )
        done = self.python("-W", "error::ResourceWarning", "-c", script)
        self.assertEqual(done.stdout, "dropped\n7\n[b'a', b'b']\n")
        # Python 3.12 warns of the fork itself.
        self.assertNotIn("unclosed", done.stderr)

    def test_a_table_in_memory_is_the_childs_own(self):
        with splitpoint.open_url("mem:") as table:
            table["a"] = "1"

            def work():
                table["a"] = "2"
                return table["a"]

            self.assertEqual(self.in_child(work), b"2")
            self.assertEqual(table["a"], b"1")


class Own(splitpoint.Table):
    """A class of a program, made otherwise than a table."""

    def __new__(cls, path):
        return super().__new__(cls, path, flag="c")


class Workers(Scratch):
    """Tables that pass to other processes by pickling."""

    def test_a_pickled_table_opens_its_file_to_read(self):
        with splitpoint.open(self.path(), hash="fnv1a-64") as table:
            table["a"] = "1"
            pickled = pickle.dumps(table)
        os.chdir("/")
        with pickle.loads(pickled) as again:
            self.assertEqual((again["a"], again.readonly), (b"1", True))
            with pickle.loads(pickle.dumps(again)) as third:
                self.assertEqual(third.path, again.path)

    def test_a_pickled_table_of_dbm_has_the_interface_of_dbm(self):
        with splitpoint.dbm.open(self.path(), "c") as table:
            table["key"] = "value"
            pickled = pickle.dumps(table)
        with pickle.loads(pickled) as again:
            self.assertIs(type(again), type(table))
            self.assertEqual((again.keys(), again.readonly), ([b"key"], True))

    def test_a_pickled_table_of_a_class_of_the_program_is_a_plain_one(self):
        with Own(self.path()) as table:
            table["key"] = "value"
            pickled = pickle.dumps(table)
        with pickle.loads(pickled) as again:
            self.assertIs(type(again), splitpoint.Table)
            self.assertEqual(again["key"], b"value")

    def test_a_table_without_a_file_cannot_be_pickled(self):
        with splitpoint.open_url("mem:") as table, self.assertRaisesRegex(TypeError, "pickle"):
            pickle.dumps(table)

    def test_workers_of_every_kind_share_a_file(self):
        with splitpoint.open(self.path()) as table:
            table.put_many((str(i), str(i)) for i in range(1000))
        for method in multiprocessing.get_all_start_methods():
            with self.subTest(method), splitpoint.open(self.path(), "r") as table:
                context = multiprocessing.get_context(method)
                with context.Pool(2) as pool:
                    self.assertEqual(pool.map(sum_of_values, [table] * 4), [499_500] * 4)


class Beside(Scratch):
    """Processes that have a file open at the same time."""

    def test_eight_readers_follow_a_writer(self):
        """They begin at any time, read until the last change, and never see a half of one."""
        for method in ("fork", "spawn"):
            path = self.path(f"{method}.spt")
            with self.subTest(method), splitpoint.open(path) as writer:
                writer.put_many((str(i), "x" * 100) for i in range(100))
                writer.apply({"first": "0", "second": "0"})
                context, last = multiprocessing.get_context(method), 2000
                with splitpoint.open(path, "r") as table, context.Pool(8) as pool:
                    work = pool.starmap_async(follow, [(table, last)] * 8, chunksize=1)
                    for number in range(1, last + 1):
                        # `second` first: a reader takes them in the other order.
                        writer["second"] = str(number)
                        writer["first"] = str(number)
                    seen = work.get(1800)
                for numbers in seen:
                    self.assertEqual(numbers, sorted(set(numbers)))
                    self.assertEqual(numbers[-1], last)

    def test_the_workers_of_a_loader_share_a_table(self):
        """Each has the dataset once, by fork or by pickling, and loads the batches it is given."""
        with splitpoint.open(self.path()) as table:
            table.put_many((str(i), str(i * i)) for i in range(1000))
        for method in multiprocessing.get_all_start_methods():
            with self.subTest(method), splitpoint.open(self.path(), "r") as table:
                context, dataset = multiprocessing.get_context(method), Dataset(table)
                batches, samples = context.Queue(), context.Queue()
                workers = [
                    context.Process(target=load, args=(dataset, batches, samples)) for _ in range(4)
                ]
                for worker in workers:
                    worker.start()
                self.assertEqual(dataset[3], 9)
                for start in range(0, len(dataset), 50):
                    batches.put(range(start, start + 50))
                found = [samples.get() for _ in range(len(dataset) // 50)]
                for _ in workers:
                    batches.put(None)
                for worker in workers:
                    worker.join()
                self.assertEqual([worker.exitcode for worker in workers], [0] * 4)
                loaded = dict(itertools.chain.from_iterable(zip(*batch) for batch in found))
                self.assertEqual(loaded, {i: i * i for i in range(1000)})

    def test_the_workers_of_a_pool_write_by_turns(self):
        for sharing, method in itertools.product(("shared", "per-call"), ("fork", "spawn")):
            path = self.path(f"{sharing}-{method}.spt")
            splitpoint.open(path, sharing=sharing).close()
            with self.subTest(sharing=sharing, method=method):
                with multiprocessing.get_context(method).Pool(4) as pool:
                    pool.starmap(count_by_turns, [(path, sharing, 50)] * 8, chunksize=1)
                with splitpoint.open(path) as table:
                    self.assertEqual(table.increment("count", 0), 400)
                    self.assertEqual(len(table), 401)
                    self.assertTrue(table.check().is_clean)

    def test_a_reader_goes_on_when_the_writer_is_killed_in_the_middle(self):
        script = (
            "import splitpoint\n"
            "table = splitpoint.open('t.spt')\n"
            "for i in range(10**9):\n"
            "    table[str(i)] = 'x' * 100\n"
            "    print(i, flush=True)\n"
        )
        child = subprocess.Popen(
            [sys.executable, "-c", script], cwd=self.directory, stdout=subprocess.PIPE
        )
        for _ in range(500):
            child.stdout.readline()
        with splitpoint.open(self.path("t.spt"), "r") as table:
            self.assertGreaterEqual(len(table), 500)
            child.kill()
            rest = child.stdout.read().split(b"\n")[:-1]
            child.wait()
            child.stdout.close()
            last = int(rest[-1]) if rest else 499
            self.assertEqual(table[str(last)], b"x" * 100)
            with splitpoint.open(self.path("t.spt"), "w") as writer:
                writer["after"] = "1"
                self.assertEqual((table["after"], table["0"]), (b"1", b"x" * 100))
                self.assertTrue(writer.check().is_clean)


class Endings(Scratch):
    """Programs that do not end in order."""

    def test_a_killed_process_loses_nothing(self):
        """A child reports each change after it returned, and is killed in the middle."""
        script = (
            "import splitpoint\n"
            "table = splitpoint.open('t.spt')\n"
            "for i in range(10**9):\n"
            "    table[str(i)] = 'x' * 100\n"
            "    print(i, flush=True)\n"
        )
        child = subprocess.Popen(
            [sys.executable, "-c", script], cwd=self.directory, stdout=subprocess.PIPE
        )
        reported = [int(child.stdout.readline()) for _ in range(500)]
        child.kill()
        # The last line may be cut.
        reported += [int(line) for line in child.stdout.read().split(b"\n")[:-1]]
        child.wait()
        child.stdout.close()
        with splitpoint.open(self.path("t.spt")) as table:
            self.assertGreaterEqual(len(table), reported[-1] + 1)
            self.assertIn(str(reported[-1]), table)
            self.assertTrue(table.check().is_clean)

    def test_ctrl_c_ends_a_long_batch_and_leaves_a_valid_file(self):
        """The signal arrives while `put_many` reads from an endless iterable."""

        def endless():
            for i in itertools.count():
                if i == 5000:
                    os.kill(os.getpid(), signal.SIGINT)
                yield b"%d" % i, b"x" * 100

        with splitpoint.open(self.path()) as table:
            with self.assertRaises(KeyboardInterrupt):
                table.put_many(endless())
            # What came before is stored; the interpreter notices the signal a little later.
            self.assertIn(b"4999", table)
            self.assertLess(len(table), 6000)
            self.assertTrue(table.check().is_clean)

    def test_ctrl_c_ends_a_long_call_that_runs_no_python_code(self):
        """The calls are endless and run no Python code, so only they can look for the signal.

        The 5000th key sets a timer of a microsecond; the handler says how many keys a call has taken until it
        looked. A call that does not look is ended after two minutes.
        """
        forever = "itertools.chain.from_iterable(map({}, itertools.repeat({})))"
        walk_values = "operator.methodcaller('_scan_values')"
        walk_items = "operator.methodcaller('_scan_items')"
        for call in (
            "table.put_many(zip(keys, itertools.repeat(b'x')))",
            "table.get_many(keys)",
            "transaction.put_many(zip(keys, itertools.repeat(b'x')))",
            "transaction.get_many(keys)",
            f"count({forever.format('iter', 'table')})",
            # The views have an `__iter__` in Python.
            f"count({forever.format(walk_values, 'table')})",
            f"count({forever.format(walk_items, 'table')})",
            f"count({forever.format('iter', 'snapshot')})",
            f"count({forever.format('iter', 'transaction')})",
        ):
            script = (
                "import collections, faulthandler, itertools, operator, signal, sys, splitpoint\n"
                "faulthandler.dump_traceback_later(120, exit=True)\n"
                "table = splitpoint.open('t.spt', 'n')\n"
                "table.put_many((b'first %d' % i, b'x' * 100) for i in range(1000))\n"
                "snapshot, transaction = table.snapshot(), table.transaction()\n"
                "counter = itertools.count()\n"
                "timer = itertools.starmap(signal.setitimer, [(signal.ITIMER_REAL, 1e-6)])\n"
                "no_key = itertools.filterfalse(None, timer)\n"
                "numbers = itertools.chain(itertools.islice(counter, 5000), no_key, counter)\n"
                "keys = map(str, numbers)\n"
                "def count(records):\n"
                "    collections.deque(zip(records, numbers), maxlen=0)\n"
                "def alarm(*_):\n"
                "    raise KeyboardInterrupt(next(counter))\n"
                "signal.signal(signal.SIGALRM, alarm)\n"
                "try:\n"
                f"    {call}\n"
                "except KeyboardInterrupt as interrupt:\n"
                "    taken = interrupt.args[0] - 5000\n"
                "    assert 0 <= taken < 5000, taken\n"
                "    assert table.check().is_clean\n"
                "    snapshot.close(), transaction.close()\n"
                "    table.close()\n"
                "    sys.exit(3)\n"
            )
            with self.subTest(call):
                self.python("-c", script, code=3)

    def test_ctrl_c_ends_the_wait_of_an_open_that_takes_turns(self):
        """Another handle has the file for itself for as long as the open would wait."""
        script = (
            "import splitpoint\n"
            "table = splitpoint.open('t.spt', 'n')\n" + INTERRUPTED_AGAIN + "try:\n"
            "    splitpoint.open('t.spt', sharing='per-call')\n"
            "except KeyboardInterrupt:\n"
            "    os._exit(3)\n"
        )
        self.python("-c", script, code=3)

    def test_a_daemon_thread_that_waits_in_an_open_lets_the_interpreter_end(self):
        """Its wait ends before the interpreter, of which `Slow` makes the end long, or not at all."""
        script = (
            "import sys, threading, time, splitpoint\n"
            "class Slow:\n"
            "    def __del__(self, sleep=time.sleep, write=sys.stdout.write):\n"
            "        sleep(0.6)\n"
            "        write('slow end')\n"
            "sys.slow = Slow()\n"
            "def wait():\n"
            "    try:\n"
            "        splitpoint.open('t.spt', sharing='shared', lock_timeout=float(sys.argv[1]))\n"
            "    except splitpoint.Error:\n"
            "        pass  # The main thread was held up.\n"
            "threading.Thread(target=wait, daemon=True).start()\n"
            "time.sleep(0.2)\n"
            "sys.exit(3)\n"
        )
        with splitpoint.open(self.path("t.spt"), sharing="exclusive"):
            for timeout in ("0.4", "900"):
                with self.subTest(timeout):
                    done = self.python("-c", script, timeout, code=3)
                    self.assertEqual((done.stdout, done.stderr), ("slow end", ""))

    def test_ctrl_c_ends_the_wait_of_an_open_for_a_turn_of_another_process(self):
        """Another process is stopped in the middle of its turn, and the open would wait 10 seconds."""
        changes = (
            "import itertools, splitpoint\n"
            "table = splitpoint.open('t.spt', sharing='shared')\n"
            "for i in itertools.count():\n"
            "    table['key'] = str(i)\n"
            "    if i == 1000:\n"
            "        print('changes', flush=True)\n"
        )
        script = (
            INTERRUPTED_AGAIN + "try:\n"
            "    splitpoint.open('t.spt', sharing='shared').close()\n"
            "except KeyboardInterrupt:\n"
            "    os._exit(3)\n"
            "except splitpoint.error:\n"
            "    os._exit(1)\n"
            # The other was not in its turn.
            "os._exit(4)\n"
        )
        for _ in range(20):
            writer = subprocess.Popen(
                [sys.executable, "-c", changes], cwd=self.directory, stdout=subprocess.PIPE
            )
            with writer:
                try:
                    self.assertEqual(writer.stdout.readline(), b"changes\n")
                    os.kill(writer.pid, signal.SIGSTOP)
                    opened = subprocess.run(
                        [sys.executable, "-c", script], cwd=self.directory, timeout=900, check=False
                    )
                    self.assertIsNone(writer.poll())
                finally:
                    writer.kill()
            if opened.returncode != 4:
                break
        self.assertEqual(opened.returncode, 3)

    def test_a_walk_in_whose_signal_handler_the_process_forked_ends_in_the_child(self):
        """A list of a table runs no Python code but the handler, within a call."""
        script = (
            "import os, signal, sys, splitpoint\n"
            "table = splitpoint.open('t.spt', 'n')\n"
            "table.put_many((str(i), b'x' * 100) for i in range(200_000))\n"
            "child = None\n"
            "def fork(*_):\n"
            "    global child\n"
            "    child = os.fork()\n"
            "signal.signal(signal.SIGALRM, fork)\n"
            "signal.setitimer(signal.ITIMER_REAL, 0.01)\n"
            "while child is None:\n"
            "    try:\n"
            "        count = len(list(table))\n"
            "    except splitpoint.error as caught:\n"
            "        os._exit(7 if child == 0 and caught.code == 'forked' else 1)\n"
            "if child == 0:\n"
            "    os._exit(1)\n"
            "assert count == 200_000\n"
            "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        )
        self.python("-c", script, code=7)

    def test_a_signal_handler_may_close_the_table_during_a_check(self):
        """The check calls `progress`, and there the signal arrives."""
        script = (
            "import os, signal, sys, splitpoint\n"
            "table = splitpoint.open('t.spt')\n"
            "table.put_many((str(i), 'x' * 200) for i in range(1000))\n"
            "def close(*_):\n"
            "    table.close()\n"
            "    print('closed', table.closed, flush=True)\n"
            "    sys.exit(3)\n"
            "signal.signal(signal.SIGTERM, close)\n"
            "def progress(done, all):\n"
            "    os.kill(os.getpid(), signal.SIGTERM)\n"
            "    while True:\n"
            "        pass\n"
            "table.check(progress)\n"
        )
        self.assertEqual(self.python("-c", script, code=3).stdout, "closed True\n")
        with splitpoint.open(self.path("t.spt")) as table:
            self.assertEqual(len(table), 1000)
            self.assertTrue(table.check().is_clean)

    def test_an_exit_with_an_open_table_loses_nothing(self):
        script = (
            "import splitpoint\n"
            "table = splitpoint.open('t.spt', durability='buffered')\n"
            "table['a'] = '1'\n"
        )
        self.assertEqual(self.python("-c", script).stderr, "")
        with splitpoint.open(self.path("t.spt"), "r") as table:
            self.assertEqual(dict(table), {b"a": b"1"})
        warned = self.python("-W", "always", "-c", script).stderr
        self.assertIn("ResourceWarning: unclosed <splitpoint.Table 't.spt' 1 keys", warned)

    def test_what_the_interpreter_destroys_last_may_still_use_its_table(self):
        """Nothing can be imported any more then."""
        script = (
            "import splitpoint\n"
            "class Last:\n"
            "    def __init__(self):\n"
            "        self.table = splitpoint.open('t.spt')\n"
            "    def __del__(self):\n"
            "        with self.table.transaction() as changes:\n"
            "            changes['a'] = '1'\n"
            "        with self.table.snapshot() as snapshot:\n"
            "            self.table.transact(lambda changes: changes.update(b=snapshot['a']))\n"
            "        self.table.close()\n"
            "        try:\n"
            "            self.table['c']\n"
            "        except splitpoint.error as error:\n"
            "            print(error.code)\n"
            "last = Last()\n"
        )
        done = self.python("-c", script)
        self.assertEqual((done.stdout, done.stderr), ("closed\n", ""))
        with splitpoint.open(self.path("t.spt"), "r") as table:
            self.assertEqual(dict(table), {b"a": b"1", b"b": b"1"})


class FullDisk(Scratch):
    """A file that cannot grow."""

    # Fills a table until an error, which it prints with the number of keys stored before.
    FILL = (
        "import itertools, splitpoint\n"
        "table, stored = splitpoint.open('full/t.spt'), 0\n"
        "try:\n"
        "    for stored in itertools.count():\n"
        "        table[str(stored)] = b'x' * 1000\n"
        "except splitpoint.error as error:\n"
        "    print(error.code, error.errno, stored)\n"
        "assert len(table) == stored\n"
        "assert all(table[str(i)] == b'x' * 1000 for i in range(stored))\n"
    )

    def filled(self, done):
        """Return the code and the number of the error, after comparing the table."""
        code, number, stored = done.stdout.split()
        self.assertGreater(int(stored), 100)
        with splitpoint.open(self.path("full/t.spt")) as table:
            self.assertEqual(len(table), int(stored))
            self.assertEqual(table[str(int(stored) - 1)], b"x" * 1000)
            self.assertTrue(table.check().is_clean)
        return code, int(number)

    def test_a_file_at_its_limit_is_an_error_and_loses_nothing(self):
        """The system lets no file of the child grow beyond 24 MB."""
        os.mkdir(self.path("full"))
        limit = (
            "import resource\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (24 << 20, 24 << 20))\n"
        )
        done = self.python("-c", limit + self.FILL + "table.close()\n")
        self.assertEqual(self.filled(done), ("io", errno.EFBIG))

    def test_a_full_disk_is_enospc_and_loses_nothing(self):
        """A small file system, which only the child sees."""
        os.mkdir(self.path("full"))
        script = pathlib.Path(self.path("fill.py"))
        # Another process opens the file after the file system is gone from its sight: copy it.
        script.write_text(
            self.FILL + "table.close()\n"
            "import shutil\n"
            "shutil.copyfile('full/t.spt', 't.spt')\n"
        )
        mount = 'mount -t tmpfs -o size=24m none full && exec "$0" fill.py'
        command = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, sys.executable]
        try:
            done = subprocess.run(
                command, cwd=self.directory, capture_output=True, text=True, check=False, timeout=1800
            )
        except FileNotFoundError:
            self.skipTest("unshare is not installed")
        if done.returncode != 0 and re.search("unshare|mount", done.stderr):
            self.skipTest(f"no file system can be mounted: {done.stderr.strip()}")
        self.assertEqual(done.returncode, 0, done.stderr)
        os.rename(self.path("t.spt"), self.path("full/t.spt"))
        self.assertEqual(self.filled(done), ("io", errno.ENOSPC))


class Command(Scratch):
    """`python -m splitpoint`."""

    def test_it_is_the_command(self):
        with splitpoint.open(self.path("t.spt")) as table:
            table["France"] = "Paris"
        done = self.python("-m", "splitpoint", "get", "t.spt", "France")
        self.assertEqual((done.stdout, done.stderr), ("Paris", ""))
        done = self.python("-m", "splitpoint", "get", "t.spt", "none", code=1)
        self.assertEqual(done.stdout, "")
        done = self.python("-m", "splitpoint", "--version")
        self.assertIn(splitpoint.__version__, done.stdout)
        self.assertIn("Usage: splitpoint", self.python("-m", "splitpoint", "--help").stdout)
        self.python("-m", "splitpoint", "no-such-command", code=2)

    def test_the_commands_that_the_demo_shows_can_be_run(self):
        """Its program is the interpreter, which has no command `get`."""
        beside = os.path.dirname(sys.executable)
        for path, first in ((beside, "splitpoint"), ("/nowhere", f"{sys.executable} -P -m splitpoint")):
            environment = {**os.environ, "PATH": f"{path}:/usr/bin:/bin"}
            name = f"{len(first)}.spt"
            demo = self.python("-m", "splitpoint", "demo", "--file", name, env=environment).stdout
            commands = demo.partition("Try next\n")[2].splitlines()
            self.assertGreater(len(commands), 4)
            for command in commands:
                self.assertTrue(command.startswith(f"  {first} "), command)
                tried = subprocess.run(
                    ["sh", "-ec", command],
                    cwd=self.directory,
                    env=environment,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=1800,
                )
                self.assertEqual((tried.returncode, tried.stderr), (0, ""), command)

    def test_the_lab_of_the_command_calls_a_function_of_a_library(self):
        """In a process of its own, which is this program again and not a script named `lab`."""
        library = pathlib.Path(self.path("libc.so"))
        for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
            if re.search(r"/libc[.-][^/]*$", line):
                library.symlink_to(line[line.index("/") :])
                break
        else:
            self.skipTest("no C library is loaded")
        pathlib.Path(self.path("lab")).write_text("print('a script')")
        pathlib.Path(self.path("keys")).write_text("".join(f"{'x' * i}\n" for i in range(1, 50)))
        function = f"{library}:strnlen"
        done = self.python("-m", "splitpoint", "lab", "hash", "keys", "--hash-library", function)
        self.assertIn("strnlen", done.stdout)

    def test_a_second_interpreter_of_the_process_is_refused(self):
        program = (
            "import splitpoint\n"
            "try:\n"
            "    import _interpreters as interpreters\n"
            "except ImportError:\n"
            "    import _xxsubinterpreters as interpreters\n"
            "found = interpreters.run_string(interpreters.create(), 'import splitpoint')\n"
            "if found is not None:\n"
            "    raise RuntimeError(found.formatted)\n"
        )
        error = self.python("-c", program, code=1).stderr
        self.assertIn("ImportError", error)
        self.assertIn("subinterpreters", error)

    def test_importing_loads_little(self):
        """The package loads neither the lab nor anything heavy of the standard library."""
        script = (
            "import sys, splitpoint\n"
            "print(*sorted(name for name in sys.modules if name.startswith("
            "('splitpoint', 'dbm', 'shelve', 'pickle', 'inspect', 'pathlib', 'html', 'json', "
            "'random'))))\n"
        )
        loaded = self.python("-c", script).stdout.split()
        parts = ("_errors", "_moments", "_native", "_table", "_views")
        self.assertEqual(loaded, ["splitpoint", *(f"splitpoint.{part}" for part in parts)])


if __name__ == "__main__":
    unittest.main()
