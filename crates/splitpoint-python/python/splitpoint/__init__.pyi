"""A dict on disk; see the module's own documentation."""

import contextlib
import os
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeAlias, TypeVar, overload

from typing_extensions import Buffer

from . import _native

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

__version__: str

# `str` is stored as UTF-8.
_Key: TypeAlias = str | Buffer
_Value: TypeAlias = str | Buffer
_Path: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]
_Durability: TypeAlias = Literal["buffered", "async", "sync"]
_Flag: TypeAlias = Literal["r", "w", "c", "n"]
_Sharing: TypeAlias = Literal["one-writer", "exclusive", "shared", "per-call"]
_Progress: TypeAlias = Callable[[int, int], object]
_T = TypeVar("_T")

class error(OSError):
    code: str

class Lookups(NamedTuple):
    lookup_count: int
    hit_count: int
    compared_count: int
    line_count: int

class Stats(NamedTuple):
    record_count: int
    bucket_count: int
    fill_factor: float
    load_factor: float
    overflow_line_count: int
    live_bytes: int
    dead_bytes: int
    file_bytes: int
    log_bytes: int
    durable_bytes: int
    hash_name: str
    chains: list[tuple[int, int, float]]

class CheckReport(NamedTuple):
    record_count: int
    damage_count: int
    damages: list[str]
    @property
    def is_clean(self) -> bool: ...

class Table(_native.Table, MutableMapping[bytes, bytes]):  # type: ignore[misc]
    def __new__(
        cls,
        path: _Path,
        *,
        is_url: bool = False,
        durability: _Durability = "async",
        **options: Any,
    ) -> Self: ...
    def __init__(
        self,
        path: _Path = ...,
        *,
        is_url: bool = False,
        durability: _Durability = "async",
        **options: Any,
    ) -> None: ...
    @property
    def path(self) -> Path | str: ...
    @property
    def durability(self) -> _Durability: ...
    def reopen(self) -> Self: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...
    def __del__(self) -> None: ...
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, memo: Any) -> Self: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __ior__(self, other: _native._Pairs) -> Self: ...
    def setdefault(self, key: _Key, default: _Value = b"") -> bytes: ...
    @overload
    def pop(self, key: _Key) -> bytes: ...
    @overload
    def pop(self, key: _Key, default: _T) -> bytes | _T: ...
    def popitem(self) -> tuple[bytes, bytes]: ...
    def update(self, other: _native._Pairs = (), /, **pairs: _Value) -> None: ...  # type: ignore[override]
    def view(self, key: _Key) -> contextlib.AbstractContextManager[memoryview | None]: ...
    def snapshot(self) -> Snapshot: ...
    def transaction(self, *, durability: _Durability | None = None) -> Transaction: ...
    def transact(
        self,
        function: Callable[[Transaction], _T],
        *,
        durability: _Durability | None = None,
        attempts: int = 100,
    ) -> _T: ...
    def stats(self) -> Stats: ...
    def lookups(self) -> Lookups | None: ...
    def check(self, progress: _Progress | None = None) -> CheckReport: ...
    def backup(self, path: _Path, progress: _Progress | None = None) -> int: ...
    def firstkey(self) -> bytes | None: ...
    def nextkey(self, key: _Key) -> bytes | None: ...

class Snapshot(_native.Snapshot, Mapping[bytes, bytes]):  # type: ignore[misc]
    def __new__(cls, table: Table) -> Self: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...

class Transaction(_native.Transaction, MutableMapping[bytes, bytes]):  # type: ignore[misc]
    def __new__(cls, table: Table, *, durability: _Durability | None = None) -> Self: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __ior__(self, other: _native._Pairs) -> Self: ...
    def commit(self, *, durability: _Durability | None = None) -> None: ...
    def close(self) -> None: ...
    @overload
    def pop(self, key: _Key) -> bytes: ...
    @overload
    def pop(self, key: _Key, default: _T) -> bytes | _T: ...
    def setdefault(self, key: _Key, default: _Value = b"") -> bytes: ...
    def update(self, other: _native._Pairs = (), /, **pairs: _Value) -> None: ...  # type: ignore[override]

def open(
    path: _Path,
    flag: _Flag = "c",
    mode: int = 0o666,
    *,
    durability: _Durability = "async",
    expected_records: int = 0,
    cache_bytes: int | None = None,
    hash: str | None = None,
    sharing: _Sharing = "one-writer",
    lock_timeout: float = 0.0,
    instrument: bool = False,
) -> Table: ...
def open_url(url: str, flag: _Flag = "c") -> Table: ...
def identify(path: _Path) -> str | None: ...
def equal(left: Mapping[Any, Any], right: Mapping[Any, Any]) -> bool: ...
