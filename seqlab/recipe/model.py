"""The section `model` of a recipe, with the settings of each part of a network."""

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

Cell = Literal["rnn", "relu-rnn", "lstm", "gru", "gru-torch", "mgu"]
Connection = Literal["plain", "residual", "highway", "dense"]


class Section(BaseModel):
    """A section of a recipe: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _none_as_null(cls, table: Any) -> Any:
        """Read "none" as null for optional settings, because TOML has no null."""
        if not isinstance(table, dict):
            return table
        values = dict(table)
        for name, field in cls.model_fields.items():
            optional = type(None) in get_args(field.annotation)
            if optional and values.get(name) == "none":
                values[name] = None
        return values


class StackConfig(Section):
    """A stack of recurrent layers."""

    kind: Cell = "lstm"
    size: int = Field(256, ge=1)
    layers: int = Field(1, ge=1)
    bidirectional: bool = False
    connection: Connection = "plain"


class TransformerConfig(Section):
    """A stack of self-attention blocks; "universal" applies one block repeatedly, until each token halts."""

    kind: Literal["transformer", "universal"] = "transformer"
    size: int = Field(256, ge=1)
    # universal: the maximum number of steps of a token
    layers: int = Field(3, ge=1)
    heads: int = Field(4, ge=1)
    # inner features of the feed-forward layer; by default four times the size
    feed_forward: int | None = Field(None, ge=1)
    norm: Literal["post", "pre"] = "pre"
    # the normalisation around each sublayer
    normalise: Literal["layer", "batch", "none"] = "layer"
    positions: Literal["sinusoidal", "learned", "rotary", "none"] = "sinusoidal"
    # decoders: how many previous tokens are attended to; by default all
    window: int | None = Field(None, ge=1)
    # encoders: each token attends only to itself and to previous ones, as in a decoder
    causal: bool = False
    activation: Literal["relu", "gelu", "gelu-tanh"] = "relu"
    # multiply embeddings by the square root of their size, as Vaswani et al. do
    scale: bool = True
    # a layer norm on the sum of embeddings, as in BERT
    entrance_norm: bool = False
    # the maximum number of texts separated by [SEP], each with a learned segment vector; 0: no segment vectors
    segments: int = Field(0, ge=0)
    # what a layer norm adds to the variance
    epsilon: float = Field(1e-5, gt=0)
    # initialise blocks to the identity and the output to a uniform distribution, which allows larger learning rates
    quiet_start: bool = False
    # universal: a token halts when its halting probabilities sum to this
    halt: float = Field(0.99, gt=0, lt=1)
    # universal: the loss added for each step of a token
    ponder: float = Field(0.001, ge=0)

    @property
    def inner(self) -> int:
        """The number of inner features of the feed-forward layer."""
        return self.feed_forward or 4 * self.size

    @model_validator(mode="after")
    def _heads_divide(self) -> "TransformerConfig":
        if self.size % self.heads:
            raise ValueError(
                f"{self.heads} heads cannot share {self.size} features evenly; choose a multiple of {self.heads}"
            )
        return self


class ConvolutionConfig(Section):
    """Residual convolution blocks that halve the size of a picture several times (S8, S9)."""

    kind: Literal["convolution"] = "convolution"
    # features of each location of the output
    size: int = Field(256, ge=1)
    # how many times height and width are halved
    layers: int = Field(3, ge=1)
    # channels of the first layer; doubled at each halving, up to `size`
    channels: int = Field(32, ge=1)
    # residual blocks after each halving but the first
    blocks: int = Field(1, ge=1)


class GlimpseConfig(Section):
    """A recurrent network that reads a picture through a sequence of windows (S22)."""

    kind: Literal["glimpse"] = "glimpse"
    size: int = Field(128, ge=1)
    # the number of windows that are read
    glimpses: int = Field(6, ge=1)
    # filters on each side of the window
    window: int = Field(6, ge=2)


class FeaturesConfig(Section):
    """One linear layer over precomputed feature vectors, or over word embeddings, without context."""

    kind: Literal["features"] = "features"
    size: int = Field(256, ge=1)


class AttentionConfig(Section):
    """The attention of a recurrent decoder over the source (S14)."""

    score: Literal["dot", "general", "additive", "scaled"] = "additive"
    # bahdanau: the query is the previous state, and the context is an input of the recurrence;
    # luong: the query is the current state, and the output is tanh(W_c [c; h]);
    # concat: the query is the current state, and the output is [c; h]
    wiring: Literal["bahdanau", "luong", "concat"] = "bahdanau"
    # luong and concat: the attention output is an input of the next step
    feeding: bool = False
    # weight of the penalty on source positions whose attention does not sum to one (Xu et al. 2015)
    doubly_stochastic: float = Field(0.0, ge=0)

    @model_validator(mode="after")
    def _feeds_once(self) -> "AttentionConfig":
        if self.feeding and self.wiring == "bahdanau":
            raise ValueError(
                "'bahdanau' feeds its context into the recurrence already; 'feeding' is for 'luong' and 'concat'"
            )
        return self


class HMMConfig(Section):
    """A hidden Markov model (S1): a tagger whose states are labels, or a language model with unnamed states."""

    # lm: the number of states; a tagger has one for each label
    states: int | None = Field(None, ge=1)
    # categorical over words, or Gaussian over vectors, with a diagonal or a full covariance
    emissions: Literal["categorical", "diagonal", "full"] = "categorical"
    # tag: how many previous labels a transition depends on
    order: int = Field(1, ge=1, le=2)
    # tag: the most probable path, or the most probable label at each position
    decode: Literal["viterbi", "posterior"] = "viterbi"
    # lm: added to every count; tag: weight of words with the same ending in the emissions of a word
    smoothing: float = Field(0.1, ge=0)


class LinearConfig(Section):
    """Logistic regression over n-grams of a text, summary statistics of a sequence, or pixels of a small picture."""

    # weight of the data relative to the penalty |W|² / 2; by default the best of several on the held-out part
    strength: float | None = Field(None, gt=0)
    points: int = Field(
        0, ge=0, le=1000
    )  # values of each feature of a sequence, evenly spread over its length


class CRFConfig(Section):
    """A linear-chain conditional random field over the spelling of each word and of its neighbours."""

    # weight of the data relative to the penalty, as in `LinearConfig`
    strength: float | None = Field(None, gt=0)


class NeighboursConfig(Section):
    """A mixture of the targets of the training examples with the most similar sources."""

    count: int = Field(8, ge=1)
    # a neighbour has the weight e^(sharpness * cosine)
    sharpness: float = Field(50.0, gt=0)


class NgramsConfig(Section):
    """An n-gram language model with Kneser-Ney smoothing."""

    order: int = Field(5, ge=1, le=12)


class SmoothingConfig(Section):
    """Exponential smoothing and simpler forecasts: one form, or a mean of those with the smallest backtest errors."""

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
    """A linear dynamical system for each variable (S2): a structural model with learnt noises, or free states."""

    trend: Literal["level", "slope", "none"] = "level"
    # harmonics of the season: pairs of states that rotate once, twice, ... in a season
    harmonics: int = Field(3, ge=0)
    # if not 0: this many states without structure, all of whose matrices are learnt
    states: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _has_a_state(self) -> "LDSConfig":
        if self.trend == "none" and self.harmonics == 0 and self.states == 0:
            raise ValueError("a system needs a trend, harmonics of a season, or free states")
        return self


CLASSICAL_SECTIONS = ("hmm", "lds", "linear", "crf", "neighbours", "ngrams", "smoothing")


class ModelConfig(Section):
    """The network of a recipe, or the classical model that replaces it."""

    embedding: int = Field(128, ge=1)
    encoder: Reader | None = None
    decoder: Layers | None = None
    # recurrent decoders only; a Transformer decoder has attention of its own
    attention: AttentionConfig | None = None
    # tag, classify: a recurrent stack over the characters of each word, concatenated to the word's embedding
    characters: StackConfig | None = None
    # tag, lm: instead of an encoder and a decoder
    hmm: HMMConfig | None = None
    # classify, tag: a bidirectional language model whose layers are features (--from)
    elmo: StackConfig | None = None
    # forecast: instead of an encoder
    lds: LDSConfig | None = None
    # baselines, each instead of an encoder and a decoder
    linear: LinearConfig | None = None  # classify
    crf: CRFConfig | None = None  # tag
    neighbours: NeighboursConfig | None = None  # translate
    ngrams: NgramsConfig | None = None  # lm
    smoothing: SmoothingConfig | None = None  # forecast
    # classify and forecast; "theme" is for mask too, "flat" (all states concatenated) only for forecast
    pooling: Literal["final", "mean", "max", "detectors", "theme", "attention", "hops", "flat"] = (
        "final"
    )
    # pooling = "theme": the size of the theme vector, which a masked language model learns
    theme: int = Field(32, ge=1)
    # pooling = "hops": the number of attention distributions over the states
    hops: int = Field(4, ge=1)
    # weight of the penalty on hops that attend to the same positions (E49)
    hop_penalty: float = Field(0.0, ge=0)
    # batch normalisation of the pooled vector (E51); helps with few labels
    pooling_norm: bool = False
    # a file of pretrained word vectors: each line a word and its numbers
    vectors: str | None = None
    frozen_vectors: bool = False
    # mask: the share of tokens that are masked
    masked: float = Field(0.15, gt=0, lt=1)
    # a decoder without attention reads the summary of the source in its first state only, or at every step
    context: Literal["first", "every"] = "every"
    # translate: tokens of the source may be copied; source and target share a vocabulary
    pointer: bool = False
    # the output weights are the transposed embedding
    tie: bool = False
    dropout: float = Field(0.0, ge=0, lt=1)
    # dropout of the input vectors, by default `dropout`; characters are too few to be overfitted
    input_dropout: float | None = Field(None, ge=0, lt=1)
    # the share of source tokens that are hidden in training
    word_dropout: float = Field(0.0, ge=0, lt=1)

    @property
    def classical(self) -> str:
        """The section of the classical model that replaces encoder and decoder, or an empty string."""
        return next((name for name in CLASSICAL_SECTIONS if getattr(self, name) is not None), "")

    @property
    def entrance_dropout(self) -> float:
        """The dropout rate of input vectors."""
        return self.dropout if self.input_dropout is None else self.input_dropout


# the section that holds the settings of each kind of encoder or decoder
FAMILIES: dict[str, type[Section]] = {
    kind: family
    for family in (StackConfig, TransformerConfig, ConvolutionConfig, GlimpseConfig, FeaturesConfig)
    for kind in get_args(family.model_fields["kind"].annotation)
}
