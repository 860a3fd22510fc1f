"""`python -m splitpoint.bench`: the time of one call, beside the other packages that are installed.

It prints the CPU time of the process, user and system, because other work on the machine does not
change that; and the wall time where it is more than twice as much, as it is while a package waits for
the device. Every answer is compared. Below the table is what this package aims at, and what it is here.
"""

import argparse
import gc
import importlib
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import zlib
from contextlib import suppress

import splitpoint

__all__ = ["import_ms", "main", "peers", "wheel_mb"]

_KEY_BYTES, _VALUE_BYTES = 15, 100
# Records in one call of a batch.
_BATCH = 256


class _Peer:
    """A package that stores values under keys, as a mapping."""

    #: Its name in the table.
    name = ""
    #: The module that it needs, if there is one.
    module = None
    #: What a set that has returned survives.
    survives = ""
    #: How many records of a hundred it gets: a slow one gets fewer.
    percent = 100

    def open(self, path):
        """Open a new table, and return it."""
        raise NotImplementedError

    def put(self, table, pairs):
        """Store the pairs, one by one."""
        for key, value in pairs:
            table[key] = value

    def get(self, table, keys):
        """Return the values of the keys, looked up one by one."""
        return [table[key] for key in keys]

    def miss(self, table, keys):
        """Look for keys that are not there, one by one, and return how many are."""
        return sum(key in table for key in keys)

    def close(self, table):
        """Close the table."""
        table.close()


class _Dict(_Peer):
    name, survives = "dict in the same loop", "nothing"

    def open(self, path):
        """Return a dict."""
        return {}

    def close(self, table):
        """Do nothing."""


class _Splitpoint(_Peer):
    name, survives = "splitpoint", "a killed process; power loss after 1 s"
    durability = "async"

    def open(self, path):
        """Open a store."""
        return splitpoint.open(path, "n", durability=self.durability)

    def put_many(self, table, pairs):
        """Store pairs in one call."""
        table.put_many(pairs)

    def get_many(self, table, keys):
        """Look keys up in one call."""
        return table.get_many(keys)


class _SplitpointSync(_Splitpoint):
    name, survives = "splitpoint, durability=sync", "power loss"
    durability, percent = "sync", 1


class _Dbm(_Peer):
    def open(self, path):
        """Open a new file."""
        return importlib.import_module(self.module).open(path, "n")


class _Gnu(_Dbm):
    name = module = "dbm.gnu"
    survives = "a killed process, if not in the middle of a put"


class _Ndbm(_Dbm):
    name = module = "dbm.ndbm"
    survives = "a clean close"


class _DbmSqlite(_Dbm):
    name = module = "dbm.sqlite3"
    survives, percent = "power loss", 1


class _Lmdb(_Peer):
    name, module = "lmdb, one transaction", "lmdb"
    survives = "the commit at the end"

    def open(self, path):
        """Open an environment without syncs."""
        return importlib.import_module("lmdb").open(path, map_size=1 << 32, sync=False)

    def put(self, table, pairs):
        """Store all in one transaction."""
        with table.begin(write=True) as transaction:
            for key, value in pairs:
                transaction.put(key, value)

    def get(self, table, keys):
        """Read all in one transaction."""
        with table.begin() as transaction:
            return [transaction.get(key) for key in keys]

    def miss(self, table, keys):
        """Read all in one transaction."""
        with table.begin() as transaction:
            return sum(transaction.get(key) is not None for key in keys)


class _LmdbEach(_Lmdb):
    name, survives, percent = "lmdb, a transaction each", "a killed process", 20

    def put(self, table, pairs):
        """Store each in its transaction."""
        for key, value in pairs:
            with table.begin(write=True) as transaction:
                transaction.put(key, value)

    def get(self, table, keys):
        """Read each in its transaction."""
        found = []
        for key in keys:
            with table.begin() as transaction:
                found.append(transaction.get(key))
        return found


class _Rocks(_Peer):
    name = module = "rocksdict"
    survives = "a killed process"

    def open(self, path):
        """Open a database of bytes."""
        rocksdict = importlib.import_module("rocksdict")
        return rocksdict.Rdict(path, rocksdict.Options(raw_mode=True))


class _Diskcache(_Peer):
    name = module = "diskcache"
    survives, percent = "a killed process", 5

    def open(self, path):
        """Open a cache."""
        return importlib.import_module("diskcache").Cache(path)


class _Sqlitedict(_Peer):
    name = module = "sqlitedict"
    survives, percent = "the commit at the end", 5

    def open(self, path):
        """Open a table."""
        return importlib.import_module("sqlitedict").SqliteDict(path)

    def put(self, table, pairs):
        """Store all, and commit; its keys are text."""
        for key, value in pairs:
            table[key.decode()] = value
        table.commit()

    def get(self, table, keys):
        """Look up one by one."""
        return [table[key.decode()] for key in keys]

    def miss(self, table, keys):
        """Look for each."""
        return sum(key.decode() in table for key in keys)


