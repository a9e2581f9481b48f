"""The maximum length of models with learned positions."""

import pytest

from seqlab import lab
from seqlab.errors import DataError

LEARNED = [
    f"model.decoder.{o}"
    for o in (
        "kind=transformer",
        "size=8",
        "heads=2",
        "layers=1",
        "positions=learned",
        "window=none",
    )
]


@pytest.fixture(scope="module")
def short_sighted(tmp_path_factory):
    """A language model of characters that learned ten positions."""
    folder = tmp_path_factory.mktemp("learned")
    (folder / "text.txt").write_text("abc abd abe " * 40, "utf-8")
    settings = [
        *LEARNED,
        "data.max_target=8",
        "train.steps=2",
        "train.bptt=8",
        "train.batch_rows=4",
    ]
    return lab.train(
        "lm", folder / "text.txt", recipe="gpt-tiny", settings=settings, out=folder / "model"
    ).model


def test_a_continuation_ends_where_the_positions_end(short_sighted):
    alone = short_sighted.predict("abcd", method="greedy", max_length=50)
    assert len(alone.details["tokens"]) == 7, (
        "four are read, six more places are left, and the last token is not read"
    )
    together = short_sighted.predict(["a", "abcd", "abc"], method="greedy", max_length=50)
    assert together[1] == alone
    assert [len(answer.details["tokens"]) for answer in together] == [10, 7, 8]


def test_what_fits_is_not_shortened(short_sighted):
    assert len(short_sighted.predict("abcd", method="greedy", max_length=3).details["tokens"]) == 3


def test_a_line_beyond_them_is_not_evaluated(tmp_path):
    (tmp_path / "text.txt").write_text("abc abd\n" * 40, "utf-8")
    (tmp_path / "long.txt").write_text("abc\n" + "abc abd " * 4 + "\n", "utf-8")
    settings = [*LEARNED, "data.unit=line", "data.max_target=8", "train.steps=2"]
    model = lab.train(
        "lm", tmp_path / "text.txt", recipe="gpt-tiny", settings=settings, out=tmp_path / "model"
    ).model
    with pytest.raises(
        DataError, match=r"long.txt:2: 34 tokens, and this model learned 10 positions"
    ):
        model.evaluate(tmp_path / "long.txt")


def test_a_prompt_beyond_them_is_refused_by_its_line(short_sighted):
    with pytest.raises(DataError, match="line 2: 11 tokens, and this model learned 10 positions"):
        short_sighted.predict(["a", "a" * 11], max_length=5)
