"""Run all tests on the installed package, and print their number as cargo does."""

import pathlib
import sys
import sysconfig
import unittest

import splitpoint
from splitpoint import bench


def main():
    """Exit with 1 if a test fails, or if the package is not the installed one."""
    installed = pathlib.Path(sysconfig.get_path("platlib")).resolve()
    if installed not in pathlib.Path(splitpoint.__file__).resolve().parents:
        sys.exit(f"error: {splitpoint.__file__} is not installed; expected it below {installed}")
    if not hasattr(splitpoint.Table, "_panic"):
        sys.exit("error: some tests need the feature `testing`: `maturin develop --features testing`")
    # An error in `__del__`, such as a `ResourceWarning`, is only printed otherwise.
    unraisable = []
    sys.unraisablehook = lambda it: unraisable.append(repr(it.exc_value))
    suite = unittest.defaultTestLoader.discover(str(pathlib.Path(__file__).parent))
    result = unittest.TextTestRunner().run(suite)
    # The tests may be of another profile than that of the wheel.
    print(f"import: {bench.import_ms():.1f} ms; as a wheel: {bench.wheel_mb():.2f} MB")
    for test, reason in result.skipped:
        print(f"skipped: {test.id()}: {reason}")
    for error in unraisable:
        print(f"not raised: {error}")
    failed = len(result.failures) + len(result.errors) + len(unraisable)
    passed = result.testsRun - failed - len(result.skipped)
    word = "FAILED" if failed else "ok"
    print(f"test result: {word}. {passed} passed; {failed} failed; {len(result.skipped)} ignored")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
