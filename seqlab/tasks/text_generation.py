"""What tasks share whose models write text: search, streaming, scoring, and the shape of an answer."""

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
    source_subject,
)
from seqlab.tasks.task import DecoderStart, Job, Prediction, Scores, Task
from seqlab.text import EOS, MASK, PAD, SEP, SOS, UNK, Tokenizer

NEVER = (PAD, UNK, SOS, SEP, MASK)
DECODED_WHILE_TRAINING = 100  # held-out examples that each validation translates


@dataclass(frozen=True)
class Piece:
    """What one more token added to a text, the text so far, and the log-probability of all its tokens."""

    text: str
    output: str
    log_probability: float


def rule_of(decode: DecodeConfig, seed: int) -> Rule:
    """How one token is chosen at each step."""
    if decode.method == "sample":
        return Sample(decode.temperature, decode.top_k, decode.top_p, seed)
    return Greedy()


def search(
    job: Job, decoder: Decoder, memory: Memory, prefix: Padded, limits: Limits, rows: list[int]
) -> list[list[Hypothesis]]:
    """What the job's settings find for these of its rows, best first."""
    decode = job.decode
    if decode.method == "beam":
        beam = Beam(decode.beam, decode.length_penalty, decode.no_repeat, decode.min_length)
        return beam_search(decoder, memory, prefix, beam, limits).best
    numbers = torch.tensor([job.rows[row] for row in rows])
    out = generate(decoder, memory, prefix, rule_of(decode, job.seed), limits, rows=numbers)
    return [
        [Hypothesis(tuple(tokens.tolist()), logs, math.fsum(logs), ended=len(logs) > len(tokens))]
        for tokens, logs in zip(out.tokens.rows(), out.log_probabilities, strict=True)
    ]


