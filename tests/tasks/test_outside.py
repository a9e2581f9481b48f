"""How readily a tagger of spans predicts O."""

import copy
import random

import pytest

from seqlab import lab
from seqlab.data.example import Example
from seqlab.tasks.examples import Examples
from seqlab.tasks.outside import choose_outside
from seqlab.tasks.tag import by_word


def _sentence(n):
    """Names after "in" are spans in two of five sentences, whatever the name."""
    tag = "B-place" if random.Random(n).random() < 0.4 else "O"
    name = "".join(random.Random(n).choices("abcdefghij", k=6)).title()
    return f"we\tO\nmet\tO\nin\tO\n{name}\t{tag}\n"


@pytest.fixture(scope="module", params=["crf-tagger", "char-tagger"])
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("spans")
    (folder / "t.conll").write_text("\n".join(_sentence(n) for n in range(120)))
    settings = [
        "data.validation=0.3",
        *(["train.steps=40"] if request.param == "char-tagger" else []),
    ]
    return lab.train(
        "tag", folder / "t.conll", recipe=request.param, settings=settings, out=folder / "m"
    ).model


def _examples(model, tags):
    return Examples(
        [
            Example(("we", "met", "in", f"Town{n}"), ("O", "O", "O", tag), "")
            for n, tag in enumerate(tags)
        ]
    )


def test_rare_spans_are_found_where_that_raises_f1(model):
    bundle = copy.deepcopy(model.bundle)
    outside = bundle.codec.target.labels.names.index("O")
    bias = bundle.model.label_bias
    bias.data[outside] += 0.5
    before = bias[outside].item()
    spans = _examples(model, ["B-place"] * 30)
    choose_outside(bundle, spans, by_word)
    assert bias[outside].item() < before
    chosen = bias.clone()
    choose_outside(bundle, _examples(model, ["O"] * 30), by_word)  # no spans to judge by
    assert bias.equal(chosen)


def test_nothing_is_subtracted_where_it_gains_nothing(model):
    bundle = copy.deepcopy(model.bundle)
    outside = bundle.codec.target.labels.names.index("O")
    bundle.model.label_bias.data[outside] -= 20  # every word is a span already
    before = bundle.model.label_bias.clone()
    choose_outside(bundle, _examples(model, ["B-place", "O"] * 15), by_word)
    assert bundle.model.label_bias.equal(before)
