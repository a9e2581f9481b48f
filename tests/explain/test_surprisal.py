"""The view `surprisal`: bits follow from the model's probabilities, in the picture and in the text."""

import json
import math
import re

import pytest
from rich.cells import cell_len

from seqlab.errors import UsageError
from seqlab.explain.canvas import Rect
from seqlab.explain.surprisal import surprisal_view
from seqlab.tasks import predict, subject, task_of
from seqlab.tasks.text_generation import score

from .conftest import TRANSFORMER


def test_the_bits_of_a_translation_are_its_score(bundle_of):
    bundle = bundle_of("translate", TRANSFORMER)
    data = surprisal_view(subject(bundle, "the cat", output="tac")).data
    assert data["tokens"] == ["t", "a", "c", "<eos>"]
    (log_p,) = score(task_of(bundle.recipe), bundle, ["the cat"], ["tac"])
    assert data["total"] == pytest.approx(-log_p / math.log(2), rel=1e-5)
    assert data["mean"] == pytest.approx(data["total"] / 4)
    assert data["perplexity"] == pytest.approx(math.exp(-log_p / 4), rel=1e-5)


def test_the_continuation_after_a_text_is_not_counted(bundle_of):
    bundle = bundle_of("lm")
    data, example = surprisal_view(subject(bundle, "the cat")).data, subject(bundle, "the cat")
    assert "".join(data["tokens"]).endswith("cat")
    assert len(data["tokens"]) == len(example.answers) - 1
    assert -data["bits"] * math.log(2) == pytest.approx(
        example.log_probabilities().detach().numpy()[:-1]
    )


def test_labels_are_shown_with_their_tokens(bundle_of):
    bundle = bundle_of("tag")
    view = surprisal_view(subject(bundle, "the dog ran"))
    labels = predict(bundle, ["the dog ran"])[0].output.split()
    assert view.data["tokens"] == [
        f"{word}/{label}" for word, label in zip(("the", "dog", "ran"), labels, strict=True)
    ]


def test_the_most_surprising_tokens_are_listed_with_the_expected_ones(bundle_of):
    data = json.loads(surprisal_view(subject(bundle_of("lm"), "the cat saw")).to_json())
    surprises = data["most_surprising"]
    assert [each["bits"] for each in surprises] == sorted(data["bits"], reverse=True)[
        : len(surprises)
    ]
    for each in surprises:
        assert each["token"] == data["tokens"][each["position"] - 1]
        assert each["expected_bits"] <= each["bits"]
        assert each["bits"] >= data["mean"]


def test_bars_are_proportional_to_bits_and_inside_the_picture(bundle_of):
    view = surprisal_view(subject(bundle_of("lm"), "the cat saw a dog " * 8))
    (canvas,), bits = view.canvases, view.data["bits"]
    bars = [item for item in canvas.items if isinstance(item, Rect)]
    highest = max(bars, key=lambda bar: bar.height)
    for bar, each in zip(bars, bits.tolist(), strict=True):
        assert bar.height == pytest.approx(max(1.0, highest.height * each / bits.max()))
        assert 0 <= bar.x <= bar.x + bar.width <= canvas.width
        assert 0 <= bar.y <= bar.y + bar.height <= canvas.height


@pytest.mark.parametrize(
    ("task", "given"), [("lm", "the cat saw a dog " * 8), ("tag", "the dog ran " * 12)]
)
def test_a_terminal_shows_bars_within_its_columns(bundle_of, task, given):
    shown = surprisal_view(subject(bundle_of(task), given)).to_text(width=60).split("\n")
    assert max(map(cell_len, shown[1 : shown.index("")])) <= 60
    assert any("█" in line for line in shown)
    assert any(" bits per token, perplexity " in line for line in shown)


def test_colours_do_not_change_the_text(bundle_of):
    view = surprisal_view(subject(bundle_of("tag"), "the dog ran"))
    coloured = view.to_text(colour=True)
    assert "\x1b[" in coloured
    plain = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", coloured).split("\n")]
    assert plain == view.to_text().split("\n")


def test_a_single_token_has_no_surprisal(bundle_of):
    with pytest.raises(UsageError, match="a single token"):
        surprisal_view(subject(bundle_of("lm", "data.unit=stream"), "t"))
