"""A bundle and data to scores, each beside its floor: what a model without any learning of sequences would get."""

import itertools
import math
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch
from jaxtyping import Int, Integer

from seqlab.assemble.corpus import carries_state, stream_in_order
from seqlab.assemble.vocabularies import labels_of, padded
from seqlab.bundle import Bundle
from seqlab.captions import Captioned, evaluate_captions, is_one_of
from seqlab.data.batching import plan_in_order
from seqlab.data.sources import Example
from seqlab.data.store import TokenStore
from seqlab.data.windows import Windows
from seqlab.device import tensor_of
from seqlab.equations.attention import hop_overlap
from seqlab.equations.similarity import perplexity
from seqlab.errors import DataError, SeqlabWarning
from seqlab.layers.tap import listening
from seqlab.metrics.labels import accuracy, macro_f1
from seqlab.metrics.linear import LinearFloor
from seqlab.metrics.ngram import WittenBell
from seqlab.metrics.spans import looks_like_spans, span_scores
from seqlab.metrics.strings import corpus_scores, exact_match
from seqlab.models.interface import Model
from seqlab.models.masked import MaskedLanguageModel
from seqlab.padded import Batch
from seqlab.predict import predict, room
from seqlab.reading import Source, classify, measure, shown, tag
from seqlab.recipe import Decode
from seqlab.rolling import held_out_windows, roll
from seqlab.text import EOS, SOS, SPECIALS, UNK, WordTokenizer
from seqlab.training.objective import mean_loss
from seqlab.training.world import ALONE, World

T = TypeVar("T")
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
    by_step: dict[str, list[float | None]] = field(default_factory=dict)  # scores of a forecast at each step ahead
    captioned: tuple[Captioned, ...] = ()  # every picture with its caption and its references

    def to_json(self) -> dict[str, Any]:
        # a score that is no number, such as the loss where no label is known, is null in JSON
        scores = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in self.scores.items()
        }
        table = {"examples": self.num_examples, **scores, "floors": self.floors}
        table |= {"by_length": self.by_length} if self.by_length else {}
        table |= {"by_step": self.by_step} if self.by_step else {}
        return {"task": self.task, **table, **({"floor_note": self.floor_note} if self.floor_note else {})}


def evaluate_examples(
    bundle: Bundle,
    examples: Sequence[Example],
    stores: Path | None,
    *,
    decode: Decode | None = None,
    lower: bool = False,
    world: World = ALONE,
) -> Report:
    """Scores on examples with known answers; `stores` is the folder with the training part's ids, if it is at hand.

    `decode` is how a translation or caption is searched for, and `lower` scores it without regard to case. Of many
    processes, each answers its share, and all of them report the same.
    """
    if bundle.recipe.task == "caption":
        return _caption(bundle, list(examples), stores, decode=decode, lower=lower, world=world)
    if bundle.recipe.task == "translate":
        return _translate(bundle, list(examples), decode=decode, lower=lower, world=world)
    evaluations = {"classify": _classify, "tag": _tag, "lm": _lines, "bilm": _lines, "mask": _masked}
    return evaluations[bundle.recipe.task](bundle, list(examples), stores, world)


def evaluate_stream(bundle: Bundle, tokens: np.ndarray, stores: Path | None, *, world: World = ALONE) -> Report:
    """Loss of a language model on one text, beside that of n-grams learnt from the same training text."""
    batches = stream_in_order(bundle.recipe, tokens)
    scores = mean_loss(cast(Model, bundle.model), batches, carries=carries_state(bundle.recipe), world=world)
    scores["bits_per_token"] = scores["loss"] / math.log(2)
    train = None if stores is None else _open(stores / "train_stream")
    floors, note = _ngram_floors(None if train is None else np.asarray(train.flat[:NGRAM_TOKENS]), [tokens], bundle)
    return Report("lm", len(tokens) - 1, scores, floors, floor_note=note)


def evaluate_windows(
    bundle: Bundle, windows: Windows, stores: Path | None, *, most: int | None = None, world: World = ALONE
) -> Report:
    """Scores of a forecast from every moment, or from `most` of them that lie evenly, beside floors that need none."""
    train = None if stores is None else held_out_windows(bundle, stores, "train")
    tallies = roll(bundle, windows, train, most=most, world=world)
    model = tallies.pop("")
    floors = {name: tally.scores() for name, tally in tallies.items()}
    moments = windows.num_origins if most is None else min(most, windows.num_origins)
    note = "" if train is not None else "the linear floor needs the training part, which is not beside this model"
    return Report("forecast", moments, model.scores(), floors, floor_note=note, by_step=model.by_step())


