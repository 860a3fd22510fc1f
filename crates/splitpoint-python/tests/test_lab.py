"""`splitpoint.lab`: measurements and partial results."""

import array
import contextlib
import copy
import gc
import itertools
import json
import os
import pathlib
import pickle
import random
import signal
import threading
import traceback
import unittest
import weakref
import zlib

import splitpoint
from scratch import Scratch
from splitpoint import lab


def keys_of(count, start=0):
    """Return distinct keys."""
    return [f"key {i}".encode() for i in range(start, start + count)]


class Measuring(Scratch):
    """`measure` and its report."""

    def test_a_good_function_fits_and_a_bad_one_does_not(self):
        report = lab.measure(keys_of(20_000), ["xxh3-64", "djb2"])
        self.assertEqual(report.verdicts, {"xxh3-64": "fits", "djb2": "worse"})
        good = report.results[0]
        self.assertEqual((good["key_count"], good["bucket_count"]), (20_000, 32_768))
        self.assertEqual(sum(row["buckets"] for row in good["rows"]), 32_768)

    def test_the_command_finds_the_same(self):
        keys = keys_of(3000)
        pathlib.Path(self.path("keys")).write_bytes(b"\n".join(keys) + b"\n")
        options = ["--hash", "fnv1a-32", "--buckets", "1024", "--json", "study.json"]
        self.python("-m", "splitpoint", "lab", "table", "keys", *options)
        command = json.loads(pathlib.Path(self.path("study.json")).read_text())["reports"][0]
        ours = lab.measure(keys, "fnv1a-32", buckets=1024).results[0]
        self.assertEqual(ours["rows"], command["rows"])
        self.assertEqual(ours["verdict"], command["verdict"])
        self.assertEqual(ours["collisions"], command["collisions"])

    def test_the_command_has_no_studies_of_kernels_and_says_where_they_are(self):
        """They would make the wheel larger than 3 MB."""
        shown = self.python("-m", "splitpoint", "lab", "--help").stdout
        self.assertRegex(shown, r"\n  table ")
        self.assertIn("cargo install --locked --path crates/splitpoint-cli", shown)
        readme = (pathlib.Path(__file__).parent.parent / "README.md").read_text()
        for name in "replay golden tables layout nfs trace paper classics partial merge".split():
            self.assertIn(f"`{name}`", readme)
            self.assertNotRegex(shown, rf"\n  {name} ")
            for argument in ("keys", "--help", "--cache=7"):
                self.assert_elsewhere(f"`splitpoint lab {name}`", name, argument)

    def test_the_command_does_not_read_the_study_of_a_replay_and_says_what_does(self):
        for schema in (1, 999):
            study = {"schema": schema, "program": {}, "traces": []}
            pathlib.Path(self.path("replay.json")).write_text(json.dumps(study))
            for arguments in (("report", "replay.json"), ("compare", *["replay.json"] * 2)):
                self.assert_elsewhere("`replay.json`, a saved replay,", *arguments)

    def assert_elsewhere(self, what, *arguments):
        """Check that the command says of `what` where it is."""
        refused = self.python("-m", "splitpoint", "lab", *arguments, code=2).stderr
        refused = " ".join(refused.split())
        self.assertIn(f"error: {what} is not for the command of the Python package", refused)
        self.assertIn("`cargo install --locked --path crates/splitpoint-cli` in the repository", refused)

    def test_a_function_of_ones_own_is_measured_like_the_labs(self):
        def crc(keys):
            return array.array("Q", [zlib.crc32(key) for key in keys])

        report = lab.measure(keys_of(5000), ["crc32", crc], width=32, buckets=4096)
        theirs, ours = report.results
        self.assertEqual((ours["hash"], ours["width_bits"]), ("crc", 32))
        self.assertEqual(ours["rows"], theirs["rows"])

    def test_a_function_of_ones_own_is_never_called_without_keys(self):
        counts = []

        def first_bytes(keys):
            counts.append(len(keys))
            return [max(key) for key in keys]

        lab.measure([b"ant", b"bee", b"cow"], hashes=[first_bytes])
        self.assertEqual(sum(counts), 3)
        self.assertNotIn(0, counts)

    def test_an_exception_of_ones_own_function_is_raised(self):
        def broken(keys):
            raise LookupError("of the function")

        with self.assertRaisesRegex(LookupError, "of the function"):
            lab.measure(keys_of(5000), [broken])

    def test_the_exception_of_ones_own_function_comes_out_as_it_is(self):
        """The same object, with its cause, its notes and the lines where it was raised."""
        raised = []

        class Own(Exception):
            def __init__(self, needed, both):
                super().__init__("own")

        def inner():
            try:
                raise LookupError("the cause")
            except LookupError as cause:
                raised.append(Own("two", "arguments"))
                raised[0].add_note("a note")
                raise raised[0] from cause

        def broken(keys):
            inner()

        def lazy(keys):
            yield 1
            inner()

        for function in (broken, lazy):
            raised.clear()
            # `assertRaises` would take the traceback away.
            try:
                lab.measure(keys_of(5000), ["xxh3-64", function, "djb2"])
                self.fail("nothing is raised")
            except Own as error:
                caught = error
            self.assertIs(caught, raised[0])
            self.assertIsInstance(caught.__cause__, LookupError)
            self.assertEqual(caught.__notes__, ["a note"])
            lines = [frame.name for frame in traceback.extract_tb(caught.__traceback__)]
            self.assertEqual(lines[-2:], [function.__name__, "inner"])

    def test_what_is_no_hash_is_an_error_that_names_the_function_and_the_value(self):
        def one(keys):
            return [1]

        def negative(keys):
            return [-1] * len(keys)

        def words(keys):
            return [b"word"] * len(keys)

        for function, error, message in (
            (one, ValueError, "`one` returned 1 hashes for"),
            (negative, OverflowError, "`negative` returned -1 for the key 0 of "),
            (words, TypeError, "`words` returned b'word' for the key 0 of "),
            (lambda keys: 7, TypeError, "returns an iterable of integers, not int"),
            (7, TypeError, "a hash is a name or a function, not int"),
        ):
            with self.subTest(message), self.assertRaisesRegex(error, message) as caught:
                lab.measure(keys_of(50), [function])
            if function in (negative, words):
                self.assertIs(type(caught.exception.__cause__), error)

    def test_keys_may_be_numbers_of_an_array(self):
        numbers = array.array("I", range(1000))
        ours = lab.measure(numbers, "fnv1a-32", buckets=512).results[0]
        same = lab.measure((i.to_bytes(4, "little") for i in range(1000)), "fnv1a-32", buckets=512)
        self.assertEqual(ours["rows"], same.results[0]["rows"])
        self.assertEqual(ours["key_bytes"], 4000)

    def test_functions_of_the_same_name_are_told_apart(self):
        def djb2(keys):
            return [0] * len(keys)

        hashes = ["djb2", lambda keys: [0] * len(keys), lambda keys: map(zlib.crc32, keys), djb2]
        report = lab.measure(keys_of(5000), hashes, width=32)
        self.assertEqual(list(report.verdicts), ["djb2", "<lambda>", "<lambda>-2", "djb2-2"])
        self.assertEqual(len(report.results), 4)
        self.assertNotEqual(report.results[1]["rows"], report.results[2]["rows"])

    def test_a_hash_that_is_wider_than_it_may_be_is_an_error(self):
        def wide(keys):
            return [1 << 16] * len(keys)

        with self.assertRaisesRegex(ValueError, "`wide` returned 65536 for the key 0 of [0-9]; it has 17 bits"):
            lab.measure(keys_of(9), [wide], width=16)
        lab.measure(keys_of(9), [wide], width=17)

    def test_a_report_of_another_process_is_the_same(self):
        report = lab.measure(keys_of(1000), ["xxh3-64", "djb2"])
        for again in (pickle.loads(pickle.dumps(report)), copy.deepcopy(report)):
            self.assertEqual(again.to_json(), report.to_json())
            self.assertEqual(again.to_html(), report.to_html())
            self.assertEqual(str(again), str(report))
        with self.assertRaises(ValueError):
            splitpoint._native.Study.of_json("{}")

    def test_keys_that_come_again_are_removed_unless_asked_for(self):
        keys = keys_of(100) * 2
        self.assertEqual(lab.measure(keys).results[0]["key_count"], 100)
        self.assertEqual(lab.measure(keys, duplicates="keep").results[0]["key_count"], 200)

    def test_threads_change_nothing(self):
        keys = keys_of(10_000)
        one, two = (lab.measure(keys, lab.functions()[:5], threads=n) for n in (1, 2))
        self.assertEqual(one.results, two.results)

    def test_what_makes_no_sense_is_refused(self):
        for call, error in (
            (lambda: lab.measure(["a"], "no-such-hash"), "no hash function is called"),
            (lambda: lab.measure(["a"], buckets=100), "needs a power of two, not 100 buckets"),
            (lambda: lab.measure(["a"], reduction="none"), "no reduction is called"),
            (lambda: lab.measure(["a"], duplicates="none"), "'remove' or 'keep'"),
            (lambda: lab.measure(["a"], buckets=1 << 30, memory_bytes=1 << 20), "1048576"),
            (lambda: lab.measure(["a"], []), "hashes names no function"),
            (lambda: lab.measure(["a"], [len], width=0), "width must be 1 to 64 bits, not 0"),
            (lambda: lab.measure(["a"], [len], width=65), "width must be 1 to 64 bits, not 65"),
        ):
            with self.assertRaisesRegex(ValueError, error):
                call()
        longest = (1 << 64) - 1
        for options, error in (
            ({"buckets": -1}, f"buckets must be 1 to {longest}, not -1"),
            ({"buckets": 0}, f"buckets must be 1 to {longest}, not 0"),
            ({"seed": -1}, f"seed must be 0 to {longest}, not -1"),
            ({"seed": 1 << 64}, f"seed must be 0 to {longest}, not {1 << 64}"),
            ({"sample_hashes": -1}, "sample_hashes must be 0 to 32, not -1"),
            ({"sample_hashes": 33}, "sample_hashes must be 0 to 32, not 33"),
        ):
            for call in (lab.measure, lambda _, **options: lab.Partial("djb2", **options)):
                with self.assertRaises(ValueError) as caught:
                    call(["a"], **{"buckets": 8, **options})
                self.assertEqual(str(caught.exception), error)
        for options, error in (
            ({"width": -1}, "width must be 1 to 64 bits, not -1"),
            ({"threads": -1}, f"threads must be 0 to {longest}, not -1"),
            ({"memory_bytes": -1}, f"memory_bytes must be 0 to {longest}, not -1"),
        ):
            with self.assertRaises(ValueError) as caught:
                lab.measure(["a"], **options)
            self.assertEqual(str(caught.exception), error)
        names = "names of functions of the lab"
        for call, error in (
            (lambda: lab.measure(["a"], 5), "hashes is one or several names or functions, not int"),
            (lambda: lab.measure(["a"], None), "hashes is one or several names or functions, not NoneType"),
            (lambda: lab.measure(["a"], b"djb2"), "hashes is one or several names or functions, not bytes"),
            (lambda: lab.measure(["a"], [5]), "a hash is a name or a function, not int"),
            (lambda: lab.Partial(len, buckets=8), f"hash is one or several {names}, not builtin_function"),
            (lambda: lab.Partial([len], buckets=8), f"hash is one or several {names}, not <built-in"),
        ):
            with self.assertRaisesRegex(TypeError, error):
                call()
        for keys in (b"bytes", "text", [1], 7, [None]):
            with self.assertRaises(TypeError):
                lab.measure(keys)

    def test_without_keys_there_is_no_report(self):
        """It would say that the function fits. The command refuses a file without keys, too."""
        for call in (
            lambda: lab.measure([]),
            lambda: lab.measure(iter(()), [len]),
            lambda: lab.measure(array.array("I"), duplicates="keep"),
            lambda: lab.Partial("xxh3-64", buckets=64).report(),
        ):
            with self.assertRaisesRegex(ValueError, "there are no keys to measure") as caught:
                call()
            self.assertEqual(caught.exception.code, "invalid")

    def test_a_function_of_ones_own_is_forgotten_whatever_the_end_is(self):
        for keys, hashes in ((["a"], []), ([], []), ([1], []), (["a"], ["no-such-hash"])):
            def own(keys):
                return [0] * len(keys)

            kept = weakref.ref(own)
            with contextlib.suppress(TypeError, ValueError):
                lab.measure(keys, [own, *hashes])
            del own
            gc.collect()
            self.assertIsNone(kept(), (keys, hashes))

    def test_a_report_has_every_form(self):
        report = lab.measure(keys_of(100), ["xxh3-64", "fnv1a-32"])
        self.assertRegex(repr(report), "^<splitpoint.lab.Report xxh3-64 [a-z]+, fnv1a-32 [a-z]+>$")
        self.assertIn("fnv1a-32", str(report))
        self.assertIn("# Hash functions on `keys`", report.to_markdown())
        page = report.to_html(self.path("page.html"))
        self.assertEqual(pathlib.Path(self.path("page.html")).read_text(), page)
        self.assertTrue(page.startswith("<!DOCTYPE html>"))
        self.assertTrue(report._repr_html_().startswith("<iframe srcdoc="))
        self.assertEqual(json.loads(report.to_json()), report.to_dict())

    def test_ctrl_c_ends_a_measurement(self):
        """The function sends the signal, and then waits until the handler has run."""
        noticed, is_handled, first = [], threading.Event(), threading.Lock()

        def interrupt(*_):
            is_handled.set()
            raise KeyboardInterrupt

        def slow(keys):
            if first.acquire(blocking=False):
                os.kill(os.getpid(), signal.SIGINT)
                noticed.append(is_handled.wait(1800))
            return range(len(keys))

        before = signal.signal(signal.SIGINT, interrupt)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        with self.assertRaises(KeyboardInterrupt):
            lab.measure(keys_of(10_000), [slow])
        self.assertEqual(noticed, [True])


