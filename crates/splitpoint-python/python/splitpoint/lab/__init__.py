"""The lab: is this hash function good for these keys?

>>> from splitpoint import lab
>>> report = lab.measure((f"user:{i}" for i in range(10_000)), hashes=["xxh3-64", "djb2"])
>>> report.verdicts["xxh3-64"]
'fits'
>>> report.verdicts["djb2"]
'worse'

A report shows itself in a notebook, and `print(report)` shows it as text. `docs/lab.md` explains the
verdicts.
"""

import html as _html
import json as _json
import pathlib as _pathlib
from collections.abc import Iterable as _Iterable

from .. import _native

__all__ = ["Partial", "Report", "functions", "measure"]


def functions():
    """Return the names of the hash functions of the lab, the historic ones first.

    >>> "xxh3-64" in functions()
    True
    """
    return _native.hash_names()


def measure(
    keys,
    hashes=("xxh3-64",),
    *,
    buckets=None,
    reduction="own",
    seed=0,
    width=64,
    sample_hashes=0,
    duplicates="remove",
    memory_bytes=2 << 30,
    threads=0,
):
    """Measure hash functions on `keys`, beside an ideal hash, and return a `Report`.

    `keys` is one of these:

    - an iterable of `bytes` or `str`;
    - an array of numbers, of numpy or of the module `array`, or an index of pandas: the key of a number is
      its little-endian bytes;
    - a column of Arrow: of pyarrow, pandas, Polars, or whatever has ``__arrow_c_stream__`` or
      ``__arrow_c_array__``.

    A key that occurs several times is measured once, or each time with ``duplicates="keep"``.

    `hashes` has names, as `functions` lists them, and functions of your own. Your function gets a
    list of keys and returns as many numbers, in any iterable, such as an array of numpy. Its hashes
    have `width` bits at most. If several functions have the same name, as lambdas do, reports number them:
    ``<lambda>``, ``<lambda>-2``.

    The table has `buckets` buckets, by default about as many as there are keys. `reduction` says how
    a hash becomes a bucket: ``"low"``, ``"high"``, ``"modulus"``, ``"prime"``, ``"range"``,
    ``"split"``, ``"hashbrown"``, or ``"own"``, which is the one that the function was published with.

    To save memory, the lab can look for equal hashes in a sample: with ``sample_hashes=4`` it keeps one
    hash in 2 to the power of 4. `memory_bytes` bounds the memory of the counts; `threads` is 0 for all
    cores.

    Raises `splitpoint.error` with code ``"invalid"``, a `ValueError`, if a name is unknown or there is
    no key; `ValueError` for a null in a column and for a masked element; and whatever your own function
    raises.

    >>> def by_length(keys):
    ...     return [len(key) for key in keys]
    >>> report = measure(["ant", "bee", "spider", "crane"] , [by_length], width=8, buckets=8)
    >>> report.results[0]["longest"]
    2
    """
    if duplicates not in ("remove", "keep"):
        raise ValueError(f"duplicates must be 'remove' or 'keep', not {duplicates!r}")
    hashes = [hashes] if callable(hashes) else _several("hashes", hashes, "names or functions")
    if not hashes:
        raise ValueError("hashes names no function")
    return Report(
        _native.measure(
            keys,
            hashes,
            width,
            reduction,
            buckets,
            seed,
            sample_hashes,
            duplicates == "keep",
            memory_bytes,
            threads,
        )
    )


