"""The laws that every model and decoder obeys, as functions that return by how much one is violated.

Each takes a model and a batch and returns the largest difference, which must be zero up to rounding. The tests apply
them to every model, and `seqlab check` to a user's model.
"""

import json
import math
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch
from torch import Tensor, nn

from seqlab import lab
from seqlab.decode.beam import Beam, Hypothesis, beam_search
from seqlab.decode.generate import Generated, Greedy, Limits, Rule, Sample, generate, score
from seqlab.errors import UsageError
from seqlab.layers.linear import in_bytes
from seqlab.layers.tap import listening
from seqlab.model import RUN, STORES
from seqlab.models.forecaster import Forecasts
from seqlab.models.interface import Decoder, Memory, Reading, SequenceModel
from seqlab.padded import Batch, Padded
from seqlab.text import EOS
from seqlab.training.checkpoint import read_checkpoint
from seqlab.types import PerRow, PositionIds


def padding_changes_nothing(
    model: SequenceModel, batch: Batch, *, extra: int = 3, junk: int = 1
) -> float:
    """Return the change of predictions if more pads with arbitrary values are added on the right."""
    wide = Batch(
        batch.rows, **{name: _widened(part, extra, junk) for name, part in batch.parts().items()}
    )
    return _max_difference(_logits(model, batch), _logits(model, wide))


def a_batch_equals_its_rows(model: SequenceModel, batch: Batch) -> float:
    """Return the difference between predictions of a batch and those of each row alone."""
    alone = [_logits(model, _row(batch, row))[0] for row in range(len(batch))]
    return _max_difference(_logits(model, batch), alone)


@torch.inference_mode()
def the_future_never_changes_the_past(
    decoder: Decoder, memory: Memory, tokens: PositionIds
) -> float:
    """Return the change of logits before a position if the tokens from there on are replaced."""
    context, state = decoder.start(memory)
    logits, _ = decoder.read(tokens, context, state)
    changes = []
    for position in range(1, tokens.shape[1]):
        changed = tokens.clone()
        changed[:, position:] = changed[:, position:].flip(0).roll(1, dims=1)
        other, _ = decoder.read(changed, context, state)
        changes.append((logits - other)[:, :position])
    return _largest(changes)


@torch.inference_mode()
def reading_equals_stepping(decoder: Decoder, memory: Memory, tokens: PositionIds) -> float:
    """Return the difference of logits and states between reading tokens at once, one by one, and in two halves."""
    context, start = decoder.start(memory)
    logits, after = decoder.read(tokens, context, start)
    state = start
    steps = []
    for token in tokens.unbind(1):
        step_logits, state = decoder.step(token, context, state)
        steps.append(step_logits)
    half = tokens.shape[1] // 2
    first, middle = decoder.read(tokens[:, :half], context, start)
    second, end = decoder.read(tokens[:, half:], context, middle)
    whole = [logits, *after]
    return max(
        _max_difference(whole, [torch.stack(steps, 1), *state]),
        _max_difference(whole, [torch.cat([first, second], 1), *end]),
    )


@dataclass(frozen=True)
class SearchCase:
    """The arguments of a search: a decoder, the encoded source, a prefix for each row, and the end token."""

    decoder: Decoder
    memory: Memory
    prefix: Padded
    end: int

    @property
    def limits(self) -> Limits:
        return Limits(end=self.end, most=_LIMIT)

    def generate(self, rule: Rule) -> Generated:
        rows = torch.arange(len(self.prefix))
        return generate(self.decoder, self.memory, self.prefix, rule, self.limits, rows=rows)

    def beam(self, width: int) -> list[list[Hypothesis]]:
        return beam_search(
            self.decoder, self.memory, self.prefix, Beam(width=width), self.limits
        ).best

    def rescored(self, outputs: Iterable[list[int]]) -> PerRow:
        """Return the log-probability of these continuations of the prefixes under forced scoring."""
        rows = [
            [*prefix.tolist(), *output]
            for prefix, output in zip(self.prefix.rows(), outputs, strict=True)
        ]
        whole = score(self.decoder, self.memory, Padded.from_rows(rows))
        return whole - score(self.decoder, self.memory, self.prefix)


