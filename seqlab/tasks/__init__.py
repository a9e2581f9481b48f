"""The tasks: one record a task, in one visible tuple.

A new task is one file in this room, a line here, a recipe and its tests.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from seqlab.bundle import Bundle, read_bundle
from seqlab.codecs.codec import Codec
from seqlab.codecs.text import read_codec
from seqlab.errors import RecipeError, UsageError, nearest
from seqlab.models.build import build_seeded
from seqlab.recipe import Decode, Recipe
from seqlab.subject import Question, Subject
from seqlab.tasks.bilm import BILM
from seqlab.tasks.caption import CAPTION
from seqlab.tasks.checks import check_parts, check_settings
from seqlab.tasks.classify import CLASSIFY
from seqlab.tasks.examples import ask
from seqlab.tasks.forecast import FORECAST
from seqlab.tasks.lm import LM
from seqlab.tasks.mask import MASK_TASK
from seqlab.tasks.speak import SPEAK
from seqlab.tasks.tag import TAG
from seqlab.tasks.task import Answer, Task
from seqlab.tasks.translate import TRANSLATE

TASKS: tuple[Task, ...] = (LM, MASK_TASK, BILM, CLASSIFY, TAG, TRANSLATE, FORECAST, CAPTION, SPEAK)


def task_named(name: str) -> Task:
    """The task of this name."""
    for task in TASKS:
        if task.name == name:
            return task
    names = [task.name for task in TASKS]
    raise UsageError(
        f"there is no task '{name}'" if name else "which task?", hint=nearest(name, names)
    )


def task_of(recipe: Recipe) -> Task:
    """The task of a recipe."""
    try:
        return task_named(recipe.task)
    except UsageError as error:
        raise RecipeError(f"recipe '{recipe.name}': {error}", hint=error.hint) from None


def check_recipe(recipe: Recipe) -> Recipe:
    """The recipe, if its parts fit its task."""
    task = task_of(recipe)
    try:
        task.check(recipe)
        check_settings(recipe, task.takes)
        check_parts(recipe, task.parts)
    except ValueError as error:
        hint = "`seqlab recipes NAME` shows a recipe that works."
        raise RecipeError(f"recipe '{recipe.name}': {error}", hint=hint) from None
    return recipe


def build_model(recipe: Recipe, codec: Codec) -> nn.Module:
    """The network that a recipe describes; its first weights depend on the recipe's seed alone."""
    return build_seeded(recipe, lambda: task_of(recipe).build(recipe, codec))


def codec_of(recipe: Recipe, table: Any) -> Codec:
    """The codec in the tokenizer.json of a model of this recipe."""
    task = task_of(recipe)
    return read_codec(table, recipe, task.reads(recipe), task.writes(recipe))


def load_bundle(folder: str | Path) -> Bundle:
    """Read a bundle, after checking that each of its files is there and is the one that was written."""
    return read_bundle(folder, check=check_recipe, codec=codec_of, build=build_model)


def subject(
    bundle: Bundle,
    given: Any,
    *,
    output: str | None = None,
    decode: Decode | None = None,
    hypothesis: int = 1,
) -> Subject:
    """The model at work on one input. A translation is searched for as the recipe or `decode` says, or is `output`."""
    question = Question(bundle, given, output, decode or bundle.recipe.decode, hypothesis)
    return task_of(bundle.recipe).subject(question)


def predict(bundle: Bundle, inputs: Sequence[Any], **options: Any) -> Sequence[Answer]:
    """An answer to each input, in the same order; `options` are those of `tasks.examples.ask`."""
    return ask(task_of(bundle.recipe).predict, bundle, inputs, **options)
