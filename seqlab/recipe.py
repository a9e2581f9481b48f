"""The schema of a recipe: frozen, validated, TOML in and out. Each default is written here and nowhere else.

recipe = load_recipe("char-lstm")                      # by name, or a path to a .toml file
recipe = override(recipe, ["train.steps=500"])         # what `--set` does
"""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from seqlab.errors import RecipeError, nearest
from seqlab.recipes import recipe_names, recipe_table

Cell = Literal["rnn", "relu-rnn", "lstm", "gru", "gru-torch", "mgu"]
Connection = Literal["plain", "residual", "highway", "dense"]

NUMBERS = ("numbers", "angles")  # kinds of target that are measured, not named


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _nothing(cls, table: Any) -> Any:
        """TOML has no null: "none" is nothing where a value may be missing, and a word like any other elsewhere."""
        if not isinstance(table, dict):
            return table
        optional = {name for name, field in cls.model_fields.items() if type(None) in get_args(field.annotation)}
        return {key: None if value == "none" and key in optional else value for key, value in table.items()}


class Data(Section):
    """Which columns of the user's file are read, how it is split, and what is too long."""

    model_config = ConfigDict(coerce_numbers_to_str=True)  # data.source=2 is a column too

    unit: Literal["stream", "line"] = "stream"  # lm only: one endless text, or each line a sequence of its own
    source: str | None = None  # a column, by name or by number counted from 1
    target: str | None = None
    validation: float = Field(0.05, gt=0, lt=1)
    max_validation: int = Field(2000, ge=1)  # examples
    max_source: int = Field(1000, ge=1)  # tokens
    max_target: int = Field(1000, ge=1)
    too_long: Literal["cut", "skip", "refuse", "split"] = "cut"  # split: text without labels becomes several rows
    no_label: str | None = None  # tag only: what stands in the file where a label is not known
    # forecast only; the split is chronological: first the training part, then validation, then what `evaluate` reads
    time: str | None = None  # the column that says when, or several with commas between
    columns: str | None = None  # what is to be forecast, with commas between; without it, all that are not named here
    known: str | None = None  # columns whose future is known: prices that are set, holidays
    calendar: bool = False  # hour, weekday and day of the year are known columns too
    rows: int | None = Field(None, ge=1)  # only the first so many rows are read
    test: float = Field(0.0, ge=0, lt=1)  # the share at the end that training never sees


class Text(Section):
    """How strings become ids."""

    # a target of a tagger may be numbers, or angles in degrees, at each position
    # a source may be the n-grams of a text, or the spelling of words and their neighbours
    kind: Literal[
        "characters", "words", "bytes", "bpe", "wordpiece", "vectors", "numbers", "angles", "ngrams", "spellings"
    ] = "characters"
    size: int = Field(8000, ge=1)
    min_count: int = Field(1, ge=1)
    form: Literal["NFC", "NFKC", "none"] = "NFC"
    lower: bool = False
    letters_only: bool = False
    markers: bool = False  # "[SEP]" and "[MASK]" in a text are the special tokens, not their letters
    frame: bool = False  # a source stands between a first token and [SEP], as BERT reads it
    endings: int = Field(0, ge=0)  # tag only: words not seen are told apart by endings of so many characters


class Image(Section):
    """Pictures as a source: all of one size, cut at the centre, read as rows of pixels or as square patches."""

    height: int = Field(96, ge=2, le=1024)
    width: int = Field(96, ge=2, le=1024)
    channels: Literal[1, 3] = 3
    patch: int | None = Field(None, ge=1)  # pixels on a side; without it, a position is a row of pixels
    shift: int = Field(0, ge=0)  # in training each picture is moved by up to so many pixels, another way at each step
    flip: bool = False  # and every other one is mirrored
    bad: Literal["refuse", "skip"] = "refuse"  # what becomes of a file that is missing, broken or no picture

    @model_validator(mode="after")
    def _patches_fit(self) -> "Image":
        if self.patch and (self.height % self.patch or self.width % self.patch):
            raise ValueError(f"{self.height} x {self.width} pixels cannot be cut into patches of {self.patch}")
        return self


class Stack(Section):
    """Recurrent layers on top of each other."""

    kind: Cell = "lstm"
    size: int = Field(256, ge=1)
    layers: int = Field(1, ge=1)
    bidirectional: bool = False
    connection: Connection = "plain"


