"""The list of tasks, and functions that find the task of a recipe and use it.

A new task is one file in this folder, an entry in `TASKS`, a recipe and its tests.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from seqlab.bundle import Bundle, read_bundle
from seqlab.codecs.codec import Codec
from seqlab.codecs.text import read_codec
from seqlab.errors import RecipeError, UsageError, nearest
from seqlab.kernels.build import build_in_background
from seqlab.models.build import build_seeded
from seqlab.recipe import (
    NUMBERS,
    ConvolutionConfig,
    DecodeConfig,
    GlimpseConfig,
    Recipe,
    StackConfig,
)
from seqlab.recipe.model import CLASSICAL_SECTIONS
from seqlab.subject import Question, Subject
from seqlab.tasks.bilm import BILM
from seqlab.tasks.caption import CAPTION
from seqlab.tasks.classify import CLASSIFY
from seqlab.tasks.examples import answer_inputs
from seqlab.tasks.forecast import FORECAST
from seqlab.tasks.lm import LM
from seqlab.tasks.mask import MASK_TASK
from seqlab.tasks.speak import SPEAK
from seqlab.tasks.tag import TAG
from seqlab.tasks.task import NUMBERS_ARE_FOR_TAGGERS, Answer, Task
from seqlab.tasks.translate import TRANSLATE

TASKS: tuple[Task, ...] = (LM, MASK_TASK, BILM, CLASSIFY, TAG, TRANSLATE, FORECAST, CAPTION, SPEAK)

# the kinds of source that some classical models need
_FEATURES = {"linear": ("ngrams", "vectors"), "crf": ("spellings",), "neighbours": ("ngrams",)}


def task_named(name: str) -> Task:
    """Return the task with this name."""
    for task in TASKS:
        if task.name == name:
            return task
    names = [task.name for task in TASKS]
    raise UsageError(
        f"there is no task '{name}'" if name else "which task?", hint=nearest(name, names)
    )


def task_of(recipe: Recipe) -> Task:
    """Return the task of a recipe."""
    try:
        task = task_named(recipe.task)
    except UsageError as error:
        raise RecipeError(f"recipe '{recipe.name}': {error}", hint=error.hint) from None
    return task.of(recipe) if recipe.model.classical else task


def check_recipe(recipe: Recipe) -> Recipe:
    """Return the recipe if its settings suit its task, else raise an error."""
    task = task_of(recipe)
    try:
        task.check(recipe)
        _check_settings(recipe, {*task.special_settings, *task.classical})
        _check_parts(recipe, task.parts)
    except ValueError as error:
        hint = "`seqlab recipes NAME` shows a recipe that works."
        raise RecipeError(f"recipe '{recipe.name}': {error}", hint=hint) from None
    return recipe


def build_model(recipe: Recipe, codec: Codec) -> nn.Module:
    """Build the network of a recipe; its initial weights depend only on the recipe's seed."""
    return build_seeded(recipe, lambda: task_of(recipe).build(recipe, codec))


def codec_of(recipe: Recipe, table: Any) -> Codec:
    """Read the codec in the tokenizer.json of a model with this recipe."""
    task = task_of(recipe)
    return read_codec(table, recipe, task.reads(recipe), task.writes(recipe))


def load_bundle(folder: str | Path) -> Bundle:
    """Read a bundle, after checking that its files are complete and unchanged."""
    return read_bundle(folder, check=check_recipe, codec=codec_of, build=build_model)


def subject(
    bundle: Bundle,
    given: Any,
    *,
    output: str | None = None,
    decode: DecodeConfig | None = None,
    hypothesis: int = 1,
) -> Subject:
    """Run a model on one input, for the views; a model that writes text decodes its answer, or takes `output`."""
    question = Question(bundle, given, output, decode or bundle.recipe.decode, hypothesis)
    return task_of(bundle.recipe).subject(question)


def predict(bundle: Bundle, inputs: Sequence[Any], **options: Any) -> Sequence[Answer]:
    """Answer each input, in the same order; `options` are those of `tasks.examples.answer_inputs`."""
    answers = answer_inputs(task_of(bundle.recipe).predict, bundle, inputs, **options)
    # for the next process; these answers do not wait for it
    build_in_background()
    return answers


_CHARACTERS = (
    "[model.characters] spells the words of a tagger or a classifier: source.kind must be 'words'"
)


def _check_parts(recipe: Recipe, parts: tuple[str, ...]) -> None:
    """A recipe must have exactly the parts that its task needs, and none of them with a classical model."""
    model = recipe.model
    for part in ("encoder", "decoder"):
        needed = part in parts and not model.classical
        if (getattr(model, part) is not None) != needed:
            raise ValueError(
                f"a '{recipe.task}' model {'needs' if needed else 'has no'} [model.{part}]"
            )
    if model.attention and not (isinstance(model.decoder, StackConfig) and model.encoder):
        raise ValueError("[model.attention] needs a recurrent decoder and an encoder")
    if isinstance(model.decoder, StackConfig) and model.decoder.bidirectional:
        raise ValueError(
            "a decoder cannot be bidirectional: it would read the words it has to predict"
        )