def _lines(bundle: Bundle, examples: list[Example], stores: Path | None, world: World) -> Report:
    """A language model of lines, in one direction or in both; its floor reads in one."""
    scores = _loss(bundle, examples, world)
    scores["bits_per_token"] = scores["loss"] / math.log(2)
    both = bundle.recipe.task == "bilm"
    train = None if stores is None else _open(stores / ("train_source" if both else "train_target"))
    encoded = bundle.vocabularies.encode(examples)
    held_out = [np.asarray([SOS, *source, EOS] if both else target) for source, target in encoded]
    if train is None:
        floors, note = _ngram_floors(None, held_out, bundle)
    else:
        floors, note = _ngram_floors(_between_ends(train) if both else train.flat[:NGRAM_TOKENS], held_out, bundle)
    return Report(bundle.recipe.task, len(examples), scores, floors, floor_note=note)


def _between_ends(store: TokenStore) -> Int[np.ndarray, " N"]:
    """The rows of a store end to end, each between SOS and EOS, as the model reads them."""
    rows = itertools.takewhile(lambda row: store.offsets[row] < NGRAM_TOKENS, range(len(store)))
    return np.concatenate([part for row in rows for part in ([SOS], store[row], [EOS])])


def _masked(bundle: Bundle, examples: list[Example], stores: Path | None, world: World) -> Report:
    """How well hidden tokens are guessed, beside guessing by frequency; the same ones are hidden each time."""
    scores = _loss(bundle, examples, world)
    scores["bits_per_token"] = scores["loss"] / math.log(2)
    train = None if stores is None else _open(stores / "train_source")
    if train is None:
        return Report("mask", len(examples), scores, {}, floor_note="the unigram floor needs the training part")
    tokens = np.asarray(train.flat[:NGRAM_TOKENS])
    model = cast(MaskedLanguageModel, bundle.model)
    golds = (model.hide(b.source, b.rows)[1] for b in example_batches(bundle, examples) if b.source is not None)
    hidden = np.concatenate([gold.values[gold.scored].numpy(force=True) for gold in golds])
    if not len(hidden):
        return Report("mask", len(examples), scores, {}, floor_note="in so short a text no token was hidden to guess")
    unigram = WittenBell(1, len(bundle.vocabularies.sources)).fit(tokens)
    mean = float(-unigram.log_probabilities(hidden).mean())
    floor = {"loss": mean, "perplexity": perplexity(mean), "bits_per_token": mean / math.log(2)}
    floor["token_accuracy"] = float((hidden == np.bincount(tokens[tokens >= len(SPECIALS)]).argmax()).mean())
    return Report("mask", len(examples), scores, {"by frequency": floor})


def _ngram_floors(
    train: Integer[np.ndarray, " N"] | None, held_out: Sequence[np.ndarray], bundle: Bundle
) -> tuple[dict[str, dict[str, float]], str]:
    if train is None:
        return {}, "the n-gram floor needs the training part, which is not beside this model"
    floors = {}
    for order in (1, NGRAM):
        tokenizer = bundle.vocabularies.target or bundle.vocabularies.sources
        ngram = WittenBell(order, len(tokenizer)).fit(np.asarray(train))
        # the first token of each sequence is given, to the model and so to its floor
        losses = np.concatenate([-ngram.log_probabilities(tokens)[1:] for tokens in held_out])
        mean = float(losses.mean())
        floors[f"{order}-gram"] = {"loss": mean, "perplexity": perplexity(mean)}
    return floors, ""


