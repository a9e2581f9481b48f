"""What a model holds before it reads anything: positions, embeddings, merges, and the record of its training."""

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

POSITIONS = 64
WORDS = 150  # of a vocabulary, where nobody names any
NEIGHBOURS = 8


def positions_view(bundle: Bundle) -> View:
    """E54 beside E55: the sinusoids, and where the model learned its positions, those; how alike two positions are."""
    layer = next(
        (module for module in bundle.model.modules() if isinstance(module, Positions)), None
    )
    if layer is None:
        raise UsageError(
            "this model knows no positions",
            hint="only a Transformer adds them; order is in the states.",
        )
    tables = {"sinusoids (E54)": sinusoidal_positions(POSITIONS, layer.size).double()}
    if layer.table is not None:
        tables["learned (E55)"] = layer.table.detach()[:POSITIONS].double()
    cosines = {name: cosine(table[:, None], table) for name, table in tables.items()}
    pictures = []
    for name, table in tables.items():
        places, features = ([str(i) for i in range(size)] for size in table.shape)
        title = f"{name}: cosine of two positions"
        values = HeatMap(
            table.numpy(),
            places,
            features,
            title=name,
            titles=("position", "feature"),
            diverging=True,
        )
        alike = HeatMap(cosines[name].numpy(), places, places, title=title, diverging=True)
        pictures += [values.draw(), alike.draw()]
    return View(
        "positions",
        f"positions of {bundle.recipe.name}: {layer.kind}",
        {"kind": layer.kind, "tables": tables, "cosine": cosines},
        [*pictures, f"this model's positions are {layer.kind}", title, alike.letters],
    )


def embeddings_view(bundle: Bundle, given: Any = None) -> View:
    """Tokens in the plane of their two main directions, and for the named ones their nearest neighbours."""
    tokenizer = bundle.codec.tokenizer
    if tokenizer is None:
        raise UsageError(
            "this model reads measured vectors, not tokens",
            hint="the view 'lens' shows what it makes of them.",
        )
    table = embedding_of(bundle.model).weight.detach().double()
    words = [] if given is None else str(given).split()
    chosen = [i for word in words for i in tokenizer.encode(word)[:1] if i != UNK]
    if given is not None and not chosen:
        raise UsageError(
            f"none of {str(given)!r} is in the vocabulary", hint="`vocabulary.txt` lists what is."
        )
    centred = table - table[len(SPECIALS) :].mean(0)
    near = {i: _nearest(centred, i) for i in chosen}
    rows = list(dict.fromkeys([*chosen, *(j for others in near.values() for j in others)]))
    rows = rows or list(range(len(SPECIALS), min(len(table), len(SPECIALS) + WORDS)))
    tokens = tokenizer.pieces(rows)
    name = dict(zip(rows, tokens, strict=True))
    groups = ["asked for" if i in chosen else "neighbour" for i in rows] if chosen else ()
    plane = _plane(centred[rows])
    neighbours: dict[str, list[dict[str, Any]]] = {}
    lines = [] if chosen else ["name some words to see their neighbours: " + ", ".join(tokens[:20])]
    for i, others in near.items():
        neighbours[name[i]] = [{"token": name[j], "cosine": alike} for j, alike in others.items()]
        lines.append(
            f"{name[i]}: " + ", ".join(f"{name[j]} {alike:.2f}" for j, alike in others.items())
        )
    picture = scatter(plane, tokens, groups, title="the two main directions of these embeddings")
    return View(
        "embeddings",
        f"embeddings of {bundle.recipe.name}",
        {"tokens": tokens, "points": plane, "neighbours": neighbours},
        [picture, *lines],
    )


def bpe_view(bundle: Bundle, given: Any) -> View:
    """A text cut into bytes, then merged step by step, as the vocabulary was learnt."""
    tokenizer = bundle.codec.tokenizer
    if not isinstance(tokenizer, BPETokenizer):
        kind = "none" if tokenizer is None else tokenizer.kind
        raise UsageError(
            f"this model's tokenizer merges nothing: it is '{kind}'",
            hint="give a model with kind 'bpe'.",
        )
    steps = _merges(tokenizer, str(given))
    pieces = list[str]()
    is_new = list[float]()
    lines = []
    for number, (pair, row) in enumerate(steps):
        pieces += [*row[:-1], *(f"{last}\n" for last in row[-1:])]
        is_new += [float(pair is not None and piece == "".join(pair)) for piece in row]
        lines.append(
            f"{number:>4}  {' '.join(row)}" + (f"     ({pair[0]} + {pair[1]})" if pair else "")
        )
    return View(
        "bpe",
        f"{str(given)!r} in {len(steps) - 1} merges",
        {"text": str(given), "steps": [{"merge": pair, "pieces": row} for pair, row in steps]},
        [ColouredText(pieces, np.array(is_new), title="merge after merge").draw(), *lines],
    )


def training_view(bundle: Bundle, *, folder: Path) -> View:
    """The curves of a run, from its metrics.jsonl."""
    path = folder / "run" / "metrics.jsonl"
    if not path.exists():
        raise UsageError(
            f"{path}: there is no record of the training", hint="look at a model beside its run."
        )
    series = _series(list(MetricsFile(path).rows()))
    if not series:
        raise UsageError(f"{path}: nothing was logged yet", hint="train a little longer.")
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
    """Each thing that was logged, as steps and values."""
    points: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        named = {
            name: value for name, value in row.items() if name not in ("step", "seconds", "best")
        }
        named |= {
            f"validation {name}": value for name, value in named.pop("validation", {}).items()
        }
        for name, value in named.items():
            if isinstance(value, int | float):
                points.setdefault(name.replace("_", " "), []).append(
                    (float(row["step"]), float(value))
                )
    return {name: np.array(pairs).T for name, pairs in points.items() if len(pairs) > 1}


def _merges(tokenizer: BPETokenizer, text: str) -> list[tuple[tuple[str, str] | None, list[str]]]:
    """The pieces after each merge that applies (E63), in the order in which the merges were learnt."""
    rank = {pair: place for place, pair in enumerate(tokenizer.merges)}
    words = tokenizer.spelled(text)
    steps: list[tuple[tuple[str, str] | None, list[str]]] = [(None, _pieces(words))]
    while pairs := {pair for word in words for pair in pairwise(word) if pair in rank}:
        best = min(pairs, key=rank.__getitem__)
        words = [next(iter(merge({word: 1}, best))) for word in words]
        steps.append(((readable_spelling(best[0]), readable_spelling(best[1])), _pieces(words)))
    return steps


def _pieces(words: list[tuple[str, ...]]) -> list[str]:
    return [readable_spelling(piece) for word in words for piece in word]


def _nearest(table: FlatVectors, place: int) -> dict[int, float]:
    alike = cosine(table, table[place])
    alike[: len(SPECIALS)] = -2.0
    alike[place] = -2.0
    best = alike.topk(min(NEIGHBOURS, len(alike)))
    return dict(zip(best.indices.tolist(), best.values.tolist(), strict=True))


def _plane(points: FlatVectors) -> Points:
    """Principal components (Pearson 1901), each turned so that its largest entry is positive."""
    centred = (points - points.mean(0)).numpy()
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    directions = directions[:2] if len(directions) > 1 else np.vstack([directions, 0 * directions])
    signs = np.sign(np.take_along_axis(directions, np.abs(directions).argmax(1)[:, None], 1))
    return centred @ (directions * signs).T
