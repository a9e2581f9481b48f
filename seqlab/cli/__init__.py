"""The command line: each command parses, calls one function of the lab, and prints.

Results go to stdout, everything else to stderr. Exit codes: 0 fine, 1 expected failure, 2 usage, 130 interrupted.
"""

from seqlab.cli.command import main

__all__ = ["main"]
