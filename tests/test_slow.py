"""What the project promises, trained to its end."""

import pytest

from seqlab import lab
from seqlab.demo.dates import run_demo
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
