import os
from dbm import _TFlags
from typing import Final

from . import Table
from . import error as _error

__all__ = ["error", "install", "library", "open", "open_flags", "uninstall", "whichdb"]

error: Final[tuple[type[_error], type[OSError]]]
library: str
open_flags: str

class _Table(Table):
    def keys(self) -> list[bytes]: ...  # type: ignore[override]

def open(
    file: str | bytes | os.PathLike[str] | os.PathLike[bytes], flag: _TFlags = "r", mode: int = 0o666
) -> _Table: ...
def whichdb(
    filename: str | bytes | os.PathLike[str] | os.PathLike[bytes],
) -> str | None: ...
def install(default: bool = True) -> None: ...
def uninstall() -> None: ...
