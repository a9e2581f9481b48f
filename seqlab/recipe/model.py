"""The section `model` of a recipe and the parts of a network that stand in it."""

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

Cell = Literal["rnn", "relu-rnn", "lstm", "gru", "gru-torch", "mgu"]
Connection = Literal["plain", "residual", "highway", "dense"]


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


class StackConfig(Section):
    """Recurrent layers on top of each other."""

    kind: Cell = "lstm"
    size: int = Field(256, ge=1)
    layers: int = Field(1, ge=1)
    bidirectional: bool = False
    connection: Connection = "plain"


class TransformerConfig(Section):
    """Self-attention blocks on top of each other; "universal" is one block used again and again, until it halts."""

    kind: Literal["transformer", "universal"] = "transformer"
    size: int = Field(256, ge=1)
    layers: int = Field(3, ge=1)  # of a universal one: the most steps that a token may take
    heads: int = Field(4, ge=1)
    feed_forward: int | None = Field(None, ge=1)  # inner features; without it, four times the size
    norm: Literal["post", "pre"] = "pre"
    normalise: Literal["layer", "batch", "none"] = "layer"  # around each sublayer
    positions: Literal["sinusoidal", "learned", "rotary", "none"] = "sinusoidal"
    window: int | None = Field(
        None, ge=1
    )  # decoders: how many tokens back are seen; without it, all
    causal: bool = False  # encoders: a token sees only what stands before it, as in the decoder it may come from
    activation: Literal["relu", "gelu", "gelu-tanh"] = "relu"
    scale: bool = True  # embeddings are multiplied by the root of their size, as the paper does
    entrance_norm: bool = False  # a layer norm on the sum of embeddings, as BERT has it
    segments: int = Field(
        0, ge=0
    )  # how many texts a [SEP] may separate, each with a vector of its own; 0: no vectors
    epsilon: float = Field(1e-5, gt=0)  # what a layer norm adds to the variance
    quiet_start: bool = (
        False  # at first no block adds anything, and all tokens are as likely: bears larger rates
    )
    halt: float = Field(
        0.99, gt=0, lt=1
    )  # universal only: a token halts when it has spent this much
    ponder: float = Field(0.001, ge=0)  # universal only: what a step costs in the loss, per token

    @property
    def inner(self) -> int:
        return self.feed_forward or 4 * self.size

    @model_validator(mode="after")
    def _heads_divide(self) -> "TransformerConfig":
        if self.size % self.heads:
            raise ValueError(
                f"{self.heads} heads cannot share {self.size} features evenly; choose a size they divide"
            )
        return self


class ConvolutionConfig(Section):
    """Residual blocks over a picture, which they halve again and again (S8, S9)."""

    kind: Literal["convolution"] = "convolution"
    size: int = Field(256, ge=1)  # features of each location that is left
    layers: int = Field(3, ge=1)  # how often height and width are halved
    channels: int = Field(
        32, ge=1
    )  # of the first layer; twice as many at each halving, but no more than the size
    blocks: int = Field(1, ge=1)  # residual blocks after each halving but the first


class GlimpseConfig(Section):
    """A recurrent network that looks at a picture through a series of windows (S22)."""

    kind: Literal["glimpse"] = "glimpse"
    size: int = Field(128, ge=1)
    glimpses: int = Field(6, ge=1)  # how often it looks
    window: int = Field(6, ge=2)  # filters on each side of the window


class FeaturesConfig(Section):
    """Vectors that another network has computed, each through one layer; or words, by their vectors alone."""

    kind: Literal["features"] = "features"
    size: int = Field(256, ge=1)


class AttentionConfig(Section):
    """How a recurrent decoder looks at the source (S14)."""

    score: Literal["dot", "general", "additive", "scaled"] = "additive"
    # bahdanau: the previous state asks, the answer enters the recurrence; luong: the current state asks, then
    # tanh(W_c [c; h]); concat: the current state asks, then plain [c; h]
    wiring: Literal["bahdanau", "luong", "concat"] = "bahdanau"
    feeding: bool = False  # luong and concat: what came out enters the next step
    doubly_stochastic: float = Field(
        0.0, ge=0
    )  # what it costs not to look at each place once in all (Xu et al. 2015)

    @model_validator(mode="after")
    def _feeds_once(self) -> "AttentionConfig":
        if self.feeding and self.wiring == "bahdanau":
            raise ValueError(
                "'bahdanau' feeds its context into the recurrence already; 'feeding' is for the others"
            )
        return self


class HMMConfig(Section):
    """A hidden Markov model (S1): a tagger, whose states are labels, or a language model, whose states are its own."""

    states: int | None = Field(None, ge=1)  # lm only: a tagger has as many as there are labels
    emissions: Literal["categorical", "diagonal", "full"] = (
        "categorical"  # of words; of vectors, Gaussians
    )
    order: int = Field(1, ge=1, le=2)  # tag only: how many labels a state remembers
    decode: Literal["viterbi", "posterior"] = (
        "viterbi"  # tag only: the likeliest path, or label by label
    )
    smoothing: float = Field(
        0.1, ge=0
    )  # lm: added to every count; tag: how much a word leans on those spelt like it


