"""`python -m splitpoint`: the command `splitpoint`, without the studies of its lab."""

import sys

from ._native import run_command


def main():
    """Run the command with the arguments of this process, and exit with its code."""
    # Without the working directory, in which another `splitpoint` may be.
    program = [sys.executable or "python3", "-P", "-m", "splitpoint"]
    sys.exit(run_command(program, ["splitpoint", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
