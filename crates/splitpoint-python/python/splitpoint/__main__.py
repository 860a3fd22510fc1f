"""`python -m splitpoint`: the command `splitpoint`, without the studies of its lab."""

import sys

from ._native import run_command


def main():
    """Run the command with the arguments of this process, and exit with its code."""
    sys.exit(run_command(["splitpoint", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
