"""The sections of a recipe beside its model: data, text, pictures, forecasts, training, decoding."""

from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from seqlab.options import DecodeOptions


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _nothing(cls, table: Any) -> Any:
        """TOML has no null: "none" is nothing where a value may be missing, and a word like any other elsewhere."""
        if not isinstance(table, dict):
            return table
        optional = {
            name
            for name, field in cls.model_fields.items()
            if type(None) in get_args(field.annotation)
        }
        return {
            key: None if value == "none" and key in optional else value
            for key, value in table.items()
        }


NUMBERS = ("numbers", "angles")  # kinds of target that are measured, not named


class DataConfig(Section):
    """Which columns of the user's file are read, how it is split, and what is too long."""

    model_config = ConfigDict(coerce_numbers_to_str=True)  # data.source=2 is a column too

    unit: Literal["stream", "line"] = (
        "stream"  # lm only: one endless text, or each line a sequence of its own
    )
    source: str | None = None  # a column, by name or by number counted from 1
    target: str | None = None
    encoding: str | None = (
        None  # of text files; without it, UTF-8, or what their bytes are beyond doubt
    )
    validation: float = Field(0.05, gt=0, lt=1)
    max_validation: int = Field(2000, ge=1)  # examples
    fold: int = Field(1, ge=1)  # which part of that size is held out
    max_source: int = Field(1000, ge=1)  # tokens
    max_target: int = Field(1000, ge=1)
    too_long: Literal["cut", "skip", "refuse", "split"] = (
        "cut"  # split: text without labels becomes several rows
    )
    no_label: str | None = None  # tag only: what stands in the file where a label is not known
    # forecast only; the split is chronological: first the training part, then validation, then what `evaluate` reads
    time: str | None = None  # the column that says when, or several with commas between
    id: str | None = (
        None  # the column that tells several series apart, or several with commas between
    )
    columns: str | None = (
        None  # what is to be forecast, with commas between; without it, all that are not named here
    )
    known: str | None = None  # columns whose future is known: prices that are set, holidays
    calendar: bool = False  # hour, weekday and day of the year are known columns too
    rows: int | None = Field(None, ge=1)  # only the first so many rows are read
    test: float = Field(0.0, ge=0, lt=1)  # the share at the end that training never sees


class TextConfig(Section):
    """How strings become ids."""

    # a target of a tagger may be numbers, or angles in degrees, at each position
    # a source may be the n-grams of a text, or the spellings of words and their neighbours
    kind: Literal[
        "characters",
        "words",
        "bytes",
        "bpe",
        "wordpiece",
        "vectors",
        "numbers",
        "angles",
        "ngrams",
        "spellings",
    ] = "characters"
    size: int = Field(8000, ge=1)
    min_count: int = Field(1, ge=1)
    form: Literal["NFC", "NFKC", "none"] = "NFC"
    lower: bool = False
    letters_only: bool = False
    markers: bool = (
        False  # "[SEP]" and "[MASK]" in a text are the special tokens, not their letters
    )
    frame: bool = False  # a source stands between a first token and [SEP], as BERT reads it
    endings: int = Field(
        0, ge=0
    )  # tag only: words not seen are told apart by endings of so many characters


class ImageConfig(Section):
    """Pictures as a source: all of one size, cut at the centre, read as rows of pixels or as square patches."""

    height: int = Field(96, ge=2, le=1024)
    width: int = Field(96, ge=2, le=1024)
    channels: Literal[1, 3] = 3
    patch: int | None = Field(
        None, ge=1
    )  # pixels on a side; without it, a position is a row of pixels
    shift: int = Field(
        0, ge=0
    )  # in training each picture is moved by up to so many pixels, another way at each step
    flip: bool = False  # and every other one is mirrored
    bad: Literal["refuse", "skip"] = (
        "refuse"  # what becomes of a file that is missing, broken or no picture
    )

    @model_validator(mode="after")
    def _patches_fit(self) -> "ImageConfig":
        if self.patch and (self.height % self.patch or self.width % self.patch):
            raise ValueError(
                f"{self.height} x {self.width} pixels cannot be cut into patches of {self.patch}"
            )
        return self


