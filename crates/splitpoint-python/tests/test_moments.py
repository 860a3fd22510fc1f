"""Snapshots, transactions, and the changes that read and write in one step."""

import collections.abc
import gc
import os
import threading
import unittest

import splitpoint
from scratch import Scratch


class Moments(Scratch):
    """A store in a file."""

    def setUp(self):
        super().setUp()
        self.table = splitpoint.open(self.path(), "n")
        self.addCleanup(self.table.close)

    def assert_code(self, code, call, *arguments):
        """Expect `call` to raise `splitpoint.error` with this code."""
        with self.assertRaises(splitpoint.error) as caught:
            call(*arguments)
        self.assertEqual(caught.exception.code, code)


class Snapshots(Moments):
    """`Table.snapshot`."""

    def test_a_snapshot_is_a_mapping_that_no_change_reaches(self):
        pairs = {f"{i}".encode(): b"old" for i in range(1000)}
        self.table.update(pairs)
        with self.table.snapshot() as snapshot:
            self.assertIsInstance(snapshot, collections.abc.Mapping)
            self.assertNotIsInstance(snapshot, collections.abc.MutableMapping)
            for i in range(0, 1000, 2):
                self.table[f"{i}"] = "new"
                del self.table[f"{i + 1}"]
            self.table["later"] = ""
            self.assertEqual(dict(snapshot), pairs)
            self.assertEqual(dict(snapshot.items()), pairs)
            self.assertEqual(set(snapshot.keys()), pairs.keys())
            self.assertEqual(list(snapshot.values()), [b"old"] * 1000)
            self.assertEqual(len(snapshot), 1000)
            self.assertEqual(snapshot["1"], b"old")
            self.assertEqual(snapshot.get_many(["1", "later", "2"], 0), [b"old", 0, b"old"])
            self.assertIn("999", snapshot)
            self.assertNotIn("later", snapshot)
            self.assertIn((b"1", "old"), snapshot.items())
            self.assertEqual(snapshot.get("later", 5), 5)
            with self.assertRaises(KeyError):
                snapshot["later"]
            self.assertEqual(repr(snapshot), "<splitpoint.Snapshot 1,000 keys>")
        self.assertEqual(len(self.table), 501)

    def test_a_closed_snapshot_says_so_and_its_iterators_go_on(self):
        self.table.update({f"{i}": "" for i in range(500)})
        snapshot = self.table.snapshot()
        keys = iter(snapshot)
        next(keys)
        snapshot.close()
        snapshot.close()
        self.assertTrue(snapshot.closed)
        self.table.clear()
        self.assertEqual(len(list(keys)), 499)
        calls = (
            lambda: snapshot["a"],
            lambda: len(snapshot),
            lambda: list(snapshot),
            lambda: snapshot.__enter__(),
        )
        for call in calls:
            self.assert_code("closed", call)

    def test_closing_the_table_ends_its_snapshots_and_transactions(self):
        self.table.update({f"{i}": "" for i in range(500)})
        snapshot, transaction = self.table.snapshot(), self.table.transaction()
        transaction["a"] = "b"
        walks = [iter(snapshot), iter(transaction)]
        for walk in walks:
            next(walk)
        self.table.close()
        self.assertTrue(snapshot.closed and transaction.closed)
        for call in (lambda: snapshot.get("a"), lambda: transaction.get("a"), transaction.commit):
            self.assert_code("closed", call)
        for walk in walks:
            self.assert_code("closed", collections.deque, walk)
        with splitpoint.open(self.path()) as again:
            self.assertNotIn("a", again)
        for call in (self.table.snapshot, self.table.transaction):
            self.assert_code("closed", call)

    def test_a_dropped_snapshot_holds_nothing_back(self):
        with splitpoint.open_url("mem:") as table:
            table.put_many({f"{i}": bytes(1000) for i in range(1000)})
            snapshot = table.snapshot()
            weak = iter(snapshot)
            del snapshot, weak
            gc.collect()
            for _ in range(20):
                table.put_many({f"{i}": bytes(1000) for i in range(1000)})
            self.assertLess(table.stats().file_bytes, 8 << 20)

    @unittest.skipUnless(hasattr(os, "fork"), "there is no fork here")
    def test_a_child_of_a_fork_may_not_use_its_parents_snapshot(self):
        self.table["a"] = "b"
        snapshot = self.table.snapshot()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                snapshot["a"]
            except splitpoint.error as error:
                code = 0 if error.code == "forked" else 2
            finally:
                os._exit(code)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual(snapshot["a"], b"b")

    def test_other_tables_have_none(self):
        path = self.path("old.db")
        with splitpoint.open_url(f"db185:{path}", "n") as table:
            for call in (
                table.snapshot,
                table.transaction,
                table.increment,
                lambda _="": table.compare_and_swap("a", None, "b"),
            ):
                self.assert_code("unsupported", call, *(["a"] if call == table.increment else []))


