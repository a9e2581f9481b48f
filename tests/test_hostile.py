"""Files that somebody has broken, by accident or on purpose: whatever is read of them, or a sentence; never a crash.

Each parser is given a good file with random damage, and what the fuzzer (`tests/fuzz.py`) found worth keeping. What it
raises must be an error for people, soon, in little memory. `make fuzz` does a million of these.
"""

import os
import random
import resource
import time
import warnings
from pathlib import Path

import pytest

from .parsers import NAMES, damaged, parsers

ASKED = os.environ.get("SEQLAB_MUTATIONS")
SHARES = {name: 0.05 if name.startswith("bundle") else 1.0 for name in NAMES}  # it takes longer
SECONDS, MEMORY = 5.0, 1 << 30
CORPUS = Path(__file__).with_name("corpus")


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    return parsers(tmp_path_factory.mktemp("good"))


@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_file_is_read_or_refused_with_a_sentence(known, tmp_path, record_property, name):
    parser, draw = known[name], random.Random(name)
    good, path = tmp_path / f"good{parser.suffix}", tmp_path / f"bad{parser.suffix}"
    good.write_bytes(parser.good)
    assert not parser.refuses(good)
    many = round(int(ASKED or 10_000) * SHARES[name] / sum(SHARES.values()))
    refused, slowest, before = 0, 0.0, _peak()
    for number in range(many):
        content = damaged(parser.good, draw)
        path.write_bytes(content)
        began = time.process_time()  # of the processor: others may keep it busy meanwhile
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                refused += parser.refuses(path)
        except BaseException as error:  # a panic inside a library is no Exception
            raise AssertionError(f"damage {number}: {error!r} from {content!r}") from error
        slowest = max(slowest, time.process_time() - began)
        assert slowest < SECONDS, content
    grown = _peak() - before
    assert refused
    assert grown < MEMORY
    if ASKED:
        took = f"the slowest {slowest:.3f} s, {grown / 1e6:.0f} MB more memory than before"
        record_property("measured", f"{name}: {many:,} damaged, {refused:,} refused, {took}")


@pytest.mark.parametrize("name", NAMES)
def test_what_a_fuzzer_found_is_read_or_refused_with_a_sentence(known, tmp_path, name):
    path = tmp_path / f"found{known[name].suffix}"
    for found in sorted((CORPUS / name).glob("*")):
        path.write_bytes(found.read_bytes())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            known[name].refuses(path)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
