"""A recipe with its section `train`: read from TOML, written to TOML, and changed by `section.key=value` settings.

Errors name the key.
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

# sections that --set can add to a recipe
OPTIONAL = ("encoder", "decoder", "attention", "characters", "elmo", "image", *CLASSICAL_SECTIONS)
# the length of a training is given as one of these
LENGTHS = {"steps", "epochs", "minutes"}


class TrainConfig(Section):
    """How a model is trained."""

    seed: int = Field(1, ge=0)
    steps: int | None = Field(None, ge=1)
    epochs: float | None = Field(None, gt=0)
    # time limit from the first step to the final scores; EM may converge earlier
    minutes: float | None = Field(None, gt=0)
    # positions of the longer side, padding included
    batch_tokens: int = Field(4096, ge=1)
    # lm with unit = "stream": parallel streams
    batch_rows: int = Field(32, ge=1)
    # lm with unit = "stream": steps of truncated backpropagation through time
    bptt: int = Field(64, ge=1)
    # distributed training: each process keeps a part of weights, gradients and optimizer state
    shard: bool = False
    # of matrix products; auto: bfloat16 if it is clearly faster on this machine. Weights are always float32
    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    optimizer: Literal["adamw", "muon", "sgd"] = "adamw"
    learning_rate: float = Field(2e-3, gt=0)
    # sgd only
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(0.01, ge=0)
    schedule: Literal["cosine", "inverse-sqrt", "constant"] = "cosine"
    # steps
    warmup: int = Field(100, ge=0)
    clip: float = Field(1.0, gt=0)
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    average: Literal["none", "ema", "last"] = "none"
    ema_decay: float = Field(0.999, gt=0, lt=1)
    # checkpoints
    average_last: int = Field(5, ge=1)
    # steps; by default the run has twenty validations
    validate_every: int | None = Field(None, ge=1)
    # a factor on the learning rate of weights that come from the model given with --from
    encoder_rate: float = Field(1.0, gt=0)
    # the number of first steps in which the encoder is not trained
    encoder_frozen: int = Field(0, ge=0)
    # what happens when a gradient is not finite: skip the step, return to the last checkpoint and continue at half
    # the learning rate, or stop
    divergence: Literal["skip", "rollback", "stop"] = "skip"
    # keep the weights of this many validations, the latest ones
    keep: int = Field(0, ge=0)
    # also write curves for `tensorboard --logdir runs`; needs seqlab[tensorboard]
    tensorboard: bool = False
    # the criterion of the best validation; equal accuracies are ordered by loss
    best: Literal["loss", "accuracy"] = "loss"
    # stop after this many validations without improvement
    patience: int | None = Field(None, ge=1)
    # EM: the number of random initialisations, each with up to `steps` iterations
    restarts: int = Field(1, ge=1)
    # EM: converged when an iteration improves the likelihood by less, in nats per token
    tolerance: float = Field(1e-4, ge=0)

    @model_validator(mode="after")
    def _one_length(self) -> "TrainConfig":
        if sum(length is not None for length in (self.steps, self.epochs, self.minutes)) > 1:
            raise ValueError("give one of 'steps', 'epochs' and 'minutes', not several")
        if self.shard and self.optimizer == "muon":
            raise ValueError(
                "'muon' needs complete matrices; with 'shard', use the optimizer 'adamw' or 'sgd'"
            )
        if self.shard and self.minutes is not None:
            raise ValueError("with 'shard', give 'steps' or 'epochs'")
        return self


class Recipe(Section):
    """All settings of a model, its data and its training."""

    name: str
    # `seqlab.tasks.check_recipe` checks that the sections suit it
    task: str
    about: str = ""
    # one vocabulary for source and target
    shared: bool = False
    data: DataConfig = DataConfig()
    # classify, caption: the source is a picture
    image: ImageConfig | None = None
    source: TextConfig = TextConfig()
    target: TextConfig = TextConfig()
    model: ModelConfig = ModelConfig()
    forecast: ForecastConfig = ForecastConfig()
    train: TrainConfig
    decode: DecodeConfig = DecodeConfig()


def load_recipe(name: str) -> Recipe:
    """Load a recipe of the package by its name, or the user's own from a .toml file."""
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise RecipeError(
                f"{name}: there is no such recipe file",
                hint="give the path of a file, or the name of a recipe.",
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
    """Parse a recipe from TOML; `where` names it in messages."""
    try:
        return build_recipe(tomllib.loads(text), where=where)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(
            f"{where}: not valid TOML: {error}",
            hint='a value is a number, true, false or a "string".',
        ) from None


def build_recipe(table: Mapping[str, Any], *, where: str) -> Recipe:
    """Build a recipe from nested tables; errors name the key."""
    try:
        return Recipe.model_validate(dict(table))
    except ValidationError as error:
        raise _explain(error, where) from None


def override(recipe: Recipe, settings: Iterable[str]) -> Recipe:
    """Return the recipe with `section.key=value` settings applied; values are read as TOML, else as plain strings.

    Settings that neither the recipe nor `settings` name stay unset, so that they can still be chosen from the data.
    """
    complete = recipe.model_dump()
    named = recipe.model_dump(exclude_unset=True)
    for setting in settings:
        path, equals, value = setting.partition("=")
        keys = path.strip().split(".")
        if not equals or not all(keys):
            raise RecipeError(
                f"--set {setting}: not of the form key=value",
                hint="for example --set train.steps=500",
            )
        _set_value(complete, named, keys, _parse_value(value.strip()), where=f"--set {setting}")
    return build_recipe(named, where=f"recipe '{recipe.name}' with --set")


def _set_value(
    complete: dict[str, Any], named: dict[str, Any], keys: list[str], value: Any, *, where: str
) -> None:
    """Set a value in the tables of a recipe, with and without defaults, and delete the settings that it excludes."""
    section, named_section = complete, named
    for key in keys[:-1]:
        if section.get(key) is None and key in OPTIONAL:
            section[key] = {}
        if key in section and not isinstance(section[key], dict):
            raise RecipeError(
                f"{where}: '{key}' is a value, not a section",
                hint=f"it is {section[key]!r} in this recipe.",
            )
        if key not in section:
            raise RecipeError(f"{where}: there is no section '{key}'", hint=nearest(key, section))
        section = section[key]
        named_section[key] = named_section.get(key) or {}
        named_section = named_section[key]
    section[keys[-1]] = value
    named_section[keys[-1]] = value
    if keys[0] == "model" and keys[-1] == "kind":
        # another kind of layers has other settings
        family = FAMILIES.get(value, StackConfig)
        for name in named_section.keys() - family.model_fields.keys():
            del named_section[name]
    if keys == ["source", "kind"] and value != "words":
        # only words have characters
        named.get("model", {}).pop("characters", None)
    if keys[0] == "train" and keys[-1] in LENGTHS:
        named_section |= dict.fromkeys(LENGTHS - {keys[-1]})


def is_named(recipe: Recipe, path: str) -> bool:
    """Whether a recipe, or `override`, gives a value for a setting; others may be chosen from the data."""
    section: Any = recipe
    for key in path.split("."):
        if section is None or key not in section.model_fields_set:
            return False
        section = getattr(section, key)
    return section is not None


def value_of(recipe: Recipe, path: str) -> Any:
    """Return the value of a setting by its dotted name, or None if its section is missing."""
    section: Any = recipe
    for key in path.split("."):
        section = getattr(section, key, None)
    return section


def to_toml(recipe: Recipe) -> str:
    """Write the recipe as TOML, from which `parse_recipe` gives an equal recipe."""
    return "\n".join(_toml_lines(recipe.model_dump(), "")) + "\n"


def _parse_value(text: str) -> Any:
    """Read a value as TOML, or as a plain string."""
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
    if isinstance(value, bool | str):
        # TOML writes them as JSON does, except that the delete character must be escaped
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def _explain(error: ValidationError, where: str) -> RecipeError:
    """Turn the first validation error into a message; for an unknown key, suggest the nearest name."""
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    # pydantic names the member of a union by its kind, which is not a key
    key = ".".join(part for part in path if part not in FAMILIES)
    if first["type"] == "extra_forbidden":
        section: Any = Recipe
        for part in path[:-1]:
            section = _section_type(section, part)
        return RecipeError(
            f"{where}: there is no '{key}'", hint=nearest(path[-1], section.model_fields)
        )
    message = first["msg"].removeprefix("Value error, ")
    setting = f"'{key}': " if key else ""
    value = "" if first["type"] in ("missing", "value_error") else f" (it is {first['input']!r})"
    return RecipeError(
        f"{where}: {setting}{message}{value}",
        hint="`seqlab recipes NAME` shows a recipe that works.",
    )


def _section_type(section: Any, key: str) -> Any:
    """Return the class of the section below `key`, or `section` itself if the key holds a value."""
    if key in FAMILIES:
        return FAMILIES[key]
    annotation = section.model_fields[key].annotation
    members = getattr(annotation, "__args__", (annotation,))
    for member in members:
        if isinstance(member, type) and issubclass(member, Section):
            return member
    return section
