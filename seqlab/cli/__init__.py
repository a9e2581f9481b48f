"""The command line: each command parses, calls one function of the lab, and prints.

Results go to stdout, everything else to stderr. Exit codes: 0 fine, 1 expected failure, 2 usage, 130 interrupted.
"""

import sys
import warnings


def main() -> None:
    """Run the command that was typed."""
    from seqlab.cli.app import app
    from seqlab.errors import SeqlabWarning

    warnings.simplefilter("always", SeqlabWarning)
    warnings.showwarning = _show_warning
    app()


def _show_warning(message: Warning | str, category: type[Warning], *place: object, **more: object) -> None:
    print(f"warning: {message}", file=sys.stderr)
