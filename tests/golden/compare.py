"""Compare two collections of outputs: `python tests/golden/compare.py BEFORE.json AFTER.json [--tolerance 1e-5]`.

Without a tolerance every value must be the same, bit for bit. With one, floats may differ by so much (relative to the
expected value, and absolutely below 1), unstable values are left out, and everything else must be the same.

Three tables say what may differ from the tagged commit. They are empty as long as nothing has changed:

- `RENAMED` maps a key, or a part of a key between slashes, to its present name. It also maps texts that are names.
- `RENAMED_ARGUMENTS` maps a setting, an option, a recipe or a view to its present name, for the collector's calls.
- `RENEWED` lists patterns of keys whose values have changed on purpose, each with the reason. Losses of a training may
  be renewed. Answers of shipped models may not: such a pattern is refused.
"""

import argparse
import json
import math
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

RENAMED: dict[str, str] = {
    "bodies/Run": "bodies/RunRecord",
    "bodies/Seen": "bodies/ViewAnswer",
    "floors": "baselines",
    "floor_note": "baseline_note",
    **{
        f"the {name} floor needs the training part{rest}": f"the {name} baseline needs the training part{rest}"
        for name in ("n-gram", "linear", "unigram")
        for rest in ("", ", which is not beside this model")
    },
}
RENAMED_ARGUMENTS: dict[str, str] = {}
CHOSEN = "settings that a recipe leaves open are chosen from the file"
STRATIFIED = "of a classifier's file each label is held out in proportion"
WILSON = "where no answer is right, the interval is Wilson's"
RENEWED: list[tuple[str, str]] = [
    (
        "http/explain-png/content/sha256",
        "PNG files are rendered from the SVG by resvg, and no longer drawn by Pillow",
    ),
    ("http/models/body/models/3/about", "the descriptions of recipes are in plain words"),
    *(
        (f"losses/{name}/*", CHOSEN)
        for name in ("bilstm-classifier", "bilstm-tagger", "char-tagger", "hmm-tagger")
    ),
    *(
        (f"losses/{name}/*", CHOSEN)
        for name in ("gru-forecast", "lds-forecast", "transformer-forecast")
    ),
    *(
        (f"losses/{name}/*", CHOSEN)
        for name in ("transformer-small", "tuned-classifier", "tuned-tagger")
    ),
    *((f"losses/{name}/*", CHOSEN) for name in ("glimpse-digits", "patch-transformer")),
    *((f"resumed/{name}/*", CHOSEN) for name in ("hmm-em-some-labels", "lds-em")),
    *(
        (f"models/{name}/*", CHOSEN)
        for name in ("classifier", "forecaster", "glimpses", "hmm-tagger", "hops")
    ),
    *((f"models/{name}/*", CHOSEN) for name in ("kalman", "tagger")),
    *(
        (f"views/*/{name}/*", CHOSEN)
        for name in ("classifier", "forecaster", "glimpses", "kalman", "tagger")
    ),
    *(
        (f"views/*/{name}/*", CHOSEN)
        for name in ("band-of-a-column", "cells-one-unit", "what-if-replaced")
    ),
    *((f"views/*/{name}/*", CHOSEN) for name in ("saliency-gradient", "saliency-leave-one-out")),
    *(
        (f"losses/{name}/*", STRATIFIED)
        for name in ("lstm-classifier", "row-lstm", "self-attentive")
    ),
    ("losses/transformer-classifier/*", STRATIFIED),
    ("views/attention/hops/*", STRATIFIED),
    *(
        (f"{place}/interval/*", WILSON)
        for place in ("losses/*/info/metrics/validation", "models/*/evaluated")
    ),
    ("http/document/bodies/Decoding", "decode.conformal is new"),
    ("http/invalid-body/body/hint", "messages are in plainer words"),
    ("http/unknown-path/body/hint", "messages are in plainer words"),
    (
        "http/explain*/content/sha256",
        "legends of pictures are signs, and axes are laid out by one function",
    ),
    (
        "http/explain*/svg/sha256",
        "legends of pictures are signs, and axes are laid out by one function",
    ),
    (
        "views/saliency/*",
        "a saliency is the gradient of one scale for each token: other sums, the same to five digits",
    ),
    (
        "views/lens/*/stages*/what",
        "the meaning of a stage is written in the words of the field: 'cell state', 'encoder states'",
    ),
    (
        "views/usual/*/stages*/what",
        "the meaning of a stage is written in the words of the field: 'cell state', 'encoder states'",
    ),
    (
        "views/gradients/*/sentences*",
        "a verdict says by what each step back multiplies the norm of the gradient",
    ),
    ("http/explain/body/pictures/*/title", "captions name a layer in words"),
    ("views/number/*", "the account of a number is read off the operations that made it"),
    ("losses/recipes/speaker", "a new recipe"),
    ("losses/speaker/*", "a new recipe"),
    ("views/names", "the view 'surprisal' is new"),
    ("http/models/body/models/*/views", "the view 'surprisal' is new"),
]

Values = dict[str, Any]
MAY_BE_RENEWED = ("losses/", "resumed/", "models/", "views/", "http/", "info/")
HASH = "sha256"
# Left out where floats may differ: a share that is calibrated to a border case, and a difference of near numbers.
UNSTABLE = ("*/coverage", "*/completeness_gap", f"*/{HASH}")
TOLERANCE = 1e-5  # of floats where processors differ, as in CI
DECIMAL = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")
MOST_NUMBERS = 64  # of a list, in the committed file
DIGITS = 7


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare two collections of outputs.")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument(
        "--tolerance", type=float, help="how much floats may differ; without it, not at all"
    )
    asked = parser.parse_args()
    before = present_names(read_values(asked.before))
    sys.exit(report(before, read_values(asked.after), asked.tolerance))


