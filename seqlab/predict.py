"""A bundle and lines of input to one answer a line: what each task does when it is used."""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from seqlab import reading
from seqlab.assemble.vocabularies import padded
from seqlab.bundle import Bundle
from seqlab.data.vectors import load_vectors
from seqlab.decode.beam import Beam, Hypothesis, beam_search
from seqlab.decode.generate import Limits, generate, stream
from seqlab.decode.rules import Greedy, Rule, Sample
from seqlab.decode.score import score as forced
from seqlab.errors import DataError, UsageError, shorten
from seqlab.forecasting import forecast
from seqlab.models.interface import Decoder, Memory
from seqlab.models.language_model import LanguageModel
from seqlab.models.seq2seq import Seq2Seq
from seqlab.padded import Padded
from seqlab.reading import Prediction, Source, batches, encode_sources, shown
from seqlab.recipe import Decode, Recipe, Transformer
from seqlab.text import EOS, MASK, PAD, SEP, SOS, UNK, Tokenizer
from seqlab.training.world import ALONE, World

NEVER = (PAD, UNK, SOS, SEP, MASK)


def predict(
    bundle: Bundle,
    inputs: Sequence[Source],
    *,
    decode: Decode | None = None,
    seed: int = 0,
    first_row: int = 0,
    prefix: str = "",
    rows: Sequence[int] | None = None,
    world: World = ALONE,
) -> list[Prediction]:
    """One prediction for each input, in the same order; of many processes, each answers its share of them.

    `first_row` is the number of the first input in a larger job: it keys the sampling, so that an answer does not
    depend on how the job was cut into calls. Where several jobs are answered together, `rows` says of each input
    which it is of its own. `prefix` is what every translation must begin with.
    """
    task = _TASKS[bundle.recipe.task]
    numbers = range(first_row, first_row + len(inputs)) if rows is None else rows

    def answer(share: Sequence[Source], begin: int) -> list[tuple[str, str, dict[str, Any]]]:
        settings, own = decode or bundle.recipe.decode, numbers[begin : begin + len(share)]
        answers = task(_Job(bundle, list(share), settings, seed, first_row + begin, prefix, own))
        both = zip(answers, share, strict=True)
        return [(each.input, each.output, each.details | reading.unread(bundle, given)) for each, given in both]

    return [Prediction(*each) for each in world.shared(inputs, answer)]


@dataclass(frozen=True)
class _Job:
    bundle: Bundle
    inputs: list[Any]  # texts; of a model of vectors, arrays or paths of files
    decode: Decode
    seed: int
    first_row: int
    prefix: str
    numbers: Sequence[int]  # of the inputs, each in its own job: they key the sampling

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
        numbers = torch.tensor([self.numbers[row] for row in rows])
        out = generate(decoder, memory, prefix, self.rule, limits, rows=numbers)
        return [
            [Hypothesis(tuple(tokens.tolist()), logs, math.fsum(logs), ended=len(logs) > len(tokens))]
            for tokens, logs in zip(out.tokens.rows(), out.log_probabilities, strict=True)
        ]


@torch.inference_mode()
def _continue(job: _Job) -> list[Prediction]:
    """Language model: each prompt goes on; an empty one begins from nothing."""
    model, tokenizer = cast(LanguageModel, job.bundle.model), job.bundle.vocabularies.targets
    prefixes, limits = _opening(job)
    found: list[list[Hypothesis]] = [[] for _ in prefixes]
    for rows, most in _with_room(job, prefixes, limits.most):
        prefix = Padded.from_rows([prefixes[row] for row in rows])
        results = job.search(model.decoder, Memory(len(rows)), prefix, replace(limits, most=most), rows)
        for row, hypotheses in zip(rows, results, strict=True):
            found[row] = hypotheses
    return [_written(tokenizer, text, hypotheses) for text, hypotheses in zip(job.inputs, found, strict=True)]


def _with_room(job: _Job, prefixes: list[list[int]], most: int) -> Iterator[tuple[list[int], int]]:
    """Rows that are decoded together, and how far. Learned positions end somewhere: who comes near goes alone."""
    places, near = room(job.bundle.recipe), []
    for row, prefix in enumerate(prefixes):
        if len(prefix) > places:
            raise DataError(
                f"line {job.first_row + row + 1}: {len(prefix)} tokens, and this model learned {places} positions",
                hint="shorten the prompt.",
            )
        if len(prefix) + most - 1 > places:  # the last token is written, not read
            near.append(row)
            yield [row], places - len(prefix) + 1
    far = [row for row in range(len(prefixes)) if row not in near]
    for rows in batches([len(prefixes[row]) + most for row in far]):
        yield [far[place] for place in rows], most


