"""Short series: exponential smoothing, the residual of a network, and the selection of one of the two."""

import numpy as np
import pytest
import torch

from seqlab import lab
from seqlab.metrics.scores import ExampleScores, difference
from seqlab.models.exponential_smoothing import LINEAR, NAMES
from seqlab.models.forecaster import smoothing_of

ROWS = 96


def _written(folder, values, name="series.csv"):
    months = np.datetime64("2010-01") + np.arange(len(values))
    lines = [f"{month},{value:.5f}\n" for month, value in zip(months, values, strict=True)]
    (folder / name).write_text("month,sales\n" + "".join(lines), "utf-8")
    return folder / name


def _seasonal(rows=ROWS):
    noise = np.random.default_rng(1).normal(size=rows)
    return 50 + 0.1 * np.arange(rows) + 8 * np.sin(2 * np.pi * np.arange(rows) / 12) + noise


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("short")
    path = _written(folder, _seasonal())
    settings = ["train.steps=10"]
    return lab.train("forecast", path, settings=settings, out=folder / "run"), path


def test_a_network_adds_half_of_its_residual_to_exponential_smoothing(trained):
    model = trained[0].model
    network = (
        model if model.recipe.name == "gru-forecast" else lab.load(model.path / "gru-forecast")
    )
    assert network.recipe.forecast.smoothing
    assert float(network.bundle.model.share) == 0.5
    batch = network.some_batch(trained[1])
    smoothed = smoothing_of(network.bundle.model).means(batch)
    middle = network.bundle.model.output.mean(network.bundle.model.distribution(batch))
    assert (middle - smoothed).abs().mean() < 0.5 * (
        smoothed - batch.target.values
    ).abs().mean() + 0.05


def test_without_clear_evidence_the_simpler_model_is_kept(trained):
    selection = trained[0].model.metrics["selection"]
    assert selection["kept"] == "exponential-smoothing"
    if selection["gain"] < 0:
        assert selection["sentence"].endswith("so the simpler model is kept)")


def test_overlapping_forecasts_have_no_interval(trained):
    model = trained[0].model
    held_out = model.metrics["validation"]
    assert "interval" not in held_out
    assert "too few forecast rows for an interval" in model.metrics["selection"]["sentence"]


def test_errors_are_printed_in_the_units_of_the_file(trained, run):
    printed = run("evaluate", trained[0].model.path).stdout
    error = trained[0].model.metrics["validation"]["mae_by_column"]["sales"]
    assert f"mean absolute error in the file's own units: sales {error:.4g}" in printed


def test_scores_of_the_held_out_part_are_those_of_a_model_that_has_not_read_it(trained):
    model = trained[0].model
    again = model.evaluate().scores
    assert again["mae"] == pytest.approx(model.metrics["validation"]["mae"])


def test_the_rates_are_chosen_again_from_all_rows(tmp_path):
    calm = np.full(80, 10.0) + 0.1 * np.random.default_rng(2).normal(size=80)
    walk = 10 + np.random.default_rng(3).normal(size=30).cumsum()
    path = _written(tmp_path, np.concatenate([calm, walk]))
    settings = [
        "forecast.horizon=3",
        "forecast.look_back=12",
        "forecast.season=1",
        "data.validation=0.25",
    ]
    model = lab.train(
        "forecast", path, recipe="exponential-smoothing", settings=settings, out=tmp_path / "m"
    ).model
    weights = model.bundle.model.weights[0]
    assert (
        weights[NAMES.index("mean")] == 0
    )  # of the first rows alone, the mean is the best forecast


def test_a_linear_map_is_fitted_without_a_season(tmp_path):
    values = [1.0, 0.9]
    noise = np.random.default_rng(5).normal(size=300)
    for step in range(300):  # a wave of 9.7 rows that no form of smoothing knows
        values.append(1.59 * values[-1] - values[-2] * 0.995 + 0.02 * noise[step])
    path = _written(tmp_path, values)
    settings = ["forecast.horizon=4", "forecast.look_back=24", "forecast.season=1", "data.test=0.0"]
    model = lab.train(
        "forecast", path, recipe="exponential-smoothing", settings=settings, out=tmp_path / "m"
    ).model
    assert model.bundle.model.weights[0, LINEAR] > 0.9


def test_means_of_a_window_are_cached(trained):
    model = lab.load(trained[0].model.path).bundle.model
    batch = trained[0].model.some_batch(trained[1])
    first = model.cached_means(batch)
    assert torch.allclose(first.double(), model.means(batch), atol=1e-6)
    count = len(model.cache)
    assert torch.equal(model.cached_means(batch), first)
    assert len(model.cache) == count


class TestRunsOfOrigins:
    def _scores(self, values, run):
        sums = np.stack([np.asarray(values), np.ones(len(values))], axis=1)
        return ExampleScores("mae", sums, lambda totals: totals[:, 0] / totals[:, 1], True, run)

    def test_origins_that_share_values_have_wider_intervals(self):
        wave = np.sin(np.arange(120) / 12)
        alone, together = (self._scores(wave, run).draws().std() for run in (1, 12))
        assert together > 2 * alone

    def test_a_few_runs_are_not_enough(self):
        ours, theirs = (self._scores(np.full(30, value), 12) for value in (1.0, 2.0))
        assert difference(ours, theirs).gain == pytest.approx(1.0)
        assert not difference(ours, theirs).clear
        many = [self._scores(np.full(60, value), 12) for value in (1.0, 2.0)]
        assert difference(*many).clear
