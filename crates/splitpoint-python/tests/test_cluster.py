"""`splitpoint.lab.dask` on a cluster of processes, of which one is killed."""

import os
import pathlib
import signal
import unittest
import warnings

from scratch import Scratch
from splitpoint import lab

try:
    import dask
    import distributed
except ImportError:
    dask = None

# The cluster leaves one behind where it has looked for a free port.
warnings.filterwarnings("ignore", "unclosed <socket", ResourceWarning)

KEYS = [f"user:{i % 4000}" for i in range(5000)]
OPTIONS = {"hash": ["xxh3-64", "fnv1a-32"], "buckets": 256, "sample_hashes": "auto"}


def kill_once(marker):
    """Kill this process, the first time that anybody comes here."""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def keys_of(part, marker):
    """Return a tenth of the keys; `marker` is of the part whose worker dies."""
    if marker is not None:
        kill_once(marker)
    return KEYS[part::10]


def merged_of(first, others, marker):
    """Merge two partial results; the worker dies with both."""
    kill_once(marker)
    return first.merge(others)


@unittest.skipIf(dask is None, "dask and distributed are not installed")
class Cluster(Scratch):
    """Two workers on this machine, each a process with one thread."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        serial = lab.Partial(**OPTIONS)
        serial.add(KEYS)
        cls.expected = serial.to_bytes()

    def setUp(self):
        super().setUp()
        cluster = distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=None,
            local_directory=self.directory,
            # A worker that is killed while it starts again says so, on stderr.
            silence_logs="CRITICAL",
        )
        self.addCleanup(cluster.close)
        self.client = distributed.Client(cluster)
        self.addCleanup(self.client.close)

    def counted(self, marked=(), marker=None):
        from splitpoint.lab.dask import merged, partials

        source = [
            dask.delayed(keys_of)(part, marker if part in marked else None) for part in range(10)
        ]
        return merged(partials(source, **OPTIONS), split_every=2)

    def workers(self):
        # Asking the workers themselves fails while one that was killed is replaced.
        return set(self.client.scheduler_info()["workers"])

    def test_two_workers_have_the_bytes_of_one_process(self):
        self.assertEqual(self.counted().compute().to_bytes(), self.expected)

    def test_a_worker_that_is_killed_changes_no_byte(self):
        """It dies at the first partition, at a later one that holds counts, and at a merge."""
        for part in (0, 7):
            marker, before = pathlib.Path(self.path(f"part {part}")), self.workers()
            counts = self.counted([part], marker).compute()
            self.assertEqual(counts.to_bytes(), self.expected)
            self.assertTrue(marker.exists())
            self.client.wait_for_workers(2)
            self.assertNotEqual(self.workers(), before)
        marker, half = pathlib.Path(self.path("merge")), lab.Partial(**OPTIONS)
        half.add(KEYS)
        both = dask.delayed(merged_of)(self.counted(), dask.delayed(half), marker).compute()
        self.assertEqual(both.to_bytes(), half.merge(half).to_bytes())
        self.assertTrue(marker.exists())


@unittest.skipIf(dask is None, "dask and distributed are not installed")
class Example(Scratch):
    """`examples/many_keys.py`, with fewer keys."""

    def test_the_example_of_many_keys_finds_the_same_bytes_three_times(self):
        example = pathlib.Path(__file__).parents[1] / "examples" / "many_keys.py"
        done = self.python(str(example), "2000000", "--kill-after", "0")
        rows = [line.split(" | ") for line in done.stdout.splitlines() if line.count(" | ") == 4]
        ways = ["| one process", "| 2 workers", "| 2 workers, one killed"]
        self.assertEqual([row[0] for row in rows[1:]], ways)
        self.assertEqual(len({row[4] for row in rows[1:]}), 1, done.stdout)
        self.assertIn("2,000,000 keys", done.stdout)


if __name__ == "__main__":
    unittest.main()
