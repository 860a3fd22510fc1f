"""`Table`, and the functions that open one."""

# Few modules, for an import takes as long as all that it needs: what is rarely used is imported there.
import collections
import collections.abc
import contextlib
import itertools
import os
import warnings

from . import _errors, _moments, _native
from ._views import ItemsView, KeysView, ValuesView, stored

__all__ = ["CheckReport", "Lookups", "Stats", "Table", "equal", "identify", "open", "open_url"]


def open(
    path,
    flag="c",
    mode=0o666,
    *,
    durability="async",
    expected_records=0,
    cache_bytes=None,
    hash=None,
    sharing="one-writer",
    lock_timeout=0.0,
    instrument=False,
):
    """Open the store in the file at `path`, and return it as a `Table`.

    `flag` is one of those of `dbm`: ``"r"`` opens an existing file for reading, ``"w"`` for reading
    and writing, ``"c"`` creates it if it is missing, ``"n"`` puts a new, empty one in its place. A
    new file gets `mode`, less what the umask forbids. A table that reads the old file goes on with that
    one, and so does one with `sharing` ``"per-call"``, whose later changes are lost with it.

    `durability` says what a power loss takes back: ``"async"`` at most the last second or so;
    ``"sync"`` nothing, and each change waits for the device; ``"buffered"`` everything since the
    last `sync`. A killed process loses nothing in any of them.

    `expected_records` makes room in advance, `cache_bytes` bounds the memory that the file takes in
    this process, and `hash` names the hash function of a new file.

    One table at a time may change a file, as long as it is open, and any number read it meanwhile,
    here and in other processes; each sees a change as soon as it is made. With `sharing` ``"exclusive"``
    nobody else has the file open, except that readers have it beside a reader; with ``"shared"`` any
    number of tables change it by turns, and with ``"per-call"`` they do so without a lock between calls.
    An open waits up to `lock_timeout` seconds for others; with ``"shared"`` or ``"per-call"`` it waits at
    least 10 seconds for its turn. A change waits up to 10 seconds for its turn.

    With `instrument` the table counts what its lookups cost, for `Table.lookups` and for
    ``splitpoint stat --watch`` in another process.

    A file of gdbm, ndbm, sdbm, Berkeley DB, cdb or `dbm.dumb` can be opened with ``"r"``, one of
    db 1.85 with every flag.

    Raises `splitpoint.error`.

    >>> with splitpoint.open("capitals.spt") as table:
    ...     table["France"] = "Paris"
    ...     table["France"]
    b'Paris'
    """
    return Table(
        path,
        flag=flag,
        mode=mode,
        durability=durability,
        expected_records=expected_records,
        cache_bytes=cache_bytes,
        hash=hash,
        sharing=sharing,
        lock_timeout=lock_timeout,
        instrument=instrument,
    )


def open_url(url, flag="c"):
    """Open a table of any access method: ``"mem:"`` in memory, ``"file:PATH"``, ``"db185:PATH"``.

    >>> with splitpoint.open_url("mem:") as table:
    ...     table["key"] = "value"
    ...     len(table)
    1
    """
    return Table(url, is_url=True, flag=flag)


def identify(path):
    """Return what the file at `path` is, by its content, or `None` for an unknown format.

    >>> splitpoint.open("words.spt").close()
    >>> splitpoint.identify("words.spt")
    'Splitpoint store'
    """
    return _native.identify(_place(path))


def equal(left, right):
    """Return whether two mappings have the same keys with the same values. It reads all of both.

    ``==`` compares the identity of tables: it should not read two files by accident.

    >>> with splitpoint.open_url("mem:") as table:
    ...     table.update(a="1", b="2")
    ...     splitpoint.equal(table, {b"a": b"1", b"b": b"2"})
    True
    """
    missing = object()
    return len(left) == len(right) and all(
        right.get(key, missing) == value for key, value in left.items()
    )


class Lookups(
    collections.namedtuple("Lookups", ["lookup_count", "hit_count", "compared_count", "line_count"])
):
    """What the lookups of a table have cost since it was opened.

    - `lookup_count`: lookups; `hit_count`: those that found their key.
    - `compared_count`: records whose key was compared with the one that was asked for.
    - `line_count`: cache lines of the index that were read.
    """

    __slots__ = ()


