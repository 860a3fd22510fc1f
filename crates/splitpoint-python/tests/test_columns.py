"""Keys from other packages: columns of Arrow, and collections of Dask."""

import array
import gzip
import importlib
import pathlib
import random
import tempfile
import unittest

from splitpoint import lab
from splitpoint.lab import dask as lab_dask


def imported(name):
    """Return a module, or `None` where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


pyarrow, pandas, numpy = imported("pyarrow"), imported("pandas"), imported("numpy")
dask = imported("dask")

# Short and long, none, not ASCII, and one that is longer than the rest together.
WORDS = ["", "a", "gr\u00fcn", "twelve bytes", "thirteen byte"] + [
    f"a key that is longer than a view: {i}" for i in range(200)
] + ["x" * 5000]  # fmt: skip


def bytes_of(keys):
    """Return the counts of `keys` as bytes."""
    made = lab.Partial(["xxh3-64", "fnv1a-32"], buckets=64)
    made.add(keys)
    return made.to_bytes()


class Stream:
    """An exporter that is nothing but a stream, as of a package that is not pyarrow."""

    def __init__(self, column):
        self.column = column

    def __arrow_c_stream__(self, requested_schema=None):
        return self.column.__arrow_c_stream__(requested_schema)


@unittest.skipIf(pyarrow is None, "pyarrow is not installed")
class Arrow(unittest.TestCase):
    """Columns of Arrow have the counts of a list of the same keys."""

    def test_every_type_of_strings_and_binary_gives_the_keys_of_a_list(self):
        texts, expected = pyarrow.array(WORDS), bytes_of(WORDS)
        types = ["string", "large_string", "string_view", "binary", "large_binary", "binary_view"]
        for name in types:
            column = texts.cast(getattr(pyarrow, name)())
            with self.subTest(name):
                self.assertEqual(bytes_of(column), expected)
                self.assertEqual(bytes_of(pyarrow.chunked_array([column])), expected)
                self.assertEqual(bytes_of(Stream(pyarrow.chunked_array([column]))), expected)

    def test_chunks_and_slices_give_their_own_rows(self):
        chance = random.Random(1)
        for name in ("string", "large_string", "string_view"):
            column = pyarrow.array(WORDS).cast(getattr(pyarrow, name)())
            for _ in range(20):
                start = chance.randrange(len(WORDS))
                length = chance.randrange(len(WORDS) - start + 1)
                with self.subTest(name, start=start, length=length):
                    cut = column.slice(start, length)
                    self.assertEqual(bytes_of(cut), bytes_of(WORDS[start : start + length]))
                    parts = [cut, column.slice(0, 0), column]
                    chunked = pyarrow.chunked_array(parts)
                    both = WORDS[start : start + length] + WORDS
                    self.assertEqual(bytes_of(chunked), bytes_of(both))

    def test_a_dictionary_gives_the_keys_that_its_indices_stand_for(self):
        keys = [WORDS[i * i % 50] for i in range(300)]
        for index in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
            indices = pyarrow.array([i * i % 50 for i in range(300)], getattr(pyarrow, index)())
            column = pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array(["-", *WORDS]).slice(1))
            with self.subTest(index):
                self.assertEqual(bytes_of(column), bytes_of(keys))
                self.assertEqual(bytes_of(column.slice(7, 100)), bytes_of(keys[7:107]))

    def test_numbers_and_fixed_bytes_give_their_bytes(self):
        codes = {"int8": "b", "uint16": "H", "int32": "i", "uint64": "Q", "float32": "f", "float64": "d"}
        for name, code in codes.items():
            numbers = array.array(code, range(100))
            with self.subTest(name):
                column = pyarrow.array(numbers.tolist(), getattr(pyarrow, name)())
                self.assertEqual(bytes_of(column), bytes_of(numbers))
        keys = [b"%04d" % i for i in range(100)]
        self.assertEqual(bytes_of(pyarrow.array(keys, pyarrow.binary(4))), bytes_of(keys))
        empty = pyarrow.array([b""] * 3, pyarrow.binary(0))
        self.assertEqual(bytes_of(empty), bytes_of([b""] * 3))

    def test_a_null_is_refused_with_its_row(self):
        column = pyarrow.array(["a", "b", None, "c"])
        listed = pyarrow.array(["a", None, "a"]).dictionary_encode()
        in_dictionary = pyarrow.DictionaryArray.from_arrays([0, 1], pyarrow.array(["a", None]))
        for keys, row in (
            (column, 2),
            (column.slice(1), 1),
            (column.cast(pyarrow.string_view()), 2),
            (pyarrow.chunked_array([["a"] * 9, ["b", None]]), 10),
            (pyarrow.array([1, None]), 1),
            (listed, 1),
            (in_dictionary, 1),
        ):
            with self.subTest(keys.type), self.assertRaisesRegex(ValueError, f"the key in row {row} is null"):
                lab.measure(keys)
        made = lab.Partial("xxh3-64", buckets=8)
        with self.assertRaises(ValueError):
            made.add(column)
        self.assertEqual(made.key_count, 0)
        made.add(column.drop_null())
        self.assertEqual(made.key_count, 3)

    def test_a_column_without_a_type_has_no_keys_or_a_null(self):
        made = lab.Partial("fnv1a-32", buckets=8)
        made.add(pyarrow.array([]))
        self.assertEqual(made.key_count, 0)
        with self.assertRaisesRegex(ValueError, "row 0 is null"):
            made.add(pyarrow.array([None]))

    def test_other_types_and_whole_tables_are_refused_by_name(self):
        for keys in (
            pyarrow.array([True]),
            pyarrow.array([["a"]]),
            pyarrow.table({"a": ["b"]}),
            pyarrow.record_batch({"a": ["b"]}),
            pyarrow.array([True]).dictionary_encode(),
        ):
            with self.assertRaisesRegex(TypeError, "of Arrow"):
                lab.measure(keys)

    def test_a_stream_is_read_to_its_end_only_once(self):
        capsule = pyarrow.chunked_array([["a"], ["b"]]).__arrow_c_stream__()

        class Once:
            def __arrow_c_stream__(self, requested_schema=None):
                return capsule

        made = lab.Partial(["xxh3-64", "fnv1a-32"], buckets=64)
        for _ in range(2):
            made.add(Once())
        self.assertEqual(made.to_bytes(), bytes_of(["a", "b"]))

    def test_an_error_of_the_exporter_is_raised(self):
        class Failing:
            def __arrow_c_stream__(self, requested_schema=None):
                raise LookupError("of the exporter")

        class Wrong:
            def __arrow_c_stream__(self, requested_schema=None):
                return pyarrow.array(["a"]).__arrow_c_array__()[1]

        with self.assertRaisesRegex(LookupError, "of the exporter"):
            lab.measure(Failing())
        with self.assertRaises(ValueError):
            lab.measure(Wrong())

    @unittest.skipIf(pandas is None, "pandas is not installed")
    def test_series_of_pandas_give_their_keys(self):
        self.assertEqual(bytes_of(pandas.Series(WORDS)), bytes_of(WORDS))
        self.assertEqual(bytes_of(pandas.Series(WORDS, dtype="category")), bytes_of(WORDS))
        numbers = array.array("q", range(100))
        self.assertEqual(bytes_of(pandas.Series(range(100))), bytes_of(numbers))

    @unittest.skipIf(numpy is None or pandas is None, "numpy or pandas is not installed")
    def test_arrays_of_numpy_give_the_bytes_of_their_numbers_in_one_order(self):
        expected = bytes_of(array.array("i", range(1000)))
        for numbers in (
            numpy.arange(1000, dtype="<i4"),
            numpy.arange(1000, dtype=">i4"),
            numpy.arange(2000, dtype=">i4")[:1000],
            pandas.Index(numpy.arange(1000, dtype="i4")),
            numpy.ma.array(numpy.arange(1000, dtype="i4")),
        ):
            self.assertEqual(bytes_of(numbers), expected, type(numbers))
        self.assertEqual(bytes_of(pandas.RangeIndex(1000)), bytes_of(array.array("q", range(1000))))
        self.assertEqual(bytes_of(pandas.Index(WORDS)), bytes_of(WORDS))
        self.assertEqual(bytes_of(numpy.array(WORDS, dtype=object)), bytes_of(WORDS))

    @unittest.skipIf(numpy is None, "numpy is not installed")
    def test_a_masked_element_is_refused_with_its_row(self):
        for dtype in ("i4", "S1", object):
            masked = numpy.ma.array([b"1", b"2", b"3"], mask=[0, 1, 0]).astype(dtype)
            with self.assertRaisesRegex(ValueError, "the key in row 1 is masked"):
                bytes_of(masked)
            self.assertEqual(bytes_of(masked.compressed()), bytes_of(masked.data[[0, 2]]))

    def test_a_measurement_of_a_column_is_that_of_a_list(self):
        keys = [f"user:{i}" for i in range(20_000)]
        ours, same = (lab.measure(it, ["xxh3-64", "djb2"]) for it in (pyarrow.array(keys), keys))
        self.assertEqual(ours.results, same.results)


@unittest.skipIf(dask is None, "dask is not installed")
class Dask(unittest.TestCase):
    """`splitpoint.lab.dask`: the counts of one process, exactly."""

    KEYS = [f"user:{i % 2500}" for i in range(3000)]
    OPTIONS = {"hash": ["xxh3-64", "fnv1a-32"], "buckets": 256, "reduction": "range", "seed": 7}

    def serial(self, keys):
        made = lab.Partial(**self.OPTIONS, sample_hashes="auto")
        made.add(keys)
        return made.to_bytes()

    def counted(self, source, *arguments, scheduler="sync", split_every=8, **options):
        parts = lab_dask.partials(source, *arguments, **self.OPTIONS, **options)
        return lab_dask.merged(parts, split_every=split_every).compute(scheduler=scheduler).to_bytes()

    def bag(self, **options):
        return importlib.import_module("dask.bag").from_sequence(self.KEYS, **options)

    def frame(self):
        frame = pandas.DataFrame({"user": self.KEYS, "number": range(len(self.KEYS))})
        return importlib.import_module("dask.dataframe").from_pandas(frame, npartitions=7)

    def test_any_partition_scheduler_and_tree_has_the_bytes_of_one_pass(self):
        expected = self.serial(self.KEYS)
        for partitions in (1, 2, 7, 30):
            for split_every in (2, 3, 8):
                bag = self.bag(npartitions=partitions)
                self.assertEqual(self.counted(bag, split_every=split_every), expected)
        for scheduler in ("threads", "processes"):
            with self.subTest(scheduler):
                found = self.counted(self.bag(npartitions=5), scheduler=scheduler, split_every=2)
                self.assertEqual(found, expected)

    def test_columns_series_arrays_and_delayed_objects_are_collections_of_keys(self):
        frame, expected = self.frame(), self.serial(self.KEYS)
        self.assertEqual(self.counted(frame, "user"), expected)
        self.assertEqual(self.counted(frame["user"]), expected)
        numbers = self.serial(array.array("q", range(len(self.KEYS))))
        self.assertEqual(self.counted(frame, "number"), numbers)
        chunks = importlib.import_module("dask.array").from_array(numpy.arange(3000), chunks=700)
        self.assertEqual(self.counted(chunks), numbers)
        delayed = [dask.delayed(pyarrow.array)(self.KEYS[:9]), dask.delayed(self.KEYS[9:])]
        self.assertEqual(self.counted(delayed), expected)

    def test_files_are_collections_of_the_keys_in_a_column_or_in_their_lines(self):
        keys = [*self.KEYS, "007", "NA", "a,b", 'say "x"']
        with tempfile.TemporaryDirectory() as name:
            directory = pathlib.Path(name)
            for index in range(3):
                part = keys[index::3]
                lines = "\n".join(part) + "\n\n"
                (directory / f"{index}.txt").write_text(lines)
                (directory / f"{index}.log.gz").write_bytes(gzip.compress(lines.encode()))
                frame = pandas.DataFrame({"number": range(len(part)), "user": part})
                frame.to_csv(directory / f"{index}.csv", index=False)
                frame.to_csv(directory / f"{index}.tsv.gz", index=False, sep="\t")
                (directory / "table.parquet").mkdir(exist_ok=True)
                frame.to_parquet(directory / "table.parquet" / f"{index}.parquet", row_group_size=300)
            expected = self.serial(keys)
            for pattern in ("*.txt", "*.log.gz"):
                self.assertEqual(self.counted(f"{name}/{pattern}"), expected)
            for pattern in ("*.csv", "*.tsv.gz", "table.parquet/*.parquet", "table.parquet"):
                self.assertEqual(self.counted(f"{name}/{pattern}", "user"), expected)
            self.assertEqual(self.counted(directory / "table.parquet", "user"), expected)
            first = self.serial([line for line in keys[::3]])
            self.assertEqual(self.counted(directory / "0.txt"), first)
            different = self.serial(dict.fromkeys(keys))
            self.assertEqual(self.counted(f"{name}/*.txt", distinct=True), different)
            self.assertEqual(self.counted(f"{name}/*.csv", "user", distinct=True), different)
            for pattern, column in (("table.parquet", "user"), ("*.txt", None)):
                report = lab_dask.analyze(f"{name}/{pattern}", column, scheduler="sync")
                self.assertEqual(report.results[0]["bucket_count"], 4096)
                self.assertEqual(report.results[0]["key_count"], len(keys))
            for path, column, words in (
                ("*.csv", None, "name the column of .* that has the keys"),
                ("table.parquet", None, "name the column"),
                ("*.txt", "user", "it has no columns"),
            ):
                with self.assertRaisesRegex(ValueError, words):
                    lab_dask.partials(f"{name}/{path}", column, buckets=8)

    def test_the_report_says_that_keys_come_again(self):
        report = lab_dask.analyze(self.bag(npartitions=3), scheduler="sync")
        self.assertRegex(report.to_html(), r"about 1\d\S*\s% of the keys come again, within")

    def test_the_report_is_that_of_a_measurement(self):
        whole = lab.measure(self.KEYS, ["xxh3-64", "djb2"], duplicates="keep")
        ours = lab_dask.analyze(self.bag(npartitions=4), hash=["xxh3-64", "djb2"], scheduler="sync")
        for mine, theirs in zip(ours.results, whole.results, strict=True):
            self.assertEqual(mine["bucket_count"], theirs["bucket_count"])
            self.assertEqual(mine["rows"], theirs["rows"])
            self.assertEqual(mine["verdict"], theirs["verdict"])

    def test_distinct_counts_each_key_once(self):
        expected = self.serial(dict.fromkeys(self.KEYS))
        self.assertEqual(self.counted(self.bag(npartitions=4), distinct=True), expected)
        self.assertEqual(self.counted(self.frame(), "user", distinct=True), expected)
        chunks = importlib.import_module("dask.array").from_array(numpy.arange(100) % 7, chunks=30)
        self.assertEqual(self.counted(chunks, distinct=True), self.serial(array.array("q", range(7))))

    def test_without_keys_there_is_no_report(self):
        for options in ({}, {"buckets": 8}):
            with self.assertRaisesRegex(ValueError, "there are no keys to measure"):
                lab_dask.analyze([], scheduler="sync", **options)
            parts = lab_dask.partials([], scheduler="sync", **options)
            self.assertEqual(lab_dask.merged(parts).compute(scheduler="sync").key_count, 0)

    def test_what_makes_no_sense_is_refused_before_anything_is_computed(self):
        def never():
            raise AssertionError("it is computed")

        source = [dask.delayed(never)()]
        for options, error, words in (
            ({"hash": "no-such-hash"}, ValueError, "no hash function is called"),
            ({"buckets": 100}, ValueError, "needs a power of two"),
            ({"split_every": 1}, ValueError, "at least 2, not 1"),
            ({"hash": []}, ValueError, "hash names no function"),
            ({"hash": len}, TypeError, "one or several names of functions"),
            ({"seed": -1}, ValueError, "seed must be 0 to"),
            ({"column": "key"}, TypeError, "only a dataframe has a column 'key', and this is a list"),
            ({"distinct": True}, ValueError, "cannot be made distinct"),
        ):
            with self.subTest(options), self.assertRaisesRegex(error, words):
                lab_dask.analyze(source, **{"buckets": 8, "scheduler": "sync", **options})
        for source, words in ((["a"] * 0 or 7, "not int"), ({"a"}, "not set")):
            with self.assertRaisesRegex(TypeError, words):
                lab_dask.partials(source, buckets=8)
        with self.assertRaisesRegex(ValueError, "one dimension, not 2"):
            lab_dask.partials(self.frame(), buckets=8)
        for name, column in (("none*.txt", None), ("none*.csv", "a"), ("none*.parquet", "a")):
            with self.assertRaises(FileNotFoundError) as caught:
                lab_dask.partials(f"/nowhere/{name}", column, buckets=8)
            self.assertEqual(caught.exception.filename, f"/nowhere/{name}")

    def test_an_error_of_a_partition_is_raised(self):
        keys = pandas.Series(["a", None, "b"])
        column = importlib.import_module("dask.dataframe").from_pandas(keys, npartitions=2)
        with self.assertRaisesRegex(ValueError, "is null"):
            self.counted(column)
        self.assertEqual(self.counted(column.dropna()), self.serial(["a", "b"]))


if __name__ == "__main__":
    unittest.main()
