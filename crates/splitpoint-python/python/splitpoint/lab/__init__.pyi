import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Protocol, Self, TypeAlias

from typing_extensions import Buffer

from .. import _native

__all__ = ["Partial", "Report", "functions", "measure"]

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...

class _ArrowArray(Protocol):
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...

_Keys: TypeAlias = Iterable[str | Buffer] | Buffer | _ArrowStream | _ArrowArray
_Hash: TypeAlias = str | Callable[[list[bytes]], Iterable[int]]

def functions() -> list[str]: ...
def measure(
    keys: _Keys,
    hashes: _Hash | Iterable[_Hash] = ("xxh3-64",),
    *,
    buckets: int | None = None,
    reduction: str = "own",
    seed: int = 0,
    width: int = 64,
    sample_hashes: int = 0,
    duplicates: Literal["remove", "keep"] = "remove",
    memory_bytes: int = 2147483648,
    threads: int = 0,
) -> Report: ...

class Report:
    def __init__(self, study: _native.Study) -> None: ...
    def to_json(self) -> str: ...
    def to_dict(self) -> dict[str, Any]: ...
    def to_html(self, path: str | os.PathLike[str] | None = None) -> str: ...
    def to_markdown(self) -> str: ...
    @property
    def results(self) -> list[dict[str, Any]]: ...
    @property
    def verdicts(self) -> dict[str, str]: ...

class Partial:
    def __init__(
        self,
        hash: str | Sequence[str],
        *,
        buckets: int,
        reduction: str = "own",
        seed: int = 0,
        sample_hashes: int = 0,
    ) -> None: ...
    def add(self, keys: _Keys) -> None: ...
    def merge(self, other: Partial) -> Partial: ...
    def __iadd__(self, other: Partial) -> Self: ...
    @property
    def key_count(self) -> int: ...
    def to_bytes(self) -> bytes: ...
    @classmethod
    def from_bytes(cls, data: Buffer) -> Self: ...
    def report(self) -> Report: ...
