"""Baselines that are fitted during an evaluation: n-gram models, and a linear classifier of texts."""

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
from seqlab.tasks.linear_fitting import fit_and_predict
from seqlab.tasks.task import Baselines
from seqlab.text import Tokenizer

NGRAM = 5
# the maximum amounts of training data, so that baselines are fast on large corpora
LINEAR_TEXTS = 20_000
NGRAM_TOKENS = 5_000_000


def ngram_baselines(
    train: Integer[np.ndarray, " N"] | None, held_out: Sequence[np.ndarray], tokenizer: Tokenizer
) -> tuple[Baselines, str]:
    """Return the losses of n-gram models, or a note why there are none."""
    if train is None:
        return {}, "the n-gram baseline needs the training part, which is not beside this model"
    baselines = {}
    for order in (1, NGRAM):
        ngram = WittenBell(order, len(tokenizer)).fit(np.asarray(train))
        # the first token of each sequence is not predicted, neither by the model nor by its baseline
        losses = np.concatenate([-ngram.log_probabilities(tokens)[1:] for tokens in held_out])
        mean = float(losses.mean())
        baselines[f"{order}-gram"] = {"loss": mean, "perplexity": perplexity(mean)}
    return baselines, ""


def linear_labels(
    bundle: Bundle, examples: list[Example], texts: TokenStore | None, labels: TokenStore | None
) -> tuple[list[str], str]:
    """Return the predictions of a linear classifier over n-grams of the texts, or a note why there are none."""
    if texts is None or labels is None:
        return [], "the linear baseline needs the training part, which is not beside this model"
    names, tokenizer = labels_in(bundle.codec).names, bundle.codec.source_tokenizer
    gold = torch.from_numpy(np.asarray(labels.flat, dtype=np.int64))
    labelled = torch.nonzero(gold >= 0)[:, 0]
    labelled = labelled[:: max(1, len(labelled) // LINEAR_TEXTS)]
    rows = (texts[row] for row in labelled.tolist())
    # a row of words with characters has the word's id in its first column
    ids = (row if row.ndim == 1 else row[:, 0] for row in rows)
    train_texts = [tokenizer.decode(row.tolist()) for row in ids]
    inputs = [str(example.source) for example in examples]
    with torch.device("cpu"):
        predicted = fit_and_predict(train_texts, gold[labelled], len(names), inputs)
    return [names[label] for label in predicted], ""
