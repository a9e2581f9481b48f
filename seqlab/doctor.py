"""Is a model well? A few questions that a loss does not answer, each with a number, a sentence and a remedy."""

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from seqlab.codecs.codec import Files
from seqlab.codecs.picture import STORE, PictureSource, shared_pictures
from seqlab.data.example import Example
from seqlab.data.store import TokenStore
from seqlab.errors import UsageError
from seqlab.explain.attention import attention_maps
from seqlab.held_out import Diagnosis, compare_with_baseline
from seqlab.model import Model
from seqlab.padded import Batch
from seqlab.tasks import predict
from seqlab.tasks import subject as subject_of
from seqlab.tasks.examples import Examples, example_batches, input_of
from seqlab.tasks.lm import TokenStream
from seqlab.tasks.task import Data, Scoring
from seqlab.training.loss import mean_loss

LOOKED_AT = 200  # examples, windows of a series, or pieces of a text
PIECE = 64  # tokens
READ_OF_A_TEXT = 5_000_000  # tokens of the training part


def examine(model: Model, data: Files = ()) -> list[Diagnosis]:
    """Every question that applies to the model, asked on the data, or on what training held out."""
    some = model.data(*data).sample(LOOKED_AT)
    if len(_examples(some)) == 1:
        raise UsageError(
            "one example is too little to examine a model on", hint="give a file with more."
        )
    return [finding for question in _QUESTIONS for finding in question(model, some)]


def _examples(data: Data) -> list[Example]:
    """The examples of what is made of examples; a text or a series has none."""
    return data.all if isinstance(data, Examples) else []


def _is_the_input_used(model: Model, data: Data) -> Iterator[Diagnosis]:
    """The loss with each source exchanged for another example's."""
    examples, codec, network = _examples(data), model.bundle.codec, model.bundle.model
    if isinstance(data, TokenStream) or (examples and not (codec.reads and codec.writes)):
        return
    batches = (
        list(example_batches(model.bundle, examples))
        if examples
        else [data.batch(model.bundle, LOOKED_AT)]
    )
    scores = mean_loss(network, batches, carries=False)
    own, unit = (
        scores["loss"],
        " nats" if "perplexity" in scores else "",
    )  # real numbers have a loss of their own
    other = mean_loss(network, map(_exchanged, batches), carries=False)["loss"]
    yield Diagnosis(
        "is the input used?",
        other - own,
        other - own > 0.05 * max(own, 0.1),
        f"with another example's input the loss is {other:.3f}{unit} instead of {own:.3f}",
        "the answer hardly depends on the input: train longer, attend to the source, or look for a fault in the data.",
    )


