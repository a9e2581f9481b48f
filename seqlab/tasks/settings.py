"""The rule that chooses the settings that a recipe leaves open from the training files.

Values in a recipe or in `--set` are kept. The constants were measured on files of 50 to 50,000 examples;
`docs/choosing.md` has the table and the reasons.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from seqlab.data.proposal import holds_vectors
from seqlab.recipe import NUMBERS, Recipe, is_named, override, value_of
from seqlab.recipes import default_recipes
from seqlab.tasks.facts import (
    ExampleFacts,
    PairFacts,
    example_facts,
    has_symbols,
    pair_facts,
    series_facts,
)
from seqlab.tasks.task import Task

HELD_OUT = 50  # the minimum number of held-out examples for a score
# a number of steps between validations that leaves only the one at the end
AT_THE_END = 10**6
LENGTHS = ("train.steps", "train.epochs", "train.minutes")

Choices = Mapping[str, Any]  # a value for each setting that is chosen


def settle(recipe: Recipe, choices: Choices) -> Recipe:
    """Return the recipe with the choices for settings that it leaves open, in sections that it has.

    For a model without an encoder, only the held-out part and the windows of a forecaster are chosen.
    """
    if recipe.model.encoder is None:
        choices = {
            path: value
            for path, value in choices.items()
            if path.startswith(("data.", "forecast."))
        }
    taken = {path: value for path, value in choices.items() if _is_open(recipe, path)}
    # a short training must not end before the warm-up does
    if recipe.train.steps is not None and "train.warmup" in taken:
        taken["train.warmup"] = min(taken["train.warmup"], recipe.train.steps // 5)
    return override(recipe, [f"{path}={_as_setting(value)}" for path, value in taken.items()])


def held_out_share(examples: int) -> float:
    """Return a twentieth, or more of a small file: enough examples for a score, but at most a third."""
    return min(1 / 3, max(0.05, HELD_OUT / max(1, examples)))


# text files with at least this many tokens get other settings
MANY_TOKENS = 1_000_000


def choose_classify(task: Task, recipe: Recipe, files: Sequence[str]) -> tuple[str, Choices]:
    """Choose small batches, a high learning rate and much dropout for few texts, and few epochs for many."""
    if holds_vectors(files):
        recipe = settle(recipe, {"source.kind": "vectors"})
    facts = example_facts(task.read(recipe, files), labelled=True)
    if recipe.source.kind == "vectors":
        return facts.sentence, {"source.kind": "vectors", **_choose_vectors(facts)}
    if facts.examples * facts.length >= MANY_TOKENS:
        return facts.sentence, {
            "source.kind": "words" if facts.words else "characters",
            "data.validation": held_out_share(facts.examples),
            "model.pooling": "attention",
            "model.dropout": 0.3,
            "train.batch_tokens": 8192,
            "train.learning_rate": 2e-3,
            "train.epochs": 5,
            "train.patience": 8,
        }
    rows = max(_clip(facts.examples / 30, 8, 64), facts.examples / 250)
    default = _is_default(task, recipe)
    return facts.sentence, {
        "source.kind": "words" if facts.words else "characters",
        "data.validation": held_out_share(facts.examples),
        "model.pooling": "max",
        "model.dropout": 0.5,
        "train.batch_tokens": round(_clip(rows * facts.length, 64, 8192)),
        "train.learning_rate": 5e-3,
        "train.epochs": _num_epochs(facts),
        "train.warmup": 50,
        "train.best": "accuracy",
        # the embedding of each word is pooled together with its state; single characters carry too little information
        **({"model.encoder.connection": "dense"} if facts.words and default else {}),
        **_validations(facts),
    }


def _choose_vectors(facts: ExampleFacts) -> Choices:
    """Choose small batches and enough steps for sequences of vectors, of which files usually have few."""
    rows = _clip(facts.examples / 30, 8, 64)
    return {
        "data.validation": held_out_share(facts.examples),
        "model.pooling": "max",
        "model.dropout": 0.5,
        "model.input_dropout": 0.0,
        "train.batch_tokens": round(rows * facts.length),
        "train.learning_rate": 5e-3,
        "train.steps": max(500, round(_num_epochs(facts) * facts.examples / rows)),
        "train.warmup": 30,
        "train.best": "accuracy",
        **_validations(facts),
    }


# tagged files with at least this many words get other settings
MANY_WORDS = 100_000


def choose_tag(task: Task, recipe: Recipe, files: Sequence[str]) -> tuple[str, Choices]:
    """Choose one small layer and many small batches for few sentences; rare words are kept, with word dropout."""
    facts = example_facts(task.read(recipe, files), labelled=recipe.target.kind not in NUMBERS)
    if facts.examples * facts.length >= MANY_WORDS:
        return facts.sentence, {
            "source.min_count": 2,
            "data.validation": held_out_share(facts.examples),
            "model.encoder.layers": 2,
            "model.encoder.size": 192,
            "train.batch_tokens": 768,
            "train.optimizer": "muon",
            "train.learning_rate": 2e-3,
            "train.epochs": 8,
            "train.patience": 8,
        }
    return facts.sentence, {
        "source.min_count": 1,
        "data.validation": held_out_share(facts.examples),
        "model.encoder.layers": 1,
        "model.encoder.size": 128,
        "model.word_dropout": 0.2,
        "train.batch_tokens": round(max(32, _clip(facts.examples / 25, 8, 24) * facts.length)),
        "train.optimizer": "adamw",
        "train.learning_rate": 5e-3,
        "train.epochs": round(_clip(20 * (400 / facts.examples) ** 0.4, 8, 40)),
        "train.warmup": 50,
        "train.best": "accuracy",
        **_validations(facts),
    }


# the smallest share of repeated source words for a pointer: 0.31 for shell commands from English, 0.03 for French
REPEATED_FOR_POINTER = 0.1
SPELLING = "spelling"  # the recipe for pairs whose sources are single words
# longer sources, in characters, are texts without spaces; longer targets, in tokens, are texts about a word
MAX_WORD_LENGTH, MAX_SPELLING_LENGTH = 20, 40


def recipe_for_pairs(task: Task, recipe: Recipe, files: Sequence[str]) -> str:
    """Return the recipe for pairs if the user names none: a recurrent network learns single words fastest."""
    if recipe.source.kind == "vectors":
        return recipe.name
    facts = example_facts(task.read(recipe, files), labelled=False)
    pairs = pair_facts(task.read(recipe, files))
    length = pairs.target_words if has_symbols(facts, pairs) else pairs.target_characters
    is_word = not facts.words and facts.length <= MAX_WORD_LENGTH
    return SPELLING if is_word and length <= MAX_SPELLING_LENGTH else recipe.name


def choose_translate(task: Task, recipe: Recipe, files: Sequence[str]) -> tuple[str, Choices]:
    """Choose fewer pieces and smaller batches for fewer pairs, so that each run has some thousand steps."""
    facts = example_facts(task.read(recipe, files), labelled=False)
    if recipe.name == SPELLING:
        return facts.sentence, _choose_spelling(facts, pair_facts(task.read(recipe, files)))
    small, middling = facts.examples < 5_000, facts.examples < 20_000
    choices: dict[str, Any] = {
        "source.size": 1000 if small else 4000 if middling else 8000,
        "data.validation": held_out_share(facts.examples),
        "train.batch_tokens": 512 if small else 1024 if middling else 2048,
        "train.epochs": 40 if small else _num_passes(facts.examples),
        "train.learning_rate": 3e-3,
    }
    if _is_default(task, recipe):
        reads_text = recipe.source.kind != "vectors"
        texts = _choose_texts(facts, pair_facts(task.read(recipe, files))) if reads_text else {}
        copies = bool(texts.get("model.pointer", False)) and middling
        choices |= {**texts, **_choose_translator(copies=copies)}
        choices |= {"source.size": 2000} if copies and not small else {}
    return facts.sentence, choices


def _choose_spelling(facts: ExampleFacts, pairs: PairFacts) -> Choices:
    """Choose small batches and many epochs, because words are short and a step is cheap."""
    size = 256 if facts.examples >= 20_000 else 128
    return {
        "shared": False,
        "source.kind": "characters",
        "target.kind": "words" if has_symbols(facts, pairs) else "characters",
        "data.validation": held_out_share(facts.examples),
        "model.embedding": 3 * size // 4,
        "model.encoder.size": size,
        "model.decoder.size": size,
        "model.dropout": 0.3,
        "train.batch_tokens": round(_clip(facts.examples / 20, 128, 1024)),
        "train.epochs": _num_spellings(facts.examples),
        "train.learning_rate": 3e-3,
    }


def _num_spellings(words: int) -> int:
    """Return the number of epochs: 150 for 50 to 200 words, 40 for 5,000 to 48,000, 24 for 133,000."""
    few, many = (5_000 / words) ** 0.4, (48_000 / words) ** 0.5
    return round(_clip(40 * (max(1, few) if words < 5_000 else min(1, many)), 5, 150))


def _num_passes(pairs: int) -> int:
    """Return the number of epochs: 20 up to 30,000 pairs, 9 for 150,000."""
    return round(_clip(20 * (30_000 / pairs) ** 0.5, 3, 20))


def _choose_translator(*, copies: bool) -> Choices:
    """Choose the size of the network: with a pointer a smaller one, which makes more steps in the same time."""
    size, layers = (128, 2) if copies else (192, 3)
    sizes = {f"model.{side}.size": size for side in ("encoder", "decoder")}
    depths = {f"model.{side}.layers": layers for side in ("encoder", "decoder")}
    return {**sizes, **depths, "model.dropout": 0.2 if copies else 0.3}


def _choose_texts(facts: ExampleFacts, pairs: PairFacts) -> Choices:
    """Choose the tokens of source and target, and whether source words are copied; single words are spelled."""
    symbols = has_symbols(facts, pairs)
    kind = "bpe" if facts.words else "characters"
    return {
        "shared": not symbols,
        "source.kind": kind,
        "target.kind": "words" if symbols else kind,
        "model.pointer": not symbols and pairs.repeated >= REPEATED_FOR_POINTER,
    }


def _num_epochs(facts: ExampleFacts) -> int:
    """Return more epochs for smaller files: 32 for 50 examples, 15 for 1,000, 6 for 50,000."""
    return round(_clip(15 * (1000 / facts.examples) ** 0.25, 5, 40))


def _validations(facts: ExampleFacts) -> Choices:
    """Keep the last weights if few examples are held out, because the best of many validations would be random."""
    if facts.examples * held_out_share(facts.examples) < HELD_OUT - 1:
        return {"train.validate_every": AT_THE_END}
    return {"train.patience": 8}


def _clip(value: float, low: int, high: int) -> float:
    return float(max(low, min(high, value)))


# tables up to this many values are smoothed exponentially, which takes half a minute
SMOOTHED = 50_000
# years, quarters, days, months, hours, weeks
HORIZON_BY_SEASON = {1: 6, 4: 8, 7: 28, 12: 12, 24: 48, 52: 13}


def choose_forecast(task: Task, recipe: Recipe, files: Sequence[str]) -> tuple[str, Choices]:
    """Choose horizon, look-back, held-out part, and the size and training of the network by the length of a series."""
    facts = series_facts(recipe, files)
    held_out = facts.rows // 5
    if is_named(recipe, "data.validation"):
        held_out = int(facts.rows * recipe.data.validation)
    usual = HORIZON_BY_SEASON.get(facts.season, 2 * facts.season)
    horizon = max(1, min(usual, facts.rows // 5, held_out))
    tiny, short = facts.rows < 400, facts.rows < 1000
    look_back = max(2, min(max(2 * facts.season, 2 * horizon, 0 if short else 96), facts.rows // 3))
    return facts.sentence, {
        "forecast.horizon": horizon,
        "forecast.look_back": look_back,
        "forecast.smoothing": recipe.forecast.residual and facts.rows * facts.series <= SMOOTHED,
        "forecast.patch": min(8, facts.season) if facts.season <= 12 else 8,
        "data.test": 0.0 if short else 0.1,
        "data.validation": min(1 / 3, max(0.1, 1.5 * horizon / facts.rows)),
        "model.encoder.size": 64 if short else 128,
        "train.batch_tokens": 64 * max(look_back, horizon) if short else 12288,
        "train.steps": 100 if tiny else 600 if short else 1000,
        "train.learning_rate": 1e-4 if tiny else 5e-3 if short else 1e-3,
        "train.ema_decay": 0.97 if short else 0.99,
        "train.validate_every": 20 if short else 50,
    }


def _is_default(task: Task, recipe: Recipe) -> bool:
    """Whether this is the default recipe, whose network may be chosen too; others are named after their network."""
    return recipe.name == default_recipes()[task.name]


def _is_open(recipe: Recipe, path: str) -> bool:
    """Whether a recipe has this setting and leaves it open; kinds of encoders have different settings."""
    paths = LENGTHS if path in LENGTHS else (path,)
    name, _, setting = path.rpartition(".")
    section = value_of(recipe, name) if name else recipe
    has_setting = section is not None and setting in type(section).model_fields
    return has_setting and not any(is_named(recipe, each) for each in paths)


def _as_setting(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
