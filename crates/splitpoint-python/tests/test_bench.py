"""`python -m splitpoint.bench`."""

import json
import unittest

from scratch import Scratch


class Bench(Scratch):
    """The benchmark runs and compares its answers; its times are not asserted."""

    def test_it_prints_a_row_for_each_package(self):
        done = self.python("-m", "splitpoint.bench", "--records", "300")
        lines = done.stdout.splitlines()
        rows = [line.split(" | ")[0] for line in lines if line.startswith("| ")]
        self.assertIn("| splitpoint", rows)
        self.assertIn("| dict in the same loop", rows)
        goals = ("a get", "a key of get_many", "a record of put_many", "a durable put", "the import")
        for goal in (*goals, "the wheel"):
            self.assertRegex(done.stdout, rf"\n\| {goal}.* \| (reached|missed) \|")
        self.assertEqual(done.stderr, "")

    def test_it_prints_json_and_measures_only_what_is_asked_for(self):
        options = ["--records", "300", "--only", "splitpoint", "--json"]
        done = self.python("-m", "splitpoint.bench", *options)
        results = json.loads(done.stdout)
        self.assertEqual(list(results), ["splitpoint"])
        self.assertEqual(results["splitpoint"]["records"], 300)
        self.assertGreater(results["splitpoint"]["get_many"]["cpu_us"], 0)

    def test_a_package_that_is_not_there_is_named(self):
        done = self.python("-m", "splitpoint.bench", "--only", "oracle", code=2)
        self.assertIn("oracle: not installed; there are dict", done.stderr)

    def test_a_directory_that_is_not_there_is_named(self):
        done = self.python("-m", "splitpoint.bench", "--directory", self.path("none"), code=2)
        self.assertIn(f"cannot create files in {self.path('none')!r}", done.stderr)


if __name__ == "__main__":
    unittest.main()
