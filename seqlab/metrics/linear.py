"""The floor under every text classifier: logistic regression on tokens and pairs of neighbours, wherever they stand.

    x = log(1 + tf) (log((1 + N) / (1 + df)) + 1), scaled to length 1;    p(class | x) = softmax(W x + b)

with tf how often a feature occurs in the text, and df in how many of the N training texts. It is a high floor for
topic and sentiment (Wang & Manning 2012): a model of sequences below it has not earned its cost.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, final, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor
from torch.nn import functional as F

STRENGTH = 10.0  # of the summed loss against |W|²/2; from 3 to 30 accuracy moves by less than a point
LEARNING_RATE = 0.1
BATCH = 256
NUM_EPOCHS, NUM_STEPS = 5, 200  # whichever is longer
NUM_TEXTS, NUM_TOKENS = 200_000, 8_000_000  # a floor learns from no more, so that it stays quick on a large corpus
NUM_WEIGHTS = 1 << 22  # nor has it more weights: where classes are many, only the commonest features are kept

Ids = Sequence[int] | Integer[np.ndarray, " _"]
Row = tuple[Int[np.ndarray, " _"], Float[np.ndarray, " _"]]  # the features of one text by place, and their values


@runtime_checkable
class Texts(Protocol):
    """Texts by number: a list of ids, or a store of them on disk."""

    def __len__(self) -> int: ...
    def __getitem__(self, row: int, /) -> Ids: ...


@final
@dataclass(frozen=True)
class LinearFloor:
    """A weight for each class and each token or bigram that at least two texts share."""

    features: Int[np.ndarray, " V"]  # sorted
    idf: Float[np.ndarray, " V"]
    weight: Float[Tensor, "V K"]
    bias: Float[Tensor, " K"]

    @classmethod
    def fit(cls, texts: Texts, labels: Integer[np.ndarray, " N"], *, num_classes: int, seed: int = 0) -> "LinearFloor":
        """Learn from texts and the numbers of their classes; a label below zero leaves its text out."""
        labels = labels.astype(np.int64)
        if len(texts) != len(labels) or labels.max(initial=-1) >= num_classes:
            highest = labels.max(initial=-1)
            raise ValueError(f"{len(texts)} texts and {len(labels)} labels up to {highest} for {num_classes} classes")
        random = np.random.default_rng(seed)
        rows = random.permutation(np.flatnonzero(labels >= 0))[:NUM_TEXTS]
        lengths = np.asarray([len(texts[row]) for row in rows.tolist()], dtype=np.int64)
        rows = rows[np.cumsum(lengths) - lengths < NUM_TOKENS]
        chosen = [texts[row] for row in rows.tolist()]
        features, idf = _vocabulary(chosen, most=NUM_WEIGHTS // num_classes)
        prior = torch.from_numpy(np.bincount(labels[rows], minlength=num_classes)).float().log1p()
        floor = cls(features, idf, torch.zeros(len(features), num_classes), prior)
        if chosen:
            floor._descend([floor._row(text) for text in chosen], torch.from_numpy(labels[rows]), random)
        return floor

    def predict(self, texts: Texts) -> Int[np.ndarray, " N"]:
        """The likeliest class of each text."""
        best = [np.empty(0, dtype=np.int64)]
        for start in range(0, len(texts), BATCH):
            rows = [self._row(texts[row]) for row in range(start, min(start + BATCH, len(texts)))]
            best.append(self._logits(rows).argmax(1).numpy())
        return np.concatenate(best)

    def _descend(self, rows: list[Row], labels: Int[Tensor, " N"], random: np.random.Generator) -> None:
        num_batches = -(-len(rows) // BATCH)
        num_epochs = max(NUM_EPOCHS, NUM_STEPS // num_batches)
        optimiser = torch.optim.Adam([self.bias.requires_grad_()], lr=LEARNING_RATE, betas=(0.9, 0.99), fused=True)
        penalty = 1 / (STRENGTH * len(rows))
        optimiser.add_param_group({"params": [self.weight.requires_grad_()], "weight_decay": penalty})
        rate = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, total_iters=num_epochs * num_batches)
        for _ in range(num_epochs):
            for places in np.array_split(random.permutation(len(rows)), num_batches):
                optimiser.zero_grad()
                F.cross_entropy(self._logits([rows[place] for place in places]), labels[places]).backward()
                optimiser.step()
                rate.step()
        self.weight.requires_grad_(False)
        self.bias.requires_grad_(False)

    def _row(self, text: Ids) -> Row:
        bag, counts = _bag(text)
        places = np.searchsorted(self.features, bag)
        weighted = self.features[places] == bag
        values = np.log1p(counts[weighted]) * self.idf[places[weighted]]
        return places[weighted], (values / max(float(np.linalg.norm(values)), 1e-12)).astype(np.float32)

    def _logits(self, rows: Sequence[Row]) -> Float[Tensor, "B K"]:
        """W x + b, where nearly all of x is zero: a weighted sum of a few rows of W."""
        places, values = (torch.from_numpy(np.concatenate(parts)) for parts in zip(*rows, strict=True))
        starts = torch.from_numpy(np.cumsum([0, *(len(places) for places, _ in rows[:-1])]))
        return F.embedding_bag(places, self.weight, starts, mode="sum", per_sample_weights=values) + self.bias


def _vocabulary(texts: Sequence[Ids], *, most: int) -> tuple[Int[np.ndarray, " V"], Float[np.ndarray, " V"]]:
    """The features that two texts share, and their idf. The last is none's: whatever is looked up has a place."""
    occurring = np.concatenate([np.empty(0, dtype=np.int64), *(_bag(text)[0] for text in texts)])
    features, num_texts = np.unique(occurring, return_counts=True)
    kept = np.sort(np.argsort(-num_texts, kind="stable")[:most])
    kept = kept[num_texts[kept] >= 2]
    idf = np.log((1 + len(texts)) / (1 + num_texts[kept])) + 1
    return np.append(features[kept], np.iinfo(np.int64).max), np.append(idf, 0.0)


def _bag(text: Ids) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """The tokens and bigrams of a text, one number each, sorted, and how often they occur."""
    tokens = np.asarray(text, dtype=np.int64)
    return np.unique(np.concatenate([tokens, (tokens[:-1] + 1) << 32 | tokens[1:]]), return_counts=True)
