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
table["large"] = bytes(VALUE_BYTES)
snapshot = table.snapshot()
transaction = table.transaction()
words = [str(number) for number in range(1000)]
calls = {
    "getitem": lambda: table["large"],
    "get": lambda: table.get("large"),
    "get_many": lambda: table.get_many(["large"]),
    "many misses": lambda: table.get_many("absent" for _ in range(3_000_000)),
    "values": lambda: list(table.values()),
    "items": lambda: list(table.items()),
    "snapshot": lambda: snapshot["large"],
    "transaction": lambda: transaction["large"],
    "check": lambda: table.check(),
    "backup": lambda: table.backup("copy.spt"),
    "measure": lambda: splitpoint.lab.measure(words, ["xxh3-64"]),
}
call = calls[sys.argv[1]]
limit(int(sys.argv[2]))
try:
    call()
    raised = "nothing"
except BaseException as error:
    raised = error
lift()
print(type(raised).__name__, getattr(raised, "code", None), raised)
table["after"] = "1"
transaction.close()
snapshot.close()
table.close()
with splitpoint.open("table.spt") as table:
    assert len(table["large"]) == VALUE_BYTES and table["after"] == b"1"
    assert table.check().is_clean
"""


class Limits(Scratch):
    """A limit of the process ends a call, and neither the process nor the table."""

    def raised(self, call, room_bytes):
        """Return what `call` raises with so much address space."""
        return self.python("-c", CHILD, call, str(room_bytes)).stdout.strip()

    def test_a_value_that_does_not_fit_into_memory_raises(self):
        for call in ("getitem", "get", "get_many", "many misses", "snapshot"):
            with self.subTest(call):
                self.assertEqual(self.raised(call, 8_000_000), "MemoryError None")
        full = "`table.spt`: the address space of this process is full: 40000000 more bytes do not fit"
        for call in ("values", "items", "transaction"):
            with self.subTest(call):
                self.assertEqual(self.raised(call, 8_000_000), f"error full {full}")
                # Room for a single copy.
                self.assertEqual(self.raised(call, 60_000_000), "MemoryError None")

    def test_work_that_gets_no_thread_raises(self):
        for call in ("check", "backup"):
            with self.subTest(call):
                raised = self.raised(call, 1_000_000)
                self.assertRegex(raised, "^error io cannot start a thread for `table.spt`: ")
        raised = self.raised("measure", 1_000_000)
        self.assertRegex(raised, "^BlockingIOError None .*cannot start a thread: ")


if __name__ == "__main__":
    unittest.main()
