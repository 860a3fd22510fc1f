"""The lab over Dask: keys that lie in many files, or on many machines.

Each worker counts its own partitions of a collection, as `splitpoint.lab.Partial`. The workers merge
the counts in a tree, and only the result comes back. It has the bytes of one pass over all keys,
whatever the partitions, the workers and their order are. The functions import Dask when you call them:
``pip install "dask[dataframe]"``.

>>> import dask.bag
>>> from splitpoint.lab.dask import analyze
>>> users = dask.bag.from_sequence([f"user:{i}" for i in range(10_000)], npartitions=4)
>>> analyze(users, scheduler="sync").verdicts
{'xxh3-64': 'fits'}

On one machine, `splitpoint.lab.measure` is simpler and as fast.
"""

import errno as _errno
import functools as _functools
import os as _os

from . import Partial, _names, _native

__all__ = ["analyze", "merged", "partials"]


def analyze(
    source,
    column=None,
    *,
    hash="xxh3-64",
    buckets=None,
    reduction="own",
    seed=0,
    sample_hashes="auto",
    distinct=False,
    split_every=8,
    **compute,
):
    """Measure hash functions on the keys of a collection of Dask, and return a `Report`.

    `source` is one of these:

    - the path of a file, a glob, or a URL that `fsspec` knows. Of Parquet and CSV or TSV files `column`
      has the keys (``"logs/*.parquet"``), and an empty cell of CSV or TSV is an empty key; of other files
      each line is a key, empty lines left out;
    - a bag of `bytes` or `str`, a series, a dataframe with `column`, or an array of numbers of one
      dimension;
    - a list of delayed objects, each of a kind that `splitpoint.lab.measure` takes as keys.

    The other arguments are those of `splitpoint.lab.Partial`. Without `buckets` the table has about as
    many as there are keys; Dask counts the keys in a pass of its own, or Parquet's metadata has their
    number. With ``sample_hashes="auto"`` the workers send at most 64 MiB of hashes for each function,
    however many keys there are, and a number for each hash that comes more than 8 times.

    A key that occurs several times counts several times, and the report estimates how many do. With
    `distinct`, Dask removes repetitions first, which moves the data between the workers.

    The workers merge `split_every` counts at a time. `compute` goes to `dask.compute`, which runs in the
    current client if there is one, otherwise in threads of this process.

    Raises what `splitpoint.lab.measure` raises, and `ValueError` if there is no key.

    >>> import numpy, dask.array
    >>> numbers = dask.array.from_array(numpy.arange(10_000), chunks=3000)
    >>> report = analyze(numbers, hash=["xxh3-64", "fnv1a-32"], buckets=4096, scheduler="sync")
    >>> report.results[1]["hash"], report.results[1]["key_count"]
    ('fnv1a-32', 10000)
    """
    parts = partials(
        source,
        column,
        hash=hash,
        buckets=buckets,
        reduction=reduction,
        seed=seed,
        sample_hashes=sample_hashes,
        distinct=distinct,
        **compute,
    )
    return merged(parts, split_every=split_every).compute(**compute).report()


def partials(
    source,
    column=None,
    *,
    hash="xxh3-64",
    buckets=None,
    reduction="own",
    seed=0,
    sample_hashes="auto",
    distinct=False,
    **compute,
):
    """Return a delayed `Partial` for each partition of `source`, to build a graph of your own.

    The arguments are those of `analyze`. Without `buckets`, a first pass counts the keys; `compute` is
    for that pass.
    """
    import dask

    key_count = None
    if isinstance(source, (str, bytes, _os.PathLike)):
        source, key_count = _files(_os.fsdecode(source), column)
        column = None
    keys = _partitions(source, column, distinct)
    names = _names(hash)
    if buckets is None:
        if key_count is None or distinct:
            # What is expensive to make is better kept by the caller: `source.persist()`.
            counted = dask.compute([dask.delayed(_key_count)(part) for part in keys], **compute)
            key_count = sum(counted[0])
        buckets = [_native.bucket_count(name, reduction, key_count) for name in names]
    else:
        buckets = [buckets] * len(names)
    setup = [
        (name, reduction, count, seed, sample_hashes)
        for name, count in zip(names, buckets, strict=True)
    ]
    # An unknown name is an error here, not on a worker.
    empty = _of_setup(setup)
    return [dask.delayed(_counted)(setup, part) for part in keys] or [dask.delayed(empty)]


