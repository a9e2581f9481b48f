"""Every view of a model renders in every format, and shows the numbers of the model."""

import json
import math
import re
import xml.etree.ElementTree as ElementTree
from contextlib import suppress
from datetime import date, timedelta

import pytest

from seqlab import lab
from seqlab.errors import UsageError
from seqlab.explain.views import VIEWS, explain, usual_view, views_of
from seqlab.tasks import subject

from .conftest import TRANSFORMER

HOSTILE = "<script>alert(\"x\")</script> שלום 😀 & 'quoted'"
MODELS = {
    "lm": (
        "lm",
        "",
        "the cat",
        ("lens", "surprisal", "beam", "gradients", "cells", "saliency", "what-if", "embeddings"),
    ),
    "tagger": (
        "tag",
        "model.encoder.bidirectional=true",
        "the dog ran",
        ("lens", "surprisal", "gradients", "cells", "saliency"),
    ),
    "plain": (
        "translate",
        "",
        "cat",
        ("lens", "surprisal", "beam", "gradients", "saliency", "what-if"),
    ),
    "attentive": (
        "translate",
        "model.attention.wiring=bahdanau",
        "cat",
        ("attention", "lens", "beam", "saliency"),
    ),
    "transformer": (
        "translate",
        TRANSFORMER,
        "cat",
        ("attention", "lens", "beam", "gradients", "positions", "what-if"),
    ),
    "universal": (
        "translate",
        TRANSFORMER.replace("kind=transformer", "kind=universal"),
        "cat",
        ("attention", "lens"),
    ),
    "masked": (
        "mask",
        TRANSFORMER.split(" model.decoder")[0],
        "the [MASK] ran",
        ("attention", "lens", "saliency"),
    ),
    "hops": (
        "classify",
        "model.pooling=hops model.hops=3",
        "the cat",
        ("attention", "lens", "saliency", "what-if"),
    ),
    "bpe": ("lm", "target.kind=bpe target.size=280", "the cat", ("bpe",)),
}
CASES = [(model, view) for model, (*_, views) in MODELS.items() for view in views]
OPTIONS = {
    "what-if": {"ablate": ["encoder.0.h", "encoder.0.output", "decoder.0.h", "decoder.0.output"]}
}


def options_of(bundle, text, view):
    if view != "what-if":
        return {}
    names = subject(bundle, text).trace().names()
    return {"ablate": [next(name for name in names if name.endswith((".h", ".output")))]}


