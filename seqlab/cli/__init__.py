"""The command line: each command parses its arguments, calls one function of the package, and prints the result.

Results go to stdout, everything else to stderr. Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted.
"""

from seqlab.cli.command import main

__all__ = ["main"]
