"""The laws that every model and decoder obeys, as functions that return by how much they are broken.

Each takes a model and a batch and gives the largest difference found; zero, up to rounding, is lawful. Tests call them
for every model there is, and so can anybody for a model of his own.
"""

import json
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch
from jaxtyping import Int
from torch import Tensor, nn

from seqlab import lab
from seqlab.decode.beam import Beam, beam_search
from seqlab.decode.generate import Generated, Greedy, Limits, Rule, Sample, generate, score
from seqlab.errors import UsageError
from seqlab.layers.linear import in_bytes
from seqlab.layers.tap import listening
from seqlab.model import RUN, STORES
from seqlab.models.forecaster import Forecasts
from seqlab.models.interface import Decoder, Memory, Model, Reading
from seqlab.padded import Batch, Padded
from seqlab.text import EOS
from seqlab.training.checkpoint import read_checkpoint


def padding_changes_nothing(model: Model, batch: Batch, *, extra: int = 3, junk: int = 1) -> float:
    """More pads on the right, with junk in them, change no prediction."""
    wide = Batch(batch.rows, **{name: _widened(part, extra, junk) for name, part in batch.parts().items()})
    return _apart(_logits(model, batch), _logits(model, wide))


def a_batch_equals_its_rows(model: Model, batch: Batch) -> float:
    """Each row gets the same prediction alone as in company."""
    together = _logits(model, batch)
    alone = [_logits(model, _row(batch, row))[0] for row in range(len(batch))]
    return max(_apart([one], [other]) for one, other in zip(together, alone, strict=True))


@torch.inference_mode()
def the_future_never_changes_the_past(decoder: Decoder, memory: Memory, tokens: Int[Tensor, "B T"]) -> float:
    """Other tokens from a position on leave all logits before it as they were."""
    context, state = decoder.start(memory)
    logits, _ = decoder.read(tokens, context, state)
    worst = 0.0
    for position in range(1, tokens.shape[1]):
        changed = tokens.clone()
        changed[:, position:] = changed[:, position:].flip(0).roll(1, dims=1)
        other, _ = decoder.read(changed, context, state)
        worst = max(worst, float((logits - other)[:, :position].abs().max()))
    return worst


@torch.inference_mode()
def reading_equals_stepping(decoder: Decoder, memory: Memory, tokens: Int[Tensor, "B T"]) -> float:
    """Many tokens at once, one by one, and half and half give the same logits and leave the same state."""
    context, start = decoder.start(memory)
    logits, after = decoder.read(tokens, context, start)
    state, steps = start, []
    for token in tokens.unbind(1):
        now, state = decoder.step(token, context, state)
        steps.append(now)
    half = tokens.shape[1] // 2
    first, middle = decoder.read(tokens[:, :half], context, start)
    second, end = decoder.read(tokens[:, half:], context, middle)
    whole = [logits, *after]
    return max(_apart(whole, [torch.stack(steps, 1), *state]), _apart(whole, [torch.cat([first, second], 1), *end]))


def reported_scores_equal_rescoring(
    decoder: Decoder, encode: Callable[[], Memory], prefix: Padded, *, end: int
) -> float:
    """The log-probability that decoding reports is the one that forced scoring gives the same output."""
    out = _generate(decoder, encode(), prefix, Greedy(), end=end)
    rows = [torch.cat([p, t]) for p, t in zip(prefix.rows(), out.tokens.rows(), strict=True)]
    complete = out.tokens.lengths < _LIMIT
    ended = [torch.cat([row, torch.tensor([end])]) if done else row for row, done in zip(rows, complete, strict=True)]
    whole = score(decoder, encode(), Padded.from_rows(ended))
    before = score(decoder, encode(), prefix)
    return float((whole - before - out.log_probability).abs().max())


def top_one_equals_greedy(decoder: Decoder, encode: Callable[[], Memory], prefix: Padded, *, end: int) -> float:
    """Sampling among one token is no sampling: the number of rows that differ from greedy search."""
    greedy = _generate(decoder, encode(), prefix, Greedy(), end=end)
    sampled = _generate(decoder, encode(), prefix, Sample(top_k=1), end=end)
    pairs = zip(greedy.tokens.rows(), sampled.tokens.rows(), strict=True)
    return float(sum(one.tolist() != other.tolist() for one, other in pairs))


