"""Transfer learning: weights and vocabulary of another model are copied, and that model is not needed afterwards."""

import random
import shutil

import numpy as np
import pytest
import torch

import seqlab
from seqlab import lab
from seqlab.bundle import Bundle
from seqlab.data.store import TokenStore
from seqlab.errors import BundleError, DataError, RecipeError
from seqlab.models.interface import Memory
from seqlab.padded import Padded
from seqlab.text import UNSEEN
from seqlab.training.checkpoint import read_checkpoint
from seqlab.training.weights import load_weights

QUICK = ("train.steps=2", "data.validation=0.3")
ENCODER = ("model.encoder.size=8", "model.encoder.heads=2")
DECODER = ("model.decoder.size=8", "model.decoder.heads=2")
SMALL = {
    "lm": ("model.embedding=8", "model.decoder.size=8", "target.size=290"),
    "gpt": (
        *DECODER,
        "model.decoder.positions=learned",
        "data.max_target=30",
        "data.unit=line",
        "target.kind=bpe",
    ),
    "universal": (
        *DECODER,
        "model.decoder.kind=universal",
        "data.unit=line",
        "target.kind=bpe",
        "target.size=290",
    ),
    "mask": (*ENCODER, "model.encoder.layers=2", "source.size=290"),
    "bilm": ("model.embedding=8", "model.encoder.size=8", "source.lower=true"),
    "classify": ("model.embedding=8", "model.encoder.size=8", "source.min_count=1"),
    "tag": (
        "model.embedding=8",
        "model.encoder.size=8",
        "source.min_count=1",
        "model.characters.size=4",
    ),
    # one vocabulary but two tables, and two sides of the same shape: whatever could be mixed up
    "translate": (
        *ENCODER,
        *DECODER,
        "model.tie=false",
        "source.size=290",
        "decode.method=greedy",
        "decode.max_length=9",
    ),
}
RECIPES = {
    "lm": "word-lstm",
    "gpt": "gpt-tiny",
    "universal": "gpt-tiny",
    "translate": "transformer-tiny",
}
TASKS = {"gpt": "lm", "universal": "lm"}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The same few sentences, as each task wants to see them; a second set with words that the first has not."""
    folder, keyed = tmp_path_factory.mktemp("files"), random.Random(1)
    subjects, verbs, ends = (
        ("the cat", "a Dog", "my bird"),
        ("sat", "ran", "slept"),
        ("well", "badly", "often"),
    )
    sentences = [" ".join(map(keyed.choice, (subjects, verbs, ends))) for _ in range(40)]
    others = [s.replace("cat", "unicorn").replace("sat", "zigzagged") for s in sentences]
    (folder / "text.txt").write_text("".join(f"{s}\n" for s in sentences))
    (folder / "pairs.tsv").write_text("".join(f"{s}\t{s[::-1]}\n" for s in sentences))
    (folder / "first.tsv").write_text("".join(f"{'ab'['well' in s]}\t{s}\n" for s in sentences))
    (folder / "second.tsv").write_text("".join(f"{s.split()[-1]}\t{s}\n" for s in others))
    for name, lines in (("first", sentences), ("second", others)):
        tagged = ("".join(f"{w} {'XY'[len(w) > 3]}\n" for w in line.split()) for line in lines)
        (folder / f"{name}.conll").write_text("\n".join(tagged))
    return folder


@pytest.fixture(scope="module")
def old(files, tmp_path_factory):
    """A function from a name to the model to start from, which is trained once."""
    folder, data = tmp_path_factory.mktemp("old"), {"classify": "first.tsv", "tag": "first.conll"}
    data["translate"] = "pairs.tsv"
    made = {}

    def old(name):
        if name not in made:
            made[name] = lab.train(
                TASKS.get(name, name),
                files / data.get(name, "text.txt"),
                recipe=RECIPES.get(name),
                settings=(*QUICK, *SMALL[name]),
                out=folder / name,
            ).model
        return made[name]

    return old


@pytest.fixture(scope="module")
def tuned(files, old, tmp_path_factory):
    """A function that starts a task from an old model, which is gone by the time the new one is returned."""
    folder = tmp_path_factory.mktemp("tuned")
    made = {}

    def tuned(name, task, *settings):
        key = f"{name}-{task}"
        if key not in made:
            alone = folder / "old" / key
            shutil.copytree(old(name).path, alone, ignore=shutil.ignore_patterns("run"))
            data = files / {"classify": "second.tsv", "tag": "second.conll"}.get(task, "text.txt")
            lab.train(task, data, start=alone, settings=(*QUICK, *settings), out=folder / key)
            shutil.rmtree(alone)
            made[key] = seqlab.load(folder / key)
        return made[key]

    return tuned


def weights_of(model):
    return {name: weight.detach() for name, weight in model.bundle.model.named_parameters()}


def first_weights(model):
    """The weights that a run began with."""
    return read_checkpoint(model.path / "run" / "start.safetensors")[1]["model"]


def begun(model):
    """The new model as it was before its first step."""
    fresh = seqlab.load(model.path).bundle
    load_weights(fresh.model, first_weights(model))
    return Bundle(fresh.recipe, fresh.codec, fresh.model.eval(), {})


def arrived(new, old, names):
    """Whether each old weight stands in the new model under its new name."""
    first, before = first_weights(new), weights_of(old)
    assert names
    return all(first[there].equal(before[name]) for name, there in names.items())


def decoder_to_encoder(model):
    names = [name for name in weights_of(model) if ".head." not in name]
    there = {name: name.replace("decoder.", "encoder.") for name in names}
    return there | {"decoder.embedding.weight": "encoder.inputs.embedding.weight"}


def same_names(model, prefix="encoder."):
    return {name: name for name in weights_of(model) if name.startswith(prefix)}


def ids(model, text):
    return Padded.from_rows([model.bundle.codec.source.encode([text])[0]])


class TestFromALanguageModel:
    @pytest.mark.parametrize("name", ["lm", "gpt", "universal"])
    def test_a_classifier_starts_with_the_states_of_the_language_model(self, old, tuned, name):
        new = tuned(name, "classify")
        assert arrived(new, old(name), decoder_to_encoder(old(name)))
        decoder, source = old(name).bundle.model.decoder, ids(new, "the cat slept well")
        context, state = decoder.start(Memory(1))
        with torch.inference_mode():
            expected = decoder.features(source.values, context, state).features
            torch.testing.assert_close(begun(new).model.encoder(source).states.values, expected)

    @pytest.mark.parametrize("name", ["lm", "gpt"])
    def test_it_still_reads_from_left_to_right(self, tuned, name):
        model = tuned(name, "classify").bundle.model
        rows = Padded.from_rows([[10, 11, 12, 13], [10, 11, 12, 99], [99, 11, 12, 13]])
        with torch.inference_mode():
            states = model.encoder(rows).states.values
        torch.testing.assert_close(states[0, :3], states[1, :3])
        assert not states[0, 3].allclose(states[1, 3])
        assert not states[0, 3].allclose(states[2, 3])

    def test_the_number_of_learned_positions_is_kept(self, old, tuned):
        assert (
            tuned("gpt", "classify").recipe.data.max_source
            == old("gpt").recipe.data.max_target + 2
            == 32
        )

    def test_shorter_texts_use_the_first_learned_positions(self, old, files, tmp_path):
        settings = (*QUICK, "data.max_source=20")
        new = lab.train(
            "classify", files / "second.tsv", start=old("gpt").path, settings=settings, out=tmp_path
        ).model
        before = weights_of(old("gpt"))["decoder.entrance.positions.table"]
        assert begun(new).model.encoder.entrance.positions.table.equal(before[:20])

    def test_another_language_model_starts_with_all_weights(self, old, tuned):
        new = tuned("lm", "lm")
        assert arrived(new, old("lm"), same_names(old("lm"), ""))
        assert new.recipe.model == old("lm").recipe.model
        assert new.predict("the", max_length=3).input == "the"


class TestFromAMaskedModel:
    def test_a_classifier_begins_with_its_encoder(self, old, tuned):
        new = tuned("mask", "classify")
        assert arrived(new, old("mask"), same_names(old("mask")))
        source = ids(new, "the cat slept [SEP] the unicorn ran")
        with torch.inference_mode():
            states = [
                bundle.model.encoder(source).states.values
                for bundle in (old("mask").bundle, begun(new))
            ]
        assert states[0].equal(states[1])

    def test_a_tagger_has_its_labels_at_the_first_piece_of_each_word(self, old, tuned, files):
        new = tuned("mask", "tag")
        assert arrived(new, old("mask"), same_names(old("mask")))
        stores, codec = new.path / "run" / "data", new.bundle.codec
        source, target = (
            TokenStore.open(stores / f"train_{side}") for side in ("source", "target")
        )
        assert source.lengths.tolist() == target.lengths.tolist()
        assert source.num_tokens > (target.flat != UNSEEN).sum()  # a unicorn is in several pieces
        sentences = (files / "second.conll").read_text().split("\n\n")
        known = {tuple(line.split()[0] for line in s.splitlines()): s for s in sentences}
        for row in range(len(source)):
            pieces = codec.source_tokenizer.pieces(source[row].tolist())
            words, labels = [], []
            for piece, label in zip(pieces, target[row].tolist(), strict=True):
                if label == UNSEEN:
                    words[-1] += piece
                else:
                    words.append(piece.lstrip("·␣▁Ġ "))
                    labels.append(codec.target.labels.names[label])
            cased = next(cut for cut in known if [w.lower() for w in cut] == words)
            assert labels == [line.split()[1] for line in known[cased].splitlines()]

    def test_a_masked_model_that_begins_with_a_classifier_can_fill_blanks(self, old, tuned):
        new = tuned("classify", "mask")
        assert arrived(new, old("classify"), same_names(old("classify")))
        assert len(new.predict("the [MASK] sat").details["blanks"]) == 1

    def test_another_masked_model_starts_with_all_weights(self, old, tuned):
        assert arrived(tuned("mask", "mask"), old("mask"), same_names(old("mask"), ""))


class TestFromATheme:
    TONES = (
        ["fine", "lovely", "charming", "sweet", "warm"],
        ["poor", "dreary", "clumsy", "sour", "cold"],
    )
    SMALL = (
        "source.kind=words",
        "source.min_count=1",
        "model.embedding=16",
        "model.encoder.size=16",
        "model.pooling=theme",
        "model.theme=2",
    )
    QUICKLY = ("train.warmup=0", "train.learning_rate=1e-2", "train.average=none")

    def test_a_classifier_with_few_labels_gains_from_unlabelled_texts(self, tmp_path):
        """Tone is in which words stand together in a text: two labels of each are then enough to name it."""
        keyed, things = random.Random(3), [f"thing{i}" for i in range(40)]

        def text(tone):
            words = [keyed.choice(self.TONES[tone]) for _ in range(6)] + [
                keyed.choice(things) for _ in range(6)
            ]
            return " ".join(keyed.sample(words, len(words)))

        def rows(count):
            return "".join(f"{tone}\t{text(tone)}\n" for tone in [0, 1] * count)

        for name, content in {
            "few.tsv": rows(2),
            "held.tsv": rows(2),
            "test.tsv": rows(50),
        }.items():
            (tmp_path / name).write_text(content)
        (tmp_path / "text.txt").write_text("".join(f"{text(i % 2)}\n" for i in range(600)))
        old = lab.train(
            "mask",
            tmp_path / "text.txt",
            recipe="bilstm-mask",
            settings=(*self.SMALL, "train.epochs=10", "train.batch_tokens=512", *self.QUICKLY),
            out=tmp_path / "old",
        ).model
        new = lab.train(
            "classify",
            tmp_path / "few.tsv",
            valid=tmp_path / "held.tsv",
            recipe="tuned-classifier",
            start=old.path,
            settings=(
                "model.pooling=theme",
                "model.pooling_norm=true",
                "model.dropout=0",
                "train.steps=30",
                *self.QUICKLY,
            ),
            out=tmp_path / "new",
        ).model
        assert new.bundle.recipe.model.theme == 2
        assert arrived(
            new,
            old,
            same_names(old) | {n: n for n in weights_of(old) if n.startswith("pooling.hidden")},
        )
        assert new.evaluate(tmp_path / "test.tsv").scores["accuracy"] > 0.9


class TestLayersOnTop:
    def test_more_recurrent_layers_than_before_begin_at_random(self, old, files, tmp_path):
        settings = (*QUICK, "model.encoder.layers=2")
        new = lab.train(
            "classify", files / "second.tsv", start=old("lm").path, settings=settings, out=tmp_path
        ).model
        below = {
            name: name.replace("decoder.", "encoder.")
            for name in same_names(old("lm"), "decoder.stack.")
        }
        assert below
        assert arrived(new, old("lm"), below)
        assert new.recipe.model.encoder.layers == 2
        assert any("layers.1." in name for name in weights_of(new))


class TestFromABidirectionalLanguageModel:
    ENCODER = ("model.encoder.size=8", "model.encoder.layers=1", "model.embedding=8")

    @pytest.mark.parametrize("task", ["tag", "classify"])
    def test_its_layers_are_features_that_stay_as_they_were(self, old, tuned, task):
        new = tuned("bilm", task, *self.ENCODER)
        places = {name: f"encoder.inputs.{name}" for name in same_names(old("bilm"), "readers.")}
        assert arrived(new, old("bilm"), places)
        after, before = weights_of(new), first_weights(new)
        assert all(after[name].equal(before[name]) for name in places.values())
        assert not after["encoder.inputs.scores"].equal(before["encoder.inputs.scores"])
        assert new.recipe.model.elmo == old("bilm").recipe.model.encoder
        assert new.recipe.model.encoder.size == 8  # what reads the features is the recipe's own

    def test_the_words_are_those_that_it_knows(self, old, tuned):
        sources = tuned("bilm", "tag", *self.ENCODER).bundle.codec.source_tokenizer
        assert sources.to_json() == old("bilm").bundle.codec.source_tokenizer.to_json()
        assert "unicorn" not in sources.vocabulary


class TestFromAClassifierOrATranslator:
    def test_a_classifier_of_other_labels_begins_with_all_but_the_head(self, old, tuned):
        new = tuned("classify", "classify")
        assert old("classify").bundle.codec.target.labels.names == ("a", "b")
        assert new.bundle.codec.target.labels.names == ("badly", "often", "well")
        assert arrived(
            new,
            old("classify"),
            same_names(old("classify")) | same_names(old("classify"), "pooling."),
        )
        assert len(first_weights(new)["head.output.bias"]) == 3

    def test_a_classifier_begins_with_the_encoder_of_a_translator_not_with_its_decoder(
        self, old, tuned
    ):
        before = weights_of(old("translate"))
        one, other = (
            "encoder.blocks.0.attention.mix.weight",
            "decoder.blocks.0.attention.mix.weight",
        )
        assert before[one].shape == before[other].shape
        new = tuned("translate", "classify")
        assert arrived(new, old("translate"), same_names(old("translate")))
        assert not any(name.startswith("decoder.") for name in first_weights(new))

    def test_a_tagger_keeps_the_letters_that_its_weights_belong_to(self, old, tuned):
        new = tuned("tag", "tag")
        assert (
            new.bundle.codec.source.letters.to_json()
            == old("tag").bundle.codec.source.letters.to_json()
        )
        assert arrived(new, old("tag"), same_names(old("tag")))


@pytest.mark.parametrize(
    ("name", "task"),
    [("lm", "classify"), ("gpt", "classify"), ("mask", "classify"), ("mask", "tag"), ("lm", "lm")],
)
def test_the_vocabulary_is_the_old_one_and_the_old_model_is_needed_no_more(old, tuned, name, task):
    """The old model's directory was deleted: all that is needed stands in the new one."""
    new = tuned(name, task)
    ours, theirs = new.bundle.codec, old(name).bundle.codec
    assert ours.tokenizer.to_json() == theirs.tokenizer.to_json()
    assert np.isfinite(new.embed(["the unicorn zigzagged badly"])).all()
    assert new.predict("the unicorn").input == "the unicorn"
    assert not all(
        first_weights(new)[name].equal(weight) for name, weight in weights_of(new).items()
    )