class Transformer(Section):
    """Self-attention blocks on top of each other; "universal" is one block used again and again, until it halts."""

    kind: Literal["transformer", "universal"] = "transformer"
    size: int = Field(256, ge=1)
    layers: int = Field(3, ge=1)  # of a universal one: the most steps that a token may take
    heads: int = Field(4, ge=1)
    feed_forward: int | None = Field(None, ge=1)  # inner features; without it, four times the size
    norm: Literal["post", "pre"] = "pre"
    normalise: Literal["layer", "batch", "none"] = "layer"  # around each sublayer
    positions: Literal["sinusoidal", "learned", "rotary", "none"] = "sinusoidal"
    window: int | None = Field(None, ge=1)  # decoders: how many tokens back are seen; without it, all
    causal: bool = False  # encoders: a token sees only what stands before it, as in the decoder it may come from
    activation: Literal["relu", "gelu", "gelu-tanh"] = "relu"
    scale: bool = True  # embeddings are multiplied by the root of their size, as the paper does
    entrance_norm: bool = False  # a layer norm on the sum of embeddings, as BERT has it
    segments: int = Field(
        0, ge=0
    )  # how many texts a [SEP] may separate, each with a vector of its own; 0: not told apart
    epsilon: float = Field(1e-5, gt=0)  # what a layer norm adds to the variance
    quiet_start: bool = False  # at first no block adds anything, and all tokens are as likely: bears larger rates
    halt: float = Field(0.99, gt=0, lt=1)  # universal only: a token halts when it has spent this much
    ponder: float = Field(0.001, ge=0)  # universal only: what a step costs in the loss, per token

    @property
    def inner(self) -> int:
        return self.feed_forward or 4 * self.size

    @model_validator(mode="after")
    def _heads_divide(self) -> "Transformer":
        if self.size % self.heads:
            raise ValueError(f"{self.heads} heads cannot share {self.size} features evenly; choose a size they divide")
        return self


class Convolution(Section):
    """Residual blocks over a picture, which they halve again and again (S8, S9)."""

    kind: Literal["convolution"] = "convolution"
    size: int = Field(256, ge=1)  # features of each location that is left
    layers: int = Field(3, ge=1)  # how often height and width are halved
    channels: int = Field(32, ge=1)  # of the first layer; twice as many at each halving, but no more than the size
    blocks: int = Field(1, ge=1)  # residual blocks after each halving but the first


class Glimpse(Section):
    """A recurrent network that looks at a picture through a series of windows (S22)."""

    kind: Literal["glimpse"] = "glimpse"
    size: int = Field(128, ge=1)
    glimpses: int = Field(6, ge=1)  # how often it looks
    window: int = Field(6, ge=2)  # filters on each side of the window


class Features(Section):
    """Vectors that another network has computed, each through one layer; or words, by their vectors alone."""

    kind: Literal["features"] = "features"
    size: int = Field(256, ge=1)


class Attention(Section):
    """How a recurrent decoder looks at the source (S14)."""

    score: Literal["dot", "general", "additive", "scaled"] = "additive"
    # bahdanau: the previous state asks, the answer enters the recurrence; luong: the current state asks, then
    # tanh(W_c [c; h]); concat: the current state asks, then plain [c; h]
    wiring: Literal["bahdanau", "luong", "concat"] = "bahdanau"
    feeding: bool = False  # luong and concat: what came out enters the next step
    doubly_stochastic: float = Field(0.0, ge=0)  # what it costs not to look at each place once in all (Xu et al. 2015)

    @model_validator(mode="after")
    def _feeds_once(self) -> "Attention":
        if self.feeding and self.wiring == "bahdanau":
            raise ValueError("'bahdanau' feeds its context into the recurrence already; 'feeding' is for the others")
        return self


class Hidden(Section):
    """A hidden Markov model (S1): a tagger, whose states are labels, or a language model, whose states are its own."""

    states: int | None = Field(None, ge=1)  # lm only: a tagger has as many as there are labels
    emissions: Literal["categorical", "diagonal", "full"] = "categorical"  # of words; of vectors, Gaussians
    order: int = Field(1, ge=1, le=2)  # tag only: how many labels a state remembers
    decode: Literal["viterbi", "posterior"] = "viterbi"  # tag only: the likeliest path, or label by label
    smoothing: float = Field(0.1, ge=0)  # lm: added to every count; tag: how much a word leans on those spelt like it


class Linear(Section):
    """Logistic regression: over n-grams of a text, a summary of each feature of a sequence, or a small picture."""

    # of the data against the penalty |W|² / 2; without it, the best of several on the held-out part
    strength: float | None = Field(None, gt=0)


class CRF(Section):
    """A linear-chain conditional random field over the spelling of each word and of its neighbours."""

    strength: float | None = Field(None, gt=0)  # as of a linear model


