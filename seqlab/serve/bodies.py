"""What requests and answers look like: the interface's document is made from these."""

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
    str, Field(min_length=1, max_length=200, description="a name of /v1/models, or NAME@CHECKPOINT")
]
Seed = Annotated[int, Field(ge=0, lt=1 << 63)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


def _fields(options: type) -> dict[str, Any]:
    """Each option as a field that may be left out, within what a server bears."""
    fields = {}
    for name, hint in get_type_hints(options, include_extras=True).items():
        _, bounds, text = get_args(hint)
        limited = Field(None, ge=bounds.served_least, le=bounds.served_most, description=text)
        fields[name] = (hint | None, limited)
    return fields


class Decoding(create_model("Decoding", __base__=Body, **_fields(options.DecodeOptions))):  # type: ignore[misc]
    """What to decode by instead of the recipe's own [decode]."""

    n_best: Width | None = Field(
        None,
        le=MAX_HYPOTHESES,
        description="how many hypotheses to answer with; a beam of as many, if none",
    )


class ModelRequest(Body):
    """What is asked of a model."""

    model: Name


class Predict(ModelRequest):
    inputs: list[Input] = Field(max_length=MOST_INPUTS)
    prefix: str = Field("", max_length=MAX_TOKENS)
    seed: Seed = 0
    decode: Decoding = Decoding()


class Generate(ModelRequest):
    input: Input
    seed: Seed = 0
    decode: Decoding = Decoding()


class Next(ModelRequest):
    input: Input
    written: list[Annotated[int, Field(ge=0)]] = Field([], max_length=MAX_TOKENS)
    temperature: Number = Field(1.0, ge=0.01, le=100)
    top_k: int = Field(0, ge=0, description="0: all")
    top_p: Number = Field(1.0, gt=0, le=1)
    most: int = Field(20, ge=1, le=1000)


class Score(ModelRequest):
    sources: list[Input] = Field([], max_length=MOST_INPUTS)
    targets: list[Annotated[str, Field(max_length=MOST_LETTERS)]] = Field(max_length=MOST_INPUTS)


class ViewOptions(create_model("ViewOptions", __base__=Body, **_fields(options.ExplainOptions))):  # type: ignore[misc]
    """What a view can be told; each view takes some of these."""


class Explain(ModelRequest):
    input: Input | None = None
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
    usual: str
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
    adjusted: float


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
