"""Numbers and angles at each position of a sequence of symbols, from the file to the verbs."""

import json

import numpy as np
import pytest

from seqlab import lab
from seqlab.errors import DataError, RecipeError

STEPS = (
    "train.steps=250",
    "train.batch_tokens=512",
    "train.learning_rate=1e-2",
    "train.validate_every=50",
)
SMALL = (
    "model.embedding=16",
    "model.encoder.size=32",
    "model.encoder.layers=1",
    "model.dropout=0",
    *STEPS,
)
TURNS = dict(zip("ABCDEF", (10.0, 75.0, 160.0, 200.0, 290.0, 340.0), strict=True))


def chains(num, seed):
    """Letters, and at each the sum of its own turn and the one before it: an angle with a known answer."""
    random = np.random.default_rng(seed)
    for _ in range(num):
        letters = random.choice(list(TURNS), size=int(random.integers(4, 12)))
        turns = np.array([TURNS[letter] for letter in letters])
        yield letters, (turns + np.concatenate([[0.0], turns[:-1]])) % 360


@pytest.fixture(scope="module")
def angles(tmp_path_factory):
    path = tmp_path_factory.mktemp("angles") / "angles.tsv"
    rows = [
        f"{' '.join(letters)}\t{' '.join(f'{a:.1f}' for a in turned)}\n"
        for letters, turned in chains(800, 1)
    ]
    rows[0] = "A B C\t10.0 nan 235.0\n"
    path.write_text("".join(rows))
    return path


def test_angles_are_learnt_around_the_circle(angles, tmp_path):
    model = lab.train(
        "tag", angles, settings=(*SMALL, "target.kind=angles"), out=tmp_path / "m"
    ).model
    report = model.evaluate()
    assert report.scores["mae"] < 12
    assert report.baselines["mean of training"]["mae"] > 60
    letters, turned = next(chains(1, 99))
    said = model.predict(" ".join(letters))
    apart = (np.array(said.details["numbers"])[:, 0] - turned + 180) % 360 - 180
    assert np.abs(apart).max() < 40
    assert len(said.output.split()) == len(letters)
    assert lab.load(tmp_path / "m").predict(" ".join(letters)).output == said.output


def test_several_numbers_at_a_position_some_of_them_unknown(tmp_path):
    random = np.random.default_rng(2)
    value = {"a": (1000.0, -1.0), "b": (3000.0, 2.0), "c": (5000.0, 0.5)}
    lines = []
    for _ in range(300):
        letters = random.choice(list(value), size=6)
        cells = [
            f"{value[x][0]},{'nan' if random.random() < 0.2 else value[x][1]}" for x in letters
        ]
        cells[int(random.integers(6))] = "_"
        lines.append(f"{' '.join(letters)}\t{' '.join(cells)}\n")
    (tmp_path / "pairs.tsv").write_text("".join(lines))
    settings = (*SMALL, "target.kind=numbers", "data.no_label=_")
    model = lab.train("tag", tmp_path / "pairs.tsv", settings=settings, out=tmp_path / "m").model
    assert np.allclose(
        model.predict("a b c").details["numbers"], [value[x] for x in "abc"], rtol=0.15, atol=150
    )
    assert (
        model.evaluate().scores["mae"] < 0.2 * model.evaluate().baselines["mean of training"]["mae"]
    )
    assert json.loads((tmp_path / "m" / "tokenizer.json").read_text())["numbers"]["no_label"] == "_"


def test_what_is_no_number_is_named(tmp_path):
    def train(text, *settings):
        (tmp_path / "x.tsv").write_text(text)
        lab.train(
            "tag",
            tmp_path / "x.tsv",
            settings=("target.kind=numbers", *settings),
            out=tmp_path / "m",
        )

    with pytest.raises(DataError, match=r"x\.tsv:2: position 1: 'DET' is not a number"):
        train("a b\t1 2\nc d\tDET 3\n")
    with pytest.raises(DataError, match="position 2 has 2 numbers where others have 1"):
        train("a b\t1 2\nc d\t3 4,5\n")
    with pytest.raises(DataError, match="no numbers to learn from"):
        train("a b\tnan nan\nc d\tnan nan\n")
    with pytest.raises(DataError, match="is not a number"):
        train("a a\t1 inf\na a\t1 inf\n")
    with pytest.raises(RecipeError, match="targets of a tagger"):
        lab.train(
            "classify", tmp_path / "x.tsv", settings=("target.kind=numbers",), out=tmp_path / "m"
        )
