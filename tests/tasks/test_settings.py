"""The rule that chooses settings: named settings are kept, and open ones are chosen from the file."""

import random

import pytest

from seqlab.recipe import load_recipe, override
from seqlab.recipes import default_recipes
from seqlab.tasks import task_named
from seqlab.tasks.settings import held_out_share, settle


@pytest.fixture
def chosen(tmp_path):
    """The default recipe of a task, settled on a file of these lines."""

    def choose(task, lines, *settings, name="data.tsv"):
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n", "utf-8")
        recipe = override(load_recipe(default_recipes()[task]), settings)
        kind = task_named(task)
        return settle(recipe, kind.choose(kind, recipe, [str(path)])[1])

    return choose


def pairs(count):
    draw = random.Random(count)
    words = ["".join(draw.choices("etaoinshr", k=5)) for _ in range(200)]
    return ["\t".join(" ".join(draw.choices(words, k=4)) for _ in "ab") for _ in range(count)]


def labelled(count, text="the cat sat on the mat"):
    return [f"{'good' if n % 2 else 'bad'}\t{text} {n}" for n in range(count)]


def test_the_held_out_share_gives_enough_examples_but_at_most_a_third():
    assert held_out_share(60) == pytest.approx(1 / 3)
    assert 1000 * held_out_share(1000) == 50
    assert held_out_share(50_000) == 0.05


def test_the_number_of_epochs_falls_with_the_number_of_pairs(chosen):
    passes = [chosen("translate", pairs(n)).train.epochs for n in (1_000, 6_000, 60_000)]
    assert passes == [40, 20, 14]


def test_named_settings_are_kept(chosen):
    recipe = chosen("translate", pairs(1_000), "train.epochs=3", "source.size=77")
    assert (recipe.train.epochs, recipe.source.size) == (3, 77)
    assert chosen("classify", labelled(100), "train.steps=9").train.epochs is None


def test_a_text_without_spaces_is_read_by_characters(chosen):
    assert chosen("classify", labelled(100)).source.kind == "words"
    assert chosen("classify", labelled(100, "很好吃的米饭")).source.kind == "characters"


def test_words_with_phonemes_have_a_target_of_symbols(chosen):
    lines = [
        f"{a}{b}{c}\t{a.upper()} {b.upper()} {c.upper()}"
        for a in "abcdefgh"
        for b in "xyz"
        for c in "klmn"
    ]
    recipe = chosen("translate", lines)
    assert (recipe.source.kind, recipe.target.kind, recipe.shared) == ("characters", "words", False)
