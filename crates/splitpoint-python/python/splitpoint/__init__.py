"""A dict on disk: one crash-safe file, which a killed process leaves whole.

>>> table = splitpoint.open("capitals.spt")
>>> table["France"] = "Paris"
>>> table["France"]
b'Paris'
>>> table.close()

`splitpoint.dbm` and `splitpoint.shelve` stand in for the modules `dbm` and `shelve`, and
`splitpoint.lab` measures hash functions on your own keys. `python -m splitpoint` is the command,
without the studies of its lab.
"""

from ._errors import error
from ._moments import Snapshot, Transaction
from ._native import __version__
from ._table import CheckReport, Lookups, Stats, Table, equal, identify, open, open_url

__all__ = [
    "CheckReport",
    "Lookups",
    "Snapshot",
    "Stats",
    "Table",
    "Transaction",
    "__version__",
    "equal",
    "error",
    "identify",
    "open",
    "open_url",
]

_classes = (CheckReport, Lookups, Snapshot, Stats, Table, Transaction)
for _item in (*_classes, equal, identify, open, open_url):
    _item.__module__ = "splitpoint"
del _classes, _item