def report(before: Values, after: Values, tolerance: float | None = None) -> int:
    """Print each difference on one line and a summary; the exit code."""
    renewed = {key for key in before.keys() | after.keys() if renewal(key) is not None}
    added = (
        set() if tolerance is not None else after.keys() - before.keys() - renewed
    )  # the committed file has all keys
    before = {key: value for key, value in before.items() if key not in renewed}
    after = {key: value for key, value in after.items() if key not in renewed | added}
    found = list(differences(before, after, tolerance))
    for line in found:
        print(line)
    if added:
        print(f"new, and not compared: {len(added)} values")
    if renewed:
        print(f"renewed, and not compared: {len(renewed)} values")
    if found:
        print(f"different: {len(found)} of {len(before.keys() | after.keys())} values")
        return 1
    print(f"equal: {len(before)} values")
    return 0


def read_values(path: Path) -> Values:
    return json.loads(path.read_text("utf-8"))


def write_values(path: Path, values: Values) -> None:
    """One value a line, sorted by key."""
    lines = (
        f"{json.dumps(key)}: {json.dumps(values[key], ensure_ascii=False)}"
        for key in sorted(values)
    )
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def renewal(key: str) -> str | None:
    """The reason why the value of a key has changed on purpose, if there is one."""
    for pattern, reason in RENEWED:
        if not pattern.startswith(MAY_BE_RENEWED) or not reason:
            raise ValueError(
                f"{pattern}: answers of shipped models are never renewed, other values only with a reason"
            )
        if fnmatchcase(key, pattern):
            return reason
    return None


def present_names(values: Values) -> Values:
    """The values of the tagged commit under their present names."""
    return {_present_key(key): _present_text(value) for key, value in values.items()}


def _present_key(key: str) -> str:
    framed = f"/{key}/"
    for old, new in RENAMED.items():
        framed = framed.replace(f"/{old}/", f"/{new}/")
    return framed[1:-1]


def _present_text(value: Any) -> Any:
    if isinstance(value, list):
        return [_present_text(part) for part in value]
    return RENAMED.get(value, value) if isinstance(value, str) else value


def differences(before: Values, after: Values, tolerance: float | None = None) -> Iterator[str]:
    """One line for each key whose value is not the same."""
    for key in sorted(before.keys() | after.keys()):
        if tolerance is not None and unstable(key):
            continue
        if key not in after:
            yield f"{key}: missing, was {_short(before[key])}"
        elif key not in before:
            yield f"{key}: new, {_short(after[key])}"
        elif not same(before[key], after[key], tolerance):
            yield f"{key}: {_contrast(before[key], after[key], tolerance)}"


def unstable(key: str) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in UNSTABLE)


def same(before: Any, after: Any, tolerance: float | None) -> bool:
    """Whether two values agree; within the tolerance also where they are floats, or texts that hold decimals."""
    identical = json.dumps(before) == json.dumps(after)
    if identical or tolerance is None:
        return identical
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(
            same(*pair, tolerance) for pair in zip(before, after, strict=True)
        )
    if isinstance(before, str) and isinstance(after, str):
        return _same_decimals(before, after, tolerance)
    if isinstance(before, float) and isinstance(after, float):
        return math.isclose(before, after, rel_tol=tolerance, abs_tol=tolerance)
    return False


def _same_decimals(before: str, after: str, tolerance: float) -> bool:
    """Whether two texts differ only in decimals, and these by no more than the tolerance or their last digit."""
    if DECIMAL.sub("#", before) != DECIMAL.sub("#", after):
        return False
    for old, new in zip(DECIMAL.findall(before), DECIMAL.findall(after), strict=True):
        mantissa, _, exponent = old.partition("e")
        last_digit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
        if abs(float(old) - float(new)) > max(
            1.01 * last_digit, tolerance * max(1.0, abs(float(old)))
        ):
            return False
    return True


def _contrast(before: Any, after: Any, tolerance: float | None) -> str:
    """Where two values differ: of lists, the first place."""
    if isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            return f"{len(before)} items before, {len(after)} now"
        for place, (old, new) in enumerate(zip(before, after, strict=True)):
            if not same(old, new, tolerance):
                return f"at {place}, {_contrast(old, new, tolerance)}"
    return f"{_short(before)} before, {_short(after)} now"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else f"{text[:97]}..."


def reduced(values: Values) -> Values:
    """The values as they are committed: without unstable ones, floats to seven digits, some numbers of a long list."""
    return {key: _reduced(value) for key, value in values.items() if not unstable(key)}


def _reduced(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if not isinstance(value, list):
        return value
    leaves = list(_leaves(value))
    if len(leaves) <= MOST_NUMBERS or not all(
        isinstance(leaf, int | float | None) for leaf in leaves
    ):
        return [_reduced(part) for part in value]
    places = [place * len(leaves) // MOST_NUMBERS for place in range(MOST_NUMBERS)]
    some = [_reduced(leaves[place]) for place in places]
    return [f"{MOST_NUMBERS} numbers of an array of shape {_shape(value)}", *some]


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


def _shape(value: Any) -> list[int]:
    return [len(value), *_shape(value[0])] if isinstance(value, list) and value else []


if __name__ == "__main__":
    main()