def _exchanged(batch: Batch) -> Batch:
    """Each target with another source, far away in a mixed order: a file may be sorted, or its labels alternate."""
    mixed = torch.randperm(len(batch), generator=torch.Generator().manual_seed(0))
    rows = torch.empty_like(mixed)
    rows[mixed] = mixed.roll(max(1, len(batch) // 2))
    return replace(batch, source=batch.require("source").rows_at(rows))


def _does_it_end(model: Model, data: Data) -> Iterator[Diagnosis]:
    """Do written answers end, and do they say the same thing again and again?"""
    codec, examples = model.bundle.codec, _examples(data)
    if not examples or not codec.reads or "target" not in codec.tokenizers:
        return
    answers = predict(model.bundle, [e.source for e in examples])
    ended = sum(
        bool(a.details["hypotheses"]) and a.details["hypotheses"][0]["ended"] for a in answers
    ) / len(answers)
    yield Diagnosis(
        "does it end?",
        ended,
        ended >= 0.98,
        f"{100 * ended:.1f} % of its answers end by themselves",
        "train longer, or raise decode.max_length if answers are that long.",
    )
    ours = float(np.mean([_repeats(a.output) for a in answers]))
    theirs = float(np.mean([_repeats(str(e.target)) for e in examples]))
    yield Diagnosis(
        "does it repeat itself?",
        ours,
        ours <= theirs + 0.02,
        f"{100 * ours:.1f} % of its answers say three words twice; of the expected ones {100 * theirs:.1f} %",
        "decode with --no-repeat 3, or train longer.",
    )


def _repeats(text: str) -> bool:
    words = text.split()
    triples = list(zip(words, words[1:], words[2:], strict=False))
    return len(set(triples)) < len(triples)


def _does_attention_look(model: Model, data: Data) -> Iterator[Diagnosis]:
    """A head whose weights are the same whoever asks has nothing to say."""
    shifts = defaultdict[str, list[float]](list)
    inputs = [input_of(model.bundle.codec, example) for example in _examples(data)[:10]]
    for value in inputs or data.example_inputs(model.bundle, 10):
        try:
            subject = subject_of(model.bundle, value)
            maps = attention_maps(subject, subject.trace())
        except UsageError:  # nothing to attend to, or nothing to read
            return
        for m in maps:
            for head, weights in enumerate(m.weights):
                if len(weights) > 2 and not m.name.startswith("pooling"):
                    shift = 0.5 * np.abs(weights - weights.mean(0)).sum(-1).mean()
                    shifts[f"{m.name} head {head + 1}"].append(float(shift))
    if not shifts:
        return
    collapsed = [name for name, amounts in shifts.items() if np.mean(amounts) < 0.02]
    yield Diagnosis(
        "does attention look?",
        len(collapsed) / len(shifts),
        len(collapsed) <= len(shifts) // 3,
        f"{len(collapsed)} of {len(shifts)} heads look at the same places whoever asks"
        + (f" ({', '.join(collapsed[:3])})" if collapsed else ""),
        "fewer heads or layers would do; or train longer, with a warm-up.",
    )


def _is_it_new(model: Model, data: Data) -> Iterator[Diagnosis]:
    """Inputs that were in the training part too: a score on them is no score."""
    share = (
        _share_of_text(model, data)
        if isinstance(data, TokenStream)
        else _share_of_inputs(model, _examples(data))
    )
    if share is not None:
        yield Diagnosis(
            "is the data new to it?",
            share,
            share <= 0.02,
            f"{100 * share:.1f} % of these inputs were in the training part too",
            "score it on data that it has not seen: a split by source, or another file.",
        )


def _share_of_text(model: Model, text: TokenStream) -> float | None:
    """How many pieces of a text stand in the training part, word for word."""
    if not (model.stores / "train_stream").exists():
        return None
    train = np.asarray(TokenStore.open(model.stores / "train_stream").flat[:READ_OF_A_TEXT])
    whole, tokens = train.tobytes(), text.tokens.astype(train.dtype)
    starts = range(0, len(tokens) - PIECE + 1, PIECE)[:LOOKED_AT]
    return (
        float(np.mean([tokens[start : start + PIECE].tobytes() in whole for start in starts]))
        if starts
        else None
    )


def _share_of_inputs(model: Model, examples: list[Example]) -> float | None:
    codec, stores = model.bundle.codec, model.stores
    store = stores / ("train_source" if codec.reads else "train_target")
    if not examples or not store.exists():
        return None
    train = TokenStore.open(store)
    if isinstance(codec.source, PictureSource):
        names = (STORE, "train_source")
        train = shared_pictures({name: TokenStore.open(stores / name) for name in names}, "train")
    digests = {_digest(np.asarray(train[row])) for row in range(len(train))}
    most = model.recipe.data.max_source
    rows = [np.asarray(pair[0 if codec.reads else 1][:most]) for pair in codec.encode(examples)]
    return sum(_digest(row.astype(train[0].dtype)) in digests for row in rows) / len(rows)


def _digest(row: np.ndarray) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(row).tobytes(), digest_size=8).digest()


def _is_it_better_than_nothing(model: Model, data: Data) -> Iterator[Diagnosis]:
    scoring = Scoring(train=model.stores if model.stores.is_dir() else None, most=LOOKED_AT)
    report = model.task.evaluate(model.bundle, data, scoring)
    steps = model.metrics.get("steps")
    yield from compare_with_baseline(
        model.task, report.scores, report.baselines, recipe=model.recipe, steps=steps
    )


_QUESTIONS = (
    _is_the_input_used,
    _does_it_end,
    _does_attention_look,
    _is_it_new,
    _is_it_better_than_nothing,
)