def _several(argument, given, words):
    """Return what one name, or an iterable of several, stands for as a list."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, _Iterable) or isinstance(given, (bytes, bytearray, memoryview)):
        raise TypeError(f"{argument} is one or several {words}, not {type(given).__name__}")
    return list(given)


def _names(hash):
    """Return the names of functions of the lab that counts are for."""
    names = _several("hash", hash, "names of functions of the lab")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"hash is one or several names of functions of the lab, not {name!r}")
    if not names:
        raise ValueError("hash names no function")
    return names


class Report:
    """What a measurement found: figures, verdicts and their explanation.

    >>> report = measure(range_of_keys := [str(i) for i in range(1000)])
    >>> report.results[0]["key_count"]
    1000
    >>> "xxh3-64" in str(report)
    True
    """

    __slots__ = ("_parsed", "_study")

    def __init__(self, study):
        self._study = study
        self._parsed = None

    def to_json(self):
        """Return everything that was measured as JSON: a study, as `splitpoint lab --json` saves it."""
        return self._study.json()

    def to_dict(self):
        """Return what `to_json` returns, as objects of Python. `docs/lab-json.md` lists the fields."""
        return _json.loads(self.to_json())

    def to_html(self, path=None):
        """Return the report as a page that needs no other file, and write it to `path` if given."""
        page = self._study.html()
        if path is not None:
            _pathlib.Path(path).write_text(page, encoding="utf-8")
        return page

    def to_markdown(self):
        """Return the report in Markdown."""
        return self._study.markdown()

    @property
    def results(self):
        """The figures of each function, as a list of dicts."""
        if self._parsed is None:
            self._parsed = self.to_dict()
        return self._parsed["reports"]

    @property
    def verdicts(self):
        """The verdict on each function by its name: fits, structured, slight or worse."""
        return {result["hash"]: result["verdict"]["kind"] for result in self.results}

    def __reduce__(self):
        return _report_of, (self.to_json(),)

    def __str__(self):
        return self._study.text(100)

    def __repr__(self):
        words = ", ".join(f"{name} {verdict}" for name, verdict in self.verdicts.items())
        return f"<splitpoint.lab.Report {words}>"

    def _repr_html_(self):
        page = _html.escape(self.to_html(), quote=True)
        return f'<iframe srcdoc="{page}" width="100%" height="720" frameborder="0"></iframe>'


def _report_of(json):
    """Return a pickled report."""
    return Report(_native.Study.of_json(json))


class Partial:
    """Counts of a part of the keys, to add to those of other parts, threads or machines.

    However you divide the keys, and in whatever order you merge, the counts have the same bytes as
    those of one pass. A key that occurs several times counts several times: make the keys distinct first
    if you do not want that.

    `hash` is a name or several; the other arguments are those of `measure`. To find equal hashes, the
    counts keep each hash, in 8 bytes, or a sample (`sample_hashes`). With ``sample_hashes="auto"`` they
    keep 2 to the power of 23 at most, and a quarter more while keys are added. If there are more keys,
    they keep 8 copies of equal hashes and count the others; if that is still too much, they keep a
    sample. The sample is the same however you divide the keys.

    >>> parts = [Partial("xxh3-64", buckets=64) for _ in range(2)]
    >>> parts[0].add(["a", "b"])
    >>> parts[1].add(["c"])
    >>> both = parts[0].merge(parts[1])
    >>> both.key_count
    3
    >>> Partial.from_bytes(both.to_bytes()).report().results[0]["key_count"]
    3
    """

    __slots__ = ("_counts", "_sketch")

    def __init__(self, hash, *, buckets, reduction="own", seed=0, sample_hashes=0):
        names = _names(hash)
        self._counts = [
            _native.Counts(name, reduction, buckets, seed, sample_hashes) for name in names
        ]
        self._sketch = _native.Sketch()

    @classmethod
    def _of(cls, counts, sketch):
        self = cls.__new__(cls)
        self._counts, self._sketch = counts, sketch
        return self

    def add(self, keys):
        """Count `keys`, of the kinds that `measure` takes: all of them, or none if there is an error."""
        _native.add_keys(self._counts, self._sketch, keys)

    def merge(self, other):
        """Return the counts of the keys of both.

        Raises `ValueError` if they differ in a function, its seed, the reduction, the number of buckets
        or `sample_hashes`.
        """
        if not isinstance(other, Partial):
            raise TypeError(f"a Partial is merged with another, not with {type(other).__name__}")
        if len(self._counts) != len(other._counts):
            raise ValueError("the partial results are of different measurements")
        pairs = zip(self._counts, other._counts, strict=True)
        counts = [mine.merged(others) for mine, others in pairs]
        return Partial._of(counts, self._sketch.merged(other._sketch))

    def __iadd__(self, other):
        both = self.merge(other)
        self._counts, self._sketch = both._counts, both._sketch
        return self

    @property
    def key_count(self):
        """The number of keys counted."""
        return self._counts[0].key_count

    @property
    def distinct_estimate(self):
        """About how many of the keys are different: within 5 percent, nearly always."""
        return round(min(self._sketch.estimate(), self.key_count))

    def to_bytes(self):
        """Return the counts, and what was counted, as bytes. Equal counts have equal bytes."""
        parts = [part.encode() for part in (*self._counts, self._sketch)]
        return b"".join(len(part).to_bytes(8, "little") + part for part in parts)

    @classmethod
    def from_bytes(cls, data):
        """Return the counts that `to_bytes` has written; raise `ValueError` if they are damaged."""
        rest, parts = memoryview(data).cast("B"), []
        while rest or len(parts) < 2:
            size = int.from_bytes(rest[:8], "little")
            if len(rest) < 8 or len(rest) - 8 < size:
                raise ValueError(f"the partial result ends early, {len(rest)} bytes into a part")
            parts.append(bytes(rest[8 : 8 + size]))
            rest = rest[8 + size :]
        *counts, sketch = parts
        counts = [_native.Counts.decode(part) for part in counts]
        return cls._of(counts, _native.Sketch.decode(sketch))

    def __reduce__(self):
        return Partial.from_bytes, (self.to_bytes(),)

    def report(self):
        """Return the `Report` of the counts, without what needs the keys themselves.

        It estimates how many of the keys are repetitions. Raises `ValueError` if no key was counted.
        """
        return Report(_native.report_of(self._counts, self._sketch))

    def __repr__(self):
        names = ", ".join(counts.hash for counts in self._counts)
        return f"<splitpoint.lab.Partial {names}, {self.key_count:,} keys>"
