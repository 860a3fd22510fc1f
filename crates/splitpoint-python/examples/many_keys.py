"""Count many keys in one process, by two workers, and by two of which one is killed; compare.

    python examples/many_keys.py 100000000

Each part makes its own million keys, `user:` and a number, so that no file is read and no process holds
more than a part. It prints how long each way took, the most memory that a process of it had, and the
size and SHA-256 of the counts, and fails if these differ. It needs `dask[dataframe]`, `distributed`,
`numpy` and `pyarrow`.
"""

import argparse
import hashlib
import os
import signal
import tempfile
import threading
import time
from contextlib import suppress

import dask
import distributed
import numpy
import psutil
import pyarrow
import pyarrow.compute

from splitpoint import lab
from splitpoint.lab.dask import merged, partials

PART_KEYS = 1_000_000
OPTIONS = {"hash": "xxh3-64", "buckets": 1 << 22, "sample_hashes": "auto"}


def keys_of(start, stop):
    """Return the keys from number `start` to `stop`, as a column."""
    # An odd factor, modulo 2^64, gives each number another one, of 20 digits and less.
    factor = numpy.uint64(0x9E37_79B9_7F4A_7C15)
    numbers = pyarrow.array(numpy.arange(start, stop, dtype=numpy.uint64) * factor)
    return pyarrow.compute.binary_join_element_wise("user:", numbers.cast("string"), "")


class Memory(threading.Thread):
    """The most memory that this process and its workers have had."""

    def __init__(self):
        super().__init__(daemon=True)
        self.most, self.is_over = {}, threading.Event()
        self.start()

    def run(self):
        """Look ten times a second."""
        this = psutil.Process()
        while not self.is_over.wait(0.1):
            with suppress(psutil.Error):
                for process in [this, *this.children(recursive=True)]:
                    with suppress(psutil.Error):
                        used = process.memory_info().rss
                        self.most[process.pid] = max(used, self.most.get(process.pid, 0))

    def end(self):
        """Return megabytes, of the largest process first."""
        self.is_over.set()
        self.join()
        return sorted((used // 1_000_000 for used in self.most.values()), reverse=True)


def serial(ranges):
    """Count in this process, part by part."""
    counts = lab.Partial(**OPTIONS)
    for start, stop in ranges:
        counts.add(keys_of(start, stop))
    return counts


def spread(ranges, kill_after_s=None):
    """Count by two workers; after `kill_after_s` one of them dies, and another takes its place."""
    with (
        tempfile.TemporaryDirectory() as directory,
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=None,
            local_directory=directory,
            silence_logs="CRITICAL",
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        begun = time.perf_counter()
        parts = [dask.delayed(keys_of)(start, stop) for start, stop in ranges]
        future = client.compute(merged(partials(parts, **OPTIONS), split_every=4))
        if kill_after_s is not None:
            time.sleep(kill_after_s)
            worker = min(client.run(os.getpid).values())
            os.kill(worker, signal.SIGKILL)
            if future.done():
                raise SystemExit("all was counted before the worker was killed; take more keys")
        return future.result(), time.perf_counter() - begun


def shown(words, counts, wall_s, memory):
    """Print a row, and return the digest."""
    data = counts.to_bytes()
    digest = hashlib.sha256(data).hexdigest()
    processes = ", ".join(str(used) for used in memory[:4])
    print(f"| {words} | {wall_s:.1f} s | {processes} | {len(data):,} | {digest[:16]} |", flush=True)
    return digest


def main():
    """Count the three ways."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("keys", type=int, nargs="?", default=10_000_000)
    parser.add_argument("--kill-after", type=float, default=3.0, metavar="SECONDS")
    options = parser.parse_args()
    starts = range(0, options.keys, PART_KEYS)
    ranges = [(start, min(start + PART_KEYS, options.keys)) for start in starts]
    print(f"{options.keys:,} keys in {len(ranges)} parts; MB of the largest processes\n")
    print("| | wall | MB | bytes | SHA-256 |\n|---|--:|--:|--:|---|")
    digests = set()
    memory, begun = Memory(), time.perf_counter()
    counts = serial(ranges)
    digests.add(shown("one process", counts, time.perf_counter() - begun, memory.end()))
    result = counts.report().results[0]
    found = (result["key_count"], counts.distinct_estimate, result["verdict"]["kind"])
    del counts
    ways = {"2 workers": None, "2 workers, one killed": options.kill_after}
    for words, kill_after_s in ways.items():
        memory = Memory()
        counts, wall_s = spread(ranges, kill_after_s)
        digests.add(shown(words, counts, wall_s, memory.end()))
    print("\n{:,} keys, about {:,} different: {}".format(*found))
    if len(digests) != 1:
        raise SystemExit("the counts differ")


if __name__ == "__main__":
    main()
