import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqlab.errors import RecipeError
from seqlab.recipe import build_recipe, is_named, load_recipe, override, parse_recipe, to_toml
from seqlab.recipes import default_recipes, recipe_names
from seqlab.tasks import TASKS, check_recipe


def refusal(call, *args, **options):
    with pytest.raises(RecipeError) as caught:
        call(*args, **options)
    return str(caught.value), caught.value.hint


@pytest.fixture
def lstm():
    return load_recipe("char-lstm")


class TestRecipes:
    @pytest.mark.parametrize("name", recipe_names())
    def test_every_recipe_loads_by_its_name_and_has_a_description(self, name):
        recipe = check_recipe(load_recipe(name))
        assert recipe.name == name
        assert recipe.about.endswith(".")

    @pytest.mark.parametrize("name", recipe_names())
    def test_every_recipe_survives_writing_and_reading(self, name):
        recipe = load_recipe(name)
        assert parse_recipe(to_toml(recipe), where="here") == recipe

    @pytest.mark.parametrize("task", [task.name for task in TASKS])
    def test_every_task_has_a_default(self, task):
        assert load_recipe(default_recipes()[task]).task == task

    def test_an_unknown_recipe_name(self):
        assert refusal(load_recipe, "char-lsmt") == (
            "there is no recipe 'char-lsmt'",
            "did you mean 'char-lstm'?",
        )
        assert refusal(load_recipe, "zzz")[1].startswith("there are: ")

    def test_a_recipe_file(self, tmp_path, lstm):
        path = tmp_path / "mine.toml"
        path.write_text(to_toml(lstm).replace('"char-lstm"', '"mine"'))
        assert load_recipe(str(path)).name == "mine"

    def test_a_missing_file(self, tmp_path):
        assert refusal(load_recipe, str(tmp_path / "mine.toml"))[0].endswith(
            "mine.toml: there is no such recipe file"
        )

    @pytest.mark.parametrize(
        ("content", "said"), [(b"\xff", "not valid UTF-8"), (b"name = char", "not valid TOML: ")]
    )
    def test_a_file_that_is_not_toml(self, tmp_path, content, said):
        path = tmp_path / "mine.toml"
        path.write_bytes(content)
        assert refusal(load_recipe, str(path))[0].startswith(f"{path}: {said}")


class TestOverride:
    def test_a_number_a_string_a_truth_value(self, lstm):
        changed = override(
            lstm, ["train.seed=7", "train.optimizer=sgd", "target.lower=true", 'about="a = b"']
        )
        assert (changed.train.seed, changed.train.optimizer) == (7, "sgd")
        assert changed.target.lower is True
        assert changed.about == "a = b"
        assert lstm.train.seed == 1  # recipes are frozen: the old one is as it was

    def test_nested_sections(self, lstm):
        assert (
            override(lstm, ["model.decoder.size=32", "model.decoder.kind=gru"]).model.decoder.size
            == 32
        )

    def test_an_optional_section_is_added(self):
        lm = load_recipe("char-lstm").model_dump()
        lm |= {"task": "translate", "model": lm["model"] | {"encoder": {"kind": "lstm"}}}
        translate = build_recipe(lm, where="here")
        assert override(translate, ["model.attention.score=dot"]).model.attention.score == "dot"

    def test_the_last_of_two_settings_counts(self, lstm):
        assert override(lstm, ["train.seed=7", "train.seed=8"]).train.seed == 8

    def test_none_removes_a_value(self, lstm):
        assert override(lstm, ["decode.top_k=5"]).decode.top_k == 5
        assert override(lstm, ["decode.top_k=5", "decode.top_k=none"]).decode.top_k is None

    def test_steps_and_epochs_replace_each_other(self, lstm):
        changed = override(lstm, ["train.epochs=2"])
        assert (changed.train.steps, changed.train.epochs) == (None, 2)
        assert override(changed, ["train.steps=5"]).train.epochs is None

    def test_a_column_may_be_a_number(self, lstm):
        changed = override(lstm, ["data.source=2", "data.target=label"])
        assert (changed.data.source, changed.data.target) == ("2", "label")
        assert parse_recipe(to_toml(changed), where="here") == changed

    def test_spaces_around_the_sign_are_allowed(self, lstm):
        assert override(lstm, ["train.seed = 7"]).train.seed == 7

    @pytest.mark.parametrize("setting", ["train.steps", "=5", "train.=5", ".steps=5", ""])
    def test_a_malformed_setting(self, lstm, setting):
        message, hint = refusal(override, lstm, [setting])
        assert message == f"--set {setting}: not of the form key=value"
        assert hint == "for example --set train.steps=500"

    @pytest.mark.parametrize(
        ("setting", "message", "hint"),
        [
            ("train.stepz=3", "there is no 'train.stepz'", "did you mean 'steps'?"),
            ("model.decoder.sizes=3", "there is no 'model.decoder.sizes'", "did you mean 'size'?"),
            ("nmae=x", "there is no 'nmae'", "did you mean 'name'?"),
            ("trian.steps=3", "there is no section 'trian'", "did you mean 'train'?"),
            (
                "train.steps.more=3",
                "'steps' is a value, not a section",
                "it is 2000 in this recipe.",
            ),
            ("train.steps=many", "'train.steps': ", "`seqlab recipes NAME`"),
            ("train.steps=0", "'train.steps': ", "`seqlab recipes NAME`"),
            ("train.learning_rate=nan", "'train.learning_rate': ", "`seqlab recipes NAME`"),
            ("train.optimizer=adam", "'train.optimizer': ", "`seqlab recipes NAME`"),
            ("model.dropout=1", "'model.dropout': ", "`seqlab recipes NAME`"),
            ("train=3", "'train': ", "`seqlab recipes NAME`"),
            ("model.decoder.kind=lsmt", "'model.decoder': ", "`seqlab recipes NAME`"),
        ],
    )
    def test_an_invalid_setting(self, lstm, setting, message, hint):
        said, advice = refusal(override, lstm, [setting])
        assert message in said
        assert advice.startswith(hint)