def reported_scores_equal_rescoring(search: SearchCase) -> float:
    """Return the difference between the log-probability that decoding reports and that of forced scoring."""
    out = search.generate(Greedy())
    tokens = [row.tolist() for row in out.tokens.rows()]
    rescored = search.rescored(row if len(row) == _LIMIT else [*row, search.end] for row in tokens)
    return _max_difference([rescored], [out.log_probability])


def beam_scores_equal_rescoring(search: SearchCase) -> float:
    """Return the difference between the log-probabilities of the hypotheses of a beam and those of forced scoring."""
    rescored = []
    reported = []
    # first the best hypotheses of all rows, then the second best, ...
    for hypotheses in zip(*search.beam(3), strict=False):
        rescored.append(
            search.rescored([*h.tokens, *([search.end] if h.ended else [])] for h in hypotheses)
        )
        reported.append(torch.tensor([h.log_probability for h in hypotheses], dtype=torch.float64))
    return _max_difference(rescored, reported)


def top_one_equals_greedy(search: SearchCase) -> float:
    """Return the number of rows for which sampling with top-k of 1 differs from greedy search."""
    return _differing(
        search, [row.tolist() for row in search.generate(Sample(top_k=1)).tokens.rows()]
    )


def beam_one_equals_greedy(search: SearchCase) -> float:
    """Return the number of rows for which a beam of 1 differs from greedy search."""
    return _differing(search, [list(hypotheses[0].tokens) for hypotheses in search.beam(1)])


def _differing(search: SearchCase, outputs: list[list[int]]) -> float:
    """Return the number of outputs that differ from those of greedy search."""
    greedy = search.generate(Greedy()).tokens.rows()
    return float(sum(one.tolist() != other for one, other in zip(greedy, outputs, strict=True)))


def looking_changes_nothing(model: SequenceModel, batch: Batch) -> float:
    """Return the change of predictions under a passive listener: equations and fused kernels must agree."""
    fused = _logits(model, batch)
    with listening(lambda name, value: value):
        observed = _logits(model, batch)
    return _max_difference(fused, observed)


