"""A bundle and lines of input to one answer a line: what each task does when it is used."""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch

from seqlab.bundle import Bundle
from seqlab.data.batching import plan_in_order
from seqlab.decode.beam import Beam, Hypothesis, beam_search
from seqlab.decode.generate import Limits, generate, stream
from seqlab.decode.rules import Greedy, Rule, Sample
from seqlab.decode.score import score as forced
from seqlab.errors import DataError, SeqlabWarning, UsageError, shorten
from seqlab.models.classifier import Classifier, Tagger
from seqlab.models.interface import Decoder, Memory
from seqlab.models.language_model import LanguageModel
from seqlab.models.seq2seq import Seq2Seq
from seqlab.padded import Padded
from seqlab.recipe import Decode, Recipe
from seqlab.text import EOS, MASK, PAD, SEP, SOS, UNK, Tokenizer

BUDGET = 8192  # tokens decoded together
NEVER = (PAD, UNK, SOS, SEP, MASK)


@dataclass(frozen=True)
class Prediction:
    """What a model says to one input: the text of its answer, and what else there is to know about it."""

    input: str
    output: str
    details: dict[str, Any] = field(default_factory=dict)


def predict(
    bundle: Bundle,
    inputs: Sequence[str],
    *,
    decode: Decode | None = None,
    seed: int = 0,
    first_row: int = 0,
    prefix: str = "",
) -> list[Prediction]:
    """One prediction for each input, in the same order.

    `first_row` is the number of the first input in a larger job: it keys the sampling, so that an answer does not
    depend on how the job was cut into calls. `prefix` is what every translation must begin with.
    """
    task = _TASKS[bundle.recipe.task]
    return task(_Job(bundle, list(inputs), decode or bundle.recipe.decode, seed, first_row, prefix))


@dataclass(frozen=True)
class _Job:
    bundle: Bundle
    inputs: list[str]
    decode: Decode
    seed: int
    first_row: int
    prefix: str

    @property
    def rule(self) -> Rule:
        settings = self.decode
        if settings.method == "sample":
            return Sample(settings.temperature, settings.top_k, settings.top_p, self.seed)
        return Greedy()

    def search(
        self, decoder: Decoder, memory: Memory, prefix: Padded, limits: Limits, rows: list[int]
    ) -> list[list[Hypothesis]]:
        """What the settings find for these rows of the job, best first."""
        settings = self.decode
        if settings.method == "beam":
            beam = Beam(settings.beam, settings.length_penalty, settings.no_repeat, settings.min_length)
            return beam_search(decoder, memory, prefix, beam, limits).best
        numbers = torch.tensor(rows) + self.first_row
        out = generate(decoder, memory, prefix, self.rule, limits, rows=numbers)
        return [
            [Hypothesis(tuple(tokens.tolist()), logs, math.fsum(logs), ended=len(logs) > len(tokens))]
            for tokens, logs in zip(out.tokens.rows(), out.log_probabilities, strict=True)
        ]


@torch.inference_mode()
def _continue(job: _Job) -> list[Prediction]:
    """Language model: each prompt goes on; an empty one begins from nothing."""
    model, tokenizer = cast(LanguageModel, job.bundle.model), job.bundle.vocabularies.targets
    prefixes, limits = _opening(job, tokenizer)
    found: list[list[Hypothesis]] = [[] for _ in prefixes]
    for rows in _batches([len(prefix) + limits.most for prefix in prefixes]):
        prefix = Padded.from_rows([prefixes[row] for row in rows])
        results = job.search(model.decoder, Memory(len(rows)), prefix, limits, rows)
        for row, hypotheses in zip(rows, results, strict=True):
            found[row] = hypotheses
    return [_written(tokenizer, text, hypotheses) for text, hypotheses in zip(job.inputs, found, strict=True)]


