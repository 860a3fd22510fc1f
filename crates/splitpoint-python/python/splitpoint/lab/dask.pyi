from collections.abc import Sequence
from typing import Any, Literal

from . import Report

__all__ = ["analyze", "merged", "partials"]

# Dask has no types.
_Delayed = Any

def analyze(
    source: Any,
    column: str | None = None,
    *,
    hash: str | Sequence[str] = "xxh3-64",
    buckets: int | None = None,
    reduction: str = "own",
    seed: int = 0,
    sample_hashes: int | Literal["auto"] = "auto",
    distinct: bool = False,
    split_every: int = 8,
    **compute: Any,
) -> Report: ...
def partials(
    source: Any,
    column: str | None = None,
    *,
    hash: str | Sequence[str] = "xxh3-64",
    buckets: int | None = None,
    reduction: str = "own",
    seed: int = 0,
    sample_hashes: int | Literal["auto"] = "auto",
    distinct: bool = False,
    **compute: Any,
) -> list[_Delayed]: ...
def merged(parts: Sequence[_Delayed], *, split_every: int = 8) -> _Delayed: ...
