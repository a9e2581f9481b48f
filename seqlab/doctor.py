"""Is a model well? A few questions that a loss does not answer, each with a number, a sentence and a remedy."""

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from seqlab.codecs.codec import Files
from seqlab.codecs.picture import STORE, PictureSource, shared_pictures
from seqlab.data.sources import Example
from seqlab.data.store import TokenStore
from seqlab.errors import UsageError
from seqlab.explain.attention import attention_maps
from seqlab.model import Model
from seqlab.padded import Batch
from seqlab.tasks import predict
from seqlab.tasks import subject as subject_of
from seqlab.tasks.examples import Examples, example_batches, example_loss, input_of
from seqlab.tasks.task import Finding, Scoring, beside_floor
from seqlab.training.objective import mean_loss

LOOKED_AT = 200  # examples


def examine(model: Model, data: Files = ()) -> list[Finding]:
    """Every question that applies to the model, asked on the data, or on what training held out."""
    examples = model.data(*data).examples()[:LOOKED_AT]
    if len(examples) < 2:
        raise UsageError("one example is too little to examine a model on", hint="give a file with more.")
    return [finding for question in _QUESTIONS for finding in question(model, examples)]


def _is_the_input_used(model: Model, examples: list[Example]) -> Iterator[Finding]:
    """The loss with each source exchanged for another example's."""
    codec = model.bundle.codec
    if not (codec.reads and codec.writes):
        return
    scores = example_loss(model.bundle, examples)
    own, unit = scores["loss"], " nats" if "perplexity" in scores else ""  # real numbers have a loss of their own
    batches = map(_exchanged, example_batches(model.bundle, examples))
    other = mean_loss(model.bundle.model, batches, carries=False)["loss"]
    yield Finding(
        "is the input used?",
        other - own,
        other - own > 0.05 * max(own, 0.1),
        f"with another example's input the loss is {other:.3f}{unit} instead of {own:.3f}",
        "the answer hardly depends on the input: train longer, attend to the source, or look for a fault in the data.",
    )


def _exchanged(batch: Batch) -> Batch:
    rows = torch.arange(len(batch)).roll(max(1, len(batch) // 2))  # the captions of one picture stand together
    return replace(batch, source=batch.require("source").rows_at(rows))


def _does_it_end(model: Model, examples: list[Example]) -> Iterator[Finding]:
    """Do written answers end, and do they say the same thing again and again?"""
    codec = model.bundle.codec
    if not codec.reads or "target" not in codec.tokenizers:
        return
    answers = predict(model.bundle, [e.source for e in examples])
    ended = sum(bool(a.details["hypotheses"]) and a.details["hypotheses"][0]["ended"] for a in answers) / len(answers)
    yield Finding(
        "does it end?",
        ended,
        ended >= 0.98,
        f"{100 * ended:.1f} % of its answers end by themselves",
        "train longer, or raise decode.max_length if answers are that long.",
    )
    ours = float(np.mean([_repeats(a.output) for a in answers]))
    theirs = float(np.mean([_repeats(str(e.target)) for e in examples]))
    yield Finding(
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


def _does_attention_look(model: Model, examples: list[Example]) -> Iterator[Finding]:
    """A head whose weights are the same whoever asks has nothing to say."""
    shifts = defaultdict[str, list[float]](list)
    for example in examples[:10]:
        try:
            subject = subject_of(model.bundle, input_of(model.bundle.codec, example))
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
    yield Finding(
        "does attention look?",
        len(collapsed) / len(shifts),
        len(collapsed) <= len(shifts) // 3,
        f"{len(collapsed)} of {len(shifts)} heads look at the same places whoever asks"
        + (f" ({', '.join(collapsed[:3])})" if collapsed else ""),
        "fewer heads or layers would do; or train longer, with a warm-up.",
    )


def _is_it_new(model: Model, examples: list[Example]) -> Iterator[Finding]:
    """Inputs that were in the training part too: a score on them is no score."""
    codec, stores = model.bundle.codec, model.stores
    store = stores / ("train_source" if codec.reads else "train_target")
    if not store.exists():
        return
    train = TokenStore.open(store)
    if isinstance(codec.source, PictureSource):
        names = (STORE, "train_source")
        train = shared_pictures({name: TokenStore.open(stores / name) for name in names}, "train")
    digests = {_digest(np.asarray(train[row])) for row in range(len(train))}
    most = model.recipe.data.max_source
    rows = [np.asarray(pair[0 if codec.reads else 1][:most]) for pair in codec.encode(examples)]
    share = sum(_digest(row.astype(train[0].dtype)) in digests for row in rows) / len(rows)
    yield Finding(
        "is the data new to it?",
        share,
        share <= 0.02,
        f"{100 * share:.1f} % of these inputs were in the training part too",
        "score it on data that it has not seen: a split by source, or another file.",
    )


def _digest(row: np.ndarray) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(row).tobytes(), digest_size=8).digest()


def _is_it_better_than_nothing(model: Model, examples: list[Example]) -> Iterator[Finding]:
    scoring = Scoring(train=model.stores if model.stores.is_dir() else None)
    report = model.task.evaluate(model.bundle, Examples(examples), scoring)
    yield from beside_floor(model.task, report.scores, report.floors)


_QUESTIONS = (_is_the_input_used, _does_it_end, _does_attention_look, _is_it_new, _is_it_better_than_nothing)
