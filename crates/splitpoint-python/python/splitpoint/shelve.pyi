import os
import shelve as _shelve
from collections.abc import Callable, MutableMapping
from typing import Any, Literal, TypeVar

__all__ = ["Shelf", "open"]

_T = TypeVar("_T")

class Shelf(_shelve.Shelf[_T]):
    def __init__(
        self,
        table: MutableMapping[bytes, bytes],
        protocol: int | None = None,
        writeback: bool = False,
        keyencoding: str = "utf-8",
        *,
        serializer: Callable[[Any, int], bytes] | None = None,
        deserializer: Callable[[bytes], Any] | None = None,
    ) -> None: ...
    def setdefault(self, key: str, default: Any = None) -> Any: ...  # type: ignore[override]

def open(
    filename: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    flag: Literal["r", "w", "c", "n"] = "c",
    protocol: int | None = None,
    writeback: bool = False,
    *,
    serializer: Callable[[Any, int], bytes] | None = None,
    deserializer: Callable[[bytes], Any] | None = None,
    **options: Any,
) -> Shelf[Any]: ...
