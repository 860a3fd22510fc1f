"""The interface of the standard module `shelve`, on Splitpoint's stores.

>>> import splitpoint.shelve
>>> with splitpoint.shelve.open("people") as shelf:
...     shelf["ann"] = {"age": 30, "pets": ["cat"]}
...     shelf["ann"]["age"]
30
"""

import pickle as _pickle
import shelve as _shelve

from . import _table

__all__ = ["Shelf", "open"]


class Shelf(_shelve.Shelf):
    """A `shelve.Shelf` on a `splitpoint.Table`, which closing it closes.

    With `writeback`, `sync` and `close` write back every object that was fetched, all of them or none
    if the program is killed meanwhile. `serializer` and `deserializer` replace `pickle`:
    ``serializer(object, protocol)`` returns the bytes that ``deserializer(bytes)`` takes.
    """

    def __init__(
        self,
        table,
        protocol=None,
        writeback=False,
        keyencoding="utf-8",
        *,
        serializer=None,
        deserializer=None,
    ):
        if (serializer is None) != (deserializer is None):
            raise TypeError("serializer and deserializer are given together, or neither is")
        super().__init__(table, protocol, writeback, keyencoding)
        self._serialize = serializer or _pickle.dumps
        self._deserialize = deserializer or _pickle.loads

    def __getitem__(self, key):
        if key in self.cache:
            return self.cache[key]
        try:
            stored = self.dict[self._encoded(key)]
        except KeyError:
            raise KeyError(key) from None
        # A `KeyError` of an object that cannot be unpickled is no missing key.
        value = self._deserialize(stored)
        if self.writeback:
            self.cache[key] = value
        return value

    def __setitem__(self, key, value):
        if self.writeback:
            self.cache[key] = value
        self.dict[self._encoded(key)] = self._serialize(value, self._protocol)

    def __delitem__(self, key):
        try:
            super().__delitem__(key)
        except KeyError:
            raise KeyError(key) from None

    def get(self, key, default=None):
        """Return the object of `key`, or `default`."""
        return self[key] if key in self else default

    def setdefault(self, key, default=None):
        """Return the object of `key`, after storing `default` if there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def sync(self):
        """Write back what was fetched, if the shelf has `writeback`, and make it all durable."""
        if self.writeback and self.cache:
            changes = [
                (self._encoded(key), self._serialize(value, self._protocol))
                for key, value in self.cache.items()
            ]
            self.dict.apply(changes)
            self.cache = {}
        # What stands for the table of a closed shelf has no `sync`.
        if hasattr(self.dict, "sync"):
            self.dict.sync()

    def _encoded(self, key):
        return key.encode(self.keyencoding)


def open(
    filename,
    flag="c",
    protocol=None,
    writeback=False,
    *,
    serializer=None,
    deserializer=None,
    **options,
):
    """Open the shelf in the store `filename`; `options` are those of `splitpoint.open`."""
    table = _table.open(filename, flag, **options)
    try:
        return Shelf(
            table, protocol, writeback, serializer=serializer, deserializer=deserializer
        )
    except BaseException:
        table.close()
        raise