def test_training_begins_with_what_arrived(old, files, tmp_path):
    """An encoder that does not learn is the old one to the last bit, and the head is not."""
    options = {"start": old("mask").path, "settings": (*QUICK, "train.encoder_frozen=9")}
    new = lab.train("classify", files / "second.tsv", out=tmp_path / "m", **options).model
    after, before, first = weights_of(new), weights_of(old("mask")), first_weights(new)
    assert all(after[name].equal(before[name]) for name in same_names(old("mask")))
    assert not after["head.output.weight"].equal(first["head.output.weight"])


def test_a_run_that_was_stopped_and_resumed_equals_one_that_was_not(old, files, tmp_path):
    settings = (*QUICK, "train.steps=5", "train.validate_every=2", "train.encoder_frozen=2")
    start = tmp_path / "old"
    shutil.copytree(old("mask").path, start, ignore=shutil.ignore_patterns("run"))
    options = {"start": start, "settings": settings}
    stopped = lab.train(
        "classify", files / "second.tsv", out=tmp_path / "m", stop=lambda: True, **options
    )
    assert (stopped.stopped, stopped.step) == (True, 1)
    whole = lab.train("classify", files / "second.tsv", out=tmp_path / "whole", **options)
    shutil.rmtree(start)
    resumed = lab.train(out=tmp_path / "m", resume=True)
    assert (resumed.stopped, resumed.step) == (False, 5)
    weights = [
        (folder / "model.safetensors").read_bytes() for folder in (tmp_path / "m", whole.model.path)
    ]
    assert weights[0] == weights[1]


