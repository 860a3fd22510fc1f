"""`Snapshot` and `Transaction`: tables of one moment."""

# What is rarely used is imported where it is.
import collections.abc

from . import _native
from ._errors import error, make
from ._views import ItemsView, KeysView, ValuesView

__all__ = ["Snapshot", "Transaction"]

# The longest wait before a transaction is tried again.
_PAUSE_MAX_S = 0.05


class _Moment:
    """What both have: a ``with``, and the views of a mapping that scans itself."""

    __slots__ = ()

    def __enter__(self):
        if self.closed:
            name = type(self).__name__.lower()
            raise make("closed", None, f"the {name} has ended, or its table is closed", None)
        return self

    def keys(self):
        """Return a view of the keys, in the order of the file."""
        return KeysView(self)

    def values(self):
        """Return a view of the values, in the order of `keys`."""
        return ValuesView(self)

    def items(self):
        """Return a view of the keys with their values, in the order of `keys`."""
        return ItemsView(self)

    # Identity, as of a table.
    __eq__ = object.__eq__
    __hash__ = object.__hash__


class Snapshot(_native.Snapshot, _Moment, collections.abc.Mapping):
    """A table as it was at one moment: `Table.snapshot` returns it.

    Any thread may use it. It sees all of a batch or a transaction, or nothing of it. If it keeps more
    space than 64 MiB, and more than all records took when it was taken, every call raises
    `splitpoint.error` with code ``"snapshot_too_old"``.

    >>> with splitpoint.open_url("mem:") as table:
    ...     table.update(a="1", b="2")
    ...     with table.snapshot() as snapshot:
    ...         table.clear()
    ...         sorted(snapshot.items())
    [(b'a', b'1'), (b'b', b'2')]
    """

    __slots__ = ()

    def __exit__(self, *exception):
        self.close()

    def __repr__(self):
        return f"<splitpoint.Snapshot {'closed' if self.closed else f'{len(self):,} keys'}>"


class Transaction(_native.Transaction, _Moment, collections.abc.MutableMapping):
    """Reads of one moment, and changes that take effect together: `Table.transaction` begins one.

    It reads the table as it was at its first read, and its own changes. `commit`, or the end of a
    ``with``, makes all changes. If something that the transaction has read has changed, it makes none,
    and raises `splitpoint.error` with code ``"conflict"``. Until then nobody waits for a transaction.

    >>> with splitpoint.open_url("mem:") as table:
    ...     with table.transaction() as transaction:
    ...         transaction["a"] = "1"
    ...         transaction.put_many({"b": "2", "c": "3"})
    ...         transaction.get_many(["c", "d"]), len(transaction), len(table)
    ...     len(table)
    ([b'3', None], 3, 0)
    3
    """

    __slots__ = ("_durability", "_is_ended")

    def __new__(cls, table, *, durability=None):
        self = super().__new__(cls, table, durability)
        self._durability = durability
        self._is_ended = False
        return self

    def __exit__(self, kind, exception, traceback):
        if kind is not None:
            self.close()
        elif not self._is_ended:
            # Raises an error if the table was closed meanwhile, so that no change is lost unnoticed.
            self.commit()

    def close(self):
        """End the transaction without its changes. After `commit` this has no effect."""
        self._is_ended = True
        super().close()

    def commit(self, *, durability=None):
        """Make all changes, or none, and end the transaction.

        Raises `splitpoint.error` with code ``"conflict"`` if something that it has read has changed;
        then nothing is changed. `durability` is the level of these changes.
        """
        self._is_ended = True
        super().commit(durability=durability or self._durability)

    def setdefault(self, key, default=b""):
        """Return the value of `key`; if it is missing, store `default` first."""
        return super().setdefault(key, default)

    def update(self, other=(), /, **pairs):
        """Store every key of a mapping, of an iterable of pairs and of the keyword arguments."""
        # The keys that `MutableMapping` would read are not read here, so that nothing conflicts.
        self.put_many(other)
        if pairs:
            self.put_many(pairs)

    def __ior__(self, other):
        self.put_many(other)
        return self

    def clear(self):
        """Delete every key. It reads them all."""
        for key in self.keys():
            self.discard(key)

    def __repr__(self):
        return f"<splitpoint.Transaction{' ended' if self.closed else ''}>"


def transact(table, function, durability, attempts):
    """Do what `Table.transact` says."""
    if attempts < 1:
        raise make("invalid", None, f"attempts must be 1 or more, not {attempts}", None)
    pause_s = 0.0005
    for attempt in range(attempts):
        if attempt:
            import random
            import time

            # The others, who come first, may need several steps as well.
            time.sleep(random.uniform(0, pause_s))
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)
        transaction = table.transaction(durability=durability)
        try:
            with transaction:
                result = function(transaction)
            return result
        except error as passing:
            if passing.code not in ("conflict", "snapshot_too_old"):
                raise
            conflict = passing
    raise conflict