def beam_one_equals_greedy(decoder: Decoder, encode: Callable[[], Memory], prefix: Padded, *, end: int) -> float:
    """A beam of one hypothesis is greedy search: the number of rows that differ from it."""
    greedy = _generate(decoder, encode(), prefix, Greedy(), end=end)
    found = beam_search(decoder, encode(), prefix, Beam(width=1), Limits(end=end, most=_LIMIT)).best
    pairs = zip(greedy.tokens.rows(), found, strict=True)
    return float(sum(one.tolist() != list(other[0].tokens) for one, other in pairs))


def beam_scores_equal_rescoring(
    decoder: Decoder, encode: Callable[[], Memory], prefix: Padded, *, end: int, width: int = 3
) -> float:
    """Every hypothesis of a beam has the log-probability that forced scoring gives it."""
    found = beam_search(decoder, encode(), prefix, Beam(width=width), Limits(end=end, most=_LIMIT)).best
    before = score(decoder, encode(), prefix)
    worst = 0.0
    for place in range(min(map(len, found))):
        picked = [hypotheses[place] for hypotheses in found]
        tails = [torch.tensor([*h.tokens, *([end] if h.ended else [])], dtype=torch.long) for h in picked]
        rows = [torch.cat([p, tail]) for p, tail in zip(prefix.rows(), tails, strict=True)]
        rescored = score(decoder, encode(), Padded.from_rows(rows)) - before
        reported = torch.tensor([h.log_probability for h in picked], dtype=torch.float64)
        worst = max(worst, float((rescored - reported).abs().max()))
    return worst


def looking_changes_nothing(model: Model, batch: Batch) -> float:
    """A listener that only looks leaves every prediction as it is: equations and fused kernels are one function."""
    quiet = _logits(model, batch)
    with listening(lambda name, value: value):
        observed = _logits(model, batch)
    return _apart(quiet, observed)