class TestOpenSettings:
    def test_settings_of_a_recipe_or_override_are_named_and_others_are_open(self, lstm):
        changed = override(lstm, ["train.clip=2.0"])
        assert is_named(changed, "train.clip")
        assert is_named(changed, "train.steps")
        assert not is_named(changed, "train.label_smoothing")
        assert not is_named(changed, "image.height")

    def test_a_stored_recipe_names_everything(self, lstm):
        assert is_named(parse_recipe(to_toml(lstm), where="stored"), "train.label_smoothing")

    def test_a_length_that_is_replaced_is_no_longer_named(self, lstm):
        assert not is_named(override(lstm, ["train.epochs=2"]), "train.steps")


class TestParts:
    @pytest.mark.parametrize(
        ("name", "change", "said"),
        [
            (
                "char-lstm",
                {"train": {"steps": 5, "epochs": 2}},
                "'train': give one of 'steps', 'epochs' and 'minutes'",
            ),
            (
                "seq2seq",
                {"model": {"decoder": {"kind": "lstm"}}},
                "a 'translate' model needs [model.encoder]",
            ),
            ("bilstm-classifier", {"model": {}}, "a 'classify' model needs [model.encoder]"),
            ("char-lstm", {"model": {}}, "a 'lm' model needs [model.decoder]"),
            (
                "bilstm-tagger",
                {"model": {"encoder": {"kind": "lstm"}, "decoder": {"kind": "lstm"}}},
                "a 'tag' model has no [model.decoder]",
            ),
            (
                "bilstm-tagger",
                {
                    "source": {"kind": "bpe"},
                    "model": {"encoder": {"kind": "lstm"}, "characters": {"kind": "lstm"}},
                },
                "[model.characters] spells the words of a tagger",
            ),
            (
                "elmo",
                {"model": {"encoder": {"kind": "lstm", "size": 8}, "embedding": 9}},
                "a 'bilm' model needs a recurrent encoder",
            ),
            (
                "bilstm-classifier",
                {"data": {"too_long": "split"}},
                "a 'classify' example cannot be split",
            ),
            (
                "bilstm-classifier",
                {"data": {"test": 0.99}},
                "data.validation and data.test leave nothing to train on",
            ),
            (
                "bilstm-classifier",
                {"model": {"encoder": {"kind": "lstm"}, "pooling": "flat"}},
                "model.pooling = 'flat' needs windows of one length",
            ),
            (
                "bilstm-tagger",
                {"model": {"lds": {}}},
                "[model.lds] cannot 'tag': it is for 'forecast'",
            ),
            ("gru-forecast", {"model": {}}, "a 'forecast' model needs [model.encoder]"),
            (
                "lds-forecast",
                {"model": {"lds": {}, "encoder": {"kind": "gru"}}},
                "a 'forecast' model has no [model.encoder]",
            ),
            (
                "lds-forecast",
                {"model": {"lds": {"trend": "none", "harmonics": 0}}},
                "'model.lds': a system needs a trend, harmonics of a season, or free states",
            ),
            (
                "bert-tiny",
                {"source": {"kind": "vectors"}},
                "a 'mask' model reads tokens, not vectors",
            ),
            (
                "char-lstm",
                {"model": {"decoder": {"kind": "lstm", "bidirectional": True}}},
                "a decoder cannot be bidirectional: it would read the words it has to predict",
            ),
            (
                "shapes",
                {"source": {"kind": "words"}},
                "a 'caption' model reads pictures or features",
            ),
            (
                "shapes",
                {"image": None},
                "an encoder of kind 'convolution' reads pictures: it needs [image]",
            ),
            (
                "shapes",
                {"image": {"patch": 4}},
                "an encoder of kind 'convolution' reads the whole picture",
            ),
            (
                "shapes",
                {"image": {"patch": 5}},
                "'image': 96 x 96 pixels cannot be cut into patches of 5",
            ),
            (
                "shapes",
                {"data": {"max_source": 20}},
                "a picture has 32 positions, more than data.max_source",
            ),
            (
                "seq2seq",
                {"image": {}},
                "[image] is for 'classify' and 'caption', with source.kind = 'vectors'",
            ),
        ],
    )
    def test_that_do_not_suit_each_other_are_refused(self, name, change, said):
        table = load_recipe(name).model_dump() | change
        message, hint = refusal(lambda: check_recipe(build_recipe(table, where="mine.toml")))
        assert message.startswith((f"mine.toml: {said}", f"recipe '{name}': {said}"))
        assert hint

    @pytest.mark.parametrize(
        ("name", "setting", "said"),
        [
            (
                "bilstm-tagger",
                "model.hmm.order=1",
                "[model.hmm] replaces all layers: leave out 'model.encoder'",
            ),
            (
                "char-lstm",
                "model.hmm.states=5",
                "[model.hmm] replaces all layers: leave out 'model.decoder'",
            ),
            (
                "hmm-tagger",
                "model.vectors=glove.txt",
                "[model.hmm] replaces all layers: leave out 'model.vectors'",
            ),
            (
                "hmm-tagger",
                "task=classify",
                "[model.hmm] cannot 'classify': it is for 'lm' and 'tag'",
            ),
            (
                "hmm-tagger",
                "source.kind=bpe",
                "[model.hmm] tags whole words: source.kind is 'words' or 'vectors'",
            ),
            ("hmm-tagger", "source.frame=true", "[model.hmm] tags whole words: "),
            (
                "hmm-tagger",
                "source.kind=vectors",
                "'categorical' states emit words: model.hmm.emissions does not fit",
            ),
            (
                "hmm-tagger",
                "model.hmm.emissions=full",
                "'full' states emit vectors: model.hmm.emissions does not fit",
            ),
            ("hmm-lm", "model.hmm.emissions=diagonal", "'diagonal' states emit vectors: "),
            (
                "hmm-tagger",
                "model.hmm.states=5",
                "the states of a tagger are its labels",
            ),
            (
                "hmm-tagger",
                "train.restarts=2",
                "the states of a tagger are its labels",
            ),
            ("hmm-lm", "model.hmm.states=none", "an 'lm' needs model.hmm.states"),
            (
                "hmm-lm",
                "model.hmm.order=2",
                "an 'lm' needs model.hmm.states; model.hmm.order is only for taggers",
            ),
            ("hmm-lm", "train.epochs=2", "[model.hmm] needs train.steps"),
            ("hmm-tagger", "model.hmm.order=3", "'model.hmm.order': "),
            ("hmm-tagger", "model.hmm.sates=3", "there is no 'model.hmm.sates'"),
            (
                "bilstm-classifier",
                "data.no_label=?",
                "data.no_label and source.endings are for taggers",
            ),
            (
                "bilstm-classifier",
                "source.endings=3",
                "data.no_label and source.endings are for taggers",
            ),
            (
                "bilstm-tagger",
                "source.kind=bpe source.endings=3",
                "source.endings needs words",
            ),
        ],
    )
    def test_of_a_hidden_markov_model_must_fit_too(self, name, setting, said):
        message, hint = refusal(lambda: check_recipe(override(load_recipe(name), setting.split())))
        assert (
            message.removeprefix(f"recipe '{name}'")
            .removeprefix(" with --set")
            .startswith(f": {said}")
        )
        assert hint

    def test_a_recipe_needs_a_name_a_task_and_a_length(self):
        assert refusal(build_recipe, {"task": "lm", "train": {"steps": 1}}, where="here")[
            0
        ].startswith("here: 'name': ")
        assert refusal(build_recipe, {"name": "x", "train": {"steps": 1}}, where="here")[
            0
        ].startswith("here: 'task': ")
        assert refusal(build_recipe, {"name": "x", "task": "lm"}, where="here")[0].startswith(
            "here: 'train': "
        )


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_survives_writing_and_reading(text):
    """Quotation marks, newlines, control characters, and those beyond the first 65,536."""
    recipe = load_recipe("char-lstm").model_copy(update={"about": text})
    assert parse_recipe(to_toml(recipe), where="here").about == text


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_any_number_survives_writing_and_reading(rate):
    recipe = load_recipe("char-lstm")
    recipe = recipe.model_copy(
        update={"train": recipe.train.model_copy(update={"learning_rate": rate})}
    )
    assert parse_recipe(to_toml(recipe), where="here") == recipe
