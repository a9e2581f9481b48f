"""Collect outputs of the package that stands first on PYTHONPATH: `python tests/golden/collect.py OUT.json`.

The file is one flat JSON object. Its keys begin with a section: `answers` of the shipped models, `losses` of each
recipe, `resumed` runs of each learner, `views` and answers of tiny models, and `http` answers of a server.
Two collections of the same code on the same machine are equal, bit for bit.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["SEQLAB_NATIVE"] = "0"  # native kernels depend on the compiler of the machine
os.environ["SEQLAB_PRODUCTS"] = "torch"  # which way is the fastest depends on the machine
os.environ["NO_COLOR"] = "1"
os.environ["COLUMNS"] = "100"

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import verbs
from answers import collect_answers
from compare import write_values
from losses import collect_losses
from material import write_material
from resumed import collect_resumed
from serving import collect_http
from views import collect_views

SECTIONS: dict[str, Callable[..., None]] = {
    "answers": collect_answers,
    "losses": collect_losses,
    "resumed": collect_resumed,
    "views": collect_views,
    "http": collect_http,
}


class Collection:
    """Values by key. What fails is kept as a text that says so, and the rest is still collected."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.failures: list[str] = []

    def add(self, key: str, function: Callable[..., Any], *args: Any, **options: Any) -> None:
        """Call a function and keep what it returns under this key."""
        try:
            self.values |= dict(leaves(key, function(*args, **options)))
        except Exception as error:
            self.values[key] = f"failed: {type(error).__name__}: {error}"
            self.failures.append(f"{key}: {type(error).__name__}: {error}")


def leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a document by their paths; of a table, which is a list of like objects, each column is one part."""
    if isinstance(value, dict) and value:
        for name, part in value.items():
            yield from leaves(f"{key}/{name}", part)
    elif _is_table(value):
        for name in value[0]:
            yield f"{key}/{name}", [row[name] for row in value]
    elif _holds_objects(value):
        for place, part in enumerate(value):
            yield from leaves(f"{key}/{place}", part)
    else:
        yield key, value


def _is_table(value: Any) -> bool:
    """Whether this is a list of objects with the same names, and with no objects in them."""
    if not isinstance(value, list) or not value or not all(isinstance(row, dict) for row in value):
        return False
    return all(
        row.keys() == value[0].keys() and not any(map(_holds_objects, row.values()))
        for row in value
    )


def _holds_objects(value: Any) -> bool:
    if isinstance(value, list):
        return any(_holds_objects(part) for part in value)
    return isinstance(value, dict) and bool(value)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Collect outputs of the package that stands first on PYTHONPATH."
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, with commas between")
    parser.add_argument(
        "--quick", action="store_true", help="leave out most recipes, as the fast tests do"
    )
    parser.add_argument(
        "--tagged", action="store_true", help="the package is the tagged commit: use its names"
    )
    asked = parser.parse_args()
    out = asked.out.resolve()
    verbs.use_present_names(not asked.tagged)
    torch.set_num_threads(1)
    print(f"collecting from {Path(verbs.seqlab.__file__).parent}", file=sys.stderr)
    collection = Collection()
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # so that no path of this machine is in any output
        write_material(Path())
        for name in asked.only.split(","):
            began = time.perf_counter()
            SECTIONS[name](collection, quick=asked.quick)
            print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        os.chdir(before)
    write_values(out, collection.values)
    for failure in collection.failures:
        print(f"failed: {failure}", file=sys.stderr)
    sys.exit(1 if collection.failures else 0)


if __name__ == "__main__":
    main()