@torch.inference_mode()
def _translate(job: _Job) -> list[Prediction]:
    """Sequence to sequence: each line is translated; an empty line stays empty."""
    model, vocabularies = cast(Seq2Seq, job.bundle.model), job.bundle.vocabularies
    sources = fit_sources(job.bundle.recipe, vocabularies.sources.encode_all(job.inputs), first_row=job.first_row)
    given = _given(vocabularies.targets, job.prefix)
    limits = Limits(end=EOS, most=job.decode.max_length, never=NEVER)
    found: list[list[Hypothesis]] = [[] for _ in sources]
    for rows in _batches([0 if not text.strip() else len(s) for text, s in zip(job.inputs, sources, strict=True)]):
        rows = [row for row in rows if job.inputs[row].strip()]
        if rows:
            memory = model.encoder(Padded.from_rows([sources[row] for row in rows]))
            prefix = Padded.from_rows([[SOS, *given]] * len(rows))
            for row, hypotheses in zip(rows, job.search(model.decoder, memory, prefix, limits, rows), strict=True):
                found[row] = hypotheses
    return [
        _written(vocabularies.targets, text, hypotheses, given)
        for text, hypotheses in zip(job.inputs, found, strict=True)
    ]


def _given(tokenizer: Tokenizer, prefix: str) -> list[int]:
    """The ids of a prefix that every output must begin with; each must be one that the model can say."""
    ids = tokenizer.encode(prefix) if prefix else []
    if UNK in ids:
        unknown = shorten(prefix)
        raise UsageError(
            f"the prefix {unknown} holds what this model has no token for",
            hint="`vocabulary.txt` beside the model lists what it knows.",
        )
    return ids


def stream_text(bundle: Bundle, prompt: str, *, decode: Decode, seed: int = 0) -> Iterator[str]:
    """A language model's continuation, piece by piece as it is chosen."""
    job = _Job(bundle, [prompt], decode, seed, 0, "")
    tokenizer = bundle.vocabularies.targets
    prefix, limits = _opening(job, tokenizer)
    ids: list[int] = []
    shown = ""
    decoder = cast(LanguageModel, bundle.model).decoder
    for token in stream(decoder, Memory(1), Padded.from_rows(prefix), job.rule, limits, row=0):
        ids.append(token)
        text = tokenizer.decode(ids)
        if not text.endswith("\ufffd"):  # a character may be cut between two tokens
            yield text[len(shown) :]
            shown = text


def _opening(job: _Job, tokenizer: Tokenizer) -> tuple[list[list[int]], Limits]:
    """What a language model reads before it goes on, and where it ends."""
    prompts, most = tokenizer.encode_all(job.inputs), job.decode.max_length
    if job.bundle.recipe.data.unit == "line":
        return [[SOS, *ids] for ids in prompts], Limits(end=EOS, most=most, never=NEVER)
    return [ids or [_neutral(tokenizer)] for ids in prompts], Limits(end=None, most=most, never=(*NEVER, EOS))