class _Sqlite(_Peer):
    name, module, survives = "sqlite3, one transaction", "sqlite3", "the commit at the end"

    def open(self, path):
        """Create a table."""
        table = importlib.import_module("sqlite3").connect(path)
        table.execute("CREATE TABLE t (k BLOB PRIMARY KEY, v BLOB) WITHOUT ROWID")
        return table

    def put(self, table, pairs):
        """Insert all, and commit."""
        for pair in pairs:
            table.execute("INSERT INTO t VALUES (?, ?)", pair)
        table.commit()

    def _find(self, table, key):
        return table.execute("SELECT v FROM t WHERE k = ?", (key,)).fetchone()

    def get(self, table, keys):
        """Select one by one."""
        return [self._find(table, key)[0] for key in keys]

    def miss(self, table, keys):
        """Select one by one."""
        return sum(self._find(table, key) is not None for key in keys)


class _Shelf(_Peer):
    name, percent = "shelve on splitpoint", 20
    survives = _Splitpoint.survives

    def open(self, path):
        """Open a shelf."""
        return importlib.import_module("splitpoint.shelve").open(path, "n")

    def put(self, table, pairs):
        """Store one by one; the keys of shelves are text."""
        for key, value in pairs:
            table[key.decode()] = value

    def get(self, table, keys):
        """Look up one by one."""
        return [table[key.decode()] for key in keys]

    def miss(self, table, keys):
        """Look for each."""
        return sum(key.decode() in table for key in keys)


class _ShelfGnu(_Shelf):
    name, module, survives = "shelve on dbm.gnu", "dbm.gnu", _Gnu.survives

    def open(self, path):
        """Open a shelf on gdbm."""
        gnu, shelve = importlib.import_module("dbm.gnu"), importlib.import_module("shelve")
        return shelve.Shelf(gnu.open(path, "n"))


_PEERS = [
    _Dict, _Splitpoint, _SplitpointSync, _Gnu, _Ndbm, _DbmSqlite, _Lmdb, _LmdbEach, _Rocks,
    _Sqlite, _Diskcache, _Sqlitedict, _Shelf, _ShelfGnu,
]  # fmt: skip


def peers():
    """Return the names of the packages that are installed, of all that this can measure.

    >>> "splitpoint" in peers()
    True
    """
    return [peer.name for peer in _installed()]


def _installed():
    found = []
    for peer in _PEERS:
        with suppress(ImportError):
            if peer.module is not None:
                importlib.import_module(peer.module)
            found.append(peer())
    return found


def _timed(count, work):
    """Return what `work` returns, with its CPU time and its wall time in us for each of `count`."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return result, {"cpu_us": cpu / count * 1e6, "wall_us": wall / count * 1e6}


def _disk_bytes(path):
    """Return the blocks of a file, of a directory, or of files of which `path` is the stem."""
    start = pathlib.Path(path)
    files = [start, *start.parent.glob(start.name + ".*"), *start.rglob("*")]
    return sum(file.stat().st_blocks * 512 for file in files if file.is_file())


def _measure(peer, pairs, directory):
    """Return the times of one peer, after comparing its answers."""
    pairs = pairs[: max(1, len(pairs) * peer.percent // 100)]
    keys = [key for key, _ in pairs]
    missing = [key[::-1] + b"?" for key in keys]
    shuffled = random.Random(1).sample(pairs, len(pairs))
    wanted, values = [key for key, _ in shuffled], [value for _, value in shuffled]
    path = os.path.join(directory, "table")
    table = peer.open(path)
    times = {"records": len(pairs)}
    try:
        _, times["set"] = _timed(len(pairs), lambda: peer.put(table, pairs))
        found, times["get"] = _timed(len(pairs), lambda: peer.get(table, wanted))
        there, times["miss"] = _timed(len(pairs), lambda: peer.miss(table, missing))
        if hasattr(peer, "get_many"):
            batches = [wanted[i : i + _BATCH] for i in range(0, len(wanted), _BATCH)]
            again, times["get_many"] = _timed(
                len(pairs), lambda: [peer.get_many(table, batch) for batch in batches]
            )
            found_again = [value for batch in again for value in batch]
        else:
            found_again = values
    finally:
        peer.close(table)
    if not (found == found_again == values and there == 0):
        raise AssertionError(f"{peer.name} returned other values than were stored")
    if os.path.exists(path) or list(pathlib.Path(directory).iterdir()):
        times["disk_bytes"] = _disk_bytes(path) / len(pairs)
    if hasattr(peer, "put_many"):
        times["put_many"] = _measure_put_many(peer, pairs, path + "-2")
    return times


def _measure_put_many(peer, pairs, path):
    table = peer.open(path)
    try:
        batches = [pairs[i : i + _BATCH] for i in range(0, len(pairs), _BATCH)]
        _, time = _timed(len(pairs), lambda: [peer.put_many(table, batch) for batch in batches])
        if len(table) != len(pairs):
            raise AssertionError(f"{peer.name} stored {len(table)} of {len(pairs)} records")
    finally:
        peer.close(table)
    return time


def _cell(times, name):
    if name not in times:
        return "-"
    cpu, wall = times[name]["cpu_us"], times[name]["wall_us"]
    words = f"{cpu:.2f}" if cpu < 10 else f"{cpu:,.0f}"
    return words if wall < 2 * cpu + 1 else f"{words} ({wall:,.0f} wall)"


def _row(peer, times):
    batch = " / ".join(_cell(times, name) for name in ("get_many", "put_many"))
    disk = f"{times['disk_bytes']:.0f}" if "disk_bytes" in times else "-"
    cells = [peer.name, *(_cell(times, name) for name in ("set", "get", "miss")), batch, disk]
    return "| " + " | ".join([*cells, peer.survives]) + " |"


def _flush_us(directory, count=50):
    """Return the wall time of a small write and a flush of the device, the least work of a durable put."""
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        file.write(bytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())
        begun = time.perf_counter()
        for place in range(count):
            os.pwrite(file.fileno(), bytes(_KEY_BYTES + _VALUE_BYTES), place * 4096)
            os.fdatasync(file.fileno())
        return (time.perf_counter() - begun) / count * 1e6


def import_ms(count=7):
    """Return the CPU time of an import in a new interpreter, the least of some."""
    script = (
        "import time\n"
        "begun = time.process_time()\n"
        "import splitpoint\n"
        "print(time.process_time() - begun)"
    )
    command = [sys.executable, "-c", script]
    runs = (subprocess.run(command, capture_output=True, check=True) for _ in range(count))
    return min(float(run.stdout) for run in runs) * 1e3


def wheel_mb():
    """Return the size of the package's files when they are compressed as in a wheel."""
    package = pathlib.Path(splitpoint.__file__).parent
    files = [file for file in package.rglob("*") if file.is_file() and file.suffix != ".pyc"]
    return sum(len(zlib.compress(file.read_bytes())) for file in files) / 1e6