class TestRefusedStarts:
    def refused(self, files, tmp_path, task, data, error, **options):
        """The message and the hint of a refusal that leaves nothing behind."""
        with pytest.raises(error) as caught:
            lab.train(task, files / data, out=tmp_path / "deep" / "m", **options)
        assert list(tmp_path.iterdir()) == []
        return str(caught.value), caught.value.hint

    def test_a_translator_from_a_language_model(self, old, files, tmp_path):
        said, hint = self.refused(
            files, tmp_path, "translate", "pairs.tsv", RecipeError, start=old("lm").path
        )
        assert said == "a 'translate' model cannot start from a 'lm' model"
        assert "start from any model that reads" in hint

    def test_with_another_tokenizer(self, old, files, tmp_path):
        options = {"start": old("mask").path, "settings": (*QUICK, "source.kind=words")}
        said, hint = self.refused(files, tmp_path, "classify", "second.tsv", RecipeError, **options)
        assert "the tokenizer of the model to start from ('bpe')" in said
        assert "source.*" in hint

    @pytest.mark.parametrize("setting", ["model.encoder.size=16", "data.max_source=64"])
    def test_with_weights_of_another_shape_than_the_old_model_has(
        self, old, files, tmp_path, setting
    ):
        """Here a position has 8 features, and 32 positions were learnt: nothing else could take the weights."""
        options = {"start": old("gpt").path, "settings": (*QUICK, setting)}
        said, hint = self.refused(files, tmp_path, "classify", "second.tsv", RecipeError, **options)
        assert said.startswith("'encoder.")
        assert "train without --from" in hint

    def test_from_nothing(self, files, tmp_path):
        said, _ = self.refused(
            files, tmp_path, "classify", "second.tsv", BundleError, start=tmp_path / "nothing"
        )
        assert said == f"{tmp_path / 'nothing'}: there is no such model"

    def test_with_a_recipe_of_another_task(self, old, files, tmp_path):
        options = {"start": old("lm").path, "recipe": "word-lstm"}
        said, _ = self.refused(files, tmp_path, "classify", "second.tsv", RecipeError, **options)
        assert said == "recipe 'word-lstm' is for 'lm', not for 'classify'"


