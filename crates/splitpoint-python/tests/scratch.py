"""A directory for the files of each test, and children that run Python."""

import os
import subprocess
import sys
import tempfile
import unittest


class Scratch(unittest.TestCase):
    """A test with a directory of its own."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="splitpoint-python-")
        self.addCleanup(directory.cleanup)
        self.directory = directory.name

    def path(self, name="table.spt"):
        """Return the path of a file in the test's directory."""
        return os.path.join(self.directory, name)

    def python(self, *arguments, code=0, **options):
        """Run Python with `arguments`, expect its exit code, and return what it printed."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
            **options,
        )
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done
