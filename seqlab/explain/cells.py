"""Readable cells: a text coloured by one unit, and a search for the units that follow something a person can name."""

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
PLACE = "place in line"
Layers = dict[str, Float[Tensor, "T H"]]  # states by the name of their layer


@dataclass(frozen=True)
class Follower:
    """A unit, what it follows, and how well: the area under the ROC curve for yes or no, else the correlation."""

    layer: str
    unit: int
    what: str
    score: float

    @property
    def strength(self) -> float:
        """From 0, by chance, to 1, always; in either direction."""
        return abs(self.score) if self.what == PLACE else abs(self.score - 0.5) * 2


def states(trace: Trace, side: list[str]) -> Layers:
    """The states of every layer that stand beside the tokens of one side."""
    values = {name: trace[name] for name in trace.names() if name.endswith((".c", ".h", ".output"))}
    return {
        name: value[0].double()
        for name, value in values.items()
        if value.dim() == 3 and value.shape[1] == len(side)
    }


def unit_of(layers: Layers, layer: str | None, unit: int) -> Float[Tensor, " T"]:
    """One unit's value at each token; without a layer, of the last one."""
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
    """What units may follow: inside quotes, inside brackets, the place in the line, and what a user's pattern finds.

    Each tells what holds once the token has been read.
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
    quotes, brackets, places = torch.tensor(rows, dtype=torch.float64).mT
    marked = {"quotes": quotes.bool(), "brackets": brackets.bool(), PLACE: places}
    if pattern is not None:
        marked[f"/{pattern}/"] = _matches(tokens, pattern)
    return marked


def _matches(tokens: list[str], pattern: str) -> Bool[Tensor, " T"]:
    """Tokens that a match of the pattern in the whole text touches."""
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise UsageError(
            f"{pattern!r} is not a regular expression: {error}", hint="try a plain word."
        ) from None
    ends = [0, *accumulate(map(len, tokens))]
    spans = [match.span() for match in expression.finditer("".join(tokens))]
    return torch.tensor(
        [any(a < stop and b > start for a, b in spans) for start, stop in pairwise(ends)]
    )


def followers(layers: Layers, marked: dict[str, Tensor], *, most: int = 5) -> list[Follower]:
    """For each thing to follow the units that do it best, in either direction."""
    best: list[Follower] = []
    for what, mark in marked.items():
        if len(mark.unique()) < 2:  # always so, or never: there is nothing to follow
            continue
        score = _area if mark.dtype == torch.bool else _correlation
        units = [
            Follower(layer, unit, what, value)
            for layer, values in layers.items()
            for unit, value in enumerate(score(values, mark).tolist())
        ]
        best += sorted(units, key=lambda follower: -follower.strength)[:most]
    return best


def _area(values: Float[Tensor, "T H"], mark: Bool[Tensor, " T"]) -> Float[Tensor, " H"]:
    """The chance that a marked token has a higher value than one that is not: 1 and 0 are perfect, 0.5 is chance."""
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
    """The text coloured by one unit: the one asked for, else the one that follows something best."""
    tokens = list(subject.source or subject.written)
    layers = states(subject.trace(), tokens)
    if not layers:
        raise UsageError(
            "this model has no states beside its tokens", hint="look at it with the view 'lens'."
        )
    units = followers(layers, marks(tokens, pattern))
    if unit is None and units:
        fitting = [
            f
            for f in units
            if layer in (None, f.layer) and (pattern is None or f.what.startswith("/"))
        ]
        best = max(fitting or units, key=lambda f: f.strength)
        layer = best.layer
        unit = best.unit
    layer = layer or list(layers)[-1]
    unit = unit or 0
    values = unit_of(layers, layer, unit).numpy()
    name = f"unit {unit} of {layer}"
    text = ColouredText(tokens, values, title=name)
    lines = [f"{f.what:<16} unit {f.unit:<5} of {f.layer:<20} {f.score:6.3f}" for f in units]
    if lines:
        lines.insert(0, "what units follow (area under the ROC curve; for the place, correlation):")
    data = {"layer": layer, "unit": unit, "tokens": tokens, "values": values}
    data["followers"] = list(map(asdict, units))
    title = f"{name} in {subject.bundle.recipe.name}"
    return View("cells", title, data, [text, "", *lines])