class Partials(unittest.TestCase):
    """Counts that merge."""

    OPTIONS = {"hash": ["xxh3-64", "fnv1a-32"], "buckets": 256, "reduction": "range", "seed": 7}

    def partial(self, keys):
        made = lab.Partial(**self.OPTIONS)
        made.add(keys)
        return made

    def test_any_partition_in_any_order_has_the_bytes_of_one_pass(self):
        """Cuts the keys at random, merges the parts in random order and as a random tree."""
        seed = random.randrange(1 << 32)
        with self.subTest(seed=seed):
            chance, keys = random.Random(seed), keys_of(2000)
            whole = self.partial(keys).to_bytes()
            for _ in range(10):
                cuts = sorted(chance.sample(range(len(keys)), 6))
                pieces = itertools.pairwise([0, *cuts, len(keys)])
                parts = [self.partial(keys[start:end]) for start, end in pieces]
                chance.shuffle(parts)
                while len(parts) > 1:
                    first, second = (parts.pop(chance.randrange(len(parts))) for _ in range(2))
                    parts.append(first.merge(second))
                self.assertEqual(parts[0].to_bytes(), whole)

    def test_merging_is_associative_and_leaves_its_parts_alone(self):
        a, b, c = (self.partial(keys_of(100, start)) for start in (0, 100, 200))
        before = a.to_bytes()
        left, right = a.merge(b).merge(c), a.merge(b.merge(c))
        self.assertEqual(left.to_bytes(), right.to_bytes())
        self.assertEqual(a.merge(b).to_bytes(), b.merge(a).to_bytes())
        self.assertEqual(a.to_bytes(), before)
        self.assertEqual(a.merge(a).key_count, 200)
        empty = lab.Partial(**self.OPTIONS)
        self.assertEqual(a.merge(empty).to_bytes(), before)
        a += b
        a += c
        self.assertEqual((a.to_bytes(), a.key_count), (left.to_bytes(), 300))

    def test_bytes_and_pickles_give_the_same_counts_back(self):
        made = self.partial(iter(keys_of(100)))
        again = lab.Partial.from_bytes(made.to_bytes())
        self.assertEqual(again.to_bytes(), made.to_bytes())
        self.assertEqual(pickle.loads(pickle.dumps(made)).to_bytes(), made.to_bytes())
        self.assertEqual(repr(again), "<splitpoint.lab.Partial xxh3-64, fnv1a-32, 100 keys>")

    def test_the_bytes_are_those_of_the_command(self):
        """The tests of `splitpoint lab partial` expect the same."""
        made = lab.Partial("xxh3-64", buckets=8)
        made.add(["ant", "bee", "crane"])
        summed = 0xCBF29CE484222325
        for byte in made.to_bytes():
            summed = (summed ^ byte) * 0x100000001B3 % (1 << 64)
        self.assertEqual(f"{summed:016x}", "f7cb7e3103062cd2")

    def test_damaged_bytes_are_value_errors(self):
        whole = self.partial(keys_of(20)).to_bytes()
        for end in range(0, len(whole), 13):
            with self.assertRaises(ValueError):
                lab.Partial.from_bytes(whole[:end])
        for at in range(0, len(whole), 11):
            damaged = bytearray(whole)
            damaged[at] ^= 0x20
            with self.assertRaises(ValueError):
                lab.Partial.from_bytes(damaged)

    def test_counts_of_other_setups_are_not_merged(self):
        one = lab.Partial("xxh3-64", buckets=64)
        for other in (
            lab.Partial("xxh3-64", buckets=128),
            lab.Partial("fnv1a-32", buckets=64),
            lab.Partial(["xxh3-64", "fnv1a-32"], buckets=64),
            lab.Partial("xxh3-64", buckets=64, sample_hashes=2),
        ):
            with self.assertRaises(ValueError):
                one.merge(other)
        with self.assertRaises(TypeError):
            one.merge(7)
        with self.assertRaises(splitpoint.error):
            lab.Partial("xxh3-64", buckets=100)

    def test_the_report_of_parts_is_that_of_a_measurement(self):
        keys = keys_of(2000)
        merged = self.partial(keys[:700]).merge(self.partial(keys[700:])).report()
        whole = lab.measure(keys, self.OPTIONS["hash"], buckets=256, reduction="range", seed=7)
        for ours, theirs in zip(merged.results, whole.results, strict=True):
            self.assertEqual(ours["rows"], theirs["rows"])
            self.assertEqual(ours["verdict"], theirs["verdict"])

    def test_few_hashes_are_all_kept_by_themselves(self):
        made = [lab.Partial("xxh3-64", buckets=64, sample_hashes=it) for it in (0, "auto")]
        for partial in made:
            partial.add(keys_of(1000))
        kept, by_itself = made
        self.assertEqual(kept.report().results, by_itself.report().results)
        again = lab.Partial.from_bytes(by_itself.to_bytes())
        self.assertEqual(again.merge(by_itself).key_count, 2000)
        with self.assertRaises(ValueError):
            kept.merge(by_itself)
        with self.assertRaisesRegex(ValueError, "a number or 'auto', not \"often\""):
            lab.Partial("xxh3-64", buckets=64, sample_hashes="often")

    def test_the_report_says_about_how_many_keys_come_again(self):
        made = lab.Partial("xxh3-64", buckets=64)
        made.add(keys_of(6000))
        self.assertAlmostEqual(made.distinct_estimate, 6000, delta=300)
        page = made.report().to_html()
        self.assertRegex(page, r"at most \S+\s% of the keys, by an estimate")
        self.assertNotIn("come again", page)
        made += made
        made.add(keys_of(6000, 3000))
        self.assertAlmostEqual(made.distinct_estimate, 9000, delta=450)
        self.assertRegex(made.report().to_html(), r"about \S+\s% of the keys come again, within")
        facts = made.report().to_dict()["keys"]["distinct_estimate"]
        self.assertEqual(round(facts["key_count"]), made.distinct_estimate)
        self.assertEqual(lab.Partial("xxh3-64", buckets=64).distinct_estimate, 0)

    def test_a_sample_of_the_hashes_takes_less_space(self):
        sizes = []
        for sample in (0, 4):
            made = lab.Partial("xxh3-64", buckets=64, sample_hashes=sample)
            made.add(keys_of(10_000))
            sizes.append(len(made.to_bytes()))
        self.assertLess(sizes[1] * 8, sizes[0])


if __name__ == "__main__":
    unittest.main()
