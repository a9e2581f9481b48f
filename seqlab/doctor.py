"""Checks of a trained model that a loss does not show, each with a number, a sentence and a remedy."""

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

# examples, windows of a series, or pieces of a text
NUM_EXAMPLES = 200
# tokens of a piece of a text
PIECE_TOKENS = 64
# tokens of the training part that pieces are searched in
SEARCHED_TOKENS = 5_000_000


def examine(model: Model, data: Files = ()) -> list[Diagnosis]:
    """Run every check that applies to the model on the data, by default on the held-out part."""
    sample = model.data(*data).sample(NUM_EXAMPLES)
    if len(_examples(sample)) == 1:
        raise UsageError(
            "one example is not enough to examine a model", hint="give a file with more examples."
        )
    return [diagnosis for check in _CHECKS for diagnosis in check(model, sample)]


def _examples(data: Data) -> list[Example]:
    """Return the examples of the data; a text or a series has none."""
    return data.all if isinstance(data, Examples) else []


def _is_the_input_used(model: Model, data: Data) -> Iterator[Diagnosis]:
    """Compare the loss with the loss after exchanging the sources of the examples."""
    codec, network = model.bundle.codec, model.bundle.model
    examples = _examples(data)
    if isinstance(data, TokenStream) or (examples and not (codec.reads and codec.writes)):
        return
    # a series has no examples, but windows
    batches = [] if examples else [data.batch(model.bundle, NUM_EXAMPLES)]
    if examples:
        batches += example_batches(model.bundle, examples)
    scores = mean_loss(network, batches, carries=False)
    # the loss of real numbers is not in nats
    unit = " nats" if "perplexity" in scores else ""
    own = scores["loss"]
    other = mean_loss(network, map(_exchange_sources, batches), carries=False)["loss"]
    yield Diagnosis(
        "is the input used?",
        other - own,
        other - own > 0.05 * max(own, 0.1),
        f"with another example's input the loss is {other:.3f}{unit} instead of {own:.3f}",
        "the answer hardly depends on the input: train longer, use attention, or check the data.",
    )


def _exchange_sources(batch: Batch) -> Batch:
    """Give each target another source, at random, because a file may be sorted or its labels may alternate."""
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(0))
    rows = torch.empty_like(order)
    rows[order] = order.roll(max(1, len(batch) // 2))
    return replace(batch, source=batch.require("source").rows_at(rows))


def _does_it_end(model: Model, data: Data) -> Iterator[Diagnosis]:
    """Check whether answers end by themselves, and whether they repeat words."""
    codec, examples = model.bundle.codec, _examples(data)
    if not examples or not codec.reads or "target" not in codec.tokenizers:
        return
    answers = predict(model.bundle, [example.source for example in examples])
    best = [answer.details["hypotheses"][:1] for answer in answers]
    ended = sum(bool(hypotheses) and hypotheses[0]["ended"] for hypotheses in best) / len(answers)
    yield Diagnosis(
        "does it end?",
        ended,
        ended >= 0.98,
        f"{100 * ended:.1f} % of its answers end by themselves",
        "train longer, or raise decode.max_length if answers are that long.",
    )
    repeating = float(np.mean([_repeats(answer.output) for answer in answers]))
    expected = float(np.mean([_repeats(str(example.target)) for example in examples]))
    yield Diagnosis(
        "does it repeat itself?",
        repeating,
        repeating <= expected + 0.02,
        f"{100 * repeating:.1f} % of its answers repeat three words; of the expected ones {100 * expected:.1f} %",
        "decode with --no-repeat 3, or train longer.",
    )


def _repeats(text: str) -> bool:
    """Whether the same three words in a row occur twice."""
    words = text.split()
    triples = list(zip(words, words[1:], words[2:], strict=False))
    return len(set(triples)) < len(triples)


def _does_attention_look(model: Model, data: Data) -> Iterator[Diagnosis]:
    """Check whether the weights of attention heads depend on the query; a head with constant weights is useless."""
    variations = defaultdict[str, list[float]](list)
    inputs = [input_of(model.bundle.codec, example) for example in _examples(data)[:10]]
    for value in inputs or data.example_inputs(model.bundle, 10):
        try:
            subject = subject_of(model.bundle, value)
            maps = attention_maps(subject, subject.trace())
        except UsageError:  # a model without attention, or an empty input
            return
        for attention in maps:
            for head, weights in enumerate(attention.weights, start=1):
                if len(weights) > 2 and not attention.name.startswith("pooling"):
                    # the mean total variation distance from the mean weights
                    variation = 0.5 * np.abs(weights - weights.mean(0)).sum(-1).mean()
                    variations[f"{attention.name} head {head}"].append(float(variation))
    if not variations:
        return
    collapsed = [name for name, values in variations.items() if np.mean(values) < 0.02]
    yield Diagnosis(
        "does attention look?",
        len(collapsed) / len(variations),
        len(collapsed) <= len(variations) // 3,
        f"{len(collapsed)} of {len(variations)} heads attend to the same positions for every query"
        + (f" ({', '.join(collapsed[:3])})" if collapsed else ""),
        "use fewer heads or layers; or train longer, with a warm-up.",
    )


def _is_it_new(model: Model, data: Data) -> Iterator[Diagnosis]:
    """Measure the share of inputs that were in the training part too, which makes scores too good."""
    share = _share_of_inputs(model, _examples(data))
    if isinstance(data, TokenStream):
        share = _share_of_text(model, data)
    if share is not None:
        yield Diagnosis(
            "is the data new to it?",
            share,
            share <= 0.02,
            f"{100 * share:.1f} % of these inputs were in the training part too",
            "evaluate it on data that it was not trained on: a split by source, or another file.",
        )


def _share_of_text(model: Model, text: TokenStream) -> float | None:
    """Return the share of pieces of a text that occur in the training part, or None without it."""
    if not (model.stores / "train_stream").exists():
        return None
    train = np.asarray(TokenStore.open(model.stores / "train_stream").flat[:SEARCHED_TOKENS])
    train_bytes = train.tobytes()
    tokens = text.tokens.astype(train.dtype)
    starts = range(0, len(tokens) - PIECE_TOKENS + 1, PIECE_TOKENS)[:NUM_EXAMPLES]
    pieces = [tokens[start : start + PIECE_TOKENS].tobytes() for start in starts]
    return float(np.mean([piece in train_bytes for piece in pieces])) if pieces else None


def _share_of_inputs(model: Model, examples: list[Example]) -> float | None:
    """Return the share of inputs that occur in the training part, or None without it."""
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


def _is_it_better_than_its_baseline(model: Model, data: Data) -> Iterator[Diagnosis]:
    """Compare the model with the best of its baselines."""
    scoring = Scoring(train=model.stores if model.stores.is_dir() else None, most=NUM_EXAMPLES)
    report = model.task.evaluate(model.bundle, data, scoring)
    steps = model.metrics.get("steps")
    yield from compare_with_baseline(
        model.task, report.scores, report.baselines, recipe=model.recipe, steps=steps
    )


_CHECKS = (
    _is_the_input_used,
    _does_it_end,
    _does_attention_look,
    _is_it_new,
    _is_it_better_than_its_baseline,
)
