"""The interface of `dbm.gnu` and `dbm.ndbm`, on Splitpoint's stores.

>>> import splitpoint.dbm
>>> with splitpoint.dbm.open("capitals", "c") as db:
...     db["France"] = "Paris"
...     db["France"]
b'Paris'

A program that calls `dbm.open` or `shelve.open` itself gets Splitpoint's stores after `install`,
which is never done behind its back.
"""

import dbm as _dbm
import importlib as _importlib
import sys as _sys
import types as _types

from . import _native, _table
from ._errors import error as _error

__all__ = ["error", "install", "library", "open", "open_flags", "uninstall", "whichdb"]

#: What `open` and the calls on its table raise, as a tuple for `except`.
error = (_error, OSError)

#: The name of the library and its version.
library = f"splitpoint {_native.__version__}"

#: The letters that `open` takes; those behind the first have no effect.
open_flags = "rwcnfsu"

# The name under which the standard module knows this one.
_NAME = "dbm.splitpoint"


class _Table(_table.Table):
    """A `splitpoint.Table` as the modules of `dbm` have it: `keys` returns a list."""

    __slots__ = ()

    def keys(self):
        """Return a list of the keys, in the order of the file."""
        return list(self)


def open(file, flag="r", mode=0o666):
    """Open the store `file`, with the flags of `dbm.open`, and return a `splitpoint.Table`.

    Its `keys` returns a list, as with the modules of `dbm`. It may change while it is iterated.
    """
    return _Table(file, flag=flag, mode=mode)


def whichdb(filename):
    """Return which module opens a file: ``"splitpoint"``, or what `dbm.whichdb` says."""
    return "splitpoint" if _is_store(filename) else _original_whichdb(filename)


def install(default=True):
    """Let `dbm.open` and `shelve.open` use this module, until `uninstall`.

    They open existing stores with it, and old files whose own module this Python lacks; they create new
    files with it if `default`, and otherwise only where no other module can. It replaces `dbm.whichdb` and adds to `dbm._names` and `dbm._modules`, which
    are private names of the standard library.

    >>> import dbm, splitpoint.dbm
    >>> splitpoint.dbm.install()
    >>> with dbm.open("installed", "c") as db:
    ...     isinstance(db, splitpoint.Table)
    True
    >>> dbm.whichdb("installed")
    'dbm.splitpoint'
    >>> splitpoint.dbm.uninstall()
    """
    uninstall()
    module = _types.ModuleType(_NAME, __doc__)
    module.__dict__.update(open=open, error=_error, library=library, open_flags=open_flags)
    _dbm._names.insert(0 if default else len(_dbm._names), _NAME)
    _dbm._modules[_NAME] = module
    # `dbm.open` chooses the first of the names when it is called next, and imports the others.
    _dbm._defaultmod = None
    _dbm.whichdb = _installed_whichdb
    _dbm.splitpoint = module
    _sys.modules[_NAME] = module


def uninstall():
    """Undo `install`. Without one, it does nothing.

    >>> splitpoint.dbm.uninstall()
    """
    if _sys.modules.pop(_NAME, None) is None:
        return
    _dbm._names.remove(_NAME)
    _dbm._modules.pop(_NAME, None)
    _dbm._defaultmod = None
    _dbm.whichdb = _original_whichdb
    del _dbm.splitpoint


_original_whichdb = _dbm.whichdb


def _installed_whichdb(filename):
    if _is_store(filename):
        return _NAME
    found = _original_whichdb(filename)
    # An empty name is that of a file that no module of the standard library opens.
    is_read_here = found is not None and not _has_module(found) and _identified(filename)
    return _NAME if is_read_here else found


def _has_module(name):
    try:
        return bool(name) and bool(_importlib.import_module(name))
    except ImportError:
        return False


def _is_store(filename):
    return _identified(filename) == "Splitpoint store"


def _identified(filename):
    try:
        return _table.identify(filename)
    except OSError:
        return None
