"""Views of the model itself: its positions, its embeddings, the merges of its tokenizer and its training curves."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from seqlab.bundle import Bundle
from seqlab.equations.attention import cosine, sinusoidal_positions
from seqlab.equations.bpe import merge
from seqlab.errors import UsageError
from seqlab.explain.canvas import Matrix, Points
from seqlab.explain.charts import HeatMap
from seqlab.explain.plots import Curve, Lines, scatter
from seqlab.explain.token_figures import ColouredText
from seqlab.explain.view import View
from seqlab.layers.inputs import Positions
from seqlab.models.build import embedding_of
from seqlab.text import SPECIALS, UNK
from seqlab.text.bpe import BPETokenizer, readable_spelling
from seqlab.training.checkpoint import MetricsFile
from seqlab.types import FlatVectors

NUM_POSITIONS = 64
NUM_TOKENS = 150  # drawn if the user names no words
NUM_NEIGHBOURS = 8


def positions_view(bundle: Bundle) -> View:
    """Show the sinusoids (E54), learned positions if the model has them (E55), and the cosine of each two positions."""
    layer = next(
        (module for module in bundle.model.modules() if isinstance(module, Positions)), None
    )
    if layer is None:
        raise UsageError(
            "this model has no position embeddings",
            hint="only a Transformer has them; use the view 'lens'.",
        )
    tables = {"sinusoids (E54)": sinusoidal_positions(NUM_POSITIONS, layer.size).double()}
    if layer.table is not None:
        tables["learned (E55)"] = layer.table.detach()[:NUM_POSITIONS].double()
    cosines = {name: cosine(table[:, None], table) for name, table in tables.items()}
    pictures = []
    for name, table in tables.items():
        positions, features = ([str(i) for i in range(size)] for size in table.shape)
        title = f"{name}: cosine of two positions"
        values = HeatMap(
            table.numpy(),
            positions,
            features,
            title=name,
            titles=("position", "feature"),
            diverging=True,
        )
        similarity = HeatMap(
            cosines[name].numpy(), positions, positions, title=title, diverging=True
        )
        pictures += [values.draw(), similarity.draw()]
    return View(
        "positions",
        f"positions of {bundle.recipe.name}: {layer.kind}",
        {"kind": layer.kind, "tables": tables, "cosine": cosines},
        [*pictures, f"this model's positions are {layer.kind}", title, similarity.as_text],
    )


def embeddings_view(bundle: Bundle, given: Any = None) -> View:
    """Show tokens on the first two principal components, and the nearest neighbours of the words in the input."""
    tokenizer = bundle.codec.tokenizer
    if tokenizer is None:
        raise UsageError(
            "this model reads vectors, not tokens, so it has no embeddings",
            hint="use the view 'lens'.",
        )
    table = embedding_of(bundle.model).weight.detach().double()
    words = [] if given is None else str(given).split()
    chosen = [i for word in words for i in tokenizer.encode(word)[:1] if i != UNK]
    if given is not None and not chosen:
        raise UsageError(
            f"no word of {str(given)!r} is in the vocabulary",
            hint="the file vocabulary.txt of the model lists its words.",
        )
    centred = table - table[len(SPECIALS) :].mean(0)
    nearest = {i: _nearest(centred, i) for i in chosen}
    rows = list(dict.fromkeys([*chosen, *(j for others in nearest.values() for j in others)]))
    rows = rows or list(range(len(SPECIALS), min(len(table), len(SPECIALS) + NUM_TOKENS)))
    tokens = tokenizer.pieces(rows)
    name = dict(zip(rows, tokens, strict=True))
    groups = ["input" if i in chosen else "neighbour" for i in rows] if chosen else ()
    plane = _plane(centred[rows])
    neighbours: dict[str, list[dict[str, Any]]] = {}
    lines = [] if chosen else ["give some words to see their neighbours: " + ", ".join(tokens[:20])]
    for i, others in nearest.items():
        neighbours[name[i]] = [{"token": name[j], "cosine": cos} for j, cos in others.items()]
        list_of_neighbours = ", ".join(f"{name[j]} {cos:.2f}" for j, cos in others.items())
        lines.append(f"{name[i]}: {list_of_neighbours}")
    title = "the first two principal components of these embeddings"
    picture = scatter(plane, tokens, groups, title=title)
    return View(
        "embeddings",
        f"embeddings of {bundle.recipe.name}",
        {"tokens": tokens, "points": plane, "neighbours": neighbours},
        [picture, *lines],
    )


def bpe_view(bundle: Bundle, given: Any) -> View:
    """Show how byte-pair encoding merges the bytes of a text into tokens, step by step."""
    tokenizer = bundle.codec.tokenizer
    if not isinstance(tokenizer, BPETokenizer):
        kind = "none" if tokenizer is None else tokenizer.kind
        raise UsageError(
            f"the view 'bpe' needs a byte-pair tokenizer; this one is '{kind}'",
            hint="use a model that was trained with --set target.kind=bpe.",
        )
    steps = _merges(tokenizer, str(given))
    pieces = list[str]()
    is_merged = list[float]()
    lines = []
    for number, (pair, row) in enumerate(steps):
        pieces += [*row[:-1], *(f"{last}\n" for last in row[-1:])]
        is_merged += [float(pair is not None and piece == "".join(pair)) for piece in row]
        merge_text = f"     ({pair[0]} + {pair[1]})" if pair else ""
        lines.append(f"{number:>4}  {' '.join(row)}{merge_text}")
    return View(
        "bpe",
        f"{str(given)!r} in {len(steps) - 1} merges",
        {"text": str(given), "steps": [{"merge": pair, "pieces": row} for pair, row in steps]},
        [
            ColouredText(pieces, np.array(is_merged), title="the tokens after each merge").draw(),
            *lines,
        ],
    )


def training_view(bundle: Bundle, *, folder: Path) -> View:
    """Plot the curves of a training run from its metrics.jsonl."""
    path = folder / "run" / "metrics.jsonl"
    if not path.exists():
        raise UsageError(
            f"{path}: there is no record of the training",
            hint="use the folder that the training wrote, with its subfolder 'run'.",
        )
    series = _series(list(MetricsFile(path).rows()))
    if not series:
        raise UsageError(
            f"{path}: it has fewer than two logged values to plot", hint="train for more steps."
        )
    curves = {name: Curve(name, values, steps) for name, (steps, values) in series.items()}
    losses = [curves.pop(name) for name in ("loss", "validation loss") if name in curves]
    loss = Lines(losses, title="loss", titles=("step", "nats"))
    others = [Lines([curve], title=name, titles=("step", name)) for name, curve in curves.items()]
    return View(
        "training",
        f"training of {bundle.recipe.name}",
        {name: {"step": steps, "value": values} for name, (steps, values) in series.items()},
        [loss, *(chart.draw() for chart in others)],
    )


def _series(rows: list[dict[str, Any]]) -> dict[str, Matrix]:
    """Return the steps and the values of each logged quantity."""
    points: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        values = {
            name: value for name, value in row.items() if name not in ("step", "seconds", "best")
        }
        validation = values.pop("validation", {})
        values |= {f"validation {name}": value for name, value in validation.items()}
        for name, value in values.items():
            if isinstance(value, int | float):
                point = (float(row["step"]), float(value))
                points.setdefault(name.replace("_", " "), []).append(point)
    return {name: np.array(pairs).T for name, pairs in points.items() if len(pairs) > 1}


def _merges(tokenizer: BPETokenizer, text: str) -> list[tuple[tuple[str, str] | None, list[str]]]:
    """Return the pieces after each merge that applies (E63), in the order in which the merges were learnt."""
    rank = {pair: number for number, pair in enumerate(tokenizer.merges)}
    words = tokenizer.spelled(text)
    steps: list[tuple[tuple[str, str] | None, list[str]]] = [(None, _pieces(words))]
    while pairs := {pair for word in words for pair in pairwise(word) if pair in rank}:
        best = min(pairs, key=rank.__getitem__)
        words = [next(iter(merge({word: 1}, best))) for word in words]
        steps.append(((readable_spelling(best[0]), readable_spelling(best[1])), _pieces(words)))
    return steps


def _pieces(words: list[tuple[str, ...]]) -> list[str]:
    return [readable_spelling(piece) for word in words for piece in word]


def _nearest(table: FlatVectors, token: int) -> dict[int, float]:
    """Return the tokens with the largest cosine to a token, and these cosines."""
    cosines = cosine(table, table[token])
    excluded = -2.0  # less than any cosine
    cosines[: len(SPECIALS)] = excluded
    cosines[token] = excluded
    best = cosines.topk(min(NUM_NEIGHBOURS, len(cosines)))
    return dict(zip(best.indices.tolist(), best.values.tolist(), strict=True))


def _plane(points: FlatVectors) -> Points:
    """Project points on two principal components (Pearson 1901), signed so that their largest entries are positive."""
    centred = (points - points.mean(0)).numpy()
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    directions = directions[:2] if len(directions) > 1 else np.vstack([directions, 0 * directions])
    signs = np.sign(np.take_along_axis(directions, np.abs(directions).argmax(1)[:, None], 1))
    return centred @ (directions * signs).T