class Transactions(Moments):
    """`Table.transaction` and `Table.transact`."""

    def test_the_end_of_a_with_commits_and_an_exception_undoes(self):
        self.table.update(a="1", b="2")
        with self.table.transaction() as transaction:
            self.assertIsInstance(transaction, collections.abc.MutableMapping)
            transaction["a"] = "3"
            del transaction["b"]
            transaction.update({"c": "4"}, d="5")
            self.assertEqual(dict(transaction), {b"a": b"3", b"c": b"4", b"d": b"5"})
            self.assertEqual(len(transaction), 3)
            self.assertIn("c", transaction)
            self.assertNotIn("b", transaction)
            self.assertEqual(transaction.get("b", 7), 7)
            self.assertEqual(dict(self.table), {b"a": b"1", b"b": b"2"})
        after = {b"a": b"3", b"c": b"4", b"d": b"5"}
        self.assertEqual(dict(self.table), after)
        with self.assertRaises(ZeroDivisionError), self.table.transaction() as transaction:
            transaction.clear()
            self.assertEqual(list(transaction), [])
            _ = 1 / 0
        self.assertEqual(dict(self.table), after)
        self.assertTrue(transaction.closed)
        self.assert_code("closed", transaction.__enter__)

    def test_what_was_read_and_changed_conflicts_and_nothing_else_does(self):
        self.table.update(read="1", other="1")
        transaction = self.table.transaction()
        _ = transaction["read"]
        transaction["written"] = "1"
        transaction.discard("blind")
        self.table.update(other="2", written="2", blind="2")
        transaction.commit()
        self.assertEqual(self.table["written"], b"1")
        self.assertNotIn("blind", self.table)

        transaction = self.table.transaction()
        self.assertIsNone(transaction.get("missing"))
        transaction["written"] = "3"
        self.table["missing"] = ""
        self.assert_code("conflict", transaction.commit)
        self.assertEqual(self.table["written"], b"1")
        self.assert_code("closed", transaction.commit)
        self.assert_code("closed", transaction.get, "a")

    def test_many_keys_are_those_of_the_table_and_of_the_changes(self):
        """More than the calls take at a time, of the table, changed, deleted and missing."""
        self.table.put_many({f"{i}": f"old {i}" for i in range(3000)})
        with self.table.transaction() as transaction:
            self.assertIsNone(transaction.put_many((f"{i}", f"new {i}") for i in range(1500, 4500)))
            del transaction["1"]
            keys = [f"{i}" for i in range(5000)]
            values = [b"old %d" % i for i in range(1500)] + [b"new %d" % i for i in range(1500, 4500)]
            values[1] = None
            self.assertEqual(transaction.get_many(iter(keys)), values + [None] * 500)
            self.assertEqual(transaction.get_many(["1", "0"], default=b""), [b"", b"old 0"])
            self.assertEqual(transaction.get_many([]), [])
            self.assertEqual(len(self.table), 3000)
        self.assertEqual(self.table.get_many(keys), values + [None] * 500)

    def test_get_many_of_a_transaction_conflicts_and_put_many_does_not(self):
        for call, code in (
            (lambda transaction: transaction.get_many(["read", "missing"]), "conflict"),
            (lambda transaction: transaction.put_many({"read": "2", "missing": "2"}), None),
            (lambda transaction: transaction.update({"read": "2"}, missing="2"), None),
        ):
            self.table.clear()
            self.table["read"] = "1"
            transaction = self.table.transaction()
            _ = transaction.get("other")
            call(transaction)
            self.table["missing"] = "1"
            if code is None:
                transaction.commit()
                self.assertEqual(self.table.get_many(["read", "missing"]), [b"2", b"2"])
            else:
                transaction["written"] = "1"
                self.assert_code(code, transaction.commit)

    def test_put_many_of_a_transaction_keeps_what_comes_before_an_error(self):
        with self.table.transaction() as transaction:
            with self.assertRaises(TypeError):
                transaction.put_many([("a", "1"), ("b", 2), ("c", "3")])
            with self.assertRaisesRegex(ValueError, "a record must have 2 elements"):
                transaction.put_many([("d", "4", "5")])
            with self.assertRaises(TypeError):
                transaction.get_many([1])
            self.assertEqual(dict(transaction), {b"a": b"1"})
        self.assert_code("closed", transaction.put_many, {"a": "2"})
        self.assert_code("closed", transaction.get_many, ["a"])
        self.assertEqual(dict(self.table), {b"a": b"1"})

    def test_an_iterable_may_use_the_transaction_that_takes_its_pairs(self):
        with self.table.transaction() as transaction:
            transaction["first"] = "1"
            transaction.put_many((f"{i}", transaction["first"]) for i in range(3000))
            self.assertEqual(len(transaction), 3001)

    def test_a_missing_key_is_a_key_error(self):
        with self.table.transaction() as transaction:
            for call in (transaction.__getitem__, transaction.__delitem__, transaction.pop):
                with self.assertRaises(KeyError) as caught:
                    call("none")
                self.assertEqual(caught.exception.args, ("none",))

    def test_a_table_that_is_closed_meanwhile_is_an_error_and_loses_nothing_unnoticed(self):
        with self.assertRaisesRegex(splitpoint.error, "the transaction has ended"):
            with self.table.transaction() as transaction:
                transaction["a"] = "b"
                self.table.reorganize()
        self.assertNotIn("a", self.table)

        def change(transaction):
            transaction["a"] = "b"
            self.table.reorganize()

        self.assert_code("closed", self.table.transact, change)
        self.assertNotIn("a", self.table)
        with self.table.transaction() as transaction:
            transaction["a"] = "b"
            transaction.close()
        self.assertNotIn("a", self.table)
        with self.table.transaction() as transaction:
            self.assertEqual(transaction.setdefault("a"), b"")
            transaction.commit()
        self.assertIn("a", self.table)

    def test_a_reorganize_that_is_refused_has_ended_nothing(self):
        self.table.update({f"{i}": "" for i in range(500)})
        keys, snapshot, transaction = iter(self.table), self.table.snapshot(), self.table.transaction()
        next(keys)
        transaction["own"] = "1"
        with splitpoint.open(self.path(), "r"):
            self.assert_code("locked", self.table.reorganize)

        def within():
            self.assert_code("locked", self.table.reorganize)
            yield "within", "1"

        # Another call goes on.
        self.table.put_many(within())
        with self.table.view("1"), self.assertRaises(BufferError):
            self.table.reorganize()
        self.assertEqual(len(list(keys)), 499)
        self.assertEqual(len(snapshot), 500)
        transaction.commit()
        self.assertEqual((self.table["own"], len(self.table)), (b"1", 502))
        self.table.reorganize()
        self.assert_code("closed", snapshot.get, "1")

    def test_an_iterator_of_a_transaction_that_has_ended_says_so(self):
        self.table.update({f"{i}": "" for i in range(300)})
        transaction = self.table.transaction()
        keys = iter(transaction)
        next(keys)
        transaction.commit()
        with self.assertRaisesRegex(splitpoint.error, "the transaction has ended"):
            list(keys)

    def test_savepoints_undo_a_part(self):
        with self.table.transaction() as transaction:
            transaction["kept"] = "1"
            before = transaction.savepoint()
            transaction["kept"] = "2"
            transaction["tried"] = "2"
            transaction.rollback_to(before)
            self.assertEqual(dict(transaction), {b"kept": b"1"})
        self.assertEqual(dict(self.table), {b"kept": b"1"})
        with self.table.transaction() as transaction:
            transaction["kept"] = "3"
            transaction.rollback()
        self.assertEqual(dict(self.table), {b"kept": b"1"})

    def test_a_savepoint_is_of_one_transaction(self):
        with self.table.transaction() as one, self.table.transaction() as other:
            one["a"] = "1"
            savepoint = one.savepoint()
            other["b"], other["c"] = "2", "3"
            self.assert_code("invalid", other.rollback_to, savepoint)
            one["d"] = "4"
            one.rollback_to(savepoint)
        self.assertEqual(dict(self.table), {b"a": b"1", b"b": b"2", b"c": b"3"})
        with self.table.transaction() as other:
            del one
            self.assert_code("invalid", other.rollback_to, savepoint)

    def test_a_transaction_is_updated_in_place_as_a_table(self):
        with self.table.transaction() as changes:
            changes |= {"a": "1"}
            changes |= [("b", "2")]
            self.assertEqual(len(changes), 2)
        self.assertEqual(dict(self.table), {b"a": b"1", b"b": b"2"})

    def test_an_iterator_is_of_the_changes_before_it(self):
        self.table.update({f"{i}": "" for i in range(300)})
        with self.table.transaction() as transaction:
            transaction["own"] = "1"
            first, second = iter(transaction), iter(transaction.items())
            for key in first:
                transaction[key + b"'"] = ""
            self.assertEqual(len(list(second)), 301)
            self.assertEqual(len(transaction), 602)

    def test_what_is_neither_committed_nor_closed_is_undone(self):
        transaction = self.table.transaction()
        transaction["a"] = "b"
        del transaction
        gc.collect()
        self.assertEqual(len(self.table), 0)

    def test_a_level_of_durability_is_that_of_the_changes(self):
        with self.table.transaction(durability="sync") as transaction:
            transaction["a"] = "b"
        self.assertGreaterEqual(self.table.stats().durable_bytes, 8)
        # Before any work that would be lost.
        with self.assertRaisesRegex(ValueError, "durability must be 'buffered', 'async' or 'sync', not \"often\""):
            self.table.transaction(durability="often")
        transaction = self.table.transaction()
        transaction["c"] = "d"
        self.assert_code("invalid", lambda: transaction.commit(durability="often"))
        self.assertTrue(transaction.closed)
        self.assertNotIn("c", self.table)

    def test_changes_that_cannot_be_are_errors(self):
        with self.table.transaction() as transaction:
            with self.assertRaises(TypeError):
                transaction["a"] = 1
            with self.assertRaises(TypeError):
                transaction.update([("a", None)])
        self.table.close()
        with splitpoint.open(self.path(), "r", sharing="exclusive") as table:
            transaction = table.transaction()
            self.assert_code("read_only", transaction.__setitem__, "a", "b")

    def test_transact_runs_again_until_nothing_conflicts(self):
        accounts = [f"account {i}" for i in range(5)]
        self.table.update({name: "100" for name in accounts})
        runs, have_read = [], threading.Barrier(8)

        def work(number):
            is_first = True

            def move(transaction):
                nonlocal is_first
                runs.append(number)
                source, target = accounts[number % 5], accounts[(number + 1) % 5]
                transaction[source] = str(int(transaction[source]) - 1)
                transaction[target] = str(int(transaction[target]) + 1)
                if is_first:
                    # Nobody commits before all have read: threads 0 and 5 have read the same.
                    is_first = False
                    have_read.wait()
                return number

            for _ in range(50):
                self.assertEqual(self.table.transact(move, attempts=10_000), number)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # One of the two has run again.
        self.assertGreater(len(runs), 400)
        values = [int(self.table[name]) for name in accounts]
        # Threads 0 to 4 have moved 50 once around, threads 5 to 7 from accounts 0 to 2 to the next.
        self.assertEqual(values, [50, 100, 100, 150, 100])

    def test_transact_runs_the_function_again_after_each_conflict(self):
        runs = []

        def add(transaction):
            runs.append(int(transaction.get("n", 0)))
            if len(runs) < 3:
                self.table["n"] = str(10 * len(runs))
            transaction["n"] = str(runs[-1] + 1)
            return f"run {len(runs)}"

        self.assertEqual(self.table.transact(add), "run 3")
        self.assertEqual((runs, self.table["n"]), ([0, 10, 20], b"21"))

    def test_transact_gives_up_with_the_conflict(self):
        runs = []

        def never(transaction):
            runs.append(transaction.get("a"))
            self.table["a"] = f"{len(runs)}"
            transaction["b"] = ""

        self.assert_code("conflict", lambda: self.table.transact(never, attempts=3))
        self.assertEqual(runs, [None, b"1", b"2"])
        self.assertNotIn("b", self.table)

    def test_transact_passes_on_an_exception_and_changes_nothing(self):
        def fail(transaction):
            transaction["a"] = "b"
            raise LookupError("no")

        with self.assertRaises(LookupError):
            self.table.transact(fail)
        self.assertEqual(len(self.table), 0)


