"""A bundle and data to scores, each beside its floor: what a model without any learning of sequences would get."""

import itertools
import math
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from seqlab.assemble.corpus import carries_state, stream_in_order
from seqlab.assemble.vocabularies import labels_of
from seqlab.bundle import Bundle
from seqlab.data.batching import plan_in_order
from seqlab.data.sources import Example
from seqlab.data.store import TokenStore
from seqlab.equations.similarity import perplexity
from seqlab.errors import SeqlabWarning
from seqlab.metrics.labels import accuracy, macro_f1
from seqlab.metrics.ngram import WittenBell
from seqlab.metrics.strings import corpus_scores, exact_match
from seqlab.models.interface import Model
from seqlab.padded import Batch, Padded
from seqlab.predict import predict, tag_words
from seqlab.recipe import Decode
from seqlab.text import UNK
from seqlab.training.objective import mean_loss

NGRAM = 5
NGRAM_TOKENS = 5_000_000  # a floor learns from no more than this, so that it stays quick on a large corpus
BUDGET = 8192
BUCKETS = (0, 10, 20, 30, 10**9)  # source tokens


@dataclass(frozen=True)
class Report:
    """Scores and floors of one evaluation; `floor_note` says why a floor is not there."""

    task: str
    num_examples: int
    scores: dict[str, Any]
    floors: dict[str, dict[str, float]]
    examples: tuple[dict[str, str], ...] = ()
    floor_note: str = ""
    by_length: dict[str, dict[str, int | float]] = field(default_factory=dict)  # source tokens -> scores

    def to_json(self) -> dict[str, Any]:
        # a score that is no number, such as the loss where no label is known, is null in JSON
        scores = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in self.scores.items()
        }
        table = {"examples": self.num_examples, **scores, "floors": self.floors}
        table |= {"by_length": self.by_length} if self.by_length else {}
        return {"task": self.task, **table, **({"floor_note": self.floor_note} if self.floor_note else {})}


def evaluate_examples(
    bundle: Bundle,
    examples: Sequence[Example],
    stores: Path | None,
    *,
    decode: Decode | None = None,
    lower: bool = False,
) -> Report:
    """Scores on examples with known answers; `stores` is the folder with the training part's ids, if it is at hand.

    `decode` is how a translation is searched for, and `lower` scores it without regard to case.
    """
    if bundle.recipe.task == "translate":
        return _translate(bundle, list(examples), decode=decode, lower=lower)
    evaluation = {"classify": _classify, "tag": _tag, "lm": _lines}[bundle.recipe.task]
    return evaluation(bundle, list(examples), stores)


def evaluate_stream(bundle: Bundle, tokens: np.ndarray, stores: Path | None) -> Report:
    """Loss of a language model on one text, beside that of n-grams learnt from the same training text."""
    batches = stream_in_order(bundle.recipe, tokens)
    scores = mean_loss(cast(Model, bundle.model), batches, carries=carries_state(bundle.recipe))
    scores["bits_per_token"] = scores["loss"] / math.log(2)
    train = None if stores is None else _open(stores / "train_stream")
    floors, note = _ngram_floors(train, [tokens], bundle)
    return Report("lm", len(tokens) - 1, scores, floors, floor_note=note)


def _lines(bundle: Bundle, examples: list[Example], stores: Path | None) -> Report:
    scores = _loss(bundle, examples)
    scores["bits_per_token"] = scores["loss"] / math.log(2)
    train = None if stores is None else _open(stores / "train_target")
    held_out = [np.asarray(target) for _, target in bundle.vocabularies.encode(examples)]
    floors, note = _ngram_floors(train, held_out, bundle)
    return Report("lm", len(examples), scores, floors, floor_note=note)


def _ngram_floors(
    train: TokenStore | None, held_out: Sequence[np.ndarray], bundle: Bundle
) -> tuple[dict[str, dict[str, float]], str]:
    if train is None:
        return {}, "the n-gram floor needs the training part, which is not beside this model"
    floors = {}
    for order in (1, NGRAM):
        ngram = WittenBell(order, len(bundle.vocabularies.targets)).fit(np.asarray(train.flat[:NGRAM_TOKENS]))
        # the first token of each sequence is given, to the model and so to its floor
        losses = np.concatenate([-ngram.log_probabilities(tokens)[1:] for tokens in held_out])
        mean = float(losses.mean())
        floors[f"{order}-gram"] = {"loss": mean, "perplexity": perplexity(mean)}
    return floors, ""


def _classify(bundle: Bundle, examples: list[Example], stores: Path | None) -> Report:
    gold = [str(example.target) for example in examples]
    _warn_unseen(bundle, examples)
    predicted = [p.output for p in predict(bundle, [str(e.source) for e in examples])]
    scores = {"accuracy": accuracy(predicted, gold), "macro_f1": macro_f1(predicted, gold)} | _loss(bundle, examples)
    majority = [bundle.vocabularies.classes.majority] * len(gold)
    floors = {"majority class": {"accuracy": accuracy(majority, gold), "macro_f1": macro_f1(majority, gold)}}
    return Report("classify", len(examples), scores, floors, _mistakes(examples, predicted, gold))


