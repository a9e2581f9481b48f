"""The rule that chooses settings: named settings are kept, and open ones are chosen from the file."""

import random

import pytest

from seqlab import lab
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
        recipe = override(load_recipe(kind.recipe_for(kind, recipe, [str(path)])), settings)
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


def spelled(count):
    """Words and what they sound like, one symbol a letter."""
    draw = random.Random(count)
    words = ("".join(draw.choices("etaoinshr", k=7)) for _ in range(count))
    return [f"{word}\t{' '.join(word.upper())}" for word in words]


@pytest.mark.parametrize("count", [50, 1_000, 30_000])
def test_words_are_spelled_by_a_recurrent_network_and_symbols_stay_whole(chosen, count):
    recipe = chosen("translate", spelled(count))
    assert recipe.name == "spelling"
    assert recipe.model.encoder.kind == recipe.model.decoder.kind == "lstm"
    assert (recipe.source.kind, recipe.target.kind, recipe.shared) == ("characters", "words", False)


def test_the_fewer_words_there_are_the_more_often_each_is_read(chosen):
    recipes = [chosen("translate", spelled(count)) for count in (200, 1_000, 30_000)]
    assert [recipe.train.epochs for recipe in recipes] == [145, 76, 40]
    assert [recipe.train.batch_tokens for recipe in recipes] == [128, 128, 1024]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("to be or not", "sein oder nicht"),  # sentences
        ("今天天气很好我们一起去公园散步吧然后回家吃晚饭再看一部电影", "A fine day for a walk."),
        (
            "aardvark",
            "a nocturnal burrowing mammal with long ears and a tubular snout, from Africa",
        ),
    ],
)
def test_what_is_not_a_form_of_a_word_is_left_to_the_transformer(chosen, source, target):
    lines = [f"{source}{n}\t{target} {n}" for n in range(1_200)]
    assert chosen("translate", lines).name == "transformer-small"


def test_inflections_and_transliterations_are_spellings(chosen):
    for lines in (["walk\twalked", "go\twent"] * 50, ["Москва\tMoskva", "Тверь\tTver"] * 50):
        recipe = chosen("translate", lines)
        assert (recipe.name, recipe.target.kind) == ("spelling", "characters")


def test_a_model_that_is_named_is_kept(tmp_path):
    path = tmp_path / "words.tsv"
    path.write_text("\n".join(spelled(60)) + "\n", "utf-8")
    short = ["train.steps=1", "decode.beam=1", "decode.max_length=3"]

    def trained(name, *settings, **options):
        out = tmp_path / name
        options = {"settings": [*short, *settings], "valid": path, "out": out, **options}
        return lab.train("translate", path, **options)

    assert trained("named", recipe="transformer-small").model.recipe.name == "transformer-small"
    sized = trained("sized", "model.encoder.heads=2").model.recipe
    assert (sized.name, sized.model.encoder.heads) == ("transformer-small", 2)
    trained("open")
    assert 'name = "spelling"' in (tmp_path / "open" / "run" / "recipe.toml").read_text("utf-8")
