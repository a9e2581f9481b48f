"""The hidden Markov model of a tagger from counts of known labels, smoothed as by Brants (2000, "TnT").

Transitions are interpolated: p(w | u, v) = λ₃ p̂(w | u, v) + λ₂ p̂(w | v) + λ₁ p̂(w). The labels of a word are smoothed
by its spelling: p(t | x) = (c(x, t) + k p(t | parent of x)) / (c(x) + k), where the parent of a word is the class of
its ending, and that of a class the next coarser one. Bayes gives b_t(x) = p(t | x) p(x) / p(t), a distribution over
words and classes.
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
from seqlab.training.baum_welch import EMSteps, HMMData, PseudoCounts
from seqlab.training.checkpoint import Progress
from seqlab.training.hmm_em import HMMShape, draw_hmm
from seqlab.training.run import Learner
from seqlab.training.weights import Weights

RARE = 10  # words with at most so many labels are counted for unseen words too
CLASS_WEIGHT = 5.0  # k of a class; that of a word is in the recipe


class Symbols(NamedTuple):
    """Ids of the words, then of the classes, with the parent of each; the root is the last parent of all."""

    parents: Int[Tensor, " V"]
    num_words: int
    root: int


class CountedModel(NamedTuple):
    """A model and its smoothed counts; EM starts from the model and uses the counts as pseudo-counts."""

    model: HMM
    pseudo: PseudoCounts


class CountingLearner(Learner):
    """A model whose weights were counted before the run; its only step sets them."""

    num_steps = 1
    extended_by = "restarts"

    def __init__(self, model: nn.Module, counted: Weights, *, by: str = "counting") -> None:
        self.model = model
        self.counted = counted
        self.by = by
        self.progress = Progress()

    def step(self) -> None:
        self.progress.step = 1

    def weights(self) -> Weights:
        return self.counted

    def fit_facts(self) -> dict[str, Any]:
        return {"by": self.by}


def count_labels(
    parts: Sequence[HMMData],
    names: Sequence[str],
    emitted: Symbols | HMMShape,
    *,
    order: int,
    smoothing: float,
) -> CountedModel:
    """Return the tagger given by the known labels; a state is the last `order` labels, and emits symbols or vectors."""
    labels = torch.cat([part.known_labels.flatten() for part in parts])
    counts = torch.bincount(labels[labels >= 0], minlength=len(names))
    if not counts.all():
        missing = names[int((counts == 0).nonzero()[0])]
        raise DataError(
            f"the label '{missing}' does not occur in the training part",
            hint="data.max_source has cut it off: raise it, or remove the label from the file.",
        )
    ngrams = _count_ngrams(parts, len(names), order)
    p = interpolate(ngrams)
    if isinstance(emitted, Symbols):
        table = _smooth_words(
            *_count_words(parts, len(names), len(emitted.parents)), emitted, smoothing
        )
        emissions: Emissions = Categorical(table / table.sum(-1, keepdim=True))
    else:
        emissions, table = _fit_gaussians(parts, emitted), p.new_zeros(1, 1)
    model = label_chain(*_by_history(p), emissions)
    first, moves = _by_history(p * ngrams.sum(-1, keepdim=True))
    return CountedModel(
        model, PseudoCounts(first if order == 1 else first_pairs(first), moves, table)
    )


def interpolate(ngrams: Float[Tensor, "*before K"]) -> Float[Tensor, "*before K"]:
    """Return p(w | u, v), interpolated from the n-grams of all lengths (deleted interpolation).

    The weight of a length is the number of n-grams that it predicts best after one of their occurrences is removed.
    """
    levels = [ngrams.sum(tuple(range(n))) if n else ngrams for n in range(ngrams.dim() - 1, -1, -1)]
    without = [
        ((level - 1) / (level.sum(-1, keepdim=True) - 1)).nan_to_num(0.0, 0.0, 0.0)
        for level in levels
    ]
    # argmax takes the first of equals, which is the longest
    best = torch.stack([each.expand_as(ngrams) for each in reversed(without)]).argmax(0)
    wins = torch.stack(
        [ngrams[best == len(levels) - 1 - place].sum() + 1 for place in range(len(levels))]
    )
    share = (levels[0] + 1) / (levels[0] + 1).sum()  # every label stays possible
    p = wins[0] * share
    for won, level in zip(wins[1:], levels[1:], strict=True):
        total = level.sum(-1, keepdim=True)
        # a history that never occurs takes the shares of the shorter one
        share = torch.where(total > 0, level / total.clamp(min=1), share)
        p = p + won * share
    return p / wins.sum()


def _count_ngrams(
    parts: Sequence[HMMData], num_labels: int, order: int
) -> Float[Tensor, "*before K"]:
    """Count each label after each history of known labels; 0 in a history is the time before the first label."""
    shape = (*[num_labels + 1] * order, num_labels)
    counts = torch.zeros(shape, dtype=torch.float64).flatten()
    for part in parts:
        labels = part.known_labels
        positions = torch.arange(labels.shape[1])
        known = labels >= 0
        code = labels
        unit = num_labels
        for back in range(1, order + 1):
            before = pad(labels + 1, (back, 0))[:, : labels.shape[1]]
            known = known & ((before > 0) | (positions < back))
            code = code + before * unit
            unit *= num_labels + 1
        counts += torch.bincount(code[known], minlength=len(counts))
    return counts.view(shape)


def _by_history(p: Float[Tensor, "*before K"]) -> tuple[Float[Tensor, " K"], Moves]:
    """Return the first labels, and the transitions from each history that is a state."""
    return (p[0], p[1:]) if p.dim() == 2 else (p[0, 0], p[:, 1:])


def _count_words(
    parts: Sequence[HMMData], num_labels: int, num_symbols: int
) -> tuple[Float[Tensor, "V K"], Float[Tensor, " V"]]:
    """Count each symbol with each label, and each symbol in all."""
    labelled = torch.zeros(num_symbols * num_labels).double()
    met = torch.zeros(num_symbols).double()
    for part in parts:
        labels, symbols = part.known_labels, part.observations.values
        known = labels >= 0
        labelled += torch.bincount(
            symbols[known] * num_labels + labels[known], minlength=len(labelled)
        )
        met += torch.bincount(symbols[part.observations.scored], minlength=num_symbols)
    return labelled.view(num_symbols, num_labels), met


def _smooth_words(
    labelled: Float[Tensor, "V K"], met: Float[Tensor, " V"], symbols: Symbols, smoothing: float
) -> Float[Tensor, "K V"]:
    """Return p(t | x) times the expected count of x: its count if a word, the number of words met once if a class."""
    parents, root = symbols.parents, symbols.root
    is_class = (torch.arange(len(parents)) >= symbols.num_words).index_fill_(
        0, torch.tensor([root]), True
    )
    rare = labelled * (is_class[:, None] | (labelled.sum(-1, keepdim=True) <= RARE))
    own = torch.where(is_class[:, None], rare, labelled)
    ancestors = parents
    depth = 1
    while (below_root := ancestors != root).any():
        own.index_add_(0, ancestors[below_root], rare[below_root])
        ancestors = parents[ancestors]
        depth += 1
    own[root] = rare.sum(0)
    k = torch.where(is_class, CLASS_WEIGHT, smoothing)[:, None]
    total = own.sum(-1, keepdim=True) + k
    overall = labelled.sum(0) / labelled.sum()
    p = overall.expand_as(own)
    for _ in range(depth + 1):  # each round corrects one more level below the root
        of_parent = p[parents]
        of_parent[root] = overall
        p = torch.where(total > 0, (own + k * of_parent) / total.clamp(min=1e-300), of_parent)
    once = torch.zeros_like(met).index_add_(0, parents, ((met == 1) & ~is_class).double())
    return (p * (met + once).clamp(min=1.0)[:, None]).mT


def _fit_gaussians(parts: Sequence[HMMData], family: HMMShape) -> Emissions:
    """Fit mean and covariance of the vectors of each label."""
    observed = (replace(part.observations, observed=part.known_labels >= 0) for part in parts)
    labelled = [
        replace(part, observations=rows) for part, rows in zip(parts, observed, strict=True)
    ]
    model = draw_hmm(family, parts[0].observations.values.shape[-1], seed=0)
    em = EMSteps(labelled, model)
    return em.maximise(model, em.expect(model)[0]).emissions