def _tag(bundle: Bundle, examples: list[Example], stores: Path | None) -> Report:
    _warn_unseen(bundle, examples)
    sentences = [tuple(e.source) for e in examples]
    predicted = tag_words(bundle, sentences)
    flat = [label for labels in predicted for label in labels]
    gold = [label for e in examples for label in e.target]
    ids = [i for sentence in bundle.vocabularies.encode_sources(list(sentences)) for i in sentence]
    unseen = [place for place, i in enumerate(ids) if i == UNK]
    scores = {"accuracy": accuracy(flat, gold), "macro_f1": macro_f1(flat, gold)}
    if unseen:
        scores["accuracy_on_unseen_words"] = accuracy([flat[i] for i in unseen], [gold[i] for i in unseen])
    sentences_right = [p == list(e.target) for p, e in zip(predicted, examples, strict=True)]
    scores["whole_sentences"] = sum(sentences_right) / len(examples)
    floors, note = _most_frequent_tag(bundle, ids, gold, stores)
    outputs = [" ".join(labels) for labels in predicted]
    mistakes = _mistakes(examples, outputs, [" ".join(e.target) for e in examples])
    return Report("tag", len(examples), scores | _loss(bundle, examples), floors, mistakes, note)


def _most_frequent_tag(
    bundle: Bundle, ids: list[int], gold: list[str], stores: Path | None
) -> tuple[dict[str, dict[str, float]], str]:
    """The floor of every tagger: each word's most frequent label in training, and over all words for a new one."""
    labels = bundle.vocabularies.classes
    words = None if stores is None else _open(stores / "train_source")
    tags = None if stores is None else _open(stores / "train_target")
    if words is None or tags is None:
        floor = accuracy([labels.majority] * len(gold), gold)
        return {"majority tag": {"accuracy": floor}}, "the most frequent tag of each word needs the training part"
    counts = np.zeros((len(bundle.vocabularies.sources), len(labels)), dtype=np.int64)
    np.add.at(counts, (np.asarray(words.flat), np.asarray(tags.flat)), 1)
    counts[counts.sum(1) == 0] = counts.sum(0)
    best = counts.argmax(1)
    return {"most frequent tag": {"accuracy": accuracy([labels.names[best[i]] for i in ids], gold)}}, ""


def _translate(bundle: Bundle, examples: list[Example], *, decode: Decode | None, lower: bool) -> Report:
    normalise = bundle.vocabularies.targets.normaliser
    sources, gold = [str(e.source) for e in examples], [normalise(str(e.target)) for e in examples]
    predicted = [p.output for p in predict(bundle, sources, decode=decode)]
    scores: dict[str, Any] = {"exact": exact_match(predicted, gold), **corpus_scores(predicted, gold, lower=lower)}
    copied = corpus_scores(sources, gold, lower=lower)
    floor = {"exact": exact_match(sources, gold), "bleu": float(copied["bleu"]), "chrf": float(copied["chrf"])}
    scores |= _loss(bundle, examples)
    by_length = _by_length(bundle, sources, predicted, gold, lower=lower)
    return Report(
        "translate",
        len(examples),
        scores,
        {"copy of the source": floor},
        _mistakes(examples, predicted, gold),
        by_length=by_length,
    )


def _by_length(
    bundle: Bundle, sources: list[str], predicted: list[str], gold: list[str], *, lower: bool
) -> dict[str, dict[str, int | float]]:
    """The same scores for short and long sources: without attention they fall (C6)."""
    lengths = np.asarray([len(ids) for ids in bundle.vocabularies.sources.encode_all(sources)])
    table = {}
    for low, high in itertools.pairwise(BUCKETS):
        rows = np.flatnonzero((lengths > low) & (lengths <= high)).tolist()
        if rows:
            ours, theirs = [predicted[i] for i in rows], [gold[i] for i in rows]
            bleu = float(corpus_scores(ours, theirs, lower=lower)["bleu"])
            name = f"{low + 1}-{high}" if high < BUCKETS[-1] else f"over {low}"
            table[name] = {"examples": len(rows), "exact": exact_match(ours, theirs), "bleu": bleu}
    return table


def _loss(bundle: Bundle, examples: list[Example]) -> dict[str, float]:
    """Cross-entropy and perplexity of the gold answers."""
    return mean_loss(cast(Model, bundle.model), _example_batches(bundle, examples), carries=False)


def _example_batches(bundle: Bundle, examples: list[Example]) -> Iterator[Batch]:
    data = bundle.recipe.data
    rows = [(source[: data.max_source], target) for source, target in bundle.vocabularies.encode(examples)]
    if bundle.recipe.task == "tag":
        rows = [(source, target[: data.max_source]) for source, target in rows]
    lengths = np.asarray([[len(source), len(target)] for source, target in rows], dtype=np.int64)
    for places in plan_in_order(lengths, budget=BUDGET):
        sources, targets = ([rows[i][side] for i in places] for side in (0, 1))
        source = None if bundle.vocabularies.source is None else Padded.from_rows(sources)
        yield Batch(rows=torch.from_numpy(places), source=source, target=Padded.from_rows(targets))


def _warn_unseen(bundle: Bundle, examples: list[Example]) -> None:
    known = set(bundle.vocabularies.classes.names)
    unseen = Counter(label for e in examples for label in labels_of(e) if label not in known)
    if unseen:
        first = next(e.where for e in examples if set(labels_of(e)) & set(unseen))
        names = ", ".join(f"'{name}' ({count})" for name, count in unseen.most_common(5))
        warnings.warn(f"{first}: labels never seen in training count as wrong: {names}", SeqlabWarning, stacklevel=2)


def _mistakes(
    examples: list[Example], predicted: list[str], gold: list[str], most: int = 10
) -> tuple[dict[str, str], ...]:
    wrong = (
        {"input": e.source if isinstance(e.source, str) else " ".join(e.source), "output": p, "expected": g}
        for e, p, g in zip(examples, predicted, gold, strict=True)
        if p != g
    )
    return tuple(islice(wrong, most))


def _open(path: Path) -> TokenStore | None:
    return TokenStore.open(path) if path.exists() else None
