"""Training a translator: a step compared with its matrix products alone, and an epoch compared with a padded loop."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

import seqlab
from experiments.bench.race import Race, Side, installed
from experiments.bench.translators import SHAPES, VOCABULARY, huggingface, random_model
from seqlab.data.batching import plan
from seqlab.models.seq2seq import Seq2Seq
from seqlab.padded import Batch, Padded
from seqlab.randomness import noise
from seqlab.recipe import TrainConfig, TransformerConfig
from seqlab.text import EOS, SOS
from seqlab.training.loss import batch_loss
from seqlab.training.weights import clip_, optimizers

DROPOUT, TOKENS = 0.1, 2048  # of a batch, on its longer side
PAIRS = 1450  # a twentieth of Multi30k
SETTINGS = TrainConfig(steps=1, learning_rate=1e-4)
Loop = Callable[[], Any]


def step_race(shape: str, *, rows: int = 64, length: int = 32) -> Race:
    """One step on a batch of rows of equal length, so that skipping pads makes no difference."""
    batch = next(_batches(np.full((rows, 2), length), [np.arange(rows)]))
    limit = Side(
        "the products alone",
        torch.__version__,
        _products(SHAPES[shape], rows, length),
        None,
        wanted=0.8,
    )
    title = f"a step of translation, {shape}, {rows} pairs of {length} tokens, dropout {DROPOUT}"
    return _race(title, "one step", shape, [batch], [batch], bounds=[limit])


def epoch_race(shape: str = "small") -> Race:
    """A twentieth of an epoch with the lengths of Multi30k; the plain loop takes pairs in file order."""
    drawn = np.random.default_rng(1)
    english = drawn.gamma(
        9.5, 1.47, PAIRS
    )  # 14.0 subwords, give or take 4.5; French has 2.9 more, give or take 2.7
    lengths = (
        np.stack([english, english + drawn.normal(2.9, 2.7, PAIRS)], axis=1)
        .round()
        .astype(np.int64)
        .clip(4, 50)
    )
    planned = plan(lengths, budget=TOKENS, seed=1, epoch=0)
    tokens = lengths.sum() / len(planned)
    rows = max(1, round(tokens / lengths.sum(axis=1).mean()))
    shuffled = drawn.permutation(PAIRS)
    plain = [shuffled[start : start + rows] for start in range(0, PAIRS, rows)]
    title = f"{PAIRS:,} pairs as long as Multi30k's, {shape}, {tokens:.0f} tokens a batch, dropout {DROPOUT}"
    ours, theirs = list(_batches(lengths, planned)), list(_batches(lengths, plain))
    return _race(title, "the whole", shape, ours, theirs, wanted=1.5)


def _race(
    title: str,
    part: str,
    shape: str,
    ours: list[Batch],
    theirs: list[Batch],
    *,
    bounds: Sequence[Side] = (),
    wanted: float | None = None,
) -> Race:
    """Both start with the same weights, and must compute the same loss before the first step."""
    model, peers = random_model(shape, dropout=DROPOUT), list(bounds)
    found, version = _our_loss(model, theirs[0]), installed("transformers")
    if version is not None:
        peer = huggingface(model, dropout=DROPOUT)
        same = _their_loss(peer, theirs[0])
        peers.append(
            Side("Hugging Face", version, _their_loop(peer, theirs), lambda _: same, wanted=wanted)
        )
    us = Side("Seqlab", seqlab.__version__, _our_loop(model, ours), lambda _: found)
    return Race(title, part, us, peers, missing=[] if version else ["transformers"])


def _batches(
    lengths: Int[np.ndarray, "N 2"], batches: list[Int[np.ndarray, " B"]]
) -> Iterator[Batch]:
    """Return batches of random tokens, determined by the pair; targets include begin and end tokens."""
    for places in batches:
        drawn = [torch.Generator().manual_seed(int(place)) for place in places]
        source, target = (
            [
                torch.randint(10, VOCABULARY, (int(n),), generator=g)
                for n, g in zip(lengths[places, side], drawn, strict=True)
            ]
            for side in (0, 1)
        )
        ends = torch.tensor([SOS]), torch.tensor([EOS])
        framed = Padded.from_rows([torch.cat([ends[0], row[1:], ends[1]]) for row in target])
        yield Batch(rows=torch.as_tensor(places), source=Padded.from_rows(source), target=framed)


def _our_loop(model: Seq2Seq, batches: list[Batch]) -> Loop:
    rules = optimizers(model, SETTINGS)

    def run() -> None:
        for number, batch in enumerate(batches):
            with noise(1, number, batch.rows):
                batch_loss(model, batch).to_minimise.backward()
            clip_(model.parameters(), 1.0)
            for rule in rules:
                rule.step()
            model.zero_grad()

    return run


def _their_loop(peer: Any, batches: list[Batch]) -> Loop:
    """Return the training loop that users of the library write, with torch's fused optimiser."""
    rule = torch.optim.AdamW(peer.parameters(), lr=SETTINGS.learning_rate, fused=True)
    given = [_as_theirs(batch) for batch in batches]

    def run() -> None:
        peer.train()
        for each in given:
            peer(**each).loss.backward()
            nn.utils.clip_grad_norm_(peer.parameters(), 1.0)
            rule.step()
            rule.zero_grad()

    return run


def _as_theirs(batch: Batch) -> dict[str, Tensor]:
    assert batch.source is not None
    assert batch.target is not None
    real, written = batch.target.real[:, 1:], batch.target.values[:, 1:]
    return {
        "input_ids": batch.source.values,
        "attention_mask": batch.source.real.long(),
        "decoder_input_ids": batch.target.values[:, :-1],
        "decoder_attention_mask": real.long(),
        "labels": written.masked_fill(~real, -100),
    }


@torch.no_grad()
def _our_loss(model: Seq2Seq, batch: Batch) -> np.ndarray:
    return np.array([float(batch_loss(model, batch).to_minimise)])


@torch.no_grad()
def _their_loss(peer: Any, batch: Batch) -> np.ndarray:
    return np.array([float(peer.eval()(**_as_theirs(batch)).loss)])


def _products(settings: TransformerConfig, rows: int, length: int) -> Loop:
    """Return a loop with only the matrix products of a step: (m, k) times (k, n), and both gradients."""
    d, heads, tokens = settings.size, settings.heads, rows * length

    def linear(*sizes: tuple[int, int]) -> list[tuple[int, int, int, int]]:
        return [(1, tokens, k, n) for k, n in sizes]

    looks = [(rows * heads, length, d // heads, length), (rows * heads, length, length, d // heads)]
    block = [*linear((d, 3 * d), (d, d), (d, settings.inner), (settings.inner, d)), *looks]
    cross = [*linear((d, d), (d, 2 * d), (d, d)), *looks]
    shapes = chain(*[block + block + cross] * settings.layers, linear((d, VOCABULARY)))
    known: dict[tuple[int, ...], Tensor] = {}

    def matrix(*shape: int) -> Tensor:
        return known.setdefault(shape, torch.randn(shape))

    work = [(matrix(b, m, k), matrix(b, n, k), matrix(b, m, n)) for b, m, k, n in shapes]

    def run() -> None:
        for x, w, g in work:
            x @ w.mT
            g @ w
            g.mT @ x

    return run