class Neighbours(Section):
    """The answers of the training examples whose sources are the most alike."""

    count: int = Field(8, ge=1)
    sharpness: float = Field(50.0, gt=0)  # how much more a neighbour weighs that is more alike: e^(sharpness cosine)


class Ngrams(Section):
    """An n-gram language model with Kneser-Ney smoothing."""

    order: int = Field(5, ge=1, le=12)


class Smoothing(Section):
    """Exponential smoothing and what is simpler: a form, or a mean of those that forecast the training part best."""

    form: Literal[
        "best",
        "mean",
        "last",
        "drift",
        "season",
        "level",
        "trend",
        "damped",
        "additive",
        "additive-trend",
        "multiplicative",
        "multiplicative-trend",
    ] = "best"


Layers = Annotated[Stack | Transformer, Field(discriminator="kind")]
Reader = Annotated[Stack | Transformer | Convolution | Glimpse | Features, Field(discriminator="kind")]


class Dynamics(Section):
    """A linear dynamical system for each variable (S2): a structure whose noises are learnt, or free states."""

    trend: Literal["level", "slope", "none"] = "level"
    harmonics: int = Field(3, ge=0)  # of the season: pairs of states that turn once in a season, twice, ...
    states: int = Field(0, ge=0)  # so many free ones instead, with everything about them learnt

    @model_validator(mode="after")
    def _has_a_state(self) -> "Dynamics":
        if self.trend == "none" and self.harmonics == 0 and self.states == 0:
            raise ValueError("a system without a trend, a season or free states has nothing to say")
        return self


WITHOUT_LAYERS = ("hmm", "lds", "linear", "crf", "neighbours", "ngrams", "smoothing")


class Model(Section):
    embedding: int = Field(128, ge=1)
    encoder: Reader | None = None
    decoder: Layers | None = None
    attention: Attention | None = None  # recurrent decoders only; a Transformer decoder has its own
    characters: Stack | None = None  # tag only: what reads each word's spelling, beside the word's own vector
    hmm: Hidden | None = None  # tag, lm: in place of encoder and decoder
    elmo: Stack | None = None  # classify, tag: a bidirectional language model whose layers are features (--from)
    lds: Dynamics | None = None  # forecast only: in place of an encoder
    # baselines, each in place of encoder and decoder
    linear: Linear | None = None  # classify
    crf: CRF | None = None  # tag
    neighbours: Neighbours | None = None  # translate
    ngrams: Ngrams | None = None  # lm
    smoothing: Smoothing | None = None  # forecast
    # classify and forecast; theme: mask too; flat: all states side by side, of windows that are equally long (forecast)
    pooling: Literal["final", "mean", "max", "detectors", "theme", "attention", "hops", "flat"] = "final"
    theme: int = Field(32, ge=1)  # pooling = "theme": how many numbers; a masked model learns what they say
    hops: int = Field(4, ge=1)  # pooling = "hops": how many weightings of the states
    hop_penalty: float = Field(0.0, ge=0)  # what it costs that two hops look at the same place (E49)
    pooling_norm: bool = False  # mean 0 and deviation 1 over the texts of a batch (E51): helps where labels are few
    vectors: str | None = None  # a file of pretrained word vectors: one word a line, then its numbers
    frozen_vectors: bool = False
    masked: float = Field(0.15, gt=0, lt=1)  # mask only: the share of tokens to be guessed
    context: Literal["first", "every"] = "every"  # is the source's summary the first state only, or read at every step
    tie: bool = False  # output weights are the embedding's, transposed
    dropout: float = Field(0.0, ge=0, lt=1)
    # of the vectors that enter a network, where that is not as for all others: characters are too few to be overfitted
    input_dropout: float | None = Field(None, ge=0, lt=1)
    word_dropout: float = Field(0.0, ge=0, lt=1)  # the share of a source's tokens that training does not see

    @property
    def without_layers(self) -> str:
        """The model that stands in place of encoder and decoder; empty where there is none."""
        return next((name for name in WITHOUT_LAYERS if getattr(self, name) is not None), "")

    @property
    def entering(self) -> float:
        """The dropout of what enters a network."""
        return self.dropout if self.input_dropout is None else self.input_dropout