def resuming_equals_never_having_stopped(model: Path, *, steps: int = 6) -> float:
    """Of two copies of a run, one goes on for some steps and the other is stopped halfway and resumed.

    The largest difference of anything in their checkpoints; logs that differ are infinitely far apart.
    """
    last = model / RUN / "last.safetensors"
    if not last.is_file():
        raise UsageError(f"{model}: there is no run beside this model", hint="give a directory that `train` made.")
    place, parts = read_checkpoint(last)
    if "optimizer" not in parts:
        raise UsageError(f"{model}: this run was fitted without gradients", hint="there is nothing random to resume.")
    settings = [f"train.steps={place.step + steps}", "train.patience=none"]
    with TemporaryDirectory() as scratch:
        copies = [_copied(model, Path(scratch) / name) for name in ("whole", "stopped")]
        for copy, stops in zip(copies, (steps, steps // 2), strict=True):
            asked = count(1)  # it is asked once a step
            lab.train(out=copy, resume=True, settings=settings, stop=partial(_enough, asked, stops))
        lab.train(out=copies[1], resume=True)
        whole, stopped = (_flat(read_checkpoint(copy / RUN / "last.safetensors")[1]) for copy in copies)
        logs = [_log(copy / RUN / "metrics.jsonl") for copy in copies]
    if whole.keys() != stopped.keys() or logs[0] != logs[1]:
        return math.inf
    return _apart(list(whole.values()), [stopped[name] for name in whole])


@dataclass(frozen=True)
class Check:
    """One law on one model: by how much it is broken, and how much is only rounding."""

    law: str
    difference: float
    allowed: float

    @property
    def kept(self) -> bool:
        return self.difference <= self.allowed


def check(model: Model, batch: Batch) -> Iterator[Check]:
    """Every law that applies to a model, on a batch of its own data.

    float32 rounds at a few millionths of a logit; a model in bytes rounds what its matrices meet to 16 bits, and a
    last digit that falls the other way is worth ten times as much.
    """
    size = max((float(row.abs().max()) for row in _logits(model, batch) if row.numel()), default=1.0)
    allowed = (2e-4 if in_bytes(cast(nn.Module, model)) else 2e-5) * max(1.0, size)
    laws: list[Callable[[Model, Batch], float]] = [a_batch_equals_its_rows, looking_changes_nothing]
    if not isinstance(model, Forecasts):  # whose windows are all of one length
        laws.insert(0, padding_changes_nothing)
    for law in laws:
        yield Check(_said(law), law(model, batch), allowed)
    decoder, target = getattr(model, "decoder", None), batch.target
    if decoder is None or target is None:
        return
    encoder = cast(Any, model).encoder if batch.source is not None else None

    def memory() -> Memory:
        return Memory(len(batch)) if encoder is None else encoder(batch.source)

    with torch.inference_mode():
        once = memory()
    yield Check(
        _said(the_future_never_changes_the_past),
        the_future_never_changes_the_past(decoder, once, target.values[:, :_LIMIT]),
        allowed,
    )
    yield Check(
        _said(reading_equals_stepping), reading_equals_stepping(decoder, once, target.values[:, :_LIMIT]), allowed
    )
    prefix = Padded(target.values[:, :1], torch.ones(len(batch), dtype=torch.long))
    for whole in (top_one_equals_greedy, beam_one_equals_greedy):
        yield Check(_said(whole), whole(decoder, memory, prefix, end=EOS), 0.0)
    for scored in (reported_scores_equal_rescoring, beam_scores_equal_rescoring):
        yield Check(_said(scored), scored(decoder, memory, prefix, end=EOS), 10 * allowed)


def _said(law: Callable[..., float]) -> str:
    return law.__name__.replace("_", " ")


_LIMIT = 12  # tokens: long enough for every kind of end, short enough for a test


def _generate(decoder: Decoder, memory: Memory, prefix: Padded, rule: Rule, *, end: int) -> Generated:
    return generate(decoder, memory, prefix, rule, Limits(end=end, most=_LIMIT), rows=torch.arange(len(prefix)))


@torch.inference_mode()
def _logits(model: Model, batch: Batch) -> list[Tensor]:
    """The logits of each row at its scored positions."""
    reading: Reading = model.read_batch(batch, ())
    return [model.head(row[real]) for row, real in zip(reading.features, reading.gold.scored, strict=True)]


def _widened(part: Padded, extra: int, junk: int) -> Padded:
    values = torch.nn.functional.pad(part.values, (0, 0) * (part.values.dim() - 2) + (0, extra), value=junk)
    real = Padded(values, part.lengths).real
    return Padded(torch.where(real.view(*real.shape, *(1,) * (values.dim() - 2)), values, junk), part.lengths)


def _row(batch: Batch, row: int) -> Batch:
    parts = {
        name: Padded(part.values[row : row + 1, : int(part.lengths[row])], part.lengths[row : row + 1])
        for name, part in batch.parts().items()
    }
    return Batch(batch.rows[row : row + 1], **parts)


def _copied(model: Path, to: Path) -> Path:
    """A run to go on with; what it only reads is not copied."""
    shutil.copytree(model, to, ignore=shutil.ignore_patterns(STORES, "kept"))
    (to / RUN / STORES).symlink_to((model / RUN / STORES).resolve())
    return to


def _enough(asked: Iterator[int], times: int) -> bool:
    return next(asked) >= times


def _flat(parts: dict[str, dict[str, Tensor]]) -> dict[str, Tensor]:
    return {f"{part}/{name}": tensor.double() for part, group in parts.items() for name, tensor in group.items()}


def _log(path: Path) -> list[dict[str, Any]]:
    """A log without its clocks."""
    clocks = ("seconds", "tokens_per_second")
    rows = map(json.loads, path.read_text("utf-8").splitlines())
    return [{name: value for name, value in row.items() if name not in clocks} for row in rows]


def _apart(ones: list[Tensor], others: list[Tensor]) -> float:
    differences = [float((a - b).abs().max()) for a, b in zip(ones, others, strict=True) if a.numel()]
    return max(differences, default=0.0)