@pytest.mark.parametrize(("model", "view"), CASES)
def test_every_view_that_applies_renders(model, view, bundle_of, tmp_path):
    task, settings, text, _ = MODELS[model]
    bundle = bundle_of(task, settings)
    seen = explain(bundle, text, view, folder=tmp_path, **options_of(bundle, text, view))
    assert json.loads(seen.to_json())["view"] == view
    ElementTree.fromstring(seen.to_svg())
    page = seen.to_html()
    assert not re.search(r'(src|href)="?https?:', page)
    shown = seen.to_text(width=80)
    assert shown.strip()
    seen.save(tmp_path / "view.png")
    assert (tmp_path / "view.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("view", ["attention", "lens", "saliency", "beam", "what-if"])
def test_html_in_texts_is_escaped(view, bundle_of, tmp_path):
    bundle = bundle_of("translate", TRANSFORMER)
    seen = explain(bundle, HOSTILE, view, folder=tmp_path, **options_of(bundle, HOSTILE, view))
    assert "<script>alert" not in seen.to_html()
    assert "<script>alert" not in seen.to_svg()
    ElementTree.fromstring(seen.to_svg())


def test_the_numbers_of_the_attention_view_are_the_weights(bundle_of, tmp_path):
    bundle = bundle_of("translate", TRANSFORMER)
    seen = json.loads(explain(bundle, "cat", "attention", folder=tmp_path).to_json())
    trace = subject(bundle, "cat").trace()
    cross = next(m for m in seen["maps"] if m["name"] == "decoder.0.cross")
    assert cross["columns"] == ["c", "a", "t"]
    expected = trace["decoder.0.cross.weights"][0, 1, 0].tolist()
    assert cross["weights"][1][0] == pytest.approx(expected, abs=1e-5)
    assert (
        len(seen["maps"]) == 2 + 2 * 2
    )  # two encoder blocks with one attention each, two decoder blocks with two


def test_the_lens_shows_the_probabilities_of_predict(bundle_of, tmp_path):
    bundle = bundle_of("classify", "")
    seen = json.loads(explain(bundle, "the cat", "lens", folder=tmp_path).to_json())
    from seqlab.tasks import predict

    prediction = predict(bundle, ["the cat"])[0]
    best = seen["likeliest"][0][0]
    assert best["answer"] == prediction.output
    assert best["probability"] == pytest.approx(prediction.details["probability"], abs=1e-5)
    assert next(stage["name"] for stage in seen["stages"]) == "encoder.embedding"


def test_a_head_that_attends_to_the_previous_token_is_named(bundle_of, tmp_path):
    import numpy as np

    from seqlab.explain.attention import AttentionMap

    names = tuple("abcdef")
    weights = np.full((2, 6, 6), 1 / 6)
    weights[1] = np.eye(6, k=-1) * 0.9 + 0.1 / 6
    planted = AttentionMap("decoder.0.attention", weights, names, names)
    assert planted.focus(0)[0] == ""
    assert planted.focus(1)[0] == "the token before"


def test_a_long_input_renders_quickly_and_small(bundle_of, tmp_path):
    import time

    bundle = bundle_of("classify", TRANSFORMER.split(" model.decoder")[0])
    text = "the cat " * 64
    began = time.perf_counter()
    page = explain(bundle, text, "attention", folder=tmp_path).to_html()
    assert time.perf_counter() - began < 6  # two seconds on a machine that has nothing else to do
    assert len(page.encode()) < 10_000_000
    assert len(explain(bundle, text, "lens", folder=tmp_path).to_html().encode()) < 10_000_000


def test_unknown_views_layers_heads_and_options_are_refused(bundle_of, tmp_path):
    bundle = bundle_of("translate", TRANSFORMER)
    with pytest.raises(UsageError, match="no view 'atention'") as error:
        explain(bundle, "cat", "atention", folder=tmp_path)
    assert "attention" in error.value.hint
    with pytest.raises(UsageError, match=r"no attention layer 'encoder\.7\.attention'") as error:
        explain(bundle, "cat", "attention", folder=tmp_path, layer="encoder.7.attention")
    assert "encoder.0.attention" in error.value.hint
    with pytest.raises(UsageError, match="no head 9"):
        explain(bundle, "cat", "attention", folder=tmp_path, head=9)
    with pytest.raises(UsageError, match="has no --unit") as error:
        explain(bundle, "cat", "attention", folder=tmp_path, unit=3)
    assert "--layer" in error.value.hint
    with pytest.raises(UsageError, match="needs an input"):
        explain(bundle, None, "attention", folder=tmp_path)
    with pytest.raises(UsageError, match="has no attention"):
        explain(bundle_of("lm"), "cat", "attention", folder=tmp_path)
    with pytest.raises(UsageError, match="no method 'magic'"):
        explain(bundle, "cat", "saliency", folder=tmp_path, method="magic")
    with pytest.raises(UsageError, match="needs a change"):
        explain(bundle, "cat", "what-if", folder=tmp_path)
    with pytest.raises(UsageError, match="needs a byte-pair tokenizer"):
        explain(bundle, "cat", "bpe", folder=tmp_path)
    with pytest.raises(UsageError, match="no record of the training"):
        explain(bundle, None, "training", folder=tmp_path)
    assert set(VIEWS) >= {"attention", "lens", "beam", "gradients", "cells", "saliency", "what-if"}


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("lm", ""),
        ("lm", "model.decoder.kind=universal model.decoder.size=12 model.decoder.heads=3"),
        ("translate", TRANSFORMER),
        ("translate", "source.kind=bpe target.kind=bpe source.size=300 target.size=300"),
        ("classify", "model.pooling=attention"),
        ("tag", "model.encoder.kind=rnn"),
    ],
)
def test_a_view_is_listed_if_and_only_if_it_has_something_to_show(
    bundle_of, tmp_path, task, settings
):
    bundle = bundle_of(task, settings)
    assert usual_view(bundle) in views_of(bundle, has_run=False)
    for view in set(VIEWS) - {"training"}:
        try:
            explain(
                bundle,
                "a dog",
                view,
                folder=tmp_path,
                **({"temperature": 0.7} if view == "what-if" else {}),
            )
            shown = True
        except UsageError:
            shown = False
        assert shown == (view in views_of(bundle, has_run=False)), view