VECTORS = {
    "the": (1.0, 2.0, 3.0),
    "Cat": (9.0, 9.0, 9.0),
    "cat": (-1.0, 0.5, 0.25),
    "nowhere": (7.0, 7.0, 7.0),
}


class TestWordVectors:
    @pytest.fixture
    def vectors(self, tmp_path):
        path = tmp_path / "v.txt"
        path.write_text(
            "4 3\n"
            + "".join(f"{w} {' '.join(map(str, numbers))}\n" for w, numbers in VECTORS.items())
        )
        return path

    @pytest.fixture
    def train(self, files, tmp_path):
        def train(path, *settings, task="classify", data="first.tsv"):
            small = (*QUICK, "model.encoder.size=8", "source.min_count=1", f"model.vectors={path}")
            return lab.train(
                task, files / data, settings=(*small, *settings), out=tmp_path / "m"
            ).model

        return train

    def table(self, model, weights):
        """The vectors of words that stand in the weights."""
        vocabulary = model.bundle.codec.source_tokenizer.vocabulary
        return {
            word: weights["encoder.inputs.embedding.weight"][vocabulary.index(word)]
            for word in ("the", "cat", "sat")
        }

    def test_are_copied_to_the_embedding_and_set_its_size(self, vectors, train):
        model = train(vectors, "source.lower=true")
        assert model.recipe.model.embedding == 3
        first = self.table(model, first_weights(model))
        assert first["the"].tolist() == [1, 2, 3]
        assert first["cat"].tolist() == [9, 9, 9]  # in lower case, of two spellings the first
        assert "nowhere" not in model.bundle.codec.source_tokenizer.vocabulary
        assert first["sat"].isfinite().all()  # which the file has not
        after = self.table(model, weights_of(model))
        assert not after["the"].equal(first["the"])  # they learn like all others

    def test_case_matters_unless_the_source_is_lower_case(self, vectors, train):
        model = train(vectors, "source.lower=false")
        assert self.table(model, first_weights(model))["cat"].tolist() == [-1, 0.5, 0.25]

    @pytest.mark.parametrize(("task", "data"), [("classify", "first.tsv"), ("tag", "first.conll")])
    def test_frozen_vectors_are_not_trained(self, vectors, train, task, data):
        model = train(vectors, "model.frozen_vectors=true", "train.steps=4", task=task, data=data)
        after, first = self.table(model, weights_of(model)), first_weights(model)
        assert after["the"].tolist() == [1, 2, 3]
        assert weights_of(model)["encoder.inputs.embedding.weight"].equal(
            first["encoder.inputs.embedding.weight"]
        )
        assert not weights_of(model)["head.output.weight"].equal(first["head.output.weight"])

    def test_without_a_first_line_of_counts_they_are_the_same(self, vectors, train):
        vectors.write_text(vectors.read_text().removeprefix("4 3\n"))
        model = train(vectors)
        assert self.table(model, first_weights(model))["the"].tolist() == [1, 2, 3]

    def test_the_model_does_not_need_the_file(self, vectors, train, tmp_path):
        model = train(vectors)
        vectors.unlink()
        assert seqlab.load(tmp_path / "m").predict("the cat") == model.predict("the cat")

    def test_a_model_that_starts_from_it_does_not_need_the_file(
        self, vectors, train, files, tmp_path
    ):
        model = train(vectors)
        vectors.unlink()
        new = lab.train(
            "classify", files / "second.tsv", start=model.path, settings=QUICK, out=tmp_path / "new"
        ).model
        assert arrived(new, model, same_names(model))

    def test_a_model_of_both_directions_reads_them_too(self, vectors, train):
        model = train(
            vectors, "model.encoder.size=3", "model.embedding=3", task="bilm", data="text.txt"
        )
        place = model.bundle.codec.source_tokenizer.vocabulary.index("the")
        assert first_weights(model)["readers.embedding.weight"][place].tolist() == [1, 2, 3]

    def test_a_line_that_was_cut_is_named(self, vectors, train, tmp_path):
        with vectors.open("a") as file:
            file.write("dog 1.0 2.0")
        with pytest.raises(
            DataError, match=r"v.txt:6: 2 numbers where 3 finite ones are needed: 'dog 1.0 2.0'"
        ):
            train(vectors)
        assert not (tmp_path / "m").exists()

    def test_without_any_common_word_they_are_refused(self, tmp_path, train):
        (tmp_path / "v.txt").write_text("chat 1 2 3\nchien 4 5 6\n")
        with pytest.raises(
            DataError, match=r"v.txt: no word of the training data has a vector in this file"
        ):
            train(tmp_path / "v.txt")

    def test_a_missing_file(self, tmp_path, train):
        with pytest.raises(DataError, match=r"v.txt: there is no such file"):
            train(tmp_path / "v.txt")

    def test_a_transformer_of_another_size_refuses_them(self, vectors, train):
        with pytest.raises(
            RecipeError, match="the word vectors have 3 numbers, but the encoder reads 8"
        ) as caught:
            train(vectors, "model.encoder.kind=transformer", "model.encoder.heads=2")
        assert "model.encoder.size" in caught.value.hint

    def test_characters_have_no_word_vectors(self, vectors, train):
        with pytest.raises(RecipeError, match="word vectors need words"):
            train(vectors, "source.kind=characters")