class Forecast(Section):
    """How far a forecaster looks back and ahead, in rows, and what it says about each moment to come (S12)."""

    look_back: int = Field(96, ge=2)
    horizon: int = Field(24, ge=1)
    season: int | None = Field(None, ge=1)  # rows; without it, what suits the time stamps (24 hours, 7 days, 12 months)
    scale: Literal["window", "train"] = "window"  # brought to mean 0, deviation 1: each window, or the training part
    output: Literal["gaussian", "quantiles", "point"] = "gaussian"
    patch: int = Field(8, ge=1)  # values that are read together as one position
    level: float = Field(0.8, gt=0, lt=1)  # how many of the values to come the bands should hold


LENGTHS = {"steps", "epochs", "minutes"}  # of a training; one of them is given


class Train(Section):
    seed: int = Field(1, ge=0)
    steps: int | None = Field(None, ge=1)
    epochs: float | None = Field(None, gt=0)
    minutes: float | None = Field(None, gt=0)  # as many steps as this machine takes in that time; EM may be done before
    batch_tokens: int = Field(4096, ge=1)  # real and padded positions of the longer side
    batch_rows: int = Field(32, ge=1)  # streams side by side (lm with unit = "stream")
    bptt: int = Field(64, ge=1)  # truncated BPTT: steps until the gradient is cut (lm with unit = "stream")
    shard: bool = False  # many processes: each keeps a part of the weights and of all that goes with them
    precision: Literal["float32", "bfloat16"] = "float32"  # bfloat16: products in half the bits, weights in all of them
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
    encoder_rate: float = Field(1.0, gt=0)  # what came with --from may learn more slowly: a factor on the rate
    encoder_frozen: int = Field(0, ge=0)  # for so many steps the encoder does not learn at all
    # what becomes of a step whose gradient is not finite: it is left out, undone together with all since the last
    # checkpoint and tried again at half the rate, or the end of the run
    divergence: Literal["skip", "rollback", "stop"] = "skip"
    keep: int = Field(0, ge=0)  # weights of so many validations are kept, the last ones, to be looked at
    tensorboard: bool = False  # curves for `tensorboard --logdir runs`, beside metrics.jsonl; needs seqlab[tensorboard]
    best: Literal["loss", "accuracy"] = "loss"  # which validation is the best; of equal accuracies, that of lower loss
    patience: int | None = Field(None, ge=1)  # validations without a better one until it stops
    restarts: int = Field(1, ge=1)  # EM: climbs, each of up to `steps` iterations from a start of its own
    tolerance: float = Field(1e-4, ge=0)  # EM: a smaller gain, in nats a token, ends a climb

    @model_validator(mode="after")
    def _one_length(self) -> "Train":
        if sum(length is not None for length in (self.steps, self.epochs, self.minutes)) != 1:
            raise ValueError("give one of 'steps', 'epochs' and 'minutes', not several and not none")
        if self.shard and self.optimizer == "muon":
            raise ValueError("'muon' needs each matrix whole; with 'shard', take 'adamw' or 'sgd'")
        if self.shard and self.minutes is not None:
            raise ValueError("with 'shard', give 'steps' or 'epochs'")
        return self


class Decode(Section):
    method: Literal["greedy", "sample", "beam"] = "greedy"
    temperature: float = Field(1.0, gt=0)  # sample
    top_k: int | None = Field(None, ge=1)
    top_p: float | None = Field(None, gt=0, le=1)
    beam: int = Field(5, ge=1)  # hypotheses
    length_penalty: float = Field(1.0, ge=0)  # beam: 0 ranks by the sum of log-probabilities, 1 by their mean
    no_repeat: int | None = Field(None, ge=1)  # beam: no n-gram of this length comes twice
    min_length: int = Field(0, ge=0)  # beam
    max_length: int = Field(200, ge=1)


class Recipe(Section):
    """Everything that makes a model what it is, except the data and the seed of the universe."""

    name: str
    task: str  # which checks that the parts fit: `seqlab.tasks.check_recipe`
    about: str = ""
    shared: bool = False  # one vocabulary for source and target
    data: Data = Data()
    image: Image | None = None  # classify, caption: the source is a picture, whose rows of pixels are vectors
    source: Text = Text()
    target: Text = Text()
    model: Model = Model()
    forecast: Forecast = Forecast()
    train: Train
    decode: Decode = Decode()


def load_recipe(name: str) -> Recipe:
    """A recipe by name, or from a .toml file of the user's."""
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise RecipeError(
                f"{name}: there is no such recipe file", hint="give a path that exists, or a recipe's name."
            )
        try:
            return parse_recipe(path.read_text("utf-8"), where=name)
        except UnicodeDecodeError:
            raise RecipeError(f"{name}: not valid UTF-8", hint="a recipe is a text file: TOML in UTF-8.") from None
    if name not in recipe_names():
        raise RecipeError(f"there is no recipe '{name}'", hint=nearest(name, recipe_names()))
    table = {key: value for key, value in recipe_table(name).items() if key != "default"}
    return build_recipe(table, where=f"recipe '{name}'")