class Stats(
    collections.namedtuple(
        "Stats",
        [
            "record_count",
            "bucket_count",
            "fill_factor",
            "load_factor",
            "overflow_line_count",
            "live_bytes",
            "dead_bytes",
            "file_bytes",
            "log_bytes",
            "durable_bytes",
            "hash_name",
            "chains",
        ],
    )
):
    """The counts and sizes of a table.

    - `record_count`: keys.
    - `bucket_count`: buckets of the index.
    - `fill_factor`: keys per bucket, on average, above which the table grows.
    - `load_factor`: keys divided by slots.
    - `overflow_line_count`: lines of the index beyond the first of a bucket.
    - `live_bytes`, `dead_bytes`: of current records, and of replaced and deleted ones.
    - `file_bytes`: size of the file, or of the memory in use.
    - `log_bytes`: bytes ever written to the log; `durable_bytes`: those that a power loss cannot take.
    - `hash_name`: name of the hash function.
    - `chains`: for each number of keys in a bucket that number, how many buckets have it, and how
      many would with an ideal hash.
    """

    __slots__ = ()


class CheckReport(
    collections.namedtuple("CheckReport", ["record_count", "damage_count", "damages"])
):
    """What a check found: the keys, the number of damages, and the first of them in words."""

    __slots__ = ()

    @property
    def is_clean(self):
        """Whether the check found no damage."""
        return self.damage_count == 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_native.note_fork)


_MISSING = object()

# What a table that is opened again takes over.
_REOPENED = ("cache_bytes", "hash", "sharing", "lock_timeout", "instrument")