def resuming_equals_never_having_stopped(model: Path) -> float:
    """Continue two copies of a run, one without a stop and one that is stopped halfway and resumed.

    Return the largest difference between their checkpoints, or infinity if their logs differ.
    """
    last = model / RUN / "last.safetensors"
    if not last.is_file():
        raise UsageError(
            f"{model}: this model has no training run",
            hint="give a directory that `seqlab train` wrote, with its subfolder 'run'.",
        )
    place, parts = read_checkpoint(last)
    if "optimizer" not in parts:
        raise UsageError(
            f"{model}: this model was trained without gradients",
            hint="this check needs a model that was trained by gradient descent.",
        )
    settings = [f"train.steps={place.step + _STEPS}", "train.patience=none"]
    with TemporaryDirectory() as scratch:
        copies = [_copied(model, Path(scratch) / name) for name in ("whole", "stopped")]
        for copy, stops in zip(copies, (_STEPS, _STEPS // 2), strict=True):
            requests = chain([False] * (stops - 1), repeat(True))  # whether to stop, once a step
            lab.train(out=copy, resume=True, settings=settings, stop=partial(next, requests))
        lab.train(out=copies[1], resume=True)
        whole, stopped = (
            _flat(read_checkpoint(copy / RUN / "last.safetensors")[1]) for copy in copies
        )
        logs = [_log(copy / RUN / "metrics.jsonl") for copy in copies]
    if whole.keys() != stopped.keys() or logs[0] != logs[1]:
        return math.inf
    return _largest(whole[name] - stopped[name] for name in whole)


@dataclass(frozen=True)
class Check:
    """The result of one law: the largest difference, and how much of it rounding can explain."""

    law: str
    difference: float
    allowed: float

    @property
    def kept(self) -> bool:
        return self.difference <= self.allowed


def check(model: SequenceModel, batch: Batch) -> Iterator[Check]:
    """Check every law that applies to a model, on a batch of its own data.

    float32 has rounding errors of a few millionths of a logit; an int8 model rounds the inputs of its matrices to 16
    bits, which gives errors ten times as large. A search by the native kernels rounds them to 8 bits.
    """
    rounded = in_bytes(cast(nn.Module, model))
    rounding = (2e-4 if rounded else 2e-5) * max(1.0, _largest(_logits(model, batch)))
    laws: list[Callable[[SequenceModel, Batch], float]] = [
        a_batch_equals_its_rows,
        looking_changes_nothing,
    ]
    if not isinstance(model, Forecasts):  # the windows of forecasters have one length
        laws.insert(0, padding_changes_nothing)
    yield from _checks(laws, (model, batch), rounding)
    decoder, target = getattr(model, "decoder", None), batch.target
    if decoder is None or target is None:
        return
    with torch.inference_mode():
        memory = (
            Memory(len(batch)) if batch.source is None else cast(Any, model).encoder(batch.source)
        )
    causal = (the_future_never_changes_the_past, reading_equals_stepping)
    yield from _checks(causal, (decoder, memory, target.values[:, :_LIMIT]), rounding)
    search = (SearchCase(decoder, memory, Padded.full(target.values[:, :1]), EOS),)
    yield from _checks((top_one_equals_greedy, beam_one_equals_greedy), search, 0.0)
    yield from _checks(
        (reported_scores_equal_rescoring, beam_scores_equal_rescoring),
        search,
        (50 if rounded else 10) * rounding,
    )


def _checks(
    laws: Iterable[Callable[..., float]], subjects: tuple[Any, ...], allowed: float
) -> Iterator[Check]:
    for law in laws:
        yield Check(law.__name__.replace("_", " "), law(*subjects), allowed)


_LIMIT = 12  # tokens of an output
_STEPS = 6  # by which a run is continued


@torch.inference_mode()
def _logits(model: SequenceModel, batch: Batch) -> list[Tensor]:
    """Return the logits of each row at its scored positions."""
    reading: Reading = model.read_batch(batch, ())
    return [
        model.head(row[real])
        for row, real in zip(reading.features, reading.gold.scored, strict=True)
    ]


def _widened(part: Padded, extra: int, junk: int) -> Padded:
    values = nn.functional.pad(
        part.values, (0, 0) * (part.values.dim() - 2) + (0, extra), value=junk
    )
    observed = None if part.observed is None else nn.functional.pad(part.observed, (0, extra))
    wide = Padded(values, part.lengths, observed)
    return wide.with_values(
        torch.where(wide.real.view(*wide.real.shape, *(1,) * (values.dim() - 2)), values, junk)
    )


def _row(batch: Batch, row: int) -> Batch:
    one = batch.rows_at([row])
    return Batch(one.rows, **{name: _without_pads(part) for name, part in one.parts().items()})


def _without_pads(part: Padded) -> Padded:
    """Return a single row without its pads."""
    end = int(part.lengths)
    return Padded(
        part.values[:, :end],
        part.lengths,
        None if part.observed is None else part.observed[:, :end],
    )


def _copied(model: Path, to: Path) -> Path:
    """Copy a run, with a link to its data instead of a copy."""
    shutil.copytree(model, to, ignore=shutil.ignore_patterns(STORES, "kept"))
    (to / RUN / STORES).symlink_to((model / RUN / STORES).resolve())
    return to


def _flat(parts: dict[str, dict[str, Tensor]]) -> dict[str, Tensor]:
    return {
        f"{part}/{name}": tensor.double()
        for part, group in parts.items()
        for name, tensor in group.items()
    }


def _log(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a log without times."""
    times = ("seconds", "tokens_per_second")
    rows = map(json.loads, path.read_text("utf-8").splitlines())
    return [{name: value for name, value in row.items() if name not in times} for row in rows]


def _max_difference(ones: Iterable[Tensor], others: Iterable[Tensor]) -> float:
    return _largest(one - other for one, other in zip(ones, others, strict=True))


def _largest(tensors: Iterable[Tensor]) -> float:
    return max((float(tensor.abs().max()) for tensor in tensors if tensor.numel()), default=0.0)
