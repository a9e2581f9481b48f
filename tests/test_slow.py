"""The promised results, with complete trainings."""

import pytest

from seqlab import lab
from seqlab.data.scenes import make_pictures
from seqlab.demo.dates import run_demo
from seqlab.training.log import SilentReporter

pytestmark = pytest.mark.slow


def test_the_demo_reads_dates_it_has_never_seen(tmp_path):
    result = run_demo(
        tmp_path / "dates", steps=None, report=lambda recipe: SilentReporter(), stop=lambda: False
    )
    plain, attentive = result.models
    assert plain.exact >= 0.93
    assert attentive.exact >= 0.995
    assert result.baseline < 0.01
    assert result.stopped is None
    assert len(result.alignment.splitlines()) == 12  # the source, ten characters and the end


def test_a_character_lstm_beats_five_grams_on_the_time_machine(tmp_path, shared_data):
    book = shared_data("timemachine/timemachine.txt")
    settings = ["target.lower=true", "target.letters_only=true"]
    model = lab.train("lm", book, recipe="char-lstm", settings=settings, out=tmp_path / "m").model
    report = model.evaluate()
    assert (
        report.scores["loss"]
        < report.baselines["5-gram"]["loss"]
        < report.baselines["1-gram"]["loss"]
    )

    told = model.predict("the", max_length=60).output
    assert len(told) == 60
    assert set(told) <= set("abcdefghijklmnopqrstuvwxyzæéèêô \n")
    words = set(book.read_text("utf-8").lower().split())
    assert sum(word in words for word in told.split()) > len(told.split()) / 2


def test_a_hidden_markov_model_tags_english(tmp_path, shared_data):
    """S1: pairs of labels and endings, counted in seconds; the most frequent tag of each word gets 86 %."""
    train, dev = (shared_data(f"ud-en-ewt/en_ewt-ud-{part}.conllu.gz") for part in ("train", "dev"))
    model = lab.train("tag", train, valid=dev, recipe="hmm-tagger", out=tmp_path / "m").model
    assert model.evaluate(dev).scores["accuracy"] > 0.926


@pytest.mark.parametrize("recipe", ["gru-forecast", "transformer-forecast"])
def test_a_neural_forecaster_on_etth1_beats_repeating_yesterday(tmp_path, shared_data, recipe):
    """All 2,785 windows of the usual test part (12, 4 and 4 months), horizon 96, look-back 336."""
    settings = ["data.rows=14400", "data.validation=0.2", "data.test=0.2", "forecast.horizon=96"]
    settings += ["forecast.look_back=336", "forecast.patch=12", "train.batch_tokens=43008"]
    table = shared_data("ett/ETTh1.csv.gz")
    report = lab.train(
        "forecast", table, recipe=recipe, settings=settings, out=tmp_path / "m"
    ).model.evaluate()
    assert report.num_examples == 2785
    assert report.baselines["one season ago"]["mse"] == pytest.approx(0.512, abs=0.002)
    assert report.scores["mse"] <= 0.40
    assert 0.75 <= report.scores["coverage"] <= 0.85


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("monthly-sunspots.csv", ["season=132", "horizon=12", "look_back=132", "patch=12"]),
        ("daily-min-temperatures.csv", ["season=365", "horizon=7"]),
    ],
)
@pytest.mark.filterwarnings(
    "ignore:.*later than a usual step"
)  # two days of Melbourne are not in the file
def test_bands_of_real_series_hold_what_they_say(tmp_path, shared_data, name, settings):
    path = shared_data(f"timeseries-small/{name}")
    settings = ["data.test=0.2", *(f"forecast.{setting}" for setting in settings)]
    report = lab.train("forecast", path, settings=settings, out=tmp_path / "m").model.evaluate()
    assert report.num_examples >= 500
    assert 0.75 <= report.scores["coverage"] <= 0.85
    assert report.scores["mse"] < min(baseline["mse"] for baseline in report.baselines.values())


def test_a_series_with_gaps_is_forecast_as_it_is(tmp_path, shared_data):
    path = shared_data("timeseries-small/pollution.csv")
    settings = ["data.columns=pm2.5", "data.calendar=true", "train.steps=150"]
    model = lab.train("forecast", path, settings=settings, out=tmp_path / "m").model
    assert model.evaluate().scores["mse"] < model.evaluate().baselines["last value"]["mse"]
    said = model.predict(path)
    assert said.times[0] == "2015-01-01 00:00:00"
    assert (said.low < said.high).all()


def test_shapes_are_named_while_looking_at_them(tmp_path):
    make_pictures("shapes", 20_000, tmp_path / "shapes.npz", seed=1)
    make_pictures("shapes", 1000, tmp_path / "test.npz", seed=2)
    model = lab.train("caption", tmp_path / "shapes.npz", recipe="shapes", out=tmp_path / "m").model
    report = model.evaluate(tmp_path / "test.npz")
    assert report.scores["exact"] >= 0.98
    assert report.scores["attention_on_object"] >= 0.90
    assert all(baseline["exact"] < 0.02 for baseline in report.baselines.values())


FIELD = (
    "image.height=20",
    "image.width=20",
    "image.shift=0",
    "model.encoder.window=6",
    "model.encoder.glimpses=5",
)


@pytest.mark.parametrize(
    ("recipe", "kind", "settings", "least"),
    [
        ("row-lstm", "digits", (), 0.97),
        ("patch-transformer", "digits", (), 0.96),
        ("glimpse-digits", "digits", (), 0.97),
        ("glimpse-digits", "shifted-digits", FIELD, 0.97),
    ],
)
def test_digits_are_read_as_rows_as_patches_and_in_glimpses(
    recipe, kind, settings, least, tmp_path
):
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    for name in (kind, f"{kind}-test"):
        make_pictures(name, 0, tmp_path / f"{name}.npz", seed=len(name))
    model = lab.train(
        "classify", tmp_path / f"{kind}.npz", recipe=recipe, settings=settings, out=tmp_path / "m"
    ).model
    assert model.evaluate(tmp_path / f"{kind}-test.npz").scores["accuracy"] >= least
