"""A recipe as a whole, and how it is trained: from TOML and to TOML, with settings changed by name.

An error names the key.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from seqlab.errors import RecipeError, nearest
from seqlab.recipe.model import CLASSICAL_SECTIONS, FAMILIES, ModelConfig, Section, StackConfig
from seqlab.recipe.sections import (
    DataConfig,
    DecodeConfig,
    ForecastConfig,
    ImageConfig,
    TextConfig,
)
from seqlab.recipes import recipe_names, recipe_table

# sections that --set can begin
OPTIONAL = ("encoder", "decoder", "attention", "characters", "elmo", "image", *CLASSICAL_SECTIONS)
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
    precision: Literal["float32", "bfloat16", "auto"] = (
        "float32"  # of products; auto: bfloat16 where this machine multiplies it clearly faster. Weights stay float32
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


class Recipe(Section):
    """Everything that makes a model what it is, except the data and the seed of the universe."""

    name: str
    task: str  # which checks that the parts fit: `seqlab.tasks.check_recipe`
    about: str = ""
    shared: bool = False  # one vocabulary for source and target
    data: DataConfig = DataConfig()
    image: ImageConfig | None = (
        None  # classify, caption: the source is a picture, whose rows of pixels are vectors
    )
    source: TextConfig = TextConfig()
    target: TextConfig = TextConfig()
    model: ModelConfig = ModelConfig()
    forecast: ForecastConfig = ForecastConfig()
    train: TrainConfig
    decode: DecodeConfig = DecodeConfig()


def load_recipe(name: str) -> Recipe:
    """A recipe by name, or from a .toml file of the user's."""
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise RecipeError(
                f"{name}: there is no such recipe file",
                hint="give a path that exists, or a recipe's name.",
            )
        try:
            return parse_recipe(path.read_text("utf-8"), where=name)
        except UnicodeDecodeError:
            raise RecipeError(
                f"{name}: not valid UTF-8", hint="a recipe is a text file: TOML in UTF-8."
            ) from None
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
            f"{where}: not valid TOML: {error}",
            hint='a value is a number, true, false or a "string".',
        ) from None


def build_recipe(table: Mapping[str, Any], *, where: str) -> Recipe:
    """A recipe from nested tables, with errors that name the key."""
    try:
        return Recipe.model_validate(dict(table))
    except ValidationError as error:
        raise _explain(error, where) from None


def override(recipe: Recipe, settings: Iterable[str]) -> Recipe:
    """The recipe with `section.key=value` settings applied; values are read as TOML, else as plain strings.

    What the recipe leaves open stays open: only what it names, and what is set here, is named afterwards.
    """
    whole, table = recipe.model_dump(), recipe.model_dump(exclude_unset=True)
    for setting in settings:
        path, equals, value = setting.partition("=")
        keys = path.strip().split(".")
        if not equals or not all(keys):
            raise RecipeError(
                f"--set {setting}: not of the form key=value",
                hint="for example --set train.steps=500",
            )
        place, named = whole, table
        for key in keys[:-1]:
            if place.get(key) is None and key in OPTIONAL:
                place[key] = {}
            if key in place and not isinstance(place[key], dict):
                raise RecipeError(
                    f"--set {setting}: '{key}' is a value, not a section",
                    hint=f"it is {place[key]!r} in this recipe.",
                )
            if key not in place:
                raise RecipeError(
                    f"--set {setting}: there is no section '{key}'", hint=nearest(key, place)
                )
            place = place[key]
            named[key] = named.get(key) or {}
            named = named[key]
        place[keys[-1]] = named[keys[-1]] = _value(value.strip())
        if keys[-1] == "kind" and keys[0] == "model":  # another family has other settings
            family = FAMILIES.get(named["kind"], StackConfig)
            for name in named.keys() - family.model_fields.keys():
                del named[name]
        if (
            keys == ["source", "kind"] and named["kind"] != "words"
        ):  # what is no word has no spelling
            table.get("model", {}).pop("characters", None)
        if keys[0] == "train" and keys[-1] in LENGTHS:
            named |= dict.fromkeys(LENGTHS - {keys[-1]})
    return build_recipe(table, where=f"recipe '{recipe.name}' with --set")


def is_named(recipe: Recipe, path: str) -> bool:
    """Whether a recipe, or `override`, names a setting; what it leaves open may be chosen from the data."""
    section: Any = recipe
    for key in path.split("."):
        if section is None or key not in section.model_fields_set:
            return False
        section = getattr(section, key)
    return section is not None


def value_of(recipe: Recipe, path: str) -> Any:
    """The value of a setting by its dotted name; None where its section is missing."""
    section: Any = recipe
    for key in path.split("."):
        section = getattr(section, key, None)
    return section


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
    if isinstance(value, bool | str):  # TOML writes them as JSON does, and no deletion as it is
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def _explain(error: ValidationError, where: str) -> RecipeError:
    """The first thing that is wrong, as a sentence; for an unknown key, the nearest name there is."""
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    key = ".".join(
        part for part in path if part not in FAMILIES
    )  # pydantic names a member of a union by its kind
    if first["type"] == "extra_forbidden":
        section: Any = Recipe
        for part in path[:-1]:
            section = _section_type(section, part)
        return RecipeError(
            f"{where}: there is no '{key}'", hint=nearest(path[-1], section.model_fields)
        )
    message = first["msg"].removeprefix("Value error, ")
    place = f"'{key}': " if key else ""
    value = "" if first["type"] in ("missing", "value_error") else f" (it is {first['input']!r})"
    return RecipeError(
        f"{where}: {place}{message}{value}", hint="`seqlab recipes NAME` shows a recipe that works."
    )


def _section_type(section: Any, key: str) -> Any:
    if key in FAMILIES:
        return FAMILIES[key]
    annotation = section.model_fields[key].annotation
    choices = getattr(annotation, "__args__", (annotation,))
    return next((c for c in choices if isinstance(c, type) and issubclass(c, Section)), section)
