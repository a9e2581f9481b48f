"""Write `expected.json` anew, which the fast tests hold the package against: what `make golden-renew` runs.

A value that has changed by more than the tolerance is replaced only where `RENEWED` in `compare.py` gives the reason.
Answers of shipped models are never replaced.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from against_tag import HERE, ROOT, collect
from compare import (
    TOLERANCE,
    Values,
    differences,
    present_names,
    read_values,
    reduced,
    renewal,
    write_values,
)

EXPECTED = HERE / "expected.json"


def main() -> None:
    with TemporaryDirectory() as folder:
        out = Path(folder) / "outputs.json"
        collect(ROOT, out, None, "--quick")
        new = reduced(read_values(out))
    failed = [f"{key}: {value}" for key, value in new.items() if str(value).startswith("failed: ")]
    old = present_names(read_values(EXPECTED)) if EXPECTED.exists() else {}
    refused = failed + unexplained(old, new)
    if refused:
        print(*refused, sep="\n")
        sys.exit(
            "error: these values have changed without a reason in RENEWED of compare.py; nothing was written"
        )
    write_values(EXPECTED, merged(old, new))
    print(f"{EXPECTED.relative_to(ROOT)}: {len(new)} values")


def unexplained(old: Values, new: Values) -> list[str]:
    """The differences that no renewal explains; a key that is new needs no reason."""
    known = {key: value for key, value in new.items() if key in old}
    return [
        line
        for line in differences(old, known, TOLERANCE)
        if renewal(line.partition(": ")[0]) is None
    ]


def merged(old: Values, new: Values) -> Values:
    """The new values; where one is the old one within the tolerance, the old one, so that nothing drifts."""
    changed = {line.partition(": ")[0] for line in differences(old, new, TOLERANCE)}
    return {key: value if key in changed else old[key] for key, value in new.items()}


if __name__ == "__main__":
    main()
