"""The lens: one input followed through the whole model, stage by stage, to the probabilities of what comes next."""

from typing import Any

import numpy as np
import torch

from seqlab.codecs.labels import answer_names
from seqlab.errors import one_of
from seqlab.explain.canvas import Canvas
from seqlab.explain.charts import Bars, HeatMap
from seqlab.explain.view import View
from seqlab.subject import Subject
from seqlab.trace import Trace

LIKELIEST = 5
PICTURES, CELLS = (
    40,
    4_000_000,
)  # drawn at most without a stage named: of a long text the first stages
NUMBERS = 20_000  # of a stage up to which all its numbers are written out
NAMES = {
    "embedding": "token embeddings",
    "positions": "with positions added",
    "x": "what goes in",
    "memory": "states of the source",
    "enters": "what enters: input, then states before",
    "sum": "what went in plus what came out",
    "features": "what is read out",
    "q": "queries",
    "k": "keys",
    "v": "values",
    "score": "scores, scaled",
    "weights": "weights: masked, then softmax",
    "heads": "what each head found",
    "inner": "inside the feed-forward layer",
    "output": "after the block",
    "i": "input gate",
    "f": "forget gate",
    "g": "candidate",
    "o": "output gate",
    "c": "cell",
    "h": "state",
    "r": "reset gate",
    "u": "update gate",
    "z": "update gate",
    "n": "candidate",
    "halt": "halting probability",
    "ponder": "steps taken",
    "belief": "belief about the hidden state",
    "posterior": "posterior of the hidden states",
    "logits": "logits",
}


def lens_view(subject: Subject, *, layer: str | None = None, position: int | None = None) -> View:
    """Every stage with its shape and numbers; with `layer` (a stage by its name), that one as a picture."""
    trace = subject.trace()
    stages = [_stage(trace, name) for name in trace.names()]
    likely = likeliest(subject)
    place = subject.place(position)
    lines = [f"{'stage':<34}{'shape':<14}{'mean':>9}{'deviation':>11}"]
    for stage in stages:
        shape = "x".join(map(str, stage["shape"]))
        lines.append(
            f"{stage['name'][:33]:<34}{shape:<14}{stage['mean']:>9.3f}{stage['deviation']:>11.3f}"
        )
    lines += [
        "",
        f"position {place + 1} of {len(likely)}, where the answer is {subject.answer_names[place]!r}:",
    ]
    names, p = zip(*(guess.values() for guess in likely[place]), strict=True)
    pictures = [_picture(subject, trace, name) for name in _chosen(trace, layer)]
    return View(
        "lens",
        f"{subject.bundle.recipe.name}, stage by stage",
        {**subject.sides, "stages": stages, "likeliest": likely},
        [*pictures, *lines, Bars(np.array(p), names).letters],
    )


@torch.inference_mode()
def likeliest(subject: Subject) -> list[list[dict[str, Any]]]:
    """At each position the likeliest answers with their probabilities."""
    p = subject.logits().double().softmax(-1)
    best = p.topk(min(LIKELIEST, p.shape[-1]))
    names = answer_names(subject.bundle.codec)
    return [
        [{"answer": names[i], "probability": value} for i, value in zip(ids, values, strict=True)]
        for ids, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def _stage(trace: Trace, name: str) -> dict[str, Any]:
    value = trace[name][0].double()
    stage = {
        "name": name,
        "what": meaning(name),
        "shape": list(value.shape),
        "mean": float(value.mean()),
        "deviation": float(value.std(unbiased=False)),
        "least": float(value.min()),
        "most": float(value.max()),
    }
    return stage | ({"values": value.numpy()} if value.numel() <= NUMBERS else {})


def _chosen(trace: Trace, layer: str | None) -> list[str]:
    if layer is not None:
        return [one_of("stage", layer, trace.parts)]
    drawn = list[str]()
    cells = 0
    for name in trace.names():
        if trace[name].dim() in (3, 4) and not name.endswith((".q", ".k", ".v", "logits")):
            cells += trace[name].numel()
            if len(drawn) == PICTURES or (drawn and cells > CELLS):
                break
            drawn.append(name)
    return drawn


def _picture(subject: Subject, trace: Trace, name: str) -> Canvas:
    """Features across, positions down; of several heads the heads side by side."""
    value = trace[name][0]
    if value.dim() == 3:
        value = value.transpose(0, 1).flatten(1)
    matrix = value.reshape(len(value), -1).double().numpy()
    numbers = tuple(str(i + 1) for i in range(len(matrix)))
    rows = next((side for side in subject.sides.values() if len(side) == len(matrix)), numbers)
    title = f"{name}: {meaning(name)}"
    return HeatMap(
        matrix, rows, [str(i) for i in range(matrix.shape[1])], title=title, diverging=True
    ).draw()


def meaning(name: str) -> str:
    return NAMES.get(name.rpartition(".")[2], "")
