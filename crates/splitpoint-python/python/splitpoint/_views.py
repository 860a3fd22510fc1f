"""The views of a table's keys, values and items."""

import collections.abc

__all__ = ["ItemsView", "KeysView", "ValuesView", "stored"]


def stored(item):
    """Return a key or a value as the table has it; what can be neither stays as it is."""
    if type(item) is bytes:
        return item
    try:
        return item.encode() if isinstance(item, str) else memoryview(item).tobytes()
    except (TypeError, UnicodeEncodeError):
        return item


class SetView:
    """The set operations of the views, on any iterable as those of a dict."""

    __slots__ = ()

    def _elements_of(self, other):
        # A view of another table is taken as it is.
        if isinstance(other, SetView) or not isinstance(other, collections.abc.Iterable):
            return other
        return {self._element(item) for item in other}

    def __and__(self, other):
        return super().__and__(self._elements_of(other))

    def __or__(self, other):
        return super().__or__(self._elements_of(other))

    def __xor__(self, other):
        return super().__xor__(self._elements_of(other))

    def __sub__(self, other):
        return super().__sub__(self._elements_of(other))

    def __rsub__(self, other):
        return super().__rsub__(self._elements_of(other))

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__


class KeysView(SetView, collections.abc.KeysView):
    __slots__ = ()

    def _element(self, key):
        return stored(key)

    def __contains__(self, key):
        key = stored(key)
        return type(key) is bytes and key in self._mapping


class ValuesView(collections.abc.ValuesView):
    __slots__ = ()

    def __iter__(self):
        return self._mapping._scan_values()

    def __contains__(self, value):
        value = stored(value)
        return any(value == found for found in self)


class ItemsView(SetView, collections.abc.ItemsView):
    __slots__ = ()

    def _element(self, item):
        is_pair = isinstance(item, tuple) and len(item) == 2
        return tuple(map(stored, item)) if is_pair else item

    def __iter__(self):
        return self._mapping._scan_items()

    def __contains__(self, item):
        if not (isinstance(item, tuple) and len(item) == 2):
            return False
        key, value = map(stored, item)
        # The value of a missing key is `None`, which no value equals.
        return type(key) is bytes and type(value) is bytes and self._mapping.get(key) == value
