"""The baselines that a score is printed beside: n-grams, and a linear model over words."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Integer

from seqlab.bundle import Bundle
from seqlab.codecs.labels import labels_in
from seqlab.data.example import Example
from seqlab.data.store import TokenStore
from seqlab.equations.decoding import perplexity
from seqlab.metrics.ngram import WittenBell
from seqlab.tasks.linear_fitting import fit_linear
from seqlab.tasks.task import Baselines
from seqlab.text import Tokenizer

NGRAM = 5
LINEAR_TEXTS = 20_000
NGRAM_TOKENS = (
    5_000_000  # a baseline learns from no more than this, so that it stays quick on a large corpus
)


def ngram_baselines(
    train: Integer[np.ndarray, " N"] | None, held_out: Sequence[np.ndarray], tokenizer: Tokenizer
) -> tuple[Baselines, str]:
    """The losses of n-grams, or why there are none."""
    if train is None:
        return {}, "the n-gram baseline needs the training part, which is not beside this model"
    baselines = {}
    for order in (1, NGRAM):
        ngram = WittenBell(order, len(tokenizer)).fit(np.asarray(train))
        # the first token of each sequence is given, to the model and so to its baseline
        losses = np.concatenate([-ngram.log_probabilities(tokens)[1:] for tokens in held_out])
        mean = float(losses.mean())
        baselines[f"{order}-gram"] = {"loss": mean, "perplexity": perplexity(mean)}
    return baselines, ""


def linear_labels(
    bundle: Bundle, examples: list[Example], texts: TokenStore | None, labels: TokenStore | None
) -> tuple[list[str], str]:
    """What the linear classifier over n-grams answers, or why it cannot; it reads the texts, not the model's tokens."""
    if texts is None or labels is None:
        return [], "the linear baseline needs the training part, which is not beside this model"
    names, tokenizer = labels_in(bundle.codec).names, bundle.codec.source_tokenizer
    gold = torch.from_numpy(np.asarray(labels.flat, dtype=np.int64))
    labelled = torch.nonzero(gold >= 0)[:, 0]
    labelled = labelled[:: max(1, len(labelled) // LINEAR_TEXTS)]
    rows = (texts[row] for row in labelled.tolist())
    ids = (row if row.ndim == 1 else row[:, 0] for row in rows)  # spelled words: without letters
    learnt = [tokenizer.decode(row.tolist()) for row in ids]
    with torch.device("cpu"):
        answers = fit_linear(learnt, gold[labelled], len(names), [str(e.source) for e in examples])
    return [names[i] for i in answers], ""