def merged(parts, *, split_every=8):
    """Return a delayed `Partial` of all `parts`, merged by a tree of `split_every` at a time."""
    import dask

    if split_every < 2:
        raise ValueError(f"split_every is at least 2, not {split_every}")
    if not parts:
        raise ValueError("there are no counts to merge")
    while len(parts) > 1:
        groups = [parts[i : i + split_every] for i in range(0, len(parts), split_every)]
        parts = [dask.delayed(_merged)(group) for group in groups]
    return parts[0]


# Of text, which becomes an object for each line.
_BLOCK_BYTES = 32 << 20


def _files(path, column):
    """Return a collection of the keys in files, and their number if the metadata has it."""
    name = path.removesuffix(".gz").removesuffix(".xz").removesuffix(".bz2").removesuffix(".zst")
    kind = _os.path.splitext(name)[1].lower()
    is_table = kind in (".parquet", ".pq", ".csv", ".tsv") or _os.path.isdir(path)
    if is_table and column is None:
        raise ValueError(f"name the column of {path!r} that has the keys")
    if "*" in path:
        import fsspec

        # Dask does not say it so of every kind of file.
        if not fsspec.get_fs_token_paths(path)[2]:
            raise FileNotFoundError(_errno.ENOENT, "no file has such a name", path)
    if not is_table:
        if column is not None:
            raise ValueError(f"{path!r} is text, of which each line is a key: it has no columns")
        return _lines_of(path), None
    import dask.dataframe

    if kind in (".csv", ".tsv"):
        # As they are in the file: `007` is no number, and `NA` a key.
        frame = dask.dataframe.read_csv(
            path,
            usecols=[column],
            dtype=str,
            keep_default_na=False,
            sep="\t" if kind == ".tsv" else ",",
            # What is compressed cannot be cut.
            **({} if name == path else {"blocksize": None}),
        )
        return frame[column], None
    keys = dask.dataframe.read_parquet(path, columns=[column])[column]
    return keys, len(keys)


def _lines_of(path):
    """Return a bag of the lines of text files as bytes, without those that are empty."""
    import dask.bag
    import dask.bytes

    is_compressed = path.endswith((".gz", ".xz", ".bz2", ".zst"))
    _, files = dask.bytes.read_bytes(
        path,
        delimiter=None if is_compressed else b"\n",
        blocksize=None if is_compressed else _BLOCK_BYTES,
        sample=False,
        compression="infer",
    )
    blocks = [block for file in files for block in file]
    return dask.bag.from_delayed([dask.delayed(_lines)(block) for block in blocks])


def _lines(block):
    return [line for line in block.split(b"\n") if line]


def _partitions(source, column, distinct):
    """Return a delayed object for the keys of each partition."""
    if column is not None:
        if not hasattr(source, "columns"):
            found = type(source).__name__
            raise TypeError(f"only a dataframe has a column {column!r}, and this is a {found}")
        source = source[column]
    elif getattr(source, "ndim", 1) != 1:
        raise ValueError(f"keys have one dimension, not {source.ndim}; name a column")
    if isinstance(source, (list, tuple)):
        if distinct:
            raise ValueError("delayed objects cannot be made distinct; use a collection of Dask")
        return list(source)
    if not hasattr(source, "to_delayed"):
        found = type(source).__name__
        message = "keys are a bag, a series, a dataframe with a column, an array or a list of delayed"
        raise TypeError(f"{message} objects, not {found}; splitpoint.lab.measure takes others")
    if distinct:
        source = _distinct(source)
    delayed = source.to_delayed()
    # Of an array it is an array itself.
    return delayed.tolist() if hasattr(delayed, "tolist") else list(delayed)


def _distinct(source):
    if hasattr(source, "drop_duplicates"):
        return source.drop_duplicates()
    if hasattr(source, "distinct"):
        return source.distinct()
    import dask.array

    return dask.array.unique(source)


def _of_setup(setup):
    return Partial._of([_native.Counts(*arguments) for arguments in setup], _native.Sketch())


def _key_count(keys):
    return len(keys) if hasattr(keys, "__len__") else sum(1 for _ in keys)


def _counted(setup, keys):
    partial = _of_setup(setup)
    partial.add(keys)
    return partial


def _merged(partials):
    return _functools.reduce(Partial.merge, partials)