@torch.inference_mode()
def score(bundle: Bundle, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
    """E57: how likely each target is, given its source; a language model needs no sources."""
    if bundle.recipe.task not in ("lm", "translate"):
        raise UsageError(
            f"a '{bundle.recipe.task}' model writes no text to score", hint="`predict` gives probabilities."
        )
    vocabularies = bundle.vocabularies
    encoded = [[SOS, *ids, EOS] for ids in vocabularies.targets.encode_all(list(targets))]
    if bundle.recipe.task == "lm":
        if bundle.recipe.data.unit == "stream":  # which knows no beginning and no end
            encoded = [[_neutral(vocabularies.targets), *ids[1:-1]] for ids in encoded]
        model = cast(LanguageModel, bundle.model)
        return [float(forced(model.decoder, Memory(1), Padded.from_rows([row]))[0]) for row in encoded]
    translator = cast(Seq2Seq, bundle.model)
    read = fit_sources(bundle.recipe, vocabularies.sources.encode_all(list(sources)), first_row=0)
    return [
        float(forced(translator.decoder, translator.encoder(Padded.from_rows([row])), Padded.from_rows([target]))[0])
        for row, target in zip(read, encoded, strict=True)
    ]


@torch.inference_mode()
def _classify(job: _Job) -> list[Prediction]:
    """Classifier: the likeliest label, with the probability of each."""
    model, vocabularies = cast(Classifier, job.bundle.model), job.bundle.vocabularies
    sources = fit_sources(job.bundle.recipe, vocabularies.sources.encode_all(job.inputs), first_row=job.first_row)
    names = vocabularies.classes.names
    answers: list[Prediction | None] = [None] * len(sources)
    for rows in _batches([len(source) for source in sources]):
        source = Padded.from_rows([sources[row] for row in rows])
        probabilities = model.head(model.features(source))[:, 0].double().softmax(-1)
        for row, p in zip(rows, probabilities, strict=True):
            best = int(p.argmax())
            details = {"probability": float(p[best]), "probabilities": dict(zip(names, p.tolist(), strict=True))}
            answers[row] = Prediction(job.inputs[row], names[best], details)
    return [answer for answer in answers if answer is not None]


@torch.inference_mode()
def _tag(job: _Job) -> list[Prediction]:
    """Tagger: one label for each word of a line; words are what stands between spaces."""
    words = [tuple(line.split()) for line in job.inputs]
    tags = tag_words(job.bundle, words, first_row=job.first_row)
    return [
        Prediction(line, " ".join(labels), {"words": list(cut), "tags": labels})
        for line, cut, labels in zip(job.inputs, words, tags, strict=True)
    ]


_TASKS: dict[str, Callable[[_Job], list[Prediction]]] = {
    "lm": _continue,
    "classify": _classify,
    "tag": _tag,
    "translate": _translate,
}


@torch.inference_mode()
def tag_words(bundle: Bundle, sentences: Sequence[tuple[str, ...]], *, first_row: int = 0) -> list[list[str]]:
    """A label for each word of each sentence; beyond the recipe's longest sentence, the most frequent one."""
    model, labels = cast(Tagger, bundle.model), bundle.vocabularies.classes
    sources = fit_sources(bundle.recipe, bundle.vocabularies.encode_sources(list(sentences)), first_row=first_row)
    tags = [[labels.majority] * len(words) for words in sentences]
    for rows in _batches([len(source) for source in sources]):
        source = Padded.from_rows([sources[row] for row in rows])
        best = source.with_values(model.head(model.features(source)).argmax(-1))
        for row, ids in zip(rows, best.rows(), strict=True):
            tags[row][: len(ids)] = [labels.names[i] for i in ids.tolist()]
    return tags


def fit_sources(recipe: Recipe, sources: list[list[int]], *, first_row: int) -> list[list[int]]:
    """Sources no longer than the model was trained for: cut, with a warning, or refused, as the recipe says."""
    most = recipe.data.max_source
    long = [row for row, source in enumerate(sources) if len(source) > most]
    if not long:
        return sources
    line = first_row + long[0] + 1
    said = f"line {line}: {len(sources[long[0]])} tokens, more than the {most} of data.max_source"
    if recipe.data.too_long == "refuse":
        raise DataError(said, hint="shorten the line, or train with a larger data.max_source.")
    more = f" (and {len(long) - 1} more)" if len(long) > 1 else ""
    warnings.warn(f"{said}; the rest was not read{more}", SeqlabWarning, stacklevel=2)
    return [source[:most] for source in sources]


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Rows of like length together, up to a budget."""
    if lengths:
        for rows in plan_in_order(np.asarray(lengths, dtype=np.int64)[:, None], budget=BUDGET):
            yield rows.tolist()


def _written(tokenizer: Tokenizer, text: str, hypotheses: list[Hypothesis], given: Sequence[int] = ()) -> Prediction:
    """The best hypothesis as text, and all of them with their scores."""
    if not hypotheses:
        return Prediction(text, "", {"score": 0.0, "tokens": [], "hypotheses": []})
    written = [
        {
            "output": tokenizer.decode([*given, *found.tokens]),
            "score": found.score,
            "log_probability": found.log_probability,
            "tokens": tokenizer.pieces(found.tokens),
            "log_probabilities": list(found.log_probabilities),
            "ended": found.ended,
        }
        for found in hypotheses
    ]
    best = written[0]
    details = {key: best[key] for key in ("score", "log_probability", "tokens", "log_probabilities")}
    return Prediction(text, str(best["output"]), details | {"hypotheses": written})


def _neutral(tokenizer: Tokenizer) -> int:
    """What stands before a text that has no beginning: the end of a line, else a space, else any token."""
    for piece in ("\n", " "):
        ids = tokenizer.encode(piece)
        if ids and ids[0] != UNK:
            return ids[0]
    return len(NEVER) + 1