def _check_settings(recipe: Recipe, allowed: set[str]) -> None:
    """Raise an error for settings that only other tasks allow, and for settings that exclude each other."""
    if recipe.data.validation + recipe.data.test >= 1:
        raise ValueError(
            "data.validation and data.test leave nothing to train on: their sum must be below 1"
        )
    for name, (used, message) in _special_settings(recipe).items():
        if used and name not in allowed:
            raise ValueError(message)
    if recipe.model.characters is not None and recipe.source.kind != "words":
        raise ValueError(_CHARACTERS)
    if recipe.source.kind in NUMBERS:
        raise ValueError(NUMBERS_ARE_FOR_TAGGERS)
    _check_features(recipe)
    if recipe.model.elmo and recipe.source.kind == "vectors":
        raise ValueError("[model.elmo] reads tokens, not vectors")
    if recipe.shared and recipe.source.kind == "vectors":
        raise ValueError(
            f"a '{recipe.task}' model reads tokens, not vectors, and shares no vocabulary with them"
        )
    _check_image(recipe)


def _check_features(recipe: Recipe) -> None:
    """Raise an error if a classical model has an unsuitable source, or another model the source of a classical one."""
    name, kind = recipe.model.classical, recipe.source.kind
    features = _FEATURES.get(name, ())
    if features and kind not in features:
        raise ValueError(
            f"[model.{name}] reads {' or '.join(map(repr, features))}: source.kind is '{kind}'"
        )
    only_for_baselines = ("ngrams", "spellings")
    if recipe.target.kind in only_for_baselines:
        wrong = f"target.kind = '{recipe.target.kind}'"
    elif kind in only_for_baselines and kind not in features:
        wrong = f"source.kind = '{kind}'"
    else:
        return
    raise ValueError(
        f"{wrong} is only a source of baselines, such as [model.linear] or [model.crf]"
    )


def _special_settings(recipe: Recipe) -> dict[str, tuple[bool, str]]:
    """Return the settings that only some tasks allow: whether the recipe uses them, and the error message."""
    task, model, data = recipe.task, recipe.model, recipe.data
    words = bool(data.no_label or recipe.source.endings)
    return {
        "flat": (
            model.pooling == "flat",
            "model.pooling = 'flat' needs windows of one length: it is for forecasters",
        ),
        **{
            name: (
                getattr(model, name) is not None,
                f"[model.{name}] cannot '{task}': it is for {_tasks_with(name)}",
            )
            for name in CLASSICAL_SECTIONS
        },
        "numbers": (recipe.target.kind in NUMBERS, NUMBERS_ARE_FOR_TAGGERS),
        "letters": (
            model.characters is not None,
            _CHARACTERS,
        ),
        "conformal": (
            recipe.decode.conformal is not None,
            "decode.conformal is for classifiers: sets of labels",
        ),
        "words": (words, "data.no_label and source.endings are for taggers"),
        "split": (
            data.too_long == "split",
            f"a '{task}' example cannot be split: data.too_long is cut, skip or refuse",
        ),
        "vectors": (
            recipe.source.kind == "vectors",
            f"a '{task}' model reads tokens, not vectors, and shares no vocabulary with them",
        ),
        "image": (
            recipe.image is not None,
            "[image] is for 'classify' and 'caption', with source.kind = 'vectors'",
        ),
    }


def _tasks_with(section: str) -> str:
    """Name the tasks whose models may have this section."""
    return " and ".join(
        f"'{t.name}'" for t in TASKS if section in (*t.special_settings, *t.classical)
    )


def _check_image(recipe: Recipe) -> None:
    """Raise an error if [image] and the other settings do not suit each other."""
    image, encoder = recipe.image, recipe.model.encoder
    reads_pictures = isinstance(encoder, ConvolutionConfig | GlimpseConfig)
    kind = getattr(encoder, "kind", "")
    if image is None:
        if reads_pictures:
            raise ValueError(f"an encoder of kind '{kind}' reads pictures: it needs [image]")
        return
    if recipe.source.kind != "vectors":
        raise ValueError("[image] is for 'classify' and 'caption', with source.kind = 'vectors'")
    if image.patch and reads_pictures:
        raise ValueError(
            f"an encoder of kind '{kind}' reads the whole picture: leave out image.patch"
        )
    num_patches = image.height * image.width // image.patch**2 if image.patch else 0
    num_positions = max(image.height, num_patches)
    if num_positions > recipe.data.max_source:
        raise ValueError(f"a picture has {num_positions} positions, more than data.max_source")
