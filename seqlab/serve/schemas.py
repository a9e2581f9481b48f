"""The schemas of requests and answers, from which the OpenAPI document is made."""

from typing import Annotated, Any, Literal, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from seqlab import options
from seqlab.options import MAX_HYPOTHESES, MAX_TOKENS, Width
from seqlab.serve.limits import MOST_INPUTS, MOST_LETTERS, MOST_OF_A_TABLE

Number = Annotated[float, Field(allow_inf_nan=False)]
Row = Annotated[list[Number], Field(min_length=1, max_length=4096)]
Rows = Annotated[list[Row], Field(min_length=1, max_length=MOST_LETTERS)]
Picture = Annotated[list[list[Row]], Field(min_length=1, max_length=512)]
Input = Annotated[str, Field(max_length=MOST_OF_A_TABLE)] | Rows | Picture
Name = Annotated[
    str,
    Field(min_length=1, max_length=200, description="a name from /v1/models, or NAME@CHECKPOINT"),
]
Seed = Annotated[int, Field(ge=0, lt=1 << 63, description="seed of sampling")]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


def _fields(options: type) -> dict[str, Any]:
    """Return each option as an optional field, with the server's limits."""
    fields = {}
    for name, hint in get_type_hints(options, include_extras=True).items():
        _, bounds, text = get_args(hint)
        limited = Field(None, ge=bounds.served_least, le=bounds.served_most, description=text)
        fields[name] = (hint | None, limited)
    return fields


class Decoding(create_model("Decoding", __base__=Body, **_fields(options.DecodeOptions))):  # type: ignore[misc]
    """Options of decoding; what is left out is as in [decode] of the model's recipe."""

    n_best: Width | None = Field(
        None,
        le=MAX_HYPOTHESES,
        description="number of hypotheses to return; without `beam`, also the size of the beam",
    )


class ModelRequest(Body):
    """A request to a model."""

    model: Name


class Predict(ModelRequest):
    inputs: list[Input] = Field(
        max_length=MOST_INPUTS,
        description="texts, rows of a series, sequences of vectors, or images as rows of pixels",
    )
    prefix: str = Field(
        "", max_length=MAX_TOKENS, description="text that each translation must begin with"
    )
    seed: Seed = 0
    decode: Decoding = Decoding()


class Generate(ModelRequest):
    input: Input
    seed: Seed = 0
    decode: Decoding = Decoding()


class Next(ModelRequest):
    input: Input
    written: list[Annotated[int, Field(ge=0)]] = Field(
        [], max_length=MAX_TOKENS, description="ids of the tokens generated so far"
    )
    temperature: Number = Field(1.0, ge=0.01, le=100, description="divides the logits")
    top_k: int = Field(0, ge=0, description="keep the k most probable tokens; 0 keeps all")
    top_p: Number = Field(
        1.0, gt=0, le=1, description="keep the most probable tokens that add up to p"
    )
    most: int = Field(20, ge=1, le=1000, description="number of tokens to return")


class Score(ModelRequest):
    sources: list[Input] = Field(
        [], max_length=MOST_INPUTS, description="one for each target, if the model reads a source"
    )
    targets: list[Annotated[str, Field(max_length=MOST_LETTERS)]] = Field(
        max_length=MOST_INPUTS, description="texts to compute the log-probability of"
    )


class ViewOptions(create_model("ViewOptions", __base__=Body, **_fields(options.ExplainOptions))):  # type: ignore[misc]
    """Options of a view; each view takes some of these."""


class Explain(ModelRequest):
    input: Input | None = Field(None, description="input to explain; some views need none")
    options: ViewOptions = ViewOptions()


class Failure(BaseModel):
    error: str
    hint: str


class Health(BaseModel):
    status: Literal["ok"]


class ModelFacts(BaseModel):
    name: str
    task: str
    recipe: str
    about: str
    parameters: int
    usual: str = Field(description="the default view")
    views: list[str]
    examples: list[str]
    decode: dict[str, Any]
    run: bool


class Models(BaseModel):
    models: list[ModelFacts]


class Predicted(BaseModel):
    model: str
    outputs: list[dict[str, Any]]


class Token(BaseModel):
    id: int
    piece: str


class Candidate(Token):
    probability: float
    adjusted: float = Field(description="probability after temperature, top_k and top_p")


class NextTokens(BaseModel):
    written: list[Token]
    text: str
    ended: bool
    candidates: list[Candidate]
    entropy: float


class Scores(BaseModel):
    scores: list[float]


class Drawn(BaseModel):
    title: str
    svg: str


class ViewAnswer(BaseModel):
    model_config = ConfigDict(extra="allow")

    view: str
    title: str
    pictures: list[Drawn]


class RunRecord(BaseModel):
    rows: list[dict[str, Any]]
    next: int
    running: bool
    checkpoints: list[str]