class OneStep(Moments):
    """`compare_and_swap` and `increment`."""

    def test_compare_and_swap_changes_what_is_expected_only(self):
        swap = self.table.compare_and_swap
        self.assertIs(swap("leader", None, "alice"), True)
        self.assertIs(swap("leader", None, "bob"), False)
        self.assertIs(swap("leader", "bob", "carol"), False)
        self.assertEqual(self.table["leader"], b"alice")
        self.assertIs(swap("leader", b"alice", bytearray(b"bob")), True)
        self.assertEqual(self.table["leader"], b"bob")
        self.assertIs(swap("leader", "bob", None), True)
        self.assertEqual(len(self.table), 0)
        with self.assertRaises(TypeError):
            swap("leader", 1, None)

    def test_increment_counts_exactly_whoever_counts(self):
        def count():
            for _ in range(500):
                self.table.increment("visits")

        threads = [threading.Thread(target=count) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.table.increment("visits", -1), 1999)
        self.assertEqual(int.from_bytes(self.table["visits"], "little", signed=True), 1999)

    def test_increment_refuses_what_does_not_fit(self):
        self.table["text"] = "7"
        self.assert_code("invalid", self.table.increment, "text")
        self.assertEqual(self.table["text"], b"7")
        self.assertEqual(self.table.increment("large", 2**63 - 1), 2**63 - 1)
        self.assert_code("invalid", self.table.increment, "large")
        self.assert_code("invalid", self.table.increment, "large", 2**63)


if __name__ == "__main__":
    unittest.main()
