"""The view `cells`: a text coloured by one hidden unit, and a search for interpretable units.

A unit is interpretable if its value depends on something with a name, such as being inside quotes.
"""

import re
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seqlab.errors import UsageError, nearest
from seqlab.explain.token_figures import ColouredText
from seqlab.explain.view import View
from seqlab.subject import Subject
from seqlab.trace import Trace

QUOTES = '"“”«»„‟「」'
OPEN = "([{"
CLOSE = ")]}"
COLUMN = "place in line"
Layers = dict[str, Float[Tensor, "T H"]]  # states by the name of their layer


@dataclass(frozen=True)
class UnitScore:
    """How well a unit predicts a property of the text: area under the ROC curve for yes or no, else correlation."""

    layer: str
    unit: int
    what: str
    score: float

    @property
    def strength(self) -> float:
        """Return 0 for chance level, 1 for a perfect prediction, whatever the sign."""
        return abs(self.score) if self.what == COLUMN else abs(self.score - 0.5) * 2


def states(trace: Trace, side: list[str]) -> Layers:
    """Return the states of every layer that has one state for each token of a side."""
    values = {name: trace[name] for name in trace.names() if name.endswith((".c", ".h", ".output"))}
    return {
        name: value[0].double()
        for name, value in values.items()
        if value.dim() == 3 and value.shape[1] == len(side)
    }


def unit_of(layers: Layers, layer: str | None, unit: int) -> Float[Tensor, " T"]:
    """Return one unit's value at each token; the default layer is the last."""
    name = list(layers)[-1] if layer is None else layer
    if name not in layers:
        raise UsageError(f"there is no layer '{name}' with states", hint=nearest(name, layers))
    size = layers[name].shape[1]
    if not 0 <= unit < size:
        raise UsageError(
            f"there is no unit {unit} in {name}", hint=f"it has units 0 to {size - 1}."
        )
    return layers[name][:, unit]


def marks(
    tokens: list[str], pattern: str | None
) -> dict[str, Bool[Tensor, " T"] | Float[Tensor, " T"]]:
    """Return properties of each token: inside quotes, inside brackets, column, and matches of the user's pattern.

    The value at a token holds after the token has been read.
    """
    quoted = False
    depth = 0
    column = 0
    rows = []
    for token in tokens:
        for character in token.replace("␣", " ").replace("⏎", "\n"):
            quoted ^= character in QUOTES
            depth = max(0, depth + (character in OPEN) - (character in CLOSE))
            column = 0 if character == "\n" else column + 1
        rows.append((quoted, depth > 0, column))
    quotes, brackets, columns = torch.tensor(rows, dtype=torch.float64).mT
    properties = {"quotes": quotes.bool(), "brackets": brackets.bool(), COLUMN: columns}
    if pattern is not None:
        properties[f"/{pattern}/"] = _matches(tokens, pattern)
    return properties


def _matches(tokens: list[str], pattern: str) -> Bool[Tensor, " T"]:
    """Return which tokens overlap with a match of the pattern in the text."""
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise UsageError(
            f"{pattern!r} is not a regular expression: {error}", hint="use a plain word."
        ) from None
    ends = [0, *accumulate(map(len, tokens))]
    spans = [match.span() for match in expression.finditer("".join(tokens))]
    return torch.tensor(
        [any(a < stop and b > start for a, b in spans) for start, stop in pairwise(ends)]
    )


def best_units(layers: Layers, properties: dict[str, Tensor], *, most: int = 5) -> list[UnitScore]:
    """Return the units that predict each property best, positively or negatively."""
    best: list[UnitScore] = []
    for what, mark in properties.items():
        if len(mark.unique()) < 2:  # constant over the text
            continue
        score = _area if mark.dtype == torch.bool else _correlation
        units = [
            UnitScore(layer, unit, what, value)
            for layer, values in layers.items()
            for unit, value in enumerate(score(values, mark).tolist())
        ]
        best += sorted(units, key=lambda unit: -unit.strength)[:most]
    return best


def _area(values: Float[Tensor, "T H"], mark: Bool[Tensor, " T"]) -> Float[Tensor, " H"]:
    """Return the area under the ROC curve: 1 and 0 are perfect predictions, 0.5 is chance level."""
    ranks = values.argsort(0).argsort(0).double() + 1
    yes = int(mark.sum())
    no = len(mark) - yes
    return (ranks[mark].sum(0) - yes * (yes + 1) / 2) / (yes * no)


def _correlation(values: Float[Tensor, "T H"], mark: Float[Tensor, " T"]) -> Float[Tensor, " H"]:
    x = values - values.mean(0)
    y = mark - mark.mean()
    scale = (x.square().sum(0) * y.square().sum()).sqrt().clamp(min=1e-12)
    return (x * y[:, None]).sum(0) / scale


def cells_view(
    subject: Subject,
    *,
    layer: str | None = None,
    unit: int | None = None,
    pattern: str | None = None,
) -> View:
    """Colour the text by one unit: `unit` of `layer`, else the unit that predicts a property of the text best."""
    tokens = list(subject.source or subject.written)
    layers = states(subject.trace(), tokens)
    if not layers:
        raise UsageError(
            "this model has no hidden state for each token", hint="use the view 'lens'."
        )
    units = best_units(layers, marks(tokens, pattern))
    if unit is None and units:
        candidates = [
            u
            for u in units
            if layer in (None, u.layer) and (pattern is None or u.what.startswith("/"))
        ]
        best = max(candidates or units, key=lambda u: u.strength)
        layer = best.layer
        unit = best.unit
    layer = layer or list(layers)[-1]
    unit = unit or 0
    values = unit_of(layers, layer, unit).numpy()
    name = f"unit {unit} of {layer}"
    text = ColouredText(tokens, values, title=name)
    lines = [f"{u.what:<16} unit {u.unit:<5} of {u.layer:<20} {u.score:6.3f}" for u in units]
    if lines:
        lines.insert(
            0, f"units by property (area under the ROC curve; of '{COLUMN}', correlation):"
        )
    data = {"layer": layer, "unit": unit, "tokens": tokens, "values": values}
    data["followers"] = list(map(asdict, units))
    title = f"{name} in {subject.bundle.recipe.name}"
    return View("cells", title, data, [text, "", *lines])