def room(recipe: Recipe) -> int:
    """How many positions a decoder can read: where they were learned, so many, else as many as anybody asks for."""
    stack = recipe.model.decoder
    learned = isinstance(stack, Transformer) and stack.positions == "learned"
    return recipe.data.max_target + 2 if learned else sys.maxsize


def _translate(job: _Job) -> list[Prediction]:
    """Sequence to sequence: each line is translated; an empty line stays empty."""
    tokenizer = job.bundle.vocabularies.targets
    given = _given(tokenizer, job.prefix)
    return [
        _written(tokenizer, shown(source), hypotheses, given)
        for source, hypotheses in zip(job.inputs, _hypotheses(job, given), strict=True)
    ]


def search(bundle: Bundle, source: Source, decode: Decode) -> list[Hypothesis]:
    """What the settings find for one source, best first, as tokens."""
    return _hypotheses(_Job(bundle, [source], decode, 0, 0, "", [0]), [])[0]


@torch.inference_mode()
def _hypotheses(job: _Job, given: list[int]) -> list[list[Hypothesis]]:
    model = cast(Seq2Seq, job.bundle.model)
    sources = encode_sources(job.bundle, job.inputs, first_row=job.first_row)
    limits = target_limits(job.bundle, job.decode, given)
    found: list[list[Hypothesis]] = [[] for _ in sources]
    empty = {row for row, text in enumerate(job.inputs) if isinstance(text, str) and not text.strip()}
    for rows in batches([0 if row in empty else len(source) for row, source in enumerate(sources)]):
        rows = [row for row in rows if row not in empty]
        if rows:
            memory = model.encoder(padded([sources[row] for row in rows]))
            prefix = Padded.from_rows([[SOS, *given]] * len(rows))
            for row, hypotheses in zip(rows, job.search(model.decoder, memory, prefix, limits, rows), strict=True):
                found[row] = hypotheses
    return found


def target_limits(bundle: Bundle, decode: Decode, given: Sequence[int] = ()) -> Limits:
    """Where a translation ends: at its end token, at the settings' length, or where learned positions do."""
    return Limits(end=EOS, most=min(decode.max_length, room(bundle.recipe) - len(given)), never=NEVER)


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


@dataclass(frozen=True)
class Piece:
    """What one more token added to a text, the text so far, and the log-probability of all its tokens."""

    text: str
    output: str
    log_probability: float


def stream_text(bundle: Bundle, given: Source, *, decode: Decode, seed: int = 0) -> Iterator[Piece]:
    """A language model's continuation, or a translation, piece by piece as it is chosen; `decode` is no beam's."""
    job = _Job(bundle, [given], decode, seed, 0, "", [0])
    tokenizer, model = bundle.vocabularies.targets, cast(Any, bundle.model)
    if bundle.recipe.task == "lm":
        prefixes, limits = _opening(job)
        _, most = next(_with_room(job, prefixes, limits.most))
        memory, limits = Memory(1), replace(limits, most=most)
    else:
        if isinstance(given, str) and not given.strip():
            return
        prefixes, limits = [[SOS]], target_limits(bundle, decode)
        with torch.inference_mode():
            memory = model.encoder(padded(encode_sources(bundle, [given], first_row=0)))
    ids: list[int] = []
    written, log_probability = "", 0.0
    for token, log_p in stream(model.decoder, memory, Padded.from_rows(prefixes), job.rule, limits, row=0):
        ids += [token] if token != limits.end else []
        log_probability += log_p
        text = tokenizer.decode(ids)
        whole = not text.endswith("\ufffd")  # a character may be cut between two tokens
        yield Piece(text[len(written) :] if whole else "", text, log_probability)
        written = text if whole else written


def _opening(job: _Job) -> tuple[list[list[int]], Limits]:
    """What a language model reads before it goes on, and where it ends."""
    return opening(job.bundle, job.inputs), continuation_limits(job.bundle, job.decode)