def _classify(bundle: Bundle, examples: list[Example], stores: Path | None, world: World) -> Report:
    gold = [str(example.target) for example in examples]
    _warn_unseen(bundle, examples)

    def answer(share: Sequence[Source], begin: int) -> list[str]:
        return [p.output for p in classify(bundle, share, first_row=begin)]

    predicted = world.shared([e.source for e in examples], answer)
    scores = {"accuracy": accuracy(predicted, gold), "macro_f1": macro_f1(predicted, gold)}
    scores |= _loss(bundle, examples, world)
    if bundle.recipe.model.pooling == "hops" and bundle.recipe.model.hops > 1:
        scores["hop_overlap"] = _hop_overlap(bundle, examples)
    majority = [bundle.vocabularies.classes.majority] * len(gold)
    floors = {"majority class": {"accuracy": accuracy(majority, gold), "macro_f1": macro_f1(majority, gold)}}
    if bundle.vocabularies.features is not None:
        return Report("classify", len(examples), scores, floors, _mistakes(examples, predicted, gold))
    linear, note = _linear_floor(bundle, examples, stores)
    if linear:
        floors["TF-IDF, linear"] = {"accuracy": accuracy(linear, gold), "macro_f1": macro_f1(linear, gold)}
    return Report("classify", len(examples), scores, floors, _mistakes(examples, predicted, gold), note)


@torch.inference_mode()
def _hop_overlap(bundle: Bundle, examples: list[Example]) -> float:
    """How much of the hops' weight lies on the same places: 1 where all look alike, 0 where each has its own."""
    heard: list[torch.Tensor] = []

    def hear(name: str, value: torch.Tensor) -> torch.Tensor:
        if name == "pooling.weights":
            heard.append(hop_overlap(value))
        return value

    with listening(hear):
        for batch in example_batches(bundle, examples):
            cast(Any, bundle.model).features(batch.source)
    return float(torch.cat(heard).mean())


def _linear_floor(bundle: Bundle, examples: list[Example], stores: Path | None) -> tuple[list[str], str]:
    """What a linear classifier on weighted words and pairs of words says, learnt from the same training part."""
    texts = None if stores is None else _open(stores / "train_source")
    labels = None if stores is None else _open(stores / "train_target")
    if texts is None or labels is None:
        return [], "the linear floor needs the training part, which is not beside this model"
    names = bundle.vocabularies.classes.names
    most = bundle.recipe.data.max_source
    rows = [
        np.asarray(row[:most], dtype=np.int64)
        for row in bundle.vocabularies.encode_sources([e.source for e in examples])
    ]
    with torch.device("cpu"):
        floor = LinearFloor.fit(texts, np.asarray(labels.flat, dtype=np.int64), num_classes=len(names))
        return [names[i] for i in floor.predict(rows)], ""


def _measure(bundle: Bundle, examples: list[Example], world: World) -> Report:
    """How far measured numbers are off; of angles, the shorter way round. The floor says the same everywhere."""
    numbers = bundle.vocabularies.numbers
    assert numbers is not None

    def answer(share: Sequence[Any], begin: int) -> list[list[list[float]]]:
        return [rows.tolist() for rows in measure(bundle, share, first_row=begin)]

    said = np.concatenate([np.asarray(rows, np.float32) for rows in world.shared([e.source for e in examples], answer)])
    gold = np.concatenate([numbers.encode(example) for example in examples])

    def scores(guess: np.ndarray) -> dict[str, float]:
        apart = guess - gold
        apart = (apart + 180) % 360 - 180 if numbers.angles else apart
        return {"mae": float(np.nanmean(np.abs(apart))), "rmse": float(np.sqrt(np.nanmean(apart**2)))}

    floor = scores(np.broadcast_to(np.asarray(numbers.mean, dtype=np.float32), gold.shape))
    return Report("tag", len(examples), scores(said) | _loss(bundle, examples, world), {"mean of training": floor})