class LinearConfig(Section):
    """Logistic regression: over n-grams of a text, a summary of each feature of a sequence, or a small picture."""

    # of the data against the penalty |W|² / 2; without it, the best of several on the held-out part, if that is enough
    strength: float | None = Field(None, gt=0)


class CRFConfig(Section):
    """A linear-chain conditional random field over the spelling of each word and of its neighbours."""

    strength: float | None = Field(None, gt=0)  # as of a linear model


class NeighboursConfig(Section):
    """The answers of the training examples whose sources are the most alike."""

    count: int = Field(8, ge=1)
    sharpness: float = Field(
        50.0, gt=0
    )  # how much more a neighbour weighs that is more alike: e^(sharpness cosine)


class NgramsConfig(Section):
    """An n-gram language model with Kneser-Ney smoothing."""

    order: int = Field(5, ge=1, le=12)


class SmoothingConfig(Section):
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
        "additive-damped",
        "multiplicative",
        "multiplicative-trend",
        "multiplicative-damped",
        "linear",
    ] = "best"


Layers = Annotated[StackConfig | TransformerConfig, Field(discriminator="kind")]
Reader = Annotated[
    StackConfig | TransformerConfig | ConvolutionConfig | GlimpseConfig | FeaturesConfig,
    Field(discriminator="kind"),
]


class LDSConfig(Section):
    """A linear dynamical system for each variable (S2): a structure whose noises are learnt, or free states."""

    trend: Literal["level", "slope", "none"] = "level"
    harmonics: int = Field(
        3, ge=0
    )  # of the season: pairs of states that turn once in a season, twice, ...
    states: int = Field(0, ge=0)  # so many free ones instead, with everything about them learnt

    @model_validator(mode="after")
    def _has_a_state(self) -> "LDSConfig":
        if self.trend == "none" and self.harmonics == 0 and self.states == 0:
            raise ValueError("a system without a trend, a season or free states has nothing to say")
        return self


CLASSICAL_SECTIONS = ("hmm", "lds", "linear", "crf", "neighbours", "ngrams", "smoothing")


class ModelConfig(Section):
    embedding: int = Field(128, ge=1)
    encoder: Reader | None = None
    decoder: Layers | None = None
    attention: AttentionConfig | None = (
        None  # recurrent decoders only; a Transformer decoder has its own
    )
    characters: StackConfig | None = (
        None  # tag, classify: what reads each word's spelling, beside the word's own vector
    )
    hmm: HMMConfig | None = None  # tag, lm: in place of encoder and decoder
    elmo: StackConfig | None = (
        None  # classify, tag: a bidirectional language model whose layers are features (--from)
    )
    lds: LDSConfig | None = None  # forecast only: in place of an encoder
    # baselines, each in place of encoder and decoder
    linear: LinearConfig | None = None  # classify
    crf: CRFConfig | None = None  # tag
    neighbours: NeighboursConfig | None = None  # translate
    ngrams: NgramsConfig | None = None  # lm
    smoothing: SmoothingConfig | None = None  # forecast
    # classify and forecast; theme: mask too; flat: all states side by side, of windows that are equally long (forecast)
    pooling: Literal["final", "mean", "max", "detectors", "theme", "attention", "hops", "flat"] = (
        "final"
    )
    theme: int = Field(
        32, ge=1
    )  # pooling = "theme": how many numbers; a masked model learns what they say
    hops: int = Field(4, ge=1)  # pooling = "hops": how many weightings of the states
    hop_penalty: float = Field(
        0.0, ge=0
    )  # what it costs that two hops look at the same place (E49)
    pooling_norm: bool = (
        False  # mean 0 and deviation 1 over the texts of a batch (E51): helps where labels are few
    )
    vectors: str | None = (
        None  # a file of pretrained word vectors: one word a line, then its numbers
    )
    frozen_vectors: bool = False
    masked: float = Field(0.15, gt=0, lt=1)  # mask only: the share of tokens to be guessed
    context: Literal["first", "every"] = (
        "every"  # is the source's summary the first state only, or read at every step
    )
    pointer: bool = (
        False  # translate: tokens of the source may be copied; source and target share a vocabulary
    )
    tie: bool = False  # output weights are the embedding's, transposed
    dropout: float = Field(0.0, ge=0, lt=1)
    # of the vectors that enter a network, where that is not as for all others: characters are too few to be overfitted
    input_dropout: float | None = Field(None, ge=0, lt=1)
    word_dropout: float = Field(
        0.0, ge=0, lt=1
    )  # the share of a source's tokens that training does not see

    @property
    def classical(self) -> str:
        """The model that stands in place of encoder and decoder; empty where there is none."""
        return next((name for name in CLASSICAL_SECTIONS if getattr(self, name) is not None), "")

    @property
    def entrance_dropout(self) -> float:
        """The dropout of what enters a network."""
        return self.dropout if self.input_dropout is None else self.input_dropout


# each kind of encoder or decoder, and the section that holds its settings
FAMILIES: dict[str, type[Section]] = {
    kind: family
    for family in (StackConfig, TransformerConfig, ConvolutionConfig, GlimpseConfig, FeaturesConfig)
    for kind in get_args(family.model_fields["kind"].annotation)
}