def _goals(results, directory):
    """Yield each goal: its words, what was measured, and the most that is wanted, both with units."""

    def cpu(peer, name):
        return results[peer][name]["cpu_us"]

    own, durable = _Splitpoint.name, _SplitpointSync.name
    if own in results:
        get, get_many = cpu(own, "get"), cpu(own, "get_many")
        if _Dict.name in results:
            # A key of a batch has no call of its own: what is left is the store, and its object.
            most = 1.5 * cpu(_Dict.name, "get") + get_many
            yield "a get: 1.5 times that of a dict, and the store's own time", get, most, "us"
        if _Gnu.name in results:
            yield "a put: a tenth of dbm.gnu's", cpu(own, "set"), cpu(_Gnu.name, "set") / 10, "us"
        yield "a key of get_many: half of a get", get_many, get / 2, "us"
        yield "a record of put_many: half of a put", cpu(own, "put_many"), cpu(own, "set") / 2, "us"
    if durable in results:
        flush = 1.25 * _flush_us(directory)
        yield "a durable put: a write and a flush", results[durable]["set"]["wall_us"], flush, "us"
    yield "the import", import_ms(), 20.0, "ms"
    yield "the wheel", wheel_mb(), 3.0, "MB"


def main(arguments=None):
    """Measure, and print a table in Markdown, or JSON."""
    parser = argparse.ArgumentParser(prog="python -m splitpoint.bench", description=__doc__)
    parser.add_argument("--records", type=int, default=100_000, help="default: %(default)s")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these packages")
    parser.add_argument("--directory", help="where the files are; default: that of temporary files")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    if options.records < 1:
        parser.error("--records is at least 1")
    directory = options.directory or tempfile.gettempdir()
    if not (os.path.isdir(directory) and os.access(directory, os.W_OK | os.X_OK)):
        parser.error(f"cannot create files in {directory!r}: choose another --directory")
    chosen = [peer for peer in _installed() if not options.only or peer.name in options.only]
    unknown = set(options.only or ()) - {peer.name for peer in chosen}
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: not installed; there are {', '.join(peers())}")
    chance = random.Random(0)
    keys = [b"%015d" % number for number in chance.sample(range(10**_KEY_BYTES), options.records)]
    pairs = [(key, chance.randbytes(_VALUE_BYTES)) for key in keys]
    if not options.json:
        print(f"CPU us per operation; {options.records:,} records of {_KEY_BYTES} + {_VALUE_BYTES}")
        print(f"bytes, fewer for slow packages; CPython {sys.version.split()[0]}\n")
        print("| package | set | get | miss | batch of 256: get / put | disk bytes | a set survives |")
        print("|---|--:|--:|--:|--:|--:|---|")
    results = {}
    for peer in chosen:
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            results[peer.name] = _measure(peer, pairs, directory)
        if not options.json:
            print(_row(peer, results[peer.name]), flush=True)
    if options.json:
        print(json.dumps(results, indent=2))
        return
    print("\n| goal | measured | at most | |\n|---|--:|--:|---|")
    for words, found, most, unit in _goals(results, options.directory):
        verdict = "reached" if found <= most else "missed"
        print(f"| {words} | {found:.2f} {unit} | {most:.2f} {unit} | {verdict} |", flush=True)


if __name__ == "__main__":
    main()
