"""A tagger's hidden Markov model from the labels that are known: counts, smoothed as Brants (2000, "TnT") smooths them.

Moves are interpolated, p(w | u, v) = λ₃ p̂(w | u, v) + λ₂ p̂(w | v) + λ₁ p̂(w). Words lean on their spelling: p(t | x) =
(c(x, t) + k p(t | parent of x)) / (c(x) + k), where a word's parent is the class of its ending, and a class's parent
the next coarser one. Bayes then gives b_t(x) = p(t | x) p(x) / p(t), a distribution over all words and classes.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from seqlab.equations.hmm import Moves
from seqlab.errors import DataError
from seqlab.models.emissions import Categorical, Emissions
from seqlab.models.hmm import HMM, first_pairs, label_chain
from seqlab.training.baum_welch import EMSteps, HMMData, Pseudo
from seqlab.training.checkpoint import Progress
from seqlab.training.hmm_em import Family, draw_hmm
from seqlab.training.run import Learner
from seqlab.training.weights import Weights

RARE = 10  # words with no more labels than this tell what unseen words are like
CLASS_WEIGHT = 5.0  # k of a class; that of a word is the recipe's


class Symbols(NamedTuple):
    """The words there are, the classes after them, and what each falls back on; in the end all do on the root."""

    parents: Int[Tensor, " V"]
    num_words: int
    root: int


class Counted(NamedTuple):
    """The model, and the smoothed counts that it is made of: EM starts from the one and leans on the other."""

    model: HMM
    pseudo: Pseudo


class CountingLearner(Learner):
    """A model whose weights were counted. Its only step takes no time: the counts are made before the run."""

    num_steps = 1
    extended_by = "restarts"

    def __init__(self, model: nn.Module, counted: Weights, *, by: str = "counting") -> None:
        self.model, self.counted, self.by = model, counted, by
        self.progress = Progress()

    def step(self) -> None:
        self.progress.step = 1

    def weights(self) -> Weights:
        return self.counted

    def facts(self) -> dict[str, Any]:
        return {"by": self.by}


def count_labels(
    parts: Sequence[HMMData],
    names: Sequence[str],
    emitted: Symbols | Family,
    *,
    order: int,
    smoothing: float,
) -> Counted:
    """The tagger that the known labels give; its states remember `order` of them. Symbols or Gaussians are emitted."""
    labels = torch.cat([part.known_labels.flatten() for part in parts])
    missing = (
        (torch.bincount(labels[labels >= 0], minlength=len(names)) == 0)
        .nonzero()
        .flatten()
        .tolist()
    )
    if missing:
        raise DataError(
            f"the label '{names[missing[0]]}' never occurs in what training reads",
            hint="data.max_source has cut it away: raise it, or drop the label.",
        )
    ngrams = _ngrams(parts, len(names), order)
    p = interpolate(ngrams)
    if isinstance(emitted, Symbols):
        table = _leaning(*_words(parts, len(names), len(emitted.parents)), emitted, smoothing)
        emissions: Emissions = Categorical(table / table.sum(-1, keepdim=True))
    else:
        emissions, table = _gaussians(parts, emitted), p.new_zeros(1, 1)
    model = label_chain(*_by_history(p), emissions)
    first, moves = _by_history(p * ngrams.sum(-1, keepdim=True))
    return Counted(model, Pseudo(first if order == 1 else first_pairs(first), moves, table))


def interpolate(ngrams: Float[Tensor, "*before K"]) -> Float[Tensor, "*before K"]:
    """p(w | u, v) from the counts of n-grams of all lengths.

    A length weighs as much as there are n-grams that it would have foretold best, had they been seen once less.
    """
    levels = [ngrams.sum(tuple(range(n))) if n else ngrams for n in range(ngrams.dim() - 1, -1, -1)]
    without = [
        ((level - 1) / (level.sum(-1, keepdim=True) - 1)).nan_to_num(0.0, 0.0, 0.0)
        for level in levels
    ]
    best = torch.stack([each.expand_as(ngrams) for each in reversed(without)]).argmax(
        0
    )  # of equals the longest
    wins = torch.stack(
        [ngrams[best == len(levels) - 1 - place].sum() + 1 for place in range(len(levels))]
    )
    share = (levels[0] + 1) / (levels[0] + 1).sum()  # no label is impossible
    p = wins[0] * share
    for won, level in zip(wins[1:], levels[1:], strict=True):
        total = level.sum(-1, keepdim=True)
        share = torch.where(
            total > 0, level / total.clamp(min=1), share
        )  # a history that never was: the shorter one
        p = p + won * share
    return p / wins.sum()


def _ngrams(parts: Sequence[HMMData], num_labels: int, order: int) -> Float[Tensor, "*before K"]:
    """How often each label followed each history, where all of both is known; 0 is the time before the first label."""
    shape = (*[num_labels + 1] * order, num_labels)
    counts = torch.zeros(shape, dtype=torch.float64).flatten()
    for part in parts:
        labels = part.known_labels
        places, there, code, unit = torch.arange(labels.shape[1]), labels >= 0, labels, num_labels
        for back in range(1, order + 1):
            before = pad(labels + 1, (back, 0))[:, : labels.shape[1]]
            there = there & ((before > 0) | (places < back))
            code = code + before * unit
            unit *= num_labels + 1
        counts += torch.bincount(code[there], minlength=len(counts))
    return counts.view(shape)


def _by_history(p: Float[Tensor, "*before K"]) -> tuple[Float[Tensor, " K"], Moves]:
    """First labels, and moves from each history that a state remembers."""
    return (p[0], p[1:]) if p.dim() == 2 else (p[0, 0], p[:, 1:])


def _words(
    parts: Sequence[HMMData], num_labels: int, num_symbols: int
) -> tuple[Float[Tensor, "V K"], Float[Tensor, " V"]]:
    """How often each symbol had each label, and how often it was there at all."""
    labelled, met = (
        torch.zeros(num_symbols * num_labels).double(),
        torch.zeros(num_symbols).double(),
    )
    for part in parts:
        labels, symbols = part.known_labels, part.observations.values
        there = labels >= 0
        labelled += torch.bincount(
            symbols[there] * num_labels + labels[there], minlength=len(labelled)
        )
        met += torch.bincount(symbols[part.observations.scored], minlength=num_symbols)
    return labelled.view(num_symbols, num_labels), met


def _leaning(
    labelled: Float[Tensor, "V K"], met: Float[Tensor, " V"], symbols: Symbols, smoothing: float
) -> Float[Tensor, "K V"]:
    """p(t | x) times how often x is expected: a word as often as it was met, a class as often as words met once."""
    parents, root = symbols.parents, symbols.root
    is_class = (torch.arange(len(parents)) >= symbols.num_words).index_fill_(
        0, torch.tensor([root]), True
    )
    telling = labelled * (is_class[:, None] | (labelled.sum(-1, keepdim=True) <= RARE))
    own, above, depth = torch.where(is_class[:, None], telling, labelled), parents, 1
    while (inner := above != root).any():
        own.index_add_(0, above[inner], telling[inner])
        above, depth = parents[above], depth + 1
    own[root] = telling.sum(0)
    k = torch.where(is_class, CLASS_WEIGHT, smoothing)[:, None]
    total = own.sum(-1, keepdim=True) + k
    overall = labelled.sum(0) / labelled.sum()
    p = overall.expand_as(own)
    for _ in range(
        depth + 1
    ):  # each round, what is right comes one step further down from the root
        leant_on = p[parents]
        leant_on[root] = overall
        p = torch.where(total > 0, (own + k * leant_on) / total.clamp(min=1e-300), leant_on)
    once = torch.zeros_like(met).index_add_(0, parents, ((met == 1) & ~is_class).double())
    return (p * (met + once).clamp(min=1.0)[:, None]).mT


def _gaussians(parts: Sequence[HMMData], family: Family) -> Emissions:
    """Mean and covariance of the vectors of each label."""
    observed = (replace(part.observations, observed=part.known_labels >= 0) for part in parts)
    labelled = [
        replace(part, observations=rows) for part, rows in zip(parts, observed, strict=True)
    ]
    model = draw_hmm(family, parts[0].observations.values.shape[-1], seed=0)
    em = EMSteps(labelled, model)
    return em.maximise(model, em.expect(model)[0]).emissions
