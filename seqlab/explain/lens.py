"""The view `lens`: one input through the whole model, stage by stage, up to the probabilities of the next token."""

from typing import Any

import numpy as np
import torch

from seqlab.codecs.labels import answer_names
from seqlab.errors import one_of
from seqlab.explain.canvas import Canvas
from seqlab.explain.charts import Bars, HeatMap
from seqlab.explain.stage_names import label, meaning
from seqlab.explain.view import View
from seqlab.subject import Subject
from seqlab.trace import Trace

LIKELIEST = 5
# without a stage named, the first stages are drawn, up to these limits
MAX_PICTURES = 40
MAX_CELLS = 4_000_000
MAX_NUMBERS = 20_000  # stages with more numbers than this are summarized in the data


def lens_view(subject: Subject, *, layer: str | None = None, position: int | None = None) -> View:
    """Show every stage with its shape and statistics; with `layer` (the name of a stage), draw only that one."""
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
    pictures = [_picture(subject, trace, name) for name in _stages_to_draw(trace, layer)]
    return View(
        "lens",
        f"{subject.bundle.recipe.name}, stage by stage",
        {**subject.sides, "stages": stages, "likeliest": likely},
        [*pictures, *lines, Bars(np.array(p), names).as_text],
    )


@torch.inference_mode()
def likeliest(subject: Subject) -> list[list[dict[str, Any]]]:
    """Return the likeliest answers at each position with their probabilities."""
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
    return stage | ({"values": value.numpy()} if value.numel() <= MAX_NUMBERS else {})


def _stages_to_draw(trace: Trace, layer: str | None) -> list[str]:
    if layer is not None:
        return [one_of("stage", layer, trace.parts)]
    names = list[str]()
    cells = 0
    for name in trace.names():
        if trace[name].dim() in (3, 4) and not name.endswith((".q", ".k", ".v", "logits")):
            cells += trace[name].numel()
            if len(names) == MAX_PICTURES or (names and cells > MAX_CELLS):
                break
            names.append(name)
    return names


def _picture(subject: Subject, trace: Trace, name: str) -> Canvas:
    """Draw a stage with a row for each position and a column for each feature; heads are placed side by side."""
    value = trace[name][0]
    if value.dim() == 3:
        value = value.transpose(0, 1).flatten(1)
    matrix = value.reshape(len(value), -1).double().numpy()
    numbers = tuple(str(i + 1) for i in range(len(matrix)))
    rows = next((side for side in subject.sides.values() if len(side) == len(matrix)), numbers)
    columns = [str(i) for i in range(matrix.shape[1])]
    title = f"{label(name)} ({name})"
    return HeatMap(matrix, rows, columns, title=title, diverging=True).draw()