@pytest.fixture(scope="module")
def tagged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagged")
    rows = [
        "the DET\ndog NOUN\nran VERB\n\n",
        "a DET\ncat NOUN\nsat VERB\n\n",
        "she PRON\nran VERB\n\n",
    ] * 20
    (folder / "tags.conll").write_text("".join(rows))
    return lab.train("tag", folder / "tags.conll", recipe="hmm-tagger", out=folder / "m").model


def test_a_hidden_markov_model_has_no_saliency(tagged):
    with pytest.raises(UsageError, match="needs a model with an embedding"):
        tagged.explain("the cat ran", "saliency")
    assert views_of(tagged.bundle, has_run=True) == [
        "lens",
        "number",
        "surprisal",
        "what-if",
        "training",
        "trellis",
    ]


def test_the_trellis_shows_posteriors_and_the_path(tagged):
    seen = json.loads(tagged.explain("the cat ran", "trellis").to_json())
    assert seen["path"] == ["DET", "NOUN", "VERB"]
    assert seen["states"] == ["DET", "NOUN", "PRON", "VERB"]
    for row in seen["belief"]:
        assert sum(row) == pytest.approx(1.0, abs=1e-4)
    assert seen["belief"][1][1] > 0.9
    assert "cat/NOUN" in tagged.explain("the cat ran", "trellis").to_text()


def test_every_view_of_a_hidden_markov_model_works_or_gives_a_reason(tagged):
    shown = set()
    for view in VIEWS:
        with suppress(UsageError):
            shown.add(tagged.explain("the cat ran", view).name)
    assert {"trellis", "lens"} <= shown
    with pytest.raises(UsageError, match="trained without gradients"):
        tagged.explain("the cat ran", "gradients")
    with pytest.raises(UsageError, match="has no embeddings"):
        tagged.explain("the cat ran", "embeddings")


@pytest.mark.parametrize("recipe", ["gru-forecast", "lds-forecast"])
def test_the_band_shows_the_forecast_of_predict(recipe, tmp_path):
    times = [date(2024, 1, 1) + timedelta(days=day) for day in range(56)]
    lines = [f"{time},{math.sin(i / 3) + 5}" for i, time in enumerate(times)]
    (tmp_path / "series.csv").write_text("\n".join(["date,x", *lines]) + "\n")
    sizes = [
        "forecast.look_back=12",
        "forecast.horizon=4",
        "forecast.patch=4",
        "train.steps=3",
        "forecast.season=7",
    ]
    settings = [*sizes, "data.validation=0.2", "data.test=0"]
    model = lab.train(
        "forecast", tmp_path / "series.csv", recipe=recipe, settings=settings, out=tmp_path / "m"
    ).model
    seen = model.explain(str(tmp_path / "series.csv"), "band")
    forecast = model.predict(str(tmp_path / "series.csv"))
    data = json.loads(seen.to_json())
    assert data["mean"] == pytest.approx(forecast.mean[:, 0].tolist(), rel=1e-4)
    assert data["times"] == list(forecast.times)
    if recipe == "lds-forecast":
        errors = [abs(a - b) for a, b in zip(data["smoother"], data["history"], strict=True)]
        assert max(errors) < 1.0
    seen.save(tmp_path / "band.png")
    with pytest.raises(UsageError, match="no column 'y'"):
        model.explain(str(tmp_path / "series.csv"), "band", column="y")
