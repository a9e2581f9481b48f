"""What the project promises, trained to its end."""

import pytest

from seqlab import lab
from seqlab.data.scenes import make_pictures
from seqlab.demo import run_demo
from seqlab.training.log import Silence

pytestmark = pytest.mark.slow


def test_the_demo_reads_dates_it_has_never_seen(tmp_path):
    result = run_demo(tmp_path / "dates", steps=None, report=lambda recipe: Silence(), stop=lambda: False)
    plain, attentive = result.models
    assert plain.exact >= 0.93
    assert attentive.exact >= 0.995
    assert result.floor < 0.01
    assert result.stopped is None
    assert len(result.alignment.splitlines()) == 12  # the source, ten characters and the end


def test_a_character_lstm_beats_five_grams_on_the_time_machine(tmp_path, shared_data):
    book = shared_data("timemachine/timemachine.txt")
    settings = ["target.lower=true", "target.letters_only=true"]
    model = lab.train("lm", book, recipe="char-lstm", settings=settings, out=tmp_path / "m").model
    report = model.evaluate()
    assert report.scores["loss"] < report.floors["5-gram"]["loss"] < report.floors["1-gram"]["loss"]

    told = model.predict("the", max_length=60).output
    assert len(told) == 60
    assert set(told) <= set("abcdefghijklmnopqrstuvwxyzæéèêô \n")
    words = set(book.read_text("utf-8").lower().split())
    assert sum(word in words for word in told.split()) > len(told.split()) / 2


def test_shapes_are_named_while_looking_at_them(tmp_path):
    make_pictures("shapes", 20_000, tmp_path / "shapes.npz", seed=1)
    make_pictures("shapes", 1000, tmp_path / "test.npz", seed=2)
    model = lab.train("caption", tmp_path / "shapes.npz", recipe="shapes", out=tmp_path / "m").model
    report = model.evaluate(tmp_path / "test.npz")
    assert report.scores["exact"] >= 0.98
    assert report.scores["attention_on_object"] >= 0.90
    assert all(floor["exact"] < 0.02 for floor in report.floors.values())


FIELD = ("image.height=20", "image.width=20", "image.shift=0", "model.encoder.window=6", "model.encoder.glimpses=5")


@pytest.mark.parametrize(
    ("recipe", "kind", "settings", "least"),
    [
        ("row-lstm", "digits", (), 0.97),
        ("patch-transformer", "digits", (), 0.96),
        ("glimpse-digits", "digits", (), 0.97),
        ("glimpse-digits", "shifted-digits", FIELD, 0.97),
    ],
)
def test_digits_are_read_as_rows_as_patches_and_in_glimpses(recipe, kind, settings, least, tmp_path):
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    for name in (kind, f"{kind}-test"):
        make_pictures(name, 0, tmp_path / f"{name}.npz", seed=len(name))
    model = lab.train("classify", tmp_path / f"{kind}.npz", recipe=recipe, settings=settings, out=tmp_path / "m").model
    assert model.evaluate(tmp_path / f"{kind}-test.npz").scores["accuracy"] >= least