class Table(_native.Table, collections.abc.MutableMapping):
    """A dict of bytes in a file: `splitpoint.open` returns it.

    Keys and values are `bytes`, or any buffer; `str` is stored as UTF-8. Reads return `bytes`. A number of
    numpy is a buffer of its bytes, in the order of this machine; an `int` is refused.
    All calls may come from any thread. A class of your own may derive from it; one that is called with
    other arguments overrides ``__new__``, which opens the file.

    >>> table = splitpoint.open("pets.spt", "n")
    >>> table["cat"], table[b"dog"] = "meow", bytes([1, 2])
    >>> table["cat"], table.get("cow"), "dog" in table, len(table)
    (b'meow', None, True, 2)
    >>> sorted(table)
    [b'cat', b'dog']
    >>> table.close()
    """

    __slots__ = (
        "_again",
        "_durability",
        "_given",
        "_is_url",
        "_options",
        "_path",
        "_popped",
        "_walk",
    )

    def __new__(cls, path, *, is_url=False, durability="async", **options):
        place = _place(path)
        self = super().__new__(cls, place, is_url=is_url, durability=durability, **options)
        self._given = path, is_url, durability, options
        self._durability = durability
        self._options = {name: options.get(name) for name in ("cache_bytes", "hash")}
        kept = {name: options[name] for name in _REOPENED if name in options}
        is_reader = options.get("flag", "c").startswith("r")
        self._again = {**kept, "flag": "r" if is_reader else "w", "durability": durability}
        self._is_url = is_url
        self._path = place if is_url else os.path.abspath(place)
        self._popped = []
        self._walk = []
        return self

    def __init__(self, path=_MISSING, *, is_url=False, durability="async", **options):
        # The interpreter calls it with what `__new__` got, and one of a subclass with what that thinks.
        is_called_by_a_subclass = type(self).__init__ is not Table.__init__ and path is not _MISSING
        if is_called_by_a_subclass and (path, is_url, durability, options) != self._given:
            raise TypeError("__new__ has opened the table with other arguments; override it to change them")

    # What Python code may ask of every open file.

    @property
    def path(self):
        """The absolute path of the file; the URL of a table that `open_url` has opened."""
        if self._is_url:
            return self._path
        import pathlib

        return pathlib.Path(self._path)

    @property
    def durability(self):
        """What a power loss takes back: ``"buffered"``, ``"async"`` or ``"sync"``."""
        return self._durability

    def reopen(self):
        """Open the same file again with the same options, and return the new table.

        A child of a fork may read through a table that its parent has opened to write, but not change
        it. To change it, the child opens its own table with this call, after the parent has closed the
        other; with `lock_timeout` it waits until the parent has.

        >>> splitpoint.open("pets.spt").close()
        >>> with splitpoint.open("pets.spt", "r") as table, table.reopen() as again:
        ...     again.readonly, dict(again) == dict(table)
        (True, True)
        """
        if self._is_url and self._path == "mem:":
            raise TypeError("a table in memory has no file to open again")
        return type(self)(self._path, is_url=self._is_url, **self._again)

    def __enter__(self):
        if self.closed:
            raise _errors.make("closed", None, "I/O operation on closed table", None)
        return self

    def __exit__(self, *exception):
        self.close()

    def __del__(self):
        # `__new__` may have failed, and a child of a fork does not own its parent's table.
        if hasattr(self, "_walk") and not self.closed and not self._forked:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)
            self._walk.clear()
            # A view that somebody still has keeps the file open, and the last one closes it.
            with contextlib.suppress(BufferError):
                self.close()

    def __repr__(self):
        name = os.path.basename(self._path)
        if self.closed:
            return f"<splitpoint.Table {name!r} closed>"
        size = ""
        with contextlib.suppress(OSError):
            size = f" {_in_words(os.path.getsize(self._path))},"
        mode = "read-only" if self.readonly else self._durability
        return f"<splitpoint.Table {name!r} {len(self):,} keys,{size} {mode}>"

    def _repr_html_(self):
        """Return what a notebook shows: the lengths of the chains beside those of an ideal hash."""
        if self.closed:
            import html

            return f"<code>{html.escape(repr(self))}</code>"
        from ._chart import page

        return page(repr(self), self.stats())

    def __reduce__(self):
        if self._is_url:
            raise TypeError(f"cannot pickle the table {self._path!r}: only a file can be opened again")
        # A class of the program's own may be made otherwise.
        kind = type(self) if type(self).__module__.startswith("splitpoint") else Table
        return _reopen, (self._path, self._options, kind)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        raise TypeError("a table cannot be copied with deepcopy; use backup, or dict(table)")

    # Identity, as of every other open file.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    # The rest of the dict.

    def keys(self):
        """Return a view of the keys, in the order of the file.

        Each iterator over it returns every key that stays in the table exactly once, also if the
        table changes meanwhile.
        """
        return KeysView(self)

    def values(self):
        """Return a view of the values, in the order of `keys`."""
        return ValuesView(self)

    def items(self):
        """Return a view of the keys with their values, in the order of `keys`."""
        return ItemsView(self)

    def setdefault(self, key, default=b""):
        """Return the value of `key`; if it is missing, store `default` first."""
        while True:
            value = self.get(key)
            if value is not None:
                return value
            self.put_new(key, default)

    def pop(self, key, default=_MISSING):
        """Delete `key` and return its value; if it is missing, `default`, or raise `KeyError`."""
        value = self._take(key)
        if value is not None:
            return value
        if default is _MISSING:
            raise KeyError(key)
        return default

    def popitem(self):
        """Delete any key and return it with its value; raise `KeyError` if the table is empty."""
        for _ in range(2):
            for key in self._unpopped():
                value = self._take(key)
                if value is not None:
                    return key, value
            # An eighth of the keys at a time: few scans for many calls, and no scan stays open.
            self._popped = list(itertools.islice(self, max(64, len(self) // 8)))
            self._popped.reverse()
        # Other threads may have taken what this one had found.
        for key in self:
            value = self._take(key)
            if value is not None:
                return key, value
        raise KeyError("popitem(): the table is empty")

    def _unpopped(self):
        while True:
            try:
                key = self._popped.pop()
            except IndexError:
                return
            yield key

    def update(self, other=(), /, **pairs):
        """Store every key of a mapping, of an iterable of pairs and of the keyword arguments."""
        self.put_many(other)
        if pairs:
            self.put_many(pairs)

    def __ior__(self, other):
        self.put_many(other)
        return self

    # What a dict does not have.

    @contextlib.contextmanager
    def view(self, key):
        """Give the value of `key` as a read-only `memoryview`, without a copy; `None` if missing.

        The bytes stay as they are, whatever happens to the key. The table cannot be closed before
        the view is released.

        >>> with splitpoint.open_url("mem:") as table:
        ...     table["key"] = "value"
        ...     with table.view("key") as value:
        ...         bytes(value[:3])
        b'val'
        """
        pinned = self._pin(key)
        if pinned is None:
            yield None
            return
        value = memoryview(pinned)
        # The last reference but that of the view: releasing it lets go of the value.
        del pinned
        with value:
            yield value

    def snapshot(self):
        """Return the table as it is now, a `Snapshot`: a mapping that no change reaches.

        Close it soon, or use it in a ``with``: what is replaced or deleted meanwhile stays in the file.

        >>> with splitpoint.open_url("mem:") as table:
        ...     table["key"] = "old"
        ...     with table.snapshot() as snapshot:
        ...         table["key"] = "new"
        ...         snapshot["key"], table["key"]
        (b'old', b'new')
        """
        return _moments.Snapshot(self)

    def transaction(self, *, durability=None):
        """Begin a `Transaction`: changes that take effect together, if all it has read is still true.

        The end of a ``with`` commits it, and an exception undoes it. `transact` runs a function in a
        transaction, and again after a conflict. `durability` is the level of its changes.

        >>> with splitpoint.open_url("mem:") as table:
        ...     table["stock"] = "3"
        ...     with table.transaction() as order:
        ...         order["stock"] = str(int(order["stock"]) - 1)
        ...         order["order 17"] = "alice"
        ...     table["stock"]
        b'2'
        """
        return _moments.Transaction(self, durability=durability)

    def transact(self, function, *, durability=None, attempts=100):
        """Call `function` with a `Transaction`, commit it, and return what `function` has returned.

        If the transaction conflicts with what others have changed meanwhile, this calls `function`
        again, with a new transaction; after `attempts` calls it raises the conflict. So `function`
        should have no other effects. If it raises an exception, nothing is changed.

        >>> def pay(accounts):
        ...     for name, amount in ("alice", -5), ("bob", 5):
        ...         accounts[name] = str(int(accounts.get(name, 0)) + amount)
        ...     return int(accounts["bob"])
        >>> with splitpoint.open_url("mem:") as table:
        ...     table.transact(pay)
        5
        """
        return _moments.transact(self, function, durability, attempts)

    def stats(self):
        """Return the counts and sizes of the table as a `Stats`. It reads the whole index."""
        return Stats(**self._stats())

    def lookups(self):
        """Return what the lookups have cost as a `Lookups`; None unless `instrument` asked for it.

        >>> with splitpoint.open("pets.spt", instrument=True) as table:
        ...     "no such pet" in table
        ...     table.lookups().lookup_count
        False
        1
        """
        counts = self._lookups()
        return None if counts is None else Lookups(*counts)

    def check(self, progress=None):
        """Verify every structure against every other, and return a `CheckReport`.

        It calls ``progress(bytes_done, bytes_of_all)`` now and then. Writers wait meanwhile.

        >>> with splitpoint.open_url("mem:") as table:
        ...     table.check().is_clean
        True
        """
        return CheckReport(*self._check(progress))

    def backup(self, path, progress=None):
        """Write a consistent copy of the store to the new file `path`; return its size in bytes.

        Other threads may go on writing. It calls ``progress(bytes_done, bytes_of_all)``.
        """
        return self._backup(_place(path), progress)

    # The names of dbm.gnu.

    def firstkey(self):
        """Return a key with which to begin a walk, or `None`; `nextkey` returns the others."""
        return self._next_of_walk(iter(self))

    def nextkey(self, key):
        """Return the key after `key` in the order of the file, or `None` after the last.

        If `key` is the one that the last call returned, this costs nothing; otherwise it costs a scan.
        """
        sought = stored(key)
        if type(sought) is not bytes:
            # Raises what every call raises for such a key.
            return self[key]
        try:
            # Another thread that is at the same key goes on from there by itself.
            last, walk = self._walk.pop()
        except IndexError:
            last, walk = None, None
        if last != sought:
            other = itertools.dropwhile(lambda found: found != sought, iter(self))
            if next(other, None) is None:
                if walk is not None:
                    self._walk.append((last, walk))
                return None
            walk = other
        return self._next_of_walk(walk)

    def _next_of_walk(self, walk):
        key = next(walk, None)
        # No scan stays open behind the last key.
        self._walk[:] = [] if key is None else [(key, walk)]
        return key


def _reopen(path, options, kind=Table):
    """Open a pickled table again, to read."""
    return kind(path, flag="r", **options)


def _place(path):
    """Return a path, or a URL, as text."""
    place = os.fsdecode(path)
    if "\0" in place:
        raise _errors.make("invalid", None, f"a path must not have a null character: {place!r}", None)
    return place


def _in_words(size):
    """Return a size in bytes for people."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.1f} {unit}" if unit != "bytes" else f"{size} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
