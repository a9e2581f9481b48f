"""Functions for tasks whose models write text: decoding, streaming, scoring, and building answers."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from seqlab.bundle import Bundle
from seqlab.codecs.codec import Codec, padded
from seqlab.data.example import Example, Picture
from seqlab.decode.beam import Beam, Hypothesis, beam_search
from seqlab.decode.generate import Greedy, Limits, Rule, Sample, generate, stream
from seqlab.decode.generate import score as forced
from seqlab.errors import DataError, UsageError, shorten
from seqlab.models.build import build_seq2seq
from seqlab.models.interface import Decoder, Memory
from seqlab.models.seq2seq import Seq2Seq
from seqlab.padded import Padded
from seqlab.recipe import DecodeConfig, Recipe
from seqlab.subject import Question, Subject
from seqlab.tasks.examples import (
    Examples,
    answer_inputs,
    answers_in_order,
    encode_inputs,
    max_positions,
)
from seqlab.tasks.subjects import source_subject
from seqlab.tasks.task import DecoderStart, Job, Prediction, Scores, Task
from seqlab.text import EOS, MASK, PAD, SEP, SOS, UNK, Tokenizer

# tokens that a model never writes
NEVER = (PAD, UNK, SOS, SEP, MASK)
# held-out examples that each validation decodes
VALIDATION_EXAMPLES = 100


@dataclass(frozen=True)
class Piece:
    """The text that one token adds to an answer, the answer so far, and the log-probability of its tokens."""

    text: str
    output: str
    log_probability: float


def rule_of(decode: DecodeConfig, seed: int) -> Rule:
    """Return the rule that chooses the token of each step."""
    if decode.method == "sample":
        return Sample(decode.temperature, decode.top_k, decode.top_p, seed)
    return Greedy()


def search(
    job: Job, decoder: Decoder, memory: Memory, prefix: Padded, limits: Limits, rows: list[int]
) -> list[list[Hypothesis]]:
    """Decode some rows of a job with its options, and return the hypotheses of each row, best first."""
    decode = job.decode
    if decode.method == "beam":
        beam = Beam(decode.beam, decode.length_penalty, decode.no_repeat, decode.min_length)
        return beam_search(decoder, memory, prefix, beam, limits).best
    sampling_rows = torch.tensor([job.rows[row] for row in rows])
    out = generate(decoder, memory, prefix, rule_of(decode, job.seed), limits, rows=sampling_rows)
    return [
        [Hypothesis(tuple(tokens.tolist()), logs, math.fsum(logs), ended=len(logs) > len(tokens))]
        for tokens, logs in zip(out.tokens.rows(), out.log_probabilities, strict=True)
    ]


def answer_of(
    tokenizer: Tokenizer, text: str, hypotheses: list[Hypothesis], prefix: Sequence[int] = ()
) -> Prediction:
    """Return the best hypothesis as text, with all hypotheses and their scores as details."""
    if not hypotheses:
        return Prediction(text, "", {"score": 0.0, "tokens": [], "hypotheses": []})
    described = [
        {
            "output": tokenizer.decode([*prefix, *hypothesis.tokens]),
            "score": hypothesis.score,
            "log_probability": hypothesis.log_probability,
            "tokens": tokenizer.pieces(hypothesis.tokens),
            "log_probabilities": list(hypothesis.log_probabilities),
            "ended": hypothesis.ended,
        }
        for hypothesis in hypotheses
    ]
    best = described[0]
    details = {
        key: best[key] for key in ("score", "log_probability", "tokens", "log_probabilities")
    }
    return Prediction(text, str(best["output"]), details | {"hypotheses": described})


def build_translator(recipe: Recipe, codec: Codec) -> nn.Module:
    """Build an encoder and a decoder for the source and the target of a codec."""
    return build_seq2seq(recipe, codec.source.entry, len(codec.target_tokenizer))


def translate(job: Job) -> list[Prediction]:
    """Translate each source; the translation of an empty line is empty."""
    source, tokenizer = job.bundle.codec.source, job.bundle.codec.target_tokenizer
    prefix = prefix_ids(tokenizer, job.prefix)
    results = zip(job.inputs, hypotheses(job, prefix), strict=True)
    return [answer_of(tokenizer, source.show(value), found, prefix) for value, found in results]


def hypotheses(job: Job, prefix: Sequence[int] = ()) -> list[list[Hypothesis]]:
    """Decode each input with an encoder and a decoder, best hypothesis first; an empty line has none."""
    model: Seq2Seq = job.bundle.model
    limits = target_limits(job.bundle, job.decode, prefix)
    sources = encode_inputs(job.bundle, job.inputs, first_row=job.first_row)
    nonempty = [
        row for row, value in enumerate(job.inputs) if not isinstance(value, str) or value.strip()
    ]

    def answer(source: Padded, numbers: list[int]) -> list[list[Hypothesis]]:
        start = Padded.from_rows([[SOS, *prefix]] * len(numbers))
        rows = [nonempty[number] for number in numbers]
        return search(job, model.decoder, model.encoder(source), start, limits, rows)

    answers = answers_in_order([sources[row] for row in nonempty], answer)
    results = dict(zip(nonempty, answers, strict=True))
    return [results.get(row, []) for row in range(len(sources))]


def target_limits(bundle: Bundle, decode: DecodeConfig, prefix: Sequence[int] = ()) -> Limits:
    """Return where a translation ends: at its end token, at max_length, or at the last learned position."""
    most = min(decode.max_length, max_positions(bundle.recipe) - len(prefix))
    return Limits(end=EOS, most=most, never=NEVER)


def prefix_ids(tokenizer: Tokenizer, prefix: str) -> list[int]:
    """Encode the prefix that every output must begin with; unknown tokens are an error."""
    ids = tokenizer.encode(prefix) if prefix else []
    if UNK in ids:
        raise UsageError(
            f"this model has no token for a part of the prefix {shorten(prefix)}",
            hint="`vocabulary.txt` in the model's directory lists its tokens.",
        )
    return ids


@torch.inference_mode()
def start_translation(bundle: Bundle, value: Any, decode: DecodeConfig) -> DecoderStart:
    """Prepare a decoder for one source, with nothing written yet."""
    memory = bundle.model.encoder(padded(encode_inputs(bundle, [value])))
    return DecoderStart(memory, [SOS], target_limits(bundle, decode))


def stream_text(
    task: Task, bundle: Bundle, value: Any, *, decode: DecodeConfig, seed: int = 0
) -> Iterator[Piece]:
    """Yield an answer piece by piece as its tokens are chosen, greedily or by sampling."""
    if bundle.codec.reads and isinstance(value, str) and not value.strip():
        return
    decoder, tokenizer = bundle.model.decoder, bundle.codec.target_tokenizer
    start = task.decoder_start(bundle, value, decode)
    prefix = Padded.from_rows([start.tokens])
    rule = rule_of(decode, seed)
    ids: list[int] = []
    streamed = ""
    log_probability = 0.0
    for token, log_p in stream(decoder, start.memory, prefix, rule, start.limits, row=0):
        if token != start.limits.end:
            ids.append(token)
        log_probability += log_p
        text = tokenizer.decode(ids)
        # the bytes of one character may be divided between two tokens
        complete = not text.endswith("\ufffd")
        yield Piece(text[len(streamed) :] if complete else "", text, log_probability)
        if complete:
            streamed = text


@torch.inference_mode()
def score(
    task: Task, bundle: Bundle, sources: Sequence[Any], targets: Sequence[str]
) -> list[float]:
    """Return the log-probability of each target given its source (E57); a language model needs no sources."""
    if "target" not in bundle.codec.tokenizers:
        raise UsageError(
            f"a '{task.name}' model writes no text to score", hint="`predict` gives probabilities."
        )
    reads = bundle.codec.reads
    if len(sources) != (len(targets) if reads else 0):
        hint = "give a source for each target." if reads else "a language model has no sources."
        raise UsageError(f"{len(sources)} sources for {len(targets)} targets", hint=hint)
    decoder, tokenizer = bundle.model.decoder, bundle.codec.target_tokenizer
    scores = []
    for value, target in zip(sources or [""] * len(targets), targets, strict=True):
        start = task.decoder_start(bundle, value, bundle.recipe.decode)
        end = [] if start.limits.end is None else [start.limits.end]
        row = [*start.tokens, *tokenizer.encode(target), *end]
        most = max_positions(bundle.recipe)
        if len(row) - 1 > most:
            raise DataError(
                f"a target of {len(row) - 1} tokens, and this model learned {most} positions",
                hint="shorten it.",
            )
        scores.append(float(forced(decoder, start.memory, Padded.from_rows([row]))[0]))
    return scores


def translation_subject(question: Question) -> Subject:
    """Return the subject of a model that has read a source and its own translation, or the one in the question."""
    bundle = question.bundle
    tokenizer = bundle.codec.target_tokenizer
    subject = source_subject(question)
    if question.output is None:
        results = hypotheses(Job(bundle, [question.input], question.decode))[0]
        if not 1 <= question.hypothesis <= len(results):
            raise UsageError(
                f"there is no hypothesis {question.hypothesis}",
                hint=f"the search found {len(results)}; 1 is the best.",
            )
        tokens = list(results[question.hypothesis - 1].tokens)
    else:
        tokens = tokenizer.encode(question.output)
    writes, answers = (SOS, *tokens), (*tokens, EOS)
    subject = replace(subject, writes=writes, written=tuple(tokenizer.pieces(writes)))
    return subject.answering(answers, tuple(tokenizer.pieces(answers)))


def exactly_right(bundle: Bundle, data: Examples) -> Scores:
    """Return the share of a sample of held-out examples whose greedy translation equals one of the references."""
    sample = data.sample(VALIDATION_EXAMPLES)
    greedy = bundle.recipe.decode.model_copy(update={"method": "greedy"})
    answers = answer_inputs(translate, bundle, sample.sources, decode=greedy)
    pairs = zip(answers, references(bundle, sample.all), strict=True)
    return {"exact": sum(answer.output in texts for answer, texts in pairs) / len(sample.all)}


def references(bundle: Bundle, examples: Sequence[Example]) -> list[tuple[str, ...]]:
    """Return the normalised target of each example; for a picture, all of its captions."""
    normalise = bundle.codec.target_tokenizer.normaliser
    texts = defaultdict[str | int, list[str]](list)
    keys = [
        e.source.name if isinstance(e.source, Picture) else row for row, e in enumerate(examples)
    ]
    for key, example in zip(keys, examples, strict=True):
        texts[key].append(normalise(str(example.target)))
    return [tuple(texts[key]) for key in keys]