def answer_of(
    tokenizer: Tokenizer, text: str, hypotheses: list[Hypothesis], prefix: Sequence[int] = ()
) -> Prediction:
    """The best hypothesis as text, and all of them with their scores."""
    if not hypotheses:
        return Prediction(text, "", {"score": 0.0, "tokens": [], "hypotheses": []})
    written = [
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
    best = written[0]
    details = {
        key: best[key] for key in ("score", "log_probability", "tokens", "log_probabilities")
    }
    return Prediction(text, str(best["output"]), details | {"hypotheses": written})


def build_translator(recipe: Recipe, codec: Codec) -> nn.Module:
    """An encoder and a decoder for the source and the target of a codec."""
    return build_seq2seq(recipe, codec.source.entry, len(codec.target_tokenizer))


def translate(job: Job) -> list[Prediction]:
    """Each source is translated; an empty line stays empty."""
    source, tokenizer = job.bundle.codec.source, job.bundle.codec.target_tokenizer
    prefix = prefix_ids(tokenizer, job.prefix)
    results = zip(job.inputs, hypotheses(job, prefix), strict=True)
    return [answer_of(tokenizer, source.show(value), each, prefix) for value, each in results]


def hypotheses(job: Job, prefix: Sequence[int] = ()) -> list[list[Hypothesis]]:
    """What an encoder and a decoder find for each input, best first; nothing for an empty line."""
    model: Seq2Seq = job.bundle.model
    limits = target_limits(job.bundle, job.decode, prefix)
    sources = encode_inputs(job.bundle, job.inputs, first_row=job.first_row)
    rows = [
        row for row, value in enumerate(job.inputs) if not isinstance(value, str) or value.strip()
    ]

    def answer(source: Padded, places: list[int]) -> list[list[Hypothesis]]:
        start = Padded.from_rows([[SOS, *prefix]] * len(places))
        return search(
            job,
            model.decoder,
            model.encoder(source),
            start,
            limits,
            [rows[place] for place in places],
        )

    results = dict(zip(rows, answers_in_order([sources[row] for row in rows], answer), strict=True))
    return [results.get(row, []) for row in range(len(sources))]


def target_limits(bundle: Bundle, decode: DecodeConfig, prefix: Sequence[int] = ()) -> Limits:
    """Where a translation ends: at its end token, at the settings' length, or where learned positions do."""
    return Limits(
        end=EOS,
        most=min(decode.max_length, max_positions(bundle.recipe) - len(prefix)),
        never=NEVER,
    )


def prefix_ids(tokenizer: Tokenizer, prefix: str) -> list[int]:
    """The ids of a prefix that every output must begin with; each must be one that the model can write."""
    ids = tokenizer.encode(prefix) if prefix else []
    if UNK in ids:
        raise UsageError(
            f"the prefix {shorten(prefix)} holds what this model has no token for",
            hint="`vocabulary.txt` beside the model lists what it knows.",
        )
    return ids


@torch.inference_mode()
def start_translation(bundle: Bundle, value: Any, decode: DecodeConfig) -> DecoderStart:
    """A decoder that has a source to look at and nothing written yet."""
    memory = bundle.model.encoder(padded(encode_inputs(bundle, [value])))
    return DecoderStart(memory, [SOS], target_limits(bundle, decode))


def stream_text(
    task: Task, bundle: Bundle, value: Any, *, decode: DecodeConfig, seed: int = 0
) -> Iterator[Piece]:
    """An answer piece by piece as its tokens are chosen; `decode` is not a beam's."""
    if bundle.codec.reads and isinstance(value, str) and not value.strip():
        return
    start, tokenizer = task.decoder_start(bundle, value, decode), bundle.codec.target_tokenizer
    decoder, prefix, rule = (
        bundle.model.decoder,
        Padded.from_rows([start.tokens]),
        rule_of(decode, seed),
    )
    ids: list[int] = []
    written, log_probability = "", 0.0
    for token, log_p in stream(decoder, start.memory, prefix, rule, start.limits, row=0):
        ids += [token] if token != start.limits.end else []
        log_probability += log_p
        text = tokenizer.decode(ids)
        whole = not text.endswith("\ufffd")  # a character may be cut between two tokens
        yield Piece(text[len(written) :] if whole else "", text, log_probability)
        written = text if whole else written


@torch.inference_mode()
def score(
    task: Task, bundle: Bundle, sources: Sequence[Any], targets: Sequence[str]
) -> list[float]:
    """E57: how likely each target is, given its source; a language model needs no sources."""
    if "target" not in bundle.codec.tokenizers:
        raise UsageError(
            f"a '{task.name}' model writes no text to score", hint="`predict` gives probabilities."
        )
    reads = bundle.codec.reads
    if len(sources) != (len(targets) if reads else 0):
        hint = (
            "give a source for each target." if reads else "a language model scores targets alone."
        )
        raise UsageError(f"{len(sources)} sources for {len(targets)} targets", hint=hint)
    decoder, tokenizer = bundle.model.decoder, bundle.codec.target_tokenizer
    scores = []
    for value, target in zip(sources or [""] * len(targets), targets, strict=True):
        start = task.decoder_start(bundle, value, bundle.recipe.decode)
        end = [] if start.limits.end is None else [start.limits.end]
        row = [*start.tokens, *tokenizer.encode(target), *end]
        if len(row) - 1 > max_positions(bundle.recipe):
            raise DataError(
                f"a target of {len(row) - 1} tokens, and this model learned {max_positions(bundle.recipe)} positions",
                hint="shorten it.",
            )
        scores.append(float(forced(decoder, start.memory, Padded.from_rows([row]))[0]))
    return scores


def translation_subject(question: Question) -> Subject:
    """A model that has read a source and its own translation, which is searched for, or is what the question says."""
    bundle = question.bundle
    tokenizer, subject = bundle.codec.target_tokenizer, source_subject(question)
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
    """The share of some held-out examples that greedy search answers as one of their references."""
    some = data.sample(DECODED_WHILE_TRAINING)
    greedy = bundle.recipe.decode.model_copy(update={"method": "greedy"})
    pairs = zip(
        answer_inputs(translate, bundle, some.sources, decode=greedy),
        references(bundle, some.all),
        strict=True,
    )
    return {"exact": sum(answer.output in texts for answer, texts in pairs) / len(some.all)}


def references(bundle: Bundle, examples: Sequence[Example]) -> list[tuple[str, ...]]:
    """The target of each example in the form in which the model writes; of a picture, all of its captions."""
    normalise, texts = (
        bundle.codec.target_tokenizer.normaliser,
        defaultdict[str | int, list[str]](list),
    )
    names = [
        e.source.name if isinstance(e.source, Picture) else row for row, e in enumerate(examples)
    ]
    for name, example in zip(names, examples, strict=True):
        texts[name].append(normalise(str(example.target)))
    return [tuple(texts[name]) for name in names]