def parse_recipe(text: str, *, where: str) -> Recipe:
    """A recipe from TOML; `where` names it in messages."""
    try:
        return build_recipe(tomllib.loads(text), where=where)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(
            f"{where}: not valid TOML: {error}", hint='a value is a number, true, false or a "string".'
        ) from None


def build_recipe(table: Mapping[str, Any], *, where: str) -> Recipe:
    """A recipe from nested tables, with errors that name the key."""
    try:
        return Recipe.model_validate(dict(table))
    except ValidationError as error:
        raise _explain(error, where) from None


def override(recipe: Recipe, settings: Iterable[str]) -> Recipe:
    """The recipe with `section.key=value` settings applied; values are read as TOML, else as plain strings."""
    table = recipe.model_dump()
    for setting in settings:
        path, equals, value = setting.partition("=")
        keys = path.strip().split(".")
        if not equals or not all(keys):
            raise RecipeError(f"--set {setting}: not of the form key=value", hint="for example --set train.steps=500")
        place = table
        for key in keys[:-1]:
            if place.get(key) is None and key in _OPTIONAL:
                place[key] = {}
            if key in place and not isinstance(place[key], dict):
                raise RecipeError(
                    f"--set {setting}: '{key}' is a value, not a section", hint=f"it is {place[key]!r} in this recipe."
                )
            if key not in place:
                raise RecipeError(f"--set {setting}: there is no section '{key}'", hint=nearest(key, place))
            place = place[key]
        place[keys[-1]] = _value(value.strip())
        if keys[-1] == "kind" and keys[0] == "model":  # another family has other settings
            family = _FAMILIES.get(place["kind"], Stack)
            for name in place.keys() - family.model_fields.keys():
                del place[name]
        if keys[0] == "train" and keys[-1] in LENGTHS:
            place |= dict.fromkeys(LENGTHS - {keys[-1]})
    return build_recipe(table, where=f"recipe '{recipe.name}' with --set")


def to_toml(recipe: Recipe) -> str:
    """The recipe as TOML that `parse_recipe` reads back to an equal recipe."""
    return "\n".join(_toml_lines(recipe.model_dump(), "")) + "\n"


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _toml_lines(table: Mapping[str, Any], prefix: str) -> Iterable[str]:
    for key, value in table.items():
        if value is not None and not isinstance(value, dict):
            yield f"{key} = {_toml_value(value)}"
    for key, value in table.items():
        if isinstance(value, dict):
            yield f"\n[{prefix}{key}]"
            yield from _toml_lines(value, f"{prefix}{key}.")


def _toml_value(value: bool | int | float | str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
    return repr(value)


def _explain(error: ValidationError, where: str) -> RecipeError:
    """The first thing that is wrong, as a sentence; for an unknown key, the nearest name there is."""
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    if first["type"] == "extra_forbidden":
        section: Any = Recipe
        for key in path[:-1]:
            section = _section_type(section, key)
        shown = ".".join(key for key in path if key not in _KINDS)
        return RecipeError(f"{where}: there is no '{shown}'", hint=nearest(path[-1], section.model_fields))
    said = first["msg"].removeprefix("Value error, ")
    shown = ".".join(key for key in path if key not in _KINDS)
    at = f"'{shown}': " if shown else ""
    seen = "" if first["type"] in ("missing", "value_error") else f" (it is {first['input']!r})"
    return RecipeError(f"{where}: {at}{said}{seen}", hint="`seqlab recipes NAME` shows a recipe that works.")


# sections that --set can begin
_OPTIONAL = ("encoder", "decoder", "attention", "characters", "elmo", "image", *WITHOUT_LAYERS)
_FAMILIES: dict[str, type[Section]] = {
    **dict.fromkeys(get_args(Cell), Stack),
    **dict.fromkeys(("transformer", "universal"), Transformer),
    **{"convolution": Convolution, "glimpse": Glimpse, "features": Features},
}
_KINDS = tuple(_FAMILIES)  # pydantic names the chosen member of a union by its kind


def _section_type(section: Any, key: str) -> Any:
    if key in _FAMILIES:
        return _FAMILIES[key]
    annotation = section.model_fields[key].annotation
    choices = getattr(annotation, "__args__", (annotation,))
    return next((c for c in choices if isinstance(c, type) and issubclass(c, Section)), section)