class ForecastConfig(Section):
    """How far a forecaster looks back and ahead, in rows, and what it says about each moment to come (S12)."""

    look_back: int = Field(96, ge=2)
    horizon: int = Field(24, ge=1)
    season: int | None = Field(
        None, ge=1
    )  # rows; without it, what suits the time stamps (24 hours, 7 days, 12 months)
    scale: Literal["window", "train"] = (
        "window"  # brought to mean 0, deviation 1: each window, or the training part
    )
    output: Literal["gaussian", "quantiles", "point"] = "gaussian"
    patch: int = Field(8, ge=1)  # values that are read together as one position
    residual: bool = False  # a network adds to a learnt mix of simple forecasts: mean, last value, last season, growth
    smoothing: bool = (
        False  # with residual: it adds to the forecast of exponential smoothing instead
    )
    level: float = Field(0.8, gt=0, lt=1)  # how many of the values to come the bands should hold


LENGTHS = {"steps", "epochs", "minutes"}  # of a training; one of them is given


class TrainConfig(Section):
    seed: int = Field(1, ge=0)
    steps: int | None = Field(None, ge=1)
    epochs: float | None = Field(None, gt=0)
    minutes: float | None = Field(
        None, gt=0
    )  # from the first step to the scores, at most; EM may be done before
    batch_tokens: int = Field(4096, ge=1)  # real and padded positions of the longer side
    batch_rows: int = Field(32, ge=1)  # streams side by side (lm with unit = "stream")
    bptt: int = Field(
        64, ge=1
    )  # truncated BPTT: steps until the gradient is cut (lm with unit = "stream")
    shard: bool = (
        False  # many processes: each keeps a part of the weights and of all that goes with them
    )
    precision: Literal["float32", "bfloat16"] = (
        "float32"  # bfloat16: products in half the bits, weights in all of them
    )
    optimizer: Literal["adamw", "muon", "sgd"] = "adamw"
    learning_rate: float = Field(2e-3, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)  # sgd only
    weight_decay: float = Field(0.01, ge=0)
    schedule: Literal["cosine", "inverse-sqrt", "constant"] = "cosine"
    warmup: int = Field(100, ge=0)  # steps
    clip: float = Field(1.0, gt=0)
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    average: Literal["none", "ema", "last"] = "none"
    ema_decay: float = Field(0.999, gt=0, lt=1)
    average_last: int = Field(5, ge=1)  # checkpoints
    validate_every: int | None = Field(None, ge=1)  # steps; without it, twenty times in the run
    encoder_rate: float = Field(
        1.0, gt=0
    )  # what came with --from may learn more slowly: a factor on the rate
    encoder_frozen: int = Field(0, ge=0)  # for so many steps the encoder does not learn at all
    # what becomes of a step whose gradient is not finite: it is left out, undone together with all since the last
    # checkpoint and tried again at half the rate, or the end of the run
    divergence: Literal["skip", "rollback", "stop"] = "skip"
    keep: int = Field(
        0, ge=0
    )  # weights of so many validations are kept, the last ones, to be looked at
    tensorboard: bool = False  # curves for `tensorboard --logdir runs`, beside metrics.jsonl; needs seqlab[tensorboard]
    best: Literal["loss", "accuracy"] = (
        "loss"  # which validation is the best; of equal accuracies, that of lower loss
    )
    patience: int | None = Field(None, ge=1)  # validations without a better one until it stops
    restarts: int = Field(
        1, ge=1
    )  # EM: climbs, each of up to `steps` iterations from a start of its own
    tolerance: float = Field(1e-4, ge=0)  # EM: a smaller gain, in nats a token, ends a climb

    @model_validator(mode="after")
    def _one_length(self) -> "TrainConfig":
        if sum(length is not None for length in (self.steps, self.epochs, self.minutes)) > 1:
            raise ValueError("give one of 'steps', 'epochs' and 'minutes', not several")
        if self.shard and self.optimizer == "muon":
            raise ValueError("'muon' needs each matrix whole; with 'shard', take 'adamw' or 'sgd'")
        if self.shard and self.minutes is not None:
            raise ValueError("with 'shard', give 'steps' or 'epochs'")
        return self


class DecodeConfig(DecodeOptions, Section):
    """How an answer is searched for: the options of decoding, each with its default."""
