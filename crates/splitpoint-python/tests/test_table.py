"""`splitpoint.Table` as a mapping: the dict's protocol on one file."""

import array
import collections.abc
import copy
import ctypes
import gc
import importlib.metadata
import itertools
import operator
import os
import pathlib
import pickle
import random
import sys
import unittest
import warnings
import weakref
import xml.etree.ElementTree

import splitpoint
import splitpoint._native
from scratch import Scratch


class Mapping(Scratch):
    """The dict's protocol, on a store in a file."""

    def setUp(self):
        super().setUp()
        self.table = splitpoint.open(self.path(), "n")
        self.addCleanup(self.table.close)

    def test_a_table_is_a_mutable_mapping(self):
        self.assertIsInstance(self.table, collections.abc.MutableMapping)
        self.assertIs(type(self.table), splitpoint.Table)

    def test_what_was_set_comes_back_as_bytes(self):
        self.table["text"] = "gr\u00fcn"
        self.table[b"bytes"] = bytearray(b"\0\xff")
        self.table[memoryview(b"view")] = array.array("H", [1, 2])
        self.assertEqual(self.table[b"text"], "gr\u00fcn".encode())
        self.assertEqual(self.table["bytes"], b"\0\xff")
        self.assertEqual(self.table["view"], array.array("H", [1, 2]).tobytes())
        self.assertIs(type(self.table["bytes"]), bytes)

    def test_empty_keys_and_values_are_kept(self):
        self.table[""] = ""
        self.assertEqual(self.table[b""], b"")
        self.assertIn("", self.table)
        self.assertEqual(list(self.table.items()), [(b"", b"")])

    def test_a_missing_key_is_a_key_error_with_that_key(self):
        for call in (
            lambda: self.table["none"],
            lambda: self.table.__delitem__("none"),
            lambda: self.table.pop("none"),
        ):
            with self.assertRaises(KeyError) as caught:
                call()
            self.assertEqual(caught.exception.args, ("none",))
        self.assertIsNone(self.table.get("none"))
        self.assertEqual(self.table.get("none", 7), 7)
        self.assertEqual(self.table.pop("none", 7), 7)
        self.assertNotIn("none", self.table)

    def test_other_types_are_type_errors_that_name_the_type(self):
        for call in (
            lambda: self.table[1],
            lambda: self.table.__setitem__("key", 1),
            lambda: self.table.__setitem__("key", None),
            lambda: self.table.get(1.5),
            lambda: 1 in self.table,
            lambda: self.table.get_many([1]),
            lambda: self.table.put_many([("key", 1)]),
            lambda: self.table.apply([("key", 1)]),
            lambda: self.table.nextkey(1),
        ):
            with self.assertRaisesRegex(TypeError, "bytes, str or a buffer, not (int|float|None)"):
                call()
        with self.assertRaises(UnicodeEncodeError):
            self.table["\ud800"] = ""
        self.assertEqual(len(self.table), 0)

    def test_a_buffer_that_gives_no_bytes_raises_what_it_says(self):
        """It is a buffer, so that an error about its type would mislead."""
        released = memoryview(b"view")
        released.release()
        for call in (
            lambda: self.table[released],
            lambda: self.table.__setitem__("key", released),
            lambda: self.table.put_many([("key", released)]),
            lambda: self.table.nextkey(released),
        ):
            with self.assertRaisesRegex(ValueError, "released memoryview"):
                call()
        self.table[memoryview(b"k.e.y")[::2]] = memoryview(b"value")[::-1]
        self.assertEqual(self.table["key"], b"eulav")

    def test_references_to_objects_are_no_bytes(self):
        """The bytes of an array of objects are addresses, and others in their place end the process."""
        objects = (ctypes.py_object * 2)("a", "b")

        class Named(ctypes.Structure):
            _fields_ = [("O", ctypes.c_int)]

        class Holder(ctypes.Structure):
            _fields_ = [("number", ctypes.c_int), ("item", ctypes.py_object)]

        self.table["key"] = bytes(16)
        for buffer in (objects, memoryview(objects), (Holder * 1)()):
            for call in (
                lambda: self.table.__setitem__("key", buffer),
                lambda: self.table[buffer],
                lambda: self.table.put_many([("key", buffer)]),
                lambda: self.table.apply({"key": buffer}),
                lambda: self.table.get_into("key", buffer),
            ):
                with self.assertRaisesRegex(TypeError, "holds references to objects"):
                    call()
        self.assertEqual(list(objects), ["a", "b"])
        self.table["key"] = (Named * 1)(Named(7))
        named = (Named * 1)()
        self.assertEqual((self.table.get_into("key", named), named[0].O), (4, 7))

    def test_deleting_and_replacing_are_counted(self):
        self.table.update(a="1", b="2")
        self.table["a"] = "3"
        self.assertEqual(len(self.table), 2)
        del self.table["a"]
        self.assertEqual(len(self.table), 1)
        self.assertTrue(self.table)
        self.table.clear()
        self.assertEqual((len(self.table), list(self.table)), (0, []))
        self.assertFalse(self.table)

    def test_update_takes_what_that_of_a_dict_takes(self):
        class OnlyKeys:
            def keys(self):
                return ["k"]

            def __getitem__(self, key):
                return "of " + key

        self.table.update({"a": "1"}, b="2")
        self.table.update([("c", "3"), ["d", "4"]])
        self.table.update(OnlyKeys())
        self.table |= {"e": "5"}
        expected = {b"a": b"1", b"b": b"2", b"c": b"3", b"d": b"4", b"e": b"5", b"k": b"of k"}
        self.assertEqual(dict(self.table), expected)
        with self.assertRaises(ValueError):
            self.table.update([("only one",)])
        with self.assertRaises(TypeError):
            self.table.update(7)
        with self.assertRaises(TypeError):
            self.table | {"f": "6"}

    def test_setdefault_stores_only_what_is_missing(self):
        self.assertEqual(self.table.setdefault("a", "1"), b"1")
        self.assertEqual(self.table.setdefault("a", "2"), b"1")
        self.assertEqual(self.table.setdefault("b"), b"")
        self.assertTrue(self.table.put_new("c", "3"))
        self.assertFalse(self.table.put_new("c", "4"))
        self.assertEqual(self.table["c"], b"3")

    def test_popitem_takes_every_key_once(self):
        self.table.put_many((f"key {i}", str(i)) for i in range(1000))
        taken = dict(self.table.popitem() for _ in range(1000))
        self.assertEqual(taken, {b"key %d" % i: b"%d" % i for i in range(1000)})
        with self.assertRaises(KeyError):
            self.table.popitem()
        self.table["again"] = "1"
        self.assertEqual(self.table.popitem(), (b"again", b"1"))

    def test_views_follow_the_table(self):
        keys, values, items = self.table.keys(), self.table.values(), self.table.items()
        self.assertEqual((len(keys), list(values), list(items)), (0, [], []))
        self.table["a"] = "1"
        self.assertEqual((list(keys), list(values), list(items)), ([b"a"], [b"1"], [(b"a", b"1")]))
        self.assertIn("a", keys)
        self.assertIn(b"1", values)
        self.assertNotIn(b"2", values)
        self.assertIn((b"a", b"1"), items)
        self.assertNotIn((b"a", b"2"), items)

    def test_set_operations_of_views_take_any_iterable_as_those_of_a_dict(self):
        """Does the same to the views of a dict, with the bytes that a table makes of text."""
        self.table.update(a="1", b="2")
        other = splitpoint.open_url("mem:")
        self.addCleanup(other.close)
        other.update(b="2", c="3")
        model, operations = dict(self.table), (operator.and_, operator.or_, operator.sub, operator.xor)
        foreign = [1, None, 1.5, (b"a",), frozenset(), object]
        for items in ([], [b"a", b"c"], (b"b",), {b"a": 1}, "", foreign, [b"a", *foreign], other.keys()):
            for operation in operations:
                with self.subTest(operation, items=items):
                    found = operation(self.table.keys(), items)
                    self.assertEqual(found, operation(model.keys(), set(items)))
                    self.assertIs(type(found), set)
                    self.assertEqual(operation(iter(items), self.table.keys()), operation(set(items), model.keys()))
        for items in ([], [(b"a", b"1"), (b"b", b"1")], foreign, [(1, 2), (b"a", b"1")], other.items()):
            for operation in operations:
                with self.subTest(operation, items=items):
                    found = operation(self.table.items(), items)
                    self.assertEqual(found, operation(model.items(), set(items)))
        self.assertEqual(self.table.keys() & ["a", bytearray(b"c")], {b"a"})
        self.assertEqual(self.table.keys() - ["a"], {b"b"})
        self.assertEqual(self.table.items() - [("a", "1")], {(b"b", b"2")})
        self.assertTrue(self.table.keys().isdisjoint(foreign))
        self.assertTrue(self.table.items().isdisjoint(foreign))
        self.assertFalse(self.table.keys().isdisjoint([1, "b"]))
        self.assertEqual(self.table.keys(), {b"a", b"b"})
        self.assertLess(self.table.keys(), {b"a", b"b", 3})
        for operation in operations:
            with self.assertRaises(TypeError):
                operation(self.table.keys(), 7)
            with self.assertRaises(TypeError):
                operation(self.table.keys(), [[]])

    def test_what_can_be_no_key_is_in_no_view(self):
        self.table["a"] = "1"
        for item in (1, None, "\ud800", [], (), object):
            self.assertNotIn(item, self.table.keys())
            self.assertNotIn(item, self.table.values())
            self.assertNotIn(item, self.table.items())
            self.assertNotIn((item, item), self.table.items())
            self.assertNotIn(("a", item), self.table.items())
        self.assertIn(("a", "1"), self.table.items())
        self.assertIn("1", self.table.values())

    def test_a_table_may_change_while_it_is_iterated(self):
        self.table.put_many((f"{i}", "old") for i in range(5000))
        seen = []
        for key in self.table:
            seen.append(key)
            self.table[key] = "new"
            if int(key) % 2:
                del self.table[key]
        self.assertEqual(sorted(seen), sorted(b"%d" % i for i in range(5000)))
        self.assertEqual(len(self.table), 2500)
        self.assertEqual(set(self.table.values()), {b"new"})
        for key in self.table.keys():
            del self.table[key]
        self.assertEqual(len(self.table), 0)

    def test_an_iterator_that_has_ended_stays_so(self):
        iterator = iter(self.table)
        self.assertEqual(list(iterator), [])
        self.table["a"] = "1"
        self.assertEqual(list(iterator), [])

    def test_the_table_equals_only_itself(self):
        self.assertEqual(self.table, self.table)
        self.assertNotEqual(self.table, dict(self.table))
        self.assertEqual({self.table: 1}[self.table], 1)
        self.table["a"] = "1"
        self.assertTrue(splitpoint.equal(self.table, {b"a": b"1"}))
        self.assertFalse(splitpoint.equal(self.table, {b"a": b"2"}))
        self.assertFalse(splitpoint.equal(self.table, {}))
        with self.assertRaises(TypeError):
            reversed(self.table)

    def test_random_operations_agree_with_a_dict(self):
        """Does the same to a table and to a dict, and compares every result."""
        seed = random.randrange(1 << 32)
        with self.subTest(seed=seed):
            chance, model = random.Random(seed), {}
            for _ in range(20_000):
                key, value = b"%d" % chance.randrange(300), chance.randbytes(chance.randrange(50))
                action = chance.randrange(6)
                if action == 0:
                    self.table[key] = model[key] = value
                elif action == 1:
                    self.assertEqual(self.table.pop(key, None), model.pop(key, None))
                elif action == 2:
                    self.assertEqual(self.table.setdefault(key, value), model.setdefault(key, value))
                elif action == 3:
                    self.assertEqual(key in self.table, key in model)
                else:
                    self.assertEqual(self.table.get(key), model.get(key))
                self.assertEqual(len(self.table), len(model))
            self.assertEqual(dict(self.table.items()), model)

    def test_numbers_of_numpy_are_their_bytes(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("numpy is not installed")
        self.table[numpy.int64(5)] = numpy.bytes_(b"value")
        self.assertEqual(self.table[(5).to_bytes(8, sys.byteorder)], b"value")
        self.assertEqual(self.table[numpy.int64(5)], b"value")
        with self.assertRaises(KeyError):
            self.table[numpy.int32(5)]
        self.table[numpy.str_("text")] = numpy.float32(1)
        self.assertEqual(len(self.table["text"]), 4)
        with self.assertRaises(TypeError):
            self.table[5] = "value"


class Batches(Scratch):
    """Calls for many records, views, and what only stores have."""

    def setUp(self):
        super().setUp()
        self.table = splitpoint.open(self.path(), "n")
        self.addCleanup(self.table.close)

    def test_get_many_returns_values_in_the_order_of_the_keys(self):
        self.table.put_many({f"{i}": f"value {i}" for i in range(3000)})
        found = self.table.get_many(f"{i}" for i in range(2999, -2, -1))
        self.assertEqual(found[:2], [b"value 2999", b"value 2998"])
        self.assertEqual((len(found), found[-1]), (3001, None))
        self.assertEqual(self.table.get_many(["-", "1"], default=b""), [b"", b"value 1"])
        self.assertEqual(self.table.get_many([]), [])
        for single in "10", b"10":
            with self.assertRaisesRegex(TypeError, "iterable of bytes or str, not one of them"):
                self.table.get_many(single)

    def test_put_many_stores_what_comes_before_an_error(self):
        def pairs():
            yield "a", "1"
            raise RuntimeError("of the caller")

        with self.assertRaisesRegex(RuntimeError, "of the caller"):
            self.table.put_many(pairs())
        self.assertEqual(dict(self.table), {b"a": b"1"})

    def test_apply_makes_all_changes_or_none(self):
        self.table["from"] = "7"
        self.table.apply([("from", None), ("to", "7"), ("never there", None)])
        self.assertEqual(dict(self.table), {b"to": b"7"})
        with self.assertRaises(TypeError):
            self.table.apply([("to", None), ("other", 1)])
        self.assertEqual(dict(self.table), {b"to": b"7"})
        self.table.apply({"to": None}, durability="sync")
        self.assertEqual(len(self.table), 0)

    def test_a_batch_may_name_its_durability(self):
        self.table.put_many({"a": "1"}, durability="sync")
        stats = self.table.stats()
        self.assertEqual(stats.durable_bytes, stats.log_bytes)
        with self.assertRaisesRegex(ValueError, "'buffered', 'async' or 'sync', not \"none\""):
            self.table.put_many({"b": "1"}, durability="none")

    def test_get_into_fills_a_buffer(self):
        self.table["key"] = "value"
        buffer = bytearray(b"........")
        self.assertEqual(self.table.get_into("key", buffer), 5)
        self.assertEqual(buffer, b"value...")
        numbers = array.array("H", [0] * 4)
        self.assertEqual(self.table.get_into("key", numbers), 5)
        self.assertEqual(numbers.tobytes()[:5], b"value")
        self.assertIsNone(self.table.get_into("none", buffer))
        with self.assertRaisesRegex(ValueError, "5 bytes, the buffer 4"):
            self.table.get_into("key", bytearray(4))
        with self.assertRaises(TypeError):
            self.table.get_into("key", b"read-only")

    def test_a_view_keeps_its_bytes_while_the_table_changes(self):
        self.table["key"] = b"first" * 1000
        with self.table.view("key") as view:
            self.assertTrue(view.readonly)
            self.table["key"] = b"other"
            self.table.put_many((f"{i}", "x" * 100) for i in range(10_000))
            del self.table["key"]
            self.assertEqual(view, b"first" * 1000)
        with self.assertRaises(ValueError):
            view[0]
        with self.table.view("key") as view:
            self.assertIsNone(view)

    def test_a_view_keeps_the_table_open(self):
        self.table["key"] = "value"
        with self.table.view("key") as view:
            with self.assertRaisesRegex(BufferError, "release them first"):
                self.table.close()
            self.assertEqual(bytes(view), b"value")
            self.assertFalse(self.table.closed)
        self.table.close()
        self.assertTrue(self.table.closed)

    def test_lookups_are_counted_where_that_is_asked_for(self):
        self.assertIsNone(self.table.lookups())
        with splitpoint.open_url("mem:") as other:
            self.assertIsNone(other.lookups())
        path = self.path("counted.spt")
        with splitpoint.open(path, instrument=True) as table:
            table["here"] = "value"
            self.assertEqual((table.get("here"), "gone" in table), (b"value", False))
            lookups = table.lookups()
            self.assertIsInstance(lookups, splitpoint.Lookups)
            self.assertEqual((lookups.lookup_count, lookups.hit_count), (2, 1))
        with splitpoint.open(path, "r", instrument=True) as table, table.reopen() as again:
            table.get_many(["here", "gone"])
            self.assertEqual(table.lookups().lookup_count, 2)
            self.assertEqual(again.lookups().lookup_count, 0)

    def test_stats_count_what_is_there(self):
        self.table.put_many((f"{i}", "value") for i in range(1000))
        stats = self.table.stats()
        self.assertEqual(stats.record_count, 1000)
        self.assertEqual(sum(size * count for size, count, _ in stats.chains), 1000)
        self.assertEqual(sum(count for _, count, _ in stats.chains), stats.bucket_count)
        self.assertGreater(stats.live_bytes, 1000 * len("value"))

    def test_check_reports_progress_and_no_damage(self):
        self.table.put_many((f"{i}", "value") for i in range(1000))
        calls = []
        report = self.table.check(progress=lambda done, all: calls.append((done, all)))
        self.assertTrue(report.is_clean)
        self.assertEqual((report.record_count, report.damages), (1000, []))
        self.assertTrue(calls)

        def stop(done, all):
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            self.table.check(stop)

    def test_check_names_damage(self):
        self.table["key"] = b"value" * 100
        self.table.close()
        content = bytearray(pathlib.Path(self.path()).read_bytes())
        place = content.index(b"valuevalue")
        content[place] ^= 1
        pathlib.Path(self.path()).write_bytes(content)
        with splitpoint.open(self.path(), "r") as table:
            report = table.check()
        self.assertFalse(report.is_clean)
        self.assertEqual(report.damage_count, len(report.damages))

    def test_a_backup_is_the_table_as_it_was(self):
        self.table.update(a="1", b="2")
        size = self.table.backup(self.path("copy.spt"))
        self.table["c"] = "3"
        self.assertEqual(size, os.path.getsize(self.path("copy.spt")))
        with splitpoint.open(self.path("copy.spt"), "r") as copied:
            self.assertEqual(dict(copied), {b"a": b"1", b"b": b"2"})
        with self.assertRaises(FileExistsError):
            self.table.backup(self.path("copy.spt"))

    def test_firstkey_and_nextkey_walk_over_every_key(self):
        self.table.update((str(i), "") for i in range(500))
        keys, key = [], self.table.firstkey()
        while key is not None:
            keys.append(key)
            key = self.table.nextkey(key)
        self.assertEqual(keys, list(self.table))
        self.assertEqual(self.table.nextkey(keys[3]), keys[4])
        self.assertEqual(self.table.nextkey(keys[4].decode()), keys[5])
        self.assertIsNone(self.table.nextkey(keys[-1]))
        self.assertIsNone(self.table.nextkey("none"))
        self.table.clear()
        self.assertIsNone(self.table.firstkey())

    def test_a_walk_stays_where_it_is_when_another_key_is_asked_for(self):
        self.table.update((str(i), "") for i in range(50))
        expected = list(self.table)
        first = self.table.firstkey()
        self.assertIsNone(self.table.nextkey("none"))
        del self.table[first]
        self.assertEqual(self.table.nextkey(first), expected[1])

    def test_walks_of_two_threads_skip_no_key(self):
        """One asks for the key after the first while the other is about to get it."""
        self.table.update((str(i), "") for i in range(500))
        expected = list(self.table)

        class Meanwhile:
            def __init__(self, walk, key):
                self.walk, self.key, self.found = walk, key, []

            def __next__(walk):
                walk.found.append(self.table.nextkey(walk.key))
                return next(walk.walk)

        first = self.table.firstkey()
        ((key, walk),) = self.table._walk
        self.assertEqual(key, first)
        meanwhile = Meanwhile(walk, first)
        self.table._walk[:] = [(key, meanwhile)]
        self.assertEqual(self.table.nextkey(first), expected[1])
        self.assertEqual(meanwhile.found, [expected[1]])


class Life(Scratch):
    """From the open to the close."""

    def test_what_was_stored_is_there_after_closing(self):
        with splitpoint.open(self.path()) as table:
            table.put_many((f"{i}", f"value {i}") for i in range(1000))
            table.sync()
        self.assertTrue(table.closed)
        with splitpoint.open(self.path(), "r") as table:
            self.assertEqual(table["999"], b"value 999")
            self.assertEqual(len(table), 1000)

    def test_a_closed_table_refuses_every_call(self):
        table = splitpoint.open(self.path())
        table["key"] = "value"
        iterator = iter(table.items())
        table.close()
        table.close()
        calls = (
            lambda: table["key"],
            lambda: table.__setitem__("key", ""),
            lambda: table.__delitem__("key"),
            lambda: "key" in table,
            lambda: len(table),
            lambda: iter(table),
            lambda: next(iterator),
            lambda: table.get("key"),
            lambda: table.get_many(["key"]),
            lambda: table.put_many({}),
            lambda: table.apply([]),
            lambda: table.pop("key"),
            lambda: table.popitem(),
            lambda: table.clear(),
            lambda: table.sync(),
            lambda: table.stats(),
            lambda: table.check(),
            lambda: table.backup(self.path("copy")),
            lambda: table.firstkey(),
            lambda: table.view("key").__enter__(),
            lambda: table.readonly,
            lambda: table.get_into("key", bytearray(9)),
            lambda: table.put_new("key", ""),
            lambda: table.setdefault("key"),
            lambda: table.update(key=""),
            lambda: table.increment("count"),
            lambda: table.compare_and_swap("key", None, ""),
            lambda: table.snapshot(),
            lambda: table.transaction(),
            lambda: table.transact(len),
            lambda: table.nextkey("key"),
            lambda: table.reorganize(),
            lambda: table.lookups(),
            lambda: list(table.keys()),
            lambda: list(table.values()),
            lambda: "key" in table.keys(),
            lambda: b"value" in table.values(),
            lambda: ("key", "value") in table.items(),
            lambda: len(table.items()),
            lambda: table.__enter__(),
        )
        for call in calls:
            with self.assertRaisesRegex(ValueError, "I/O operation on closed table") as caught:
                call()
            self.assertIsInstance(caught.exception, splitpoint.error)
            self.assertEqual(caught.exception.code, "closed")

    def test_closing_gives_the_file_free_whatever_iterators_are_left(self):
        table = splitpoint.open(self.path())
        table.put_many((str(i), "") for i in range(1000))
        iterator = iter(table)
        next(iterator)
        table.close()
        with splitpoint.open(self.path(), "w") as again:
            self.assertEqual(len(again), 1000)

    def test_a_table_that_nobody_closed_warns_and_loses_nothing(self):
        table = splitpoint.open(self.path())
        table["key"] = "value"
        with self.assertWarnsRegex(ResourceWarning, "unclosed <splitpoint.Table 'table.spt'"):
            del table
            gc.collect()
        with splitpoint.open(self.path(), "r") as table:
            self.assertEqual(table["key"], b"value")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            del table
            gc.collect()

    def test_the_repr_names_the_file_its_keys_and_its_durability(self):
        with splitpoint.open(self.path("words.spt"), durability="sync") as table:
            table.put_many((str(i), "") for i in range(1234))
            words = r"<splitpoint.Table 'words.spt' 1,234 keys, [0-9.]+ [KM]B, sync>"
            self.assertRegex(repr(table), words)
            page = table._repr_html_()
            self.assertIn("1,234 keys", page)
            self.assertIn("an ideal hash", page)
            # It is well-formed, and has a bar for each size, as high as there are buckets.
            chart = next(xml.etree.ElementTree.fromstring(page).iter("{http://www.w3.org/2000/svg}svg"))
            titles = [title.text for title in chart.iter("{http://www.w3.org/2000/svg}title")]
            sizes = [row for row in table.stats().chains if row[1] or row[2] >= 0.5]
            self.assertEqual(len(titles), len(sizes))
            self.assertIn(f"{sizes[2][0]} keys: {sizes[2][1]} buckets, ideal", titles[2])
        self.assertEqual(repr(table), "<splitpoint.Table 'words.spt' closed>")
        self.assertIn("closed", table._repr_html_())
        with splitpoint.open_url("mem:") as table:
            table["a"] = "1"
            page = table._repr_html_()
            self.assertIn("1 bucket, at most 1 key in one", page)
            self.assertIn("<title>1 key: 1 bucket, ideal 1.0</title>", page)
        with splitpoint.open(self.path("words.spt"), "r") as table:
            self.assertRegex(repr(table), "read-only>")
        with splitpoint.open_url("mem:") as table:
            self.assertEqual(repr(table), "<splitpoint.Table 'mem:' 0 keys, async>")

    def test_the_attributes_say_how_it_was_opened(self):
        with splitpoint.open(pathlib.Path(self.path()), durability="buffered") as table:
            self.assertEqual(table.path, pathlib.Path(self.path()))
            self.assertEqual((table.durability, table.readonly, table.closed), ("buffered", False, False))

    def test_what_is_of_one_moment_is_neither_copied_nor_pickled(self):
        with splitpoint.open(self.path()) as table:
            table["key"] = "value"
            with table.snapshot() as snapshot, table.transaction() as transaction:
                for it in (snapshot, transaction, iter(table), iter(snapshot), iter(transaction)):
                    for call in (pickle.dumps, copy.copy, copy.deepcopy):
                        with self.assertRaisesRegex(TypeError, "cannot pickle"):
                            call(it)

    def test_references_do_not_keep_a_table(self):
        with splitpoint.open(self.path()) as table:
            for name in ("snapshot", "transaction"):
                made = getattr(table, name)()
                reference = weakref.ref(made)
                self.assertIs(reference(), made)
                del made
                self.assertIsNone(reference())
            reference = weakref.ref(table)
        del table
        gc.collect()
        self.assertIsNone(reference())

    def test_a_cycle_through_a_snapshot_or_a_transaction_is_collected(self):
        class Own(splitpoint.Table):
            pass

        for name in ("snapshot", "transaction"):
            table = Own(self.path())
            table["key"] = "value"
            table.made = getattr(table, name)()
            reference = weakref.ref(table)
            del table
            with self.assertWarnsRegex(ResourceWarning, "unclosed"):
                gc.collect()
            self.assertIsNone(reference(), name)
            splitpoint.open(self.path(), "w").close()

    def test_a_table_that_is_dropped_before_a_view_is_closed_with_it(self):
        table = splitpoint.open(self.path())
        table["key"] = "value"
        value = memoryview(table._pin("key"))
        unraisable = []
        hook, sys.unraisablehook = sys.unraisablehook, lambda it: unraisable.append(it.exc_value)
        try:
            with self.assertWarnsRegex(ResourceWarning, "unclosed"):
                del table
        finally:
            sys.unraisablehook = hook
        self.assertEqual(unraisable, [])
        self.assertEqual(value, b"value")
        with self.assertRaises(BlockingIOError):
            splitpoint.open(self.path(), "w")
        value.release()
        splitpoint.open(self.path(), "w").close()

    def test_a_class_of_ones_own_may_take_other_arguments(self):
        class Same(splitpoint.Table):
            def __init__(self, path, **options):
                super().__init__(path, **options)
                self.extra = 1

        class Other(splitpoint.Table):
            def __new__(cls, name):
                return super().__new__(cls, name + ".spt", durability="sync")

        class Neither(splitpoint.Table):
            def __init__(self, path):
                super().__init__()

        with Same(self.path(), durability="buffered") as table:
            table["key"] = "value"
            self.assertEqual((table.extra, table.durability), (1, "buffered"))
        with Other(self.path("table")) as table:
            self.assertEqual((table["key"], table.durability), (b"value", "sync"))
        with Neither(self.path()) as table:
            self.assertEqual(table["key"], b"value")

        class Wrong(splitpoint.Table):
            def __init__(self, path):
                super().__init__(path, durability="sync")

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            with self.assertRaisesRegex(TypeError, "__new__"):
                Wrong(self.path())
            gc.collect()

    def test_a_copy_is_the_same_handle(self):
        with splitpoint.open_url("mem:") as table:
            self.assertIs(copy.copy(table), table)
            with self.assertRaisesRegex(TypeError, "deepcopy"):
                copy.deepcopy(table)

    def test_a_table_in_memory_has_the_same_methods(self):
        with splitpoint.open_url("mem:") as table:
            table.put_many((str(i), "x" * 50) for i in range(2000))
            with table.view("7") as view:
                table.clear()
                table.put_many((str(i), "y" * 50) for i in range(20_000))
                self.assertEqual(view, b"x" * 50)
            self.assertEqual(len(list(itertools.islice(table, 10))), 10)
            self.assertEqual(table.path, "mem:")
            self.assertEqual(table.backup(self.path("copy")), os.path.getsize(self.path("copy")))


class Extension(unittest.TestCase):
    """The installed library, whatever its profile is."""

    def test_the_texts_of_the_licenses_are_installed(self):
        """Both ask for a copy of themselves wherever the program is."""
        names = [file.name for file in importlib.metadata.files("splitpoint")]
        self.assertLessEqual({"LICENSE-APACHE", "LICENSE-MIT"}, set(names))

    def test_a_panic_unwinds_to_become_an_exception(self):
        """With ``panic = "abort"`` it would end the process, and nothing would raise in the library."""
        library = pathlib.Path(splitpoint._native.__file__).read_bytes()
        self.assertIn(b"_Unwind_RaiseException", library)


@unittest.skipUnless(hasattr(splitpoint.Table, "_panic"), "only a build with the feature `testing` panics")
class Panics(Scratch):
    """A mistake in the library, while it has the interpreter's lock released."""

    def panic(self, table, in_change):
        """Let the library panic, and keep its report from the test's own stderr."""
        read, write = os.pipe()
        stderr = os.dup(2)
        os.dup2(write, 2)
        try:
            with self.assertRaisesRegex(BaseException, "a test asked for a panic") as caught:
                table._panic(in_change)
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            os.close(write)
        with os.fdopen(read) as report:
            self.assertIn("a test asked for a panic", report.read())
        self.assertEqual(type(caught.exception).__name__, "PanicException")
        # No `except Exception` of the program passes over it.
        self.assertNotIsInstance(caught.exception, Exception)

    def test_a_panic_outside_of_a_change_leaves_the_table_usable(self):
        for sharing in ("one-writer", "shared", "per-call"):
            with self.subTest(sharing), splitpoint.open(self.path(sharing), sharing=sharing) as table:
                table["a"] = "1"
                self.panic(table, False)
                table["b"] = "2"
                self.assertEqual(dict(table), {b"a": b"1", b"b": b"2"})
                self.assertTrue(table.check().is_clean)

    def test_after_a_panic_in_a_change_the_handle_refuses_changes_and_the_file_is_whole(self):
        for sharing in ("one-writer", "shared", "per-call"):
            with self.subTest(sharing):
                path = self.path(sharing)
                table = splitpoint.open(path, sharing=sharing)
                table.update(a="1", b="2")
                snapshot = table.snapshot()
                self.panic(table, True)
                for change in (
                    lambda: table.__setitem__("c", "3"),
                    lambda: table.pop("a"),
                    lambda: table.put_many({"c": "3"}),
                    lambda: table.apply([("a", None)]),
                    lambda: table.increment("n"),
                    lambda: table.clear(),
                ):
                    with self.assertRaisesRegex(splitpoint.error, "failed while it changed.*open it again") as caught:
                        change()
                    self.assertEqual(caught.exception.code, "poisoned")
                found = table["a"], len(table), table.get_many(["a", "b"]), snapshot["b"]
                self.assertEqual(found, (b"1", 2, [b"1", b"2"], b"2"))
                with self.assertRaises(splitpoint.error) as caught:
                    table.close()
                self.assertEqual(caught.exception.code, "poisoned")
                self.assertTrue(table.closed)
                with splitpoint.open(path, sharing=sharing) as again:
                    self.assertEqual(dict(again), {b"a": b"1", b"b": b"2"})
                    again["c"] = "3"
                    self.assertTrue(again.check().is_clean)


if __name__ == "__main__":
    unittest.main()
