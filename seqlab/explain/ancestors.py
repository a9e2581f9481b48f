"""The lectures' first models from inside: the trellis of a hidden Markov model, the bands of a Kalman filter."""

from typing import Any, cast

import numpy as np
import torch

from seqlab.bundle import Bundle
from seqlab.codecs.labels import labels_in
from seqlab.codecs.series import series_of
from seqlab.errors import UsageError
from seqlab.explain import terminal
from seqlab.explain.charts import heat_map
from seqlab.explain.palette import CATEGORICAL
from seqlab.explain.plots import Band, Curve, line_chart
from seqlab.explain.view import View
from seqlab.models.forecaster import LDSForecaster
from seqlab.models.hidden import HMMTagger
from seqlab.padded import Padded
from seqlab.tasks import subject
from seqlab.tasks.forecast import Forecast, forecast, forecast_series


def trellis_view(bundle: Bundle, given: Any) -> View:
    """How likely each hidden state is at each position, given all there is (E9), and the likeliest path (E10)."""
    if bundle.recipe.model.hmm is None:
        raise UsageError("this model has no hidden states of a chain", hint="give one of recipe hmm-tagger or hmm-lm.")
    looked = subject(bundle, given)
    trace = looked.trace()
    if isinstance(bundle.model, HMMTagger):
        belief, states = trace["encoder.posterior"][0].numpy(), labels_in(bundle.codec).names
        with torch.inference_mode():
            path = bundle.model.decode(cast(Padded, looked.reads))[0].tolist()
        positions, what = looked.source, "posterior of each label"
    else:
        belief = trace["decoder.belief"][0].numpy()
        states, path = tuple(f"state {i}" for i in range(belief.shape[1])), belief.argmax(1).tolist()
        positions, what = looked.written, "belief about the next state"
    named = [f"{token} {states[i]}" for token, i in zip(positions, path, strict=True)]
    kept = np.flatnonzero(belief.max(0) > 0.005) if belief.shape[1] > 24 else np.arange(belief.shape[1])
    rows = [states[i] for i in kept]
    return View(
        "trellis",
        f"{bundle.recipe.name}: {what}",
        {"positions": positions, "states": states, "belief": belief, "path": [states[i] for i in path]},
        (heat_map(belief.T[kept], rows, named, title=f"{what}; beside each token the path", reach=(0.0, 1.0)),),
        lambda width, colour: "\n".join(
            [
                terminal.heat_map(belief.T[kept], rows, positions, width=width, colour=colour, reach=(0.0, 1.0)),
                "the likeliest path: " + " ".join(f"{t}/{states[i]}" for t, i in zip(positions, path, strict=True)),
            ]
        ),
    )


def band_view(bundle: Bundle, given: Any, *, column: str | None = None) -> View:
    """A series, what is forecast of it, and the band that should hold it; of a Kalman filter, also what it saw."""
    series_of(bundle.codec)  # a model that forecasts nothing says so
    said = forecast(bundle, given)
    name = column or said.columns[0]
    if name not in said.columns:
        raise UsageError(f"there is no column '{name}'", hint=f"there are: {', '.join(said.columns)}.")
    shown = forecast_series(said, name, last=max(bundle.recipe.forecast.look_back, 2 * bundle.recipe.forecast.horizon))
    curves, bands, extra = _filtered(bundle, said, name) if isinstance(bundle.model, LDSForecaster) else ([], [], {})
    curves, bands = [*_curves(shown), *curves], [_band(shown), *bands]
    start = float(len(shown["history"]))
    labels = [*shown["history_times"], *shown["times"]]
    title = f"{name}: {len(shown['times'])} steps ahead, {100 * said.level:.0f} % band"
    return View(
        "band",
        f"forecast of {bundle.recipe.name}",
        {"column": name, **shown, **extra},
        (line_chart(curves, bands, title=title, titles=("", name), x_labels=labels, mark=(start, "forecast")),),
        lambda width, colour: "\n".join(
            [terminal.line_chart(curves, width=width, colour=colour, x_labels=labels), title]
        ),
    )


def _curves(shown: dict[str, Any]) -> list[Curve]:
    past, ahead = np.asarray(shown["history"], float), np.asarray(shown["mean"], float)
    return [Curve("seen", past), Curve("forecast", ahead, len(past) + np.arange(len(ahead), dtype=float))]


def _band(shown: dict[str, Any]) -> Band:
    places = len(shown["history"]) + np.arange(len(shown["mean"]), dtype=float)
    low, high = (np.asarray(shown[side], float) for side in ("low", "high"))
    return Band(f"{100 * shown['level']:.0f} %", low, high, places, CATEGORICAL[1])


def _filtered(bundle: Bundle, said: Forecast, name: str) -> tuple[list[Curve], list[Band], dict[str, Any]]:
    """What the filter thought of each past value when it had seen it, and the smoother when it had seen all."""
    variables, place = series_of(bundle.codec), said.columns.index(name)
    count, settings = len(variables.columns), bundle.recipe.forecast
    table = torch.from_numpy(variables.table(said.history)[-max(settings.look_back, 2 * settings.horizon) :]).double()
    seen_at = ~table[None, :, place].isnan()
    row = Padded(table[None, :, place].nan_to_num(), torch.tensor([len(table)]), seen_at)
    inputs = table[None, :, count:] if table.shape[1] > count else None
    system = cast(LDSForecaster, bundle.model).systems[place]
    scale, mean = variables.deviation[place], variables.mean[place]
    filtered, smoothed = system.filter(row, inputs=inputs), system.smooth(row, inputs=inputs)
    seen, curves, data = system.observation, [], dict[str, Any]()
    for label, states in (("filter", filtered.mean), ("smoother", smoothed.mean)):
        values = (states @ seen.mT)[0, :, 0].numpy() * scale + mean
        curves.append(Curve(label, values, dashed=label == "filter"))
        data[label] = values
    spread = (seen @ smoothed.covariance @ seen.mT)[0, :, 0, 0].clamp(min=0).sqrt().numpy() * scale
    reach = 1.2816 * spread
    return (
        curves,
        [Band("smoother, 80 %", data["smoother"] - reach, data["smoother"] + reach, colour=CATEGORICAL[3])],
        data,
    )