def _tag(bundle: Bundle, examples: list[Example], stores: Path | None, world: World) -> Report:
    """What is not known is not scored: there the answer counts as given, and for spans as outside of all."""
    if bundle.vocabularies.numbers is not None:
        return _measure(bundle, examples, world)
    _warn_unseen(bundle, examples)
    no_label = bundle.recipe.data.no_label

    def answer(share: Sequence[Any], begin: int) -> list[list[str]]:
        return tag(bundle, share, first_row=begin)

    answers = world.shared([e.source for e in examples], answer)
    predicted = [
        [g if g == no_label else p for p, g in zip(labels, e.target, strict=True)]
        for labels, e in zip(answers, examples, strict=True)
    ]
    known = [place for place, label in enumerate(itertools.chain(*(e.target for e in examples))) if label != no_label]
    flat, gold = (_at(known, list(itertools.chain(*rows))) for rows in (predicted, [e.target for e in examples]))
    scores = {"accuracy": accuracy(flat, gold), "macro_f1": macro_f1(flat, gold)}
    if looks_like_spans(bundle.vocabularies.classes.names):
        scores |= span_scores(predicted, [list(e.target) for e in examples])
    ids = _word_ids(bundle, examples)
    ids = _at(known, ids) if ids else ids
    unseen = [place for place, i in enumerate(ids) if i == UNK or i >= _num_words(bundle)]
    if unseen:
        scores["accuracy_on_unseen_words"] = accuracy(_at(unseen, flat), _at(unseen, gold))
    sentences_right = [
        p == list(e.target) for p, e in zip(predicted, examples, strict=True) if set(e.target) - {no_label}
    ]
    scores["whole_sentences"] = sum(sentences_right) / max(1, len(sentences_right))
    floors, note = _most_frequent_tag(bundle, ids, gold, stores)
    outputs = [" ".join(labels) for labels in predicted]
    mistakes = _mistakes(examples, outputs, [" ".join(e.target) for e in examples])
    return Report("tag", len(examples), scores | _loss(bundle, examples, world), floors, mistakes, note)


def _at(places: list[int], values: list[T]) -> list[T]:
    return [values[place] for place in places]


def _num_words(bundle: Bundle) -> int:
    """Ids from here on are classes of words that training did not see."""
    tokenizer = bundle.vocabularies.sources
    return tokenizer.num_words if isinstance(tokenizer, WordTokenizer) else len(tokenizer)


def _word_ids(bundle: Bundle, examples: list[Example]) -> list[int]:
    """The id of each word, or of the first piece of each; measured frames have none."""
    vocabularies = bundle.vocabularies
    if vocabularies.features is not None:
        return []
    sentences = [cast(tuple[str, ...], e.source) for e in examples]
    rows = zip(sentences, vocabularies.encode_sources(sentences), strict=True)
    return [int(np.ravel(row[start])[0]) for words, row in rows for start in vocabularies.word_starts(words)]


def _most_frequent_tag(
    bundle: Bundle, ids: list[int], gold: list[str], stores: Path | None
) -> tuple[dict[str, dict[str, float]], str]:
    """The floor of every tagger: each word's most frequent label in training, and over all words for a new one."""
    labels = bundle.vocabularies.classes
    words = None if stores is None else _open(stores / "train_source")
    tags = None if stores is None else _open(stores / "train_target")
    if words is None or tags is None or not ids:
        floor = accuracy([labels.majority] * len(gold), gold)
        note = "the most frequent tag of each word needs the training part" if ids else ""
        return {"majority tag": {"accuracy": floor}}, note
    counts = np.zeros((len(bundle.vocabularies.sources), len(labels)), dtype=np.int64)
    seen, given = np.asarray(words.flat if words.flat.ndim == 1 else words.flat[:, 0]), np.asarray(tags.flat)
    np.add.at(counts, (seen[given >= 0], given[given >= 0]), 1)
    counts[counts.sum(1) == 0] = counts.sum(0)
    best = counts.argmax(1)
    return {"most frequent tag": {"accuracy": accuracy([labels.names[best[i]] for i in ids], gold)}}, ""


def _translate(bundle: Bundle, examples: list[Example], *, decode: Decode | None, lower: bool, world: World) -> Report:
    normalise = bundle.vocabularies.targets.normaliser
    sources, gold = [e.source for e in examples], [normalise(str(e.target)) for e in examples]
    predicted = [p.output for p in predict(bundle, sources, decode=decode, world=world)]
    scores: dict[str, Any] = {"exact": exact_match(predicted, gold), **corpus_scores(predicted, gold, lower=lower)}
    scores |= _loss(bundle, examples, world)
    floors = {}
    if bundle.vocabularies.features is None:  # a measured source cannot be copied into a text
        copied = corpus_scores(list(map(str, sources)), gold, lower=lower)
        floor = {"exact": exact_match(list(map(str, sources)), gold)}
        floors["copy of the source"] = floor | {"bleu": float(copied["bleu"]), "chrf": float(copied["chrf"])}
    lengths = [len(row) for row in bundle.vocabularies.encode_sources(sources)]
    by_length = _by_length(np.asarray(lengths), predicted, gold, lower=lower)
    mistakes = _mistakes(examples, predicted, gold)
    return Report("translate", len(examples), scores, floors, mistakes, by_length=by_length)


