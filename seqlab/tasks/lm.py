"""The task `lm`: language models, which continue each prompt (S7, S17)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from seqlab.bundle import Bundle
from seqlab.codecs.codec import Codec, Files, Nothing
from seqlab.codecs.text import TextTarget
from seqlab.corpus.examples import Corpus
from seqlab.corpus.stream import (
    HELD_OUT_CHARACTERS,
    carries_state,
    open_stream,
    prepare_stream,
    read_tokens,
    stream_in_order,
)
from seqlab.data.example import Example
from seqlab.data.store import TokenStore
from seqlab.data.streams import Streams
from seqlab.decode.beam import Hypothesis
from seqlab.decode.generate import Limits
from seqlab.errors import DataError
from seqlab.models.build import build_decoder
from seqlab.models.interface import Memory
from seqlab.models.ngram_lm import NgramDecoder
from seqlab.models.seq2seq import LanguageModel
from seqlab.padded import Batch, Padded, tensor_of
from seqlab.recipe import DecodeConfig, NgramsConfig, Recipe
from seqlab.subject import Question, Subject
from seqlab.tasks.baselines import NGRAM_TOKENS, ngram_baselines
from seqlab.tasks.examples import EXAMPLES, batches, max_positions, read_lines, text_loss, with_bits
from seqlab.tasks.hmm_fitting import check_hmm, hmm_language_model, hmm_learner
from seqlab.tasks.linear_fitting import training_rows
from seqlab.tasks.task import (
    ANSWER_VIEWS,
    SCORED_AT_THE_END,
    Classical,
    DataKind,
    DecoderStart,
    Job,
    Prediction,
    Report,
    Scoring,
    Task,
)
from seqlab.tasks.text_generation import NEVER, answer_of, search
from seqlab.text import EOS, SOS, UNK, Tokenizer
from seqlab.training.counting import CountingLearner
from seqlab.training.kneser_ney import kneser_ney
from seqlab.training.loss import mean_loss
from seqlab.training.run import Learner
from seqlab.training.weights import load_weights, parameters_of


@dataclass(frozen=True)
class TokenStream:
    """One long text as a sequence of tokens."""

    tokens: np.ndarray

    def sample(self, most: int) -> "TokenStream":
        """Return the first tokens, a fixed number for each example; all of them if `most` is not limited."""
        if most >= SCORED_AT_THE_END:
            return self
        return TokenStream(self.tokens[: most * HELD_OUT_CHARACTERS])

    def batch(self, bundle: Bundle, most: int) -> Batch:
        tokens = tensor_of(np.asarray(self.tokens[:257], dtype=np.int64))
        rows = tokens[None]
        if len(tokens) >= 2 * most:
            rows = tokens[: len(tokens) // most * most].view(most, -1)
        return Batch(torch.arange(len(rows)), target=Padded.from_rows(list(rows)))

    def example_inputs(self, bundle: Bundle, most: int) -> list[str]:
        lines = bundle.codec.target_tokenizer.decode(self.tokens[:1000].tolist()).split("\n")
        return [line[:60] for line in lines[1:] if len(line) > 10][:most]

    def prediction_work(
        self, task: Task, bundle: Bundle, most: int
    ) -> tuple[int, Callable[[], object]]:
        return 0, lambda: None


def _data(task: Task, bundle: Bundle, files: Files, stores: Path) -> TokenStream:
    if files:
        return TokenStream(
            read_tokens(bundle.codec.target_tokenizer, files, bundle.recipe.data.encoding)
        )
    return TokenStream(np.asarray(TokenStore.open(stores / "validation_stream").flat))


# the data kind of files that are one long text
STREAM = DataKind(EXAMPLES.summarise, lambda task, *args: prepare_stream(*args), open_stream, _data)


def _check(recipe: Recipe) -> None:
    hmm = recipe.model.hmm
    if hmm is not None:
        check_hmm(recipe, hmm)
        if hmm.states is None or hmm.order != 1:
            raise ValueError("an 'lm' needs model.hmm.states; model.hmm.order is only for taggers")


def _read(recipe: Recipe, files: Files) -> Iterator[Example]:
    return (Example("", line, where) for where, line in read_lines(recipe, files))


def _build(recipe: Recipe, codec: Codec) -> nn.Module:
    return LanguageModel(build_decoder(recipe, len(codec.target_tokenizer)))


def _ngram_model(recipe: Recipe, settings: NgramsConfig, codec: Codec) -> nn.Module:
    return LanguageModel(NgramDecoder(len(codec.target_tokenizer), settings.order))


def _ngram_learner(
    recipe: Recipe, settings: NgramsConfig, network: nn.Module, corpus: Corpus
) -> Learner:
    """Count the n-grams of one text, or of all lines one after another."""
    train = corpus.train
    store: Any = train if isinstance(train, Streams) else training_rows(corpus).target
    tokens = store.flat[:NGRAM_TOKENS]
    counted = kneser_ney(tokens, settings.order, len(corpus.codec.target_tokenizer))
    load_weights(network, {f"decoder.{name}": weight for name, weight in counted.items()})
    return CountingLearner(network, parameters_of(network), by="counting n-grams")


@torch.inference_mode()
def _predict(job: Job) -> list[Prediction]:
    """Continue each prompt; an empty one starts a new text."""
    decoder, tokenizer = job.bundle.model.decoder, job.bundle.codec.target_tokenizer
    prefixes = prompts(job.bundle, job.inputs)
    limits = continuation_limits(job.bundle, job.decode)
    results: dict[int, list[Hypothesis]] = {}
    for rows, most in _decoding_batches(job, prefixes, limits.most):
        prefix = Padded.from_rows([prefixes[row] for row in rows])
        best = search(job, decoder, Memory(len(rows)), prefix, replace(limits, most=most), rows)
        results |= zip(rows, best, strict=True)
    return [answer_of(tokenizer, text, results[row]) for row, text in enumerate(job.inputs)]


def _evaluate(bundle: Bundle, data: Any, scoring: Scoring) -> Report:
    """Score the model by its loss, next to n-gram models of the same training text."""
    recipe, world = bundle.recipe, scoring.world
    if is_stream(recipe):
        stream, carries = stream_in_order(recipe, data.tokens), carries_state(recipe)
        scores = with_bits(mean_loss(bundle.model, stream, carries=carries, world=world))
        train = scoring.store("stream")
        held_out = [data.tokens]
        count, unit = len(data.tokens) - 1, "tokens"
    else:
        scores = text_loss(bundle, data.all, world)
        train = scoring.store("target")
        held_out = [np.asarray(row) for _, row in bundle.codec.encode(data.all)]
        count, unit = len(data.all), "examples"
    tokens = None if train is None else np.asarray(train.flat[:NGRAM_TOKENS])
    baselines, note = ngram_baselines(tokens, held_out, bundle.codec.target_tokenizer)
    return Report("lm", count, scores, baselines, baseline_note=note, unit=unit)


def _decoder_start(bundle: Bundle, value: Any, decode: DecodeConfig) -> DecoderStart:
    job, limits = Job(bundle, [value], decode), continuation_limits(bundle, decode)
    prefixes = prompts(bundle, [str(value)])
    _, most = next(_decoding_batches(job, prefixes, limits.most))
    return DecoderStart(Memory(1), prefixes[0], replace(limits, most=most))


def _subject(question: Question) -> Subject:
    """Return the subject: the answer at each position is the next token, at the last one the most probable token."""
    bundle, tokenizer = question.bundle, question.bundle.codec.target_tokenizer
    row = prompts(bundle, [f"{question.input}{question.output or ''}"])[0]
    names = tuple(tokenizer.pieces(row))
    subject = Subject(bundle, question.input, None, tuple(row), (), names, (*row[1:], 0), ())
    with torch.inference_mode():
        best = int(subject.logits()[-1].argmax())
    answers = (*row[1:], best)
    return subject.answering(answers, tuple(tokenizer.pieces(answers)))


def is_stream(recipe: Recipe) -> bool:
    """Whether the data is one long text rather than separate examples."""
    return recipe.data.unit == "stream"


def continuation_limits(bundle: Bundle, decode: DecodeConfig) -> Limits:
    """Return where a continuation ends: a line at its end token, a part of a longer text only at max_length."""
    if not is_stream(bundle.recipe):
        return Limits(end=EOS, most=decode.max_length, never=NEVER)
    return Limits(end=None, most=decode.max_length, never=(*NEVER, EOS))


def prompts(bundle: Bundle, texts: Sequence[str]) -> list[list[int]]:
    """Encode prompts; in a long text, an empty prompt becomes a neutral token, because there is no start token."""
    tokenizer = bundle.codec.target_tokenizer
    rows = tokenizer.encode_all(list(texts))
    if not is_stream(bundle.recipe):
        return [[SOS, *ids] for ids in rows]
    return [ids or [_neutral(tokenizer)] for ids in rows]


def _neutral(tokenizer: Tokenizer) -> int:
    """Return the token of a line end, else of a space, else any token."""
    for piece in ("\n", " "):
        ids = tokenizer.encode(piece)
        if ids and ids[0] != UNK:
            return ids[0]
    return len(NEVER) + 1


def _decoding_batches(
    job: Job, prefixes: list[list[int]], most: int
) -> Iterator[tuple[list[int], int]]:
    """Yield batches of rows to decode together, each with its maximum number of new tokens.

    Learned positions have a maximum, so rows close to it are decoded in a batch of their own.
    """
    positions = max_positions(job.bundle.recipe)
    limited = []
    for row, prefix in enumerate(prefixes):
        if len(prefix) > positions:
            raise DataError(
                f"line {job.first_row + row + 1}: {len(prefix)} tokens, and this model learned {positions} positions",
                hint="shorten the prompt.",
            )
        # the decoder does not read the last token
        if len(prefix) + most - 1 > positions:
            limited.append(row)
            yield [row], positions - len(prefix) + 1
    others = [row for row in range(len(prefixes)) if row not in limited]
    for numbers in batches([len(prefixes[row]) + most for row in others]):
        yield [others[number] for number in numbers], most


# With data.unit = "stream" a file is one long text; with "line", each line is a sequence.
LM = Task(
    name="lm",
    ladder=("char-rnn", "char-gru", "char-lstm", "gpt-tiny"),
    judged_by=("loss",),
    data_kind=lambda recipe: STREAM if is_stream(recipe) else EXAMPLES,
    reads=lambda recipe: Nothing,
    writes=lambda recipe: TextTarget,
    read=_read,
    build=_build,
    predict=_predict,
    evaluate=_evaluate,
    subject=_subject,
    special_settings=("split",),
    parts=("decoder",),
    check=_check,
    classical={
        "hmm": Classical(hmm_language_model, hmm_learner),
        "ngrams": Classical(_ngram_model, _ngram_learner, ("surprisal", "beam")),
    },
    decoder_start=_decoder_start,
    views=lambda bundle: (*ANSWER_VIEWS, "cells", "beam"),
)
