"""The sections of a recipe beside its model and its training: data, text, pictures, forecasts, decoding."""

from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from seqlab.options import DecodeOptions
from seqlab.recipe.model import Section

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


class DecodeConfig(DecodeOptions, Section):
    """How an answer is searched for: the options of decoding, each with its default."""
