"""The views `trellis`, of a hidden Markov model, and `band`, of a forecaster and of a Kalman filter."""

from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch

from seqlab.bundle import Bundle
from seqlab.codecs.labels import labels_in
from seqlab.codecs.series import series_of
from seqlab.errors import UsageError, one_of
from seqlab.explain.canvas import Vector
from seqlab.explain.charts import HeatMap
from seqlab.explain.palette import CATEGORICAL
from seqlab.explain.plots import Band, Curve, Lines
from seqlab.explain.view import View
from seqlab.models.forecaster import LDSForecaster
from seqlab.models.hmm import HMMTagger
from seqlab.padded import Padded
from seqlab.tasks import subject as subject_of
from seqlab.tasks.bands import Forecast, forecast, forecast_series

MAX_STATES = 24  # of more states, only those that are probable somewhere are drawn
MIN_PROBABILITY = 0.005
NORMAL_80 = 1.2816  # standard deviations on either side that hold 80 % of a normal distribution


def trellis_view(bundle: Bundle, given: Any) -> View:
    """Show the posterior of the hidden states at each position (E9) and the likeliest path (E10)."""
    if bundle.recipe.model.hmm is None:
        raise UsageError(
            "the view 'trellis' needs a hidden Markov model",
            hint="use a model of the recipe hmm-tagger or hmm-lm.",
        )
    subject = subject_of(bundle, given)
    trace = subject.trace()
    if isinstance(bundle.model, HMMTagger):
        belief = trace["encoder.posterior"][0].numpy()
        states = labels_in(bundle.codec).names
        with torch.inference_mode():
            path = bundle.model.decode(cast(Padded, subject.reads))[0].tolist()
        positions = subject.source
        what = "posterior of each label"
    else:
        belief = trace["decoder.belief"][0].numpy()
        states = tuple(f"state {i}" for i in range(belief.shape[1]))
        path = belief.argmax(1).tolist()
        positions = subject.written
        what = "belief about the next state"
    names = [states[i] for i in path]
    steps = list(zip(positions, names, strict=True))
    has_many_states = belief.shape[1] > MAX_STATES
    visible = np.flatnonzero(belief.max(0) > (MIN_PROBABILITY if has_many_states else -1.0))
    columns = [f"{token} {name}" for token, name in steps]
    title = f"{what}; the columns name each token and its state on the likeliest path"
    heat = HeatMap(
        belief.T[visible], [states[i] for i in visible], columns, title=title, reach=(0.0, 1.0)
    )
    line = "the likeliest path: " + " ".join(f"{token}/{name}" for token, name in steps)
    return View(
        "trellis",
        f"{bundle.recipe.name}: {what}",
        {"positions": positions, "states": states, "belief": belief, "path": names},
        [heat.draw(), replace(heat, columns=positions).as_text, line],
    )


def band_view(bundle: Bundle, given: Any, *, column: str | None = None) -> View:
    """Show a series, its forecast and the prediction interval; of a Kalman filter, also filter and smoother."""
    series_of(bundle.codec)  # raises an error if the model is not a forecaster
    prediction = forecast(bundle, given)
    name = one_of("column", column or prediction.columns[0], prediction.columns)
    last = max(bundle.recipe.forecast.look_back, 2 * bundle.recipe.forecast.horizon)
    series = forecast_series(prediction, name, last=last)
    history, mean, low, high = (
        np.asarray(series[key], float) for key in ("history", "mean", "low", "high")
    )
    future = len(history) + np.arange(len(mean), dtype=float)
    level = f"{100 * prediction.level:.0f} %"
    curves = [Curve("observed", history), Curve("forecast", mean, future)]
    bands = [Band(level, low, high, future, CATEGORICAL[1])]
    estimates: dict[str, Any] = {}
    if isinstance(bundle.model, LDSForecaster):
        estimates, half_width = _estimates(bundle, prediction, name, last)
        curves += [
            Curve(label, values, dashed=label == "filter") for label, values in estimates.items()
        ]
        smoother = estimates["smoother"]
        bands.append(
            Band(
                "smoother, 80 %",
                smoother - half_width,
                smoother + half_width,
                colour=CATEGORICAL[3],
            )
        )
    title = f"{name}: {len(mean)} steps ahead, {level} interval"
    lines = Lines(
        curves,
        bands,
        title=title,
        titles=("", name),
        x_labels=[*series["history_times"], *series["times"]],
        mark=(float(len(history)), "forecast"),
    )
    return View(
        "band",
        f"forecast of {bundle.recipe.name}",
        {"column": name, **series, **estimates},
        [lines, title],
    )


def _estimates(
    bundle: Bundle, prediction: Forecast, name: str, last: int
) -> tuple[dict[str, Vector], Vector]:
    """Return the filter's and the smoother's estimates of the past values, and half the width of the 80 % interval.

    The filter estimates each value from those up to it, the smoother from all.
    """
    variables = series_of(bundle.codec)
    place = prediction.columns.index(name)
    count = len(variables.columns)
    table = torch.from_numpy(variables.table(prediction.history)[-last:]).double()
    values = table[None, :, place]
    row = Padded(values.nan_to_num(), torch.tensor([len(table)]), ~values.isnan())
    inputs = table[None, :, count:] if table.shape[1] > count else None
    system = bundle.model.systems[place]
    matrix = system.observation
    scale = variables.deviation[place]
    mean = variables.mean[place]
    filtered = system.filter(row, inputs=inputs)
    smoothed = system.smooth(row, inputs=inputs)
    states = {"filter": filtered.mean, "smoother": smoothed.mean}
    estimates = {
        label: (each @ matrix.mT)[0, :, 0].numpy() * scale + mean for label, each in states.items()
    }
    variance = (matrix @ smoothed.covariance @ matrix.mT)[0, :, 0, 0].clamp(min=0)
    return estimates, NORMAL_80 * (variance.sqrt().numpy() * scale)