def continuation_limits(bundle: Bundle, decode: Decode) -> Limits:
    """Where a continuation ends: a line at its end token, a stretch of a longer text only at the settings' length."""
    if bundle.recipe.data.unit == "line":
        return Limits(end=EOS, most=decode.max_length, never=NEVER)
    return Limits(end=None, most=decode.max_length, never=(*NEVER, EOS))


def opening(bundle: Bundle, texts: Sequence[str]) -> list[list[int]]:
    """The tokens of texts that a language model goes on from; where a text has no beginning, not even an empty one."""
    tokenizer = bundle.vocabularies.targets
    rows = tokenizer.encode_all(list(texts))
    if bundle.recipe.data.unit == "line":
        return [[SOS, *ids] for ids in rows]
    return [ids or [_neutral(tokenizer)] for ids in rows]


@torch.inference_mode()
def score(bundle: Bundle, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
    """E57: how likely each target is, given its source; a language model needs no sources."""
    if bundle.recipe.task not in ("lm", "translate", "caption"):
        raise UsageError(
            f"a '{bundle.recipe.task}' model writes no text to score", hint="`predict` gives probabilities."
        )
    vocabularies = bundle.vocabularies
    encoded = [[SOS, *ids, EOS] for ids in vocabularies.targets.encode_all(list(targets))]
    longest = max((len(ids) - 1 for ids in encoded), default=0)
    if longest > room(bundle.recipe):
        raise DataError(
            f"a target of {longest} tokens, and this model learned {room(bundle.recipe)} positions", hint="shorten it."
        )
    if bundle.recipe.task == "lm":
        if bundle.recipe.data.unit == "stream":  # which knows no beginning and no end
            encoded = [[_neutral(vocabularies.targets), *ids[1:-1]] for ids in encoded]
        model = cast(LanguageModel, bundle.model)
        return [float(forced(model.decoder, Memory(1), Padded.from_rows([row]))[0]) for row in encoded]
    translator = cast(Seq2Seq, bundle.model)
    read = encode_sources(bundle, list(sources), first_row=0)
    return [
        float(forced(translator.decoder, translator.encoder(padded([row])), Padded.from_rows([target]))[0])
        for row, target in zip(read, encoded, strict=True)
    ]


def _classify(job: _Job) -> list[Prediction]:
    return reading.classify(job.bundle, job.inputs, first_row=job.first_row)


def _tag(job: _Job) -> list[Prediction]:
    """Tagger: a label, or numbers, for each word of a line; words stand between spaces. A file of vectors is a line."""
    frames = job.bundle.vocabularies.features is not None
    given = [_sequence(source, frames=frames) for source in job.inputs]
    if job.bundle.vocabularies.numbers is not None:
        measured = reading.measure(job.bundle, given, first_row=job.first_row)
        said = [[",".join(f"{n:.6g}" for n in row) for row in values.tolist()] for values in measured]
        details: list[dict[str, Any]] = [{"numbers": values.tolist()} for values in measured]
    else:
        said = reading.tag(job.bundle, given, first_row=job.first_row)
        details = [{"tags": tags} for tags in said]
    return [
        Prediction(shown(line), " ".join(labels), ({} if frames else {"words": list(words)}) | detail)
        for line, words, labels, detail in zip(job.inputs, given, said, details, strict=True)
    ]


def _sequence(source: Any, *, frames: bool) -> Any:
    if frames:
        return load_vectors(source) if isinstance(source, str) else source
    return tuple(source.split()) if isinstance(source, str) else source


def _fill(job: _Job) -> list[Prediction]:
    return reading.fill(job.bundle, job.inputs, first_row=job.first_row)


def _forecast(job: _Job) -> list[Prediction]:
    """Forecaster: the rows that follow each file, as CSV."""
    answers = [forecast(job.bundle, given) for given in job.inputs]
    return [Prediction(answer.history.where, answer.to_csv(), answer.to_json()) for answer in answers]


def _no_answer(job: _Job) -> list[Prediction]:
    raise UsageError(
        "a bidirectional language model answers nothing by itself",
        hint="`predict --embed` gives its vectors, and `train tag DATA --from MODEL` uses them as features.",
    )


_TASKS: dict[str, Callable[[_Job], list[Prediction]]] = {
    "lm": _continue,
    "mask": _fill,
    "bilm": _no_answer,
    "classify": _classify,
    "tag": _tag,
    "translate": _translate,
    "forecast": _forecast,
    "caption": _translate,
}


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
