"""The package gives the outputs it gave before: discrete values exactly, floats within 1e-5, since processors differ.

`make golden` compares all outputs with the tagged commit, bit for bit.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from . import compare

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# the prefixes of the keys that each section of the collector gives
SECTIONS = {
    "answers": ("answers/", "info/"),
    "losses": ("losses/",),
    "resumed": ("resumed/",),
    "views": ("views/", "models/"),
    "http": ("http/",),
}


@pytest.mark.parametrize("section", SECTIONS)
def test_outputs_are_what_they_were(section, tmp_path):
    words = [
        sys.executable,
        HERE / "collect.py",
        tmp_path / "now.json",
        "--only",
        section,
        "--quick",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(list(map(str, words)), env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    now = compare.reduced(compare.read_values(tmp_path / "now.json"))
    expected = compare.present_names(compare.read_values(HERE / "expected.json"))
    known = {key: value for key, value in expected.items() if key.startswith(SECTIONS[section])}
    found = list(compare.differences(known, now, compare.TOLERANCE))
    assert len(now) > 40
    assert not found, "\n".join(found[:50])


def test_every_expected_value_belongs_to_a_section():
    prefixes = tuple(prefix for section in SECTIONS.values() for prefix in section)
    assert all(key.startswith(prefixes) for key in compare.read_values(HERE / "expected.json"))


def test_the_tagged_commit_is_named_in_full():
    assert re.fullmatch(r"[0-9a-f]{40}\n", (HERE / "TAGGED").read_text())


class TestComparison:
    BEFORE = {"a/loss": 1.5, "a/text": "x 0.123", "a/list": [1, 2.0, None], "a/sha256": "f00"}  # noqa: RUF012

    def found(self, tolerance=None, **after):
        return list(compare.differences(self.BEFORE, self.BEFORE | after, tolerance))

    def test_equal_values_give_no_difference(self):
        assert self.found() == []

    def test_without_a_tolerance_the_last_bit_counts(self):
        assert self.found(**{"a/loss": 1.5000000000000002}) == [
            "a/loss: 1.5 before, 1.5000000000000002 now"
        ]
        assert self.found(**{"a/sha256": "f01"}) == ['a/sha256: "f00" before, "f01" now']

    def test_with_a_tolerance_floats_may_differ_a_little_and_hashes_are_left_out(self):
        near = {
            "a/loss": 1.50001,
            "a/text": "x 0.124",
            "a/list": [1, 2.00001, None],
            "a/sha256": "f01",
        }
        assert self.found(1e-5, **near) == []
        assert self.found(1e-5, **{"a/loss": 1.501}) == ["a/loss: 1.5 before, 1.501 now"]

    def test_with_a_tolerance_everything_else_must_be_the_same(self):
        assert self.found(1e-5, **{"a/text": "y 0.123"}) == [
            'a/text: "x 0.123" before, "y 0.123" now'
        ]
        assert self.found(1e-5, **{"a/list": [2, 2.0, None]}) == ["a/list: at 0, 1 before, 2 now"]
        assert self.found(1e-5, **{"a/list": [1, 2.0]}) == ["a/list: 3 items before, 2 now"]

    def test_a_key_that_is_missing_or_new_is_a_difference(self):
        assert list(compare.differences({"a": 1}, {"b": 2})) == ["a: missing, was 1", "b: new, 2"]

    def test_a_renamed_key_is_found_under_its_present_name(self, monkeypatch):
        monkeypatch.setattr(compare, "RENAMED", {"baselines": "baselines", "a/b": "c"})
        assert compare.present_names({"x/baselines/y": "baselines", "a/b": ["baselines", 1]}) == {
            "x/baselines/y": "baselines",
            "c": ["baselines", 1],
        }

    def test_losses_are_renewed_with_a_reason_and_answers_never(self, monkeypatch):
        monkeypatch.setattr(compare, "RENEWED", [("losses/dates/*", "another order of batches")])
        assert compare.renewal("losses/dates/log/0/loss") == "another order of batches"
        assert compare.renewal("losses/themes/log/0/loss") is None
        for pattern, reason in (("answers/dates/*", "better"), ("*", "all"), ("losses/*", "")):
            monkeypatch.setattr(compare, "RENEWED", [(pattern, reason)])
            with pytest.raises(ValueError, match="never renewed"):
                compare.renewal("answers/dates/usual/0/output")

    def test_long_lists_are_committed_in_part(self):
        short = compare.reduced(
            {"a": [[float(i)] * 10 for i in range(20)], "b": [0.123456789], "c/sha256": "f"}
        )
        assert short["a"][0] == "64 numbers of an array of shape [20, 10]"
        assert len(short["a"]) == 65
        assert short["b"] == [0.1234568]
        assert "c/sha256" not in short
