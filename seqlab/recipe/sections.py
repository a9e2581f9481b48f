"""The sections of a recipe for data, text, pictures, forecasts and decoding."""

from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from seqlab.options import DecodeOptions
from seqlab.recipe.model import Section

# kinds of target that are measured: the values of a tagger are real numbers
NUMBERS = ("numbers", "angles")


class DataConfig(Section):
    """Which columns of a file are read, how it is split, and the maximum lengths."""

    # so that data.source=2 names a column
    model_config = ConfigDict(coerce_numbers_to_str=True)

    # lm: one long text, or each line a sequence
    unit: Literal["stream", "line"] = "stream"
    # a column, by its name or its number, counted from 1
    source: str | None = None
    target: str | None = None
    # of text files; by default UTF-8, or another encoding if it can be detected with certainty
    encoding: str | None = None
    validation: float = Field(0.05, gt=0, lt=1)
    # examples
    max_validation: int = Field(2000, ge=1)
    # the number of the part that is held out, in cross-validation
    fold: int = Field(1, ge=1)
    # tokens
    max_source: int = Field(1000, ge=1)
    max_target: int = Field(1000, ge=1)
    # what happens to longer examples; split: a text without labels becomes several rows
    too_long: Literal["cut", "skip", "refuse", "split"] = "cut"
    # tag: the label in the file that marks words without a known label
    no_label: str | None = None
    # forecast only from here on; the split is chronological: training, validation, test.
    # Several columns are separated by commas.
    # the column of times, or several that form a time together
    time: str | None = None
    # the column that identifies a series in a table of several series
    id: str | None = None
    # the columns to forecast; by default all others
    columns: str | None = None
    # columns whose future values are known, such as prices or holidays
    known: str | None = None
    # add hour, weekday and day of the year as known columns
    calendar: bool = False
    # read only this many rows from the beginning
    rows: int | None = Field(None, ge=1)
    # the share of rows at the end that neither training nor validation reads
    test: float = Field(0.0, ge=0, lt=1)


class TextConfig(Section):
    """The tokenizer of a source or a target."""

    # "numbers" and "angles" (in degrees) are targets of a tagger; "ngrams" and "spellings" are sources of baselines
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
    # read "[SEP]" and "[MASK]" in a text as special tokens
    markers: bool = False
    # put a source between a start token and [SEP], as BERT does
    frame: bool = False
    # tag: unknown words are grouped by their last characters, up to this many
    endings: int = Field(0, ge=0)


class ImageConfig(Section):
    """Pictures as a source: cropped at the centre, scaled to one size, read as rows of pixels or as square patches."""

    height: int = Field(96, ge=2, le=1024)
    width: int = Field(96, ge=2, le=1024)
    channels: Literal[1, 3] = 3
    # the side of a patch in pixels; by default each row of pixels is one position
    patch: int | None = Field(None, ge=1)
    # in training, shift each picture at random by up to this many pixels
    shift: int = Field(0, ge=0)
    # in training, mirror pictures at random
    flip: bool = False
    # what happens if a file is missing, damaged or not a picture
    bad: Literal["refuse", "skip"] = "refuse"

    @model_validator(mode="after")
    def _patches_fit(self) -> "ImageConfig":
        if self.patch and (self.height % self.patch or self.width % self.patch):
            raise ValueError(
                f"{self.height} x {self.width} pixels cannot be cut into patches of {self.patch}"
            )
        return self


class ForecastConfig(Section):
    """The windows of a forecaster, in rows, and the distribution that it predicts (S12)."""

    look_back: int = Field(96, ge=2)
    horizon: int = Field(24, ge=1)
    # rows; by default the usual season of the time stamps (24 hours, 7 days, 12 months)
    season: int | None = Field(None, ge=1)
    # standardise each window by itself, or all values by the training part
    scale: Literal["window", "train"] = "window"
    output: Literal["gaussian", "quantiles", "point"] = "gaussian"
    # values that are read together as one position
    patch: int = Field(8, ge=1)
    # the network predicts the residual of a learnt mix of simple forecasts: mean, last value, last season, growth
    residual: bool = False
    # with residual: of exponential smoothing instead
    smoothing: bool = False
    # the share of future values that the bands should contain
    level: float = Field(0.8, gt=0, lt=1)


class DecodeConfig(DecodeOptions, Section):
    """The options of decoding, as settings of a recipe."""