def _caption(
    bundle: Bundle, examples: list[Example], stores: Path | None, *, decode: Decode | None, lower: bool, world: World
) -> Report:
    train = None if stores is None else _open(stores / "train_target")
    found = evaluate_captions(
        bundle, examples, train, loss=partial(_loss, bundle, world=world), decode=decode, lower=lower, world=world
    )
    wrong = (
        {"input": each.picture.name, "output": each.output, "expected": each.references[0]}
        for each in found.captioned
        if not is_one_of(bundle, each.output, each.references)
    )
    num, mistakes = len(found.captioned), tuple(islice(wrong, 10))
    return Report("caption", num, found.scores, found.floors, mistakes, found.note, captioned=found.captioned)


def _by_length(
    lengths: Int[np.ndarray, " N"], predicted: list[str], gold: list[str], *, lower: bool
) -> dict[str, dict[str, int | float]]:
    """The same scores for short and long sources: without attention they fall (C6)."""
    table = {}
    for low, high in itertools.pairwise(BUCKETS):
        rows = np.flatnonzero((lengths > low) & (lengths <= high)).tolist()
        if rows:
            ours, theirs = [predicted[i] for i in rows], [gold[i] for i in rows]
            bleu = float(corpus_scores(ours, theirs, lower=lower)["bleu"])
            name = f"{low + 1}-{high}" if high < BUCKETS[-1] else f"over {low}"
            table[name] = {"examples": len(rows), "exact": exact_match(ours, theirs), "bleu": bleu}
    return table


def _loss(bundle: Bundle, examples: list[Example], world: World) -> dict[str, float]:
    """Cross-entropy and perplexity of the gold answers."""
    return mean_loss(cast(Model, bundle.model), example_batches(bundle, examples), carries=False, world=world)


def example_batches(bundle: Bundle, examples: list[Example]) -> Iterator[Batch]:
    """Examples as the model reads them, those of like length together."""
    data = bundle.recipe.data
    rows = [(source[: data.max_source], target) for source, target in bundle.vocabularies.encode(examples)]
    if bundle.recipe.task == "tag":
        rows = [(source, target[: data.max_source]) for source, target in rows]
    places = room(bundle.recipe)
    for example, (_, written) in zip(examples, rows, strict=True):
        if len(written) > places + 1:  # the last token is written, not read
            raise DataError(
                f"{example.where}: {len(written)} tokens, and this model learned {places} positions",
                hint="shorten it, or train with a larger data.max_target.",
            )
    lengths = np.asarray([[len(source), len(target)] for source, target in rows], dtype=np.int64)
    for together in plan_in_order(lengths, budget=BUDGET):
        reads, writes = bundle.recipe.task != "lm", bundle.recipe.task not in ("mask", "bilm")
        source = padded([rows[i][0] for i in together]) if reads else None
        target = padded([rows[i][1] for i in together]) if writes else None
        yield Batch(rows=tensor_of(together), source=source, target=target)


def _warn_unseen(bundle: Bundle, examples: list[Example]) -> None:
    known = {*bundle.vocabularies.classes.names, bundle.recipe.data.no_label}
    unseen = Counter(label for e in examples for label in labels_of(e) if label not in known)
    if unseen:
        first = next(e.where for e in examples if set(labels_of(e)) & set(unseen))
        names = ", ".join(f"'{name}' ({count})" for name, count in unseen.most_common(5))
        warnings.warn(f"{first}: labels never seen in training count as wrong: {names}", SeqlabWarning, stacklevel=2)


def _mistakes(
    examples: list[Example], predicted: list[str], gold: list[str], most: int = 10
) -> tuple[dict[str, str], ...]:
    wrong = (
        {"input": shown(e.source), "output": p, "expected": g}
        for e, p, g in zip(examples, predicted, gold, strict=True)
        if p != g
    )
    return tuple(islice(wrong, most))


def _open(path: Path) -> TokenStore | None:
    return TokenStore.open(path) if path.exists() else None
