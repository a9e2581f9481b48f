"""What requests and answers look like: the interface's document is made from these."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from seqlab.serve.limits import MOST_HYPOTHESES, MOST_INPUTS, MOST_LETTERS, MOST_LOOKED_AT, MOST_OF_A_TABLE, MOST_TOKENS

Number = Annotated[float, Field(allow_inf_nan=False)]
Row = Annotated[list[Number], Field(min_length=1, max_length=4096)]
Rows = Annotated[list[Row], Field(min_length=1, max_length=MOST_LETTERS)]
Picture = Annotated[list[list[Row]], Field(min_length=1, max_length=512)]
Input = Annotated[str, Field(max_length=MOST_OF_A_TABLE)] | Rows | Picture
Name = Annotated[str, Field(min_length=1, max_length=200, description="a name of /v1/models, or NAME@CHECKPOINT")]
Seed = Annotated[int, Field(ge=0, lt=1 << 63)]
Temperature = Annotated[float, Field(ge=0.01, le=100.0, allow_inf_nan=False)]
Penalty = Annotated[float, Field(ge=0.0, le=10.0, allow_inf_nan=False)]
Mass = Annotated[float, Field(gt=0.0, le=1.0, allow_inf_nan=False)]
Coverage = Annotated[float, Field(ge=0.5, le=0.99, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=MOST_TOKENS)]
Width = Annotated[int, Field(ge=1, le=MOST_HYPOTHESES)]
Short = Annotated[str, Field(max_length=200)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Decoding(Body):
    """What to decode by instead of the recipe's own [decode]."""

    method: Literal["greedy", "sample", "beam"] | None = None
    beam: Width | None = None
    temperature: Temperature | None = None
    top_k: int | None = Field(None, ge=1, le=1_000_000)
    top_p: Mass | None = None
    length_penalty: Penalty | None = None
    no_repeat: Count | None = None
    min_length: int | None = Field(None, ge=0, le=MOST_TOKENS)
    max_length: Count | None = None
    conformal: Coverage | None = None
    n_best: (
        Annotated[Width, Field(description="how many hypotheses to answer with; a beam of as many, if none")] | None
    ) = None


class Predict(Body):
    model: Name
    inputs: list[Input] = Field(max_length=MOST_INPUTS)
    prefix: str = Field("", max_length=MOST_TOKENS)
    seed: Seed = 0
    decode: Decoding = Decoding()


class Generate(Body):
    model: Name
    input: Input
    seed: Seed = 0
    decode: Decoding = Decoding()


class Next(Body):
    model: Name
    input: Input
    written: list[Annotated[int, Field(ge=0)]] = Field([], max_length=MOST_TOKENS)
    temperature: Temperature = 1.0
    top_k: int = Field(0, ge=0, description="0: all")
    top_p: Mass = 1.0
    most: int = Field(20, ge=1, le=1000)


class Score(Body):
    model: Name
    sources: list[Input] = Field([], max_length=MOST_INPUTS)
    targets: list[Annotated[str, Field(max_length=MOST_LETTERS)]] = Field(max_length=MOST_INPUTS)


class ViewOptions(Body):
    """What a view can be told; each view takes some of these."""

    output: str | None = Field(None, max_length=MOST_LOOKED_AT)
    layer: Short | None = None
    cell: Short | None = None
    head: Count | None = None
    hypothesis: Width | None = None
    position: int | None = Field(None, ge=1)
    unit: int | None = Field(None, ge=0)
    pattern: str | None = Field(None, max_length=100)
    method: Short | None = None
    ablate: list[Short] | None = Field(None, max_length=50)
    replace: Short | None = None
    prefix: str | None = Field(None, max_length=MOST_TOKENS)
    temperature: Temperature | None = None
    beam: Width | None = None
    length_penalty: Penalty | None = None
    replay_beam: Width | None = None
    replay_penalty: Penalty | None = None
    column: Short | None = None


class Explain(Body):
    model: Name
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


class Seen(BaseModel):
    model_config = ConfigDict(extra="allow")

    view: str
    title: str
    pictures: list[Drawn]


class Run(BaseModel):
    rows: list[dict[str, Any]]
    next: int
    running: bool
    checkpoints: list[str]
