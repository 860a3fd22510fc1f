"""What a table raises where the system gives the process no memory and no threads."""

import unittest

from scratch import Scratch

# Leaves the process `bytes` of address space beside what it has, calls what follows, and prints what it raised.
CHILD = """
import resource, sys
import splitpoint, splitpoint.lab

VALUE_BYTES = 40_000_000

def limit(room_bytes):
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + room_bytes, -1))

def lift():
    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))

table = splitpoint.open("table.spt", "n")
table["large"] = table["other"] = bytes(VALUE_BYTES)
snapshot = table.snapshot()
transaction = table.transaction()
words = [str(number) for number in range(1000)]
walk = iter(())

def step(view):
    global walk
    walk = iter(view)
    next(walk)

kept = []

def keep(keys):
    kept.append(keys)
    if len(kept) == 1:
        limit(int(sys.argv[2]))
    return map(len, keys)

large_words = [bytes(VALUE_BYTES), *words]
# Each gets a list of its own, for which the first ones leave no memory.
keepers = [lambda keys: keep(keys) for _ in range(4)]
few = [str(number) for number in range(200_000)]
few_changes = {word: word for word in few}
many_words = few * 20
many_changes = [(word, "value") for word in many_words]

def put_until_full():
    try:
        for number in range(10_000):
            transaction[str(number)] = bytes(1_000_000)
    finally:
        lift()
        # What came before is still there.
        assert transaction["0"] == bytes(1_000_000) and "9999" not in transaction

calls = {
    "transaction put": put_until_full,
    "apply a list": lambda: table.apply(many_changes),
    "apply a dict": lambda: table.apply(few_changes),
    "apply an iterator": lambda: table.apply(iter(many_changes)),
    "getitem": lambda: table["large"],
    "get": lambda: table.get("large"),
    "get_many": lambda: table.get_many(["large"]),
    "many misses": lambda: table.get_many("absent" for _ in range(3_000_000)),
    "pop": lambda: table.pop("large"),
    "popitem": lambda: table.popitem(),
    "values": lambda: step(table.values()),
    "items": lambda: step(table.items()),
    "snapshot": lambda: snapshot["large"],
    "transaction getitem": lambda: transaction["large"],
    "transaction get_many": lambda: transaction.get_many(["large"]),
    "transaction pop": lambda: transaction.pop("large"),
    "transaction popitem": lambda: transaction.popitem(),
    "transaction values": lambda: step(transaction.values()),
    "check": lambda: table.check(),
    "backup": lambda: table.backup("copy.spt"),
    "own hash": lambda: splitpoint.lab.measure(large_words, keepers, threads=1),
    "measure": lambda: splitpoint.lab.measure(words, ["xxh3-64"]),
    "measure many keys": lambda: splitpoint.lab.measure((str(n) for n in range(3_000_000)), ["djb2"], threads=1),
    "measure many buckets": lambda: splitpoint.lab.measure(words, ["djb2"], buckets=1 << 28, threads=1),
    "partial": lambda: splitpoint.lab.Partial("djb2", buckets=1 << 28),
    "partial add": lambda: part.add(str(n) for n in range(3_000_000)),
    "partial merge": lambda: part.merge(part),
    "partial bytes": lambda: splitpoint.lab.Partial.from_bytes(large_part),
}
if sys.argv[1].startswith("partial"):
    part = splitpoint.lab.Partial("djb2", buckets=1 << 22)
    part.add(words)
    large_part = part.to_bytes()
call = calls[sys.argv[1]]
if sys.argv[1] != "own hash":
    limit(int(sys.argv[2]))
try:
    call()
    raised = "nothing"
except BaseException as error:
    raised = error
lift()
print(type(raised).__name__, getattr(raised, "code", None), raised)
# An iterator that has raised is at its end: it passes over nothing.
assert list(walk) == []
assert "large" in transaction and "other" in transaction
table["after"] = "1"
transaction.close()
snapshot.close()
table.close()
with splitpoint.open("table.spt") as table:
    assert len(table) == 3 and len(table["large"]) == len(table["other"]) == VALUE_BYTES and table["after"] == b"1"
    assert table.check().is_clean
"""


class Limits(Scratch):
    """A limit of the process ends a call, and neither the process nor the table."""

    def raised(self, call, room_bytes):
        """Return what `call` raises with so much address space."""
        return self.python("-c", CHILD, call, str(room_bytes)).stdout.strip()

    def test_a_value_that_does_not_fit_into_memory_raises(self):
        for call in ("getitem", "get", "get_many", "many misses", "snapshot", "pop", "popitem"):
            with self.subTest(call):
                self.assertEqual(self.raised(call, 8_000_000), "MemoryError None")
        of_transaction = "getitem", "get_many", "pop", "popitem", "values"
        for call in ("values", "items", *(f"transaction {name}" for name in of_transaction)):
            # No room, and room for a single copy.
            for room_bytes in (8_000_000, 60_000_000):
                with self.subTest(call, room_bytes=room_bytes):
                    self.assertEqual(self.raised(call, room_bytes), "MemoryError None")

    def test_a_batch_or_a_transaction_that_does_not_fit_into_memory_raises(self):
        for call in "transaction put", "apply a list", "apply an iterator":
            # Enough for a part of what the call needs.
            for room_bytes in (8_000_000, 60_000_000):
                with self.subTest(call, room_bytes=room_bytes):
                    self.assertEqual(self.raised(call, room_bytes), "MemoryError None")
        self.assertEqual(self.raised("apply a dict", 1_000_000), "MemoryError None")

    def test_a_large_transaction_without_room_names_its_temporary_file(self):
        script = (
            "import os, resource, splitpoint\n"
            "table = splitpoint.open('table.spt', 'n')\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, -1))\n"
            "with table.transaction() as transaction:\n"
            "    try:\n"
            "        for number in range(100):\n"
            "            transaction[str(number)] = bytes(1_000_000)\n"
            "    except splitpoint.error as error:\n"
            "        print(os.path.samefile(error.filename, '.'), error)\n"
            "    transaction.rollback()\n"
        )
        self.assertRegex(
            self.python("-c", script).stdout,
            "^True .*cannot write the changes of a large transaction to an unnamed file in `.*`: File too large "
            r"\(os error 27\); make room for it, or commit smaller transactions",
        )

    def test_keys_for_a_function_of_the_lab_that_do_not_fit_raise(self):
        self.assertEqual(self.raised("own hash", 8_000_000), "MemoryError None")

    def test_keys_and_counts_of_the_lab_that_do_not_fit_raise(self):
        # No room, and room for a part of the keys.
        for room_bytes in (12_000_000, 60_000_000):
            with self.subTest(room_bytes=room_bytes):
                self.assertEqual(self.raised("measure many keys", room_bytes), "MemoryError None")
        for call in "measure many buckets", "partial", "partial add", "partial merge", "partial bytes":
            with self.subTest(call):
                self.assertEqual(self.raised(call, 12_000_000), "MemoryError None")

    def test_work_that_gets_no_thread_raises(self):
        for call in ("check", "backup"):
            with self.subTest(call):
                raised = self.raised(call, 1_000_000)
                self.assertRegex(raised, "^error io cannot start a thread for `table.spt`: ")
        raised = self.raised("measure", 1_000_000)
        self.assertRegex(raised, "^BlockingIOError None .*cannot start a thread: ")


if __name__ == "__main__":
    unittest.main()
