import json
import re
import time
import warnings
from functools import partial

import pytest

import seqlab
from seqlab import lab
from seqlab.corpus.stream import HELD_OUT_CHARACTERS
from seqlab.data.store import TokenStore
from seqlab.data.synthetic import parity, reversals
from seqlab.distributed import World
from seqlab.errors import DataError, RunError, SeqlabWarning, UsageError
from seqlab.recipe import load_recipe, override
from seqlab.runs import fit, reopen_run
from seqlab.tasks import build_model, task_of
from seqlab.training.checkpoint import read_checkpoint
from seqlab.training.log import SilentReporter

SMALL = ("model.embedding=8", "model.encoder.size=8", "model.decoder.size=8", "train.steps=2")
CHARACTERS = (*SMALL, "shared=false", "source.kind=characters")
train_small = partial(
    lab.train, "translate", recipe="seq2seq"
)  # the sizes above are of a recurrent one


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{a}\t{b}\n" for a, b in reversals(60, seed=1, longest=6)))
    return path


def test_a_time_limit_includes_the_time_before_resuming(pairs, tmp_path):
    """The number of steps changes while the clock runs; whoever makes the same steps again gets the same weights."""
    settings = [
        *CHARACTERS[:-3],
        *CHARACTERS[-2:],
        "train.minutes=0.03",
        "train.average=ema",
        "train.optimizer=muon",
    ]
    settings += ["model.dropout=0.2", "train.batch_tokens=200"]
    out, began = tmp_path / "m", time.monotonic()
    assert train_small(
        pairs, settings=settings, out=out, stop=lambda: time.monotonic() > began + 1.0
    ).stopped
    finished = lab.train(out=out, resume=True)
    place, parts = read_checkpoint(out / "run" / "last.safetensors")
    assert place.finished
    assert place.seconds < 1.1 * 1.8
    assert len(place.lengths) > 1
    recipe, corpus = reopen_run(out, None, None, ())
    learner = task_of(recipe).learner(recipe, build_model(recipe, corpus.codec), corpus, World())
    for step in range(finished.step):
        learner.progress.lengths = [entry for entry in place.lengths if entry[0] <= step]
        learner.step()
    again = learner.state()
    assert all(again["model"][name].equal(weight) for name, weight in parts["model"].items())
    assert all(again["average"][name].equal(weight) for name, weight in parts["average"].items())


class Watcher:
    """Somebody who writes down what a run tells."""

    def __init__(self):
        self.told = []

    def begin(self, estimate, first_step):
        self.told.append(("begin", estimate.num_steps, first_step))

    def step(self, step):
        self.told.append(("step", step.step))

    def plan(self, facts, choices):
        pass

    def say(self, text):
        pass

    def diverged(self, message, action):
        self.told.append(("diverged", message, action))

    def validated(self, step, metrics, *, best):
        self.told.append(("validated", step, best))

    def end(self):
        self.told.append(("end",))


def test_kept_checkpoints_can_be_loaded(pairs, tmp_path):
    settings = (
        *CHARACTERS[:3],
        *CHARACTERS[4:],
        "train.steps=4",
        "train.validate_every=1",
        "train.keep=2",
    )
    train_small(pairs, settings=settings, out=tmp_path / "m")
    assert list(lab.checkpoints(tmp_path / "m")) == ["00000003", "00000004", "best", "last"]
    assert lab.load_checkpoint(tmp_path / "m", "00000003").predict("abc").input == "abc"
    with pytest.raises(RunError, match="no checkpoint '00000001'") as wrong:
        lab.load_checkpoint(tmp_path / "m", "00000001")
    assert "00000003" in wrong.value.hint


class TestVerbs:
    def test_train_load_predict_evaluate_info(self, pairs, tmp_path):
        trained = train_small(pairs, settings=CHARACTERS, out=tmp_path / "m")
        assert (trained.stopped, trained.step) == (False, 2)

        model = seqlab.load(tmp_path / "m")
        one, many = model.predict("abc"), model.predict(["abc", "", "xyz"])
        assert one.input == "abc"
        assert one == trained.model.predict("abc")
        assert one.output == many[0].output
        assert one.details["log_probability"] == pytest.approx(many[0].details["log_probability"])
        assert [each.input for each in many] == ["abc", "", "xyz"]
        assert many[1].output == ""
        assert model.predict([]) == []

        assert model.evaluate().to_json() == model.metrics["validation"]
        assert model.evaluate(pairs).num_examples == 60
        info = model.info()
        assert info["parameters"] == sum(p.numel() for p in model.bundle.model.parameters())
        assert info["metrics"]["steps"] == 2
        assert model.recipe.train.steps == 2

    def test_decoding_options_override_the_recipe(self, pairs, tmp_path):
        model = train_small(pairs, settings=CHARACTERS, out=tmp_path / "m").model
        samples = [model.predict("abc", temperature=1.0, seed=seed).output for seed in range(5)]
        assert len(set(samples)) > 1
        assert len(model.predict("abc", max_length=1).output) <= 1
        with pytest.raises(UsageError, match="temperature"):
            model.predict("abc", temperature=0)
        with pytest.raises(UsageError, match="tempreature"):
            model.predict("abc", tempreature=1)

    def test_a_recipe_may_be_an_object(self, pairs, tmp_path):
        recipe = override(load_recipe("seq2seq"), CHARACTERS)
        chosen = lab.train(data=pairs, recipe=recipe, out=tmp_path / "m").model.recipe
        assert (chosen.name, chosen.source, chosen.model) == (
            recipe.name,
            recipe.source,
            recipe.model,
        )
        assert chosen.train.steps == recipe.train.steps

    def test_the_reporter_is_called(self, pairs, tmp_path):
        watcher = Watcher()
        train_small(pairs, settings=CHARACTERS, out=tmp_path / "m", report=watcher)
        assert watcher.told[0] == ("begin", 2, 0)
        assert [each[0] for each in watcher.told[1:]] == [
            "step",
            "validated",
            "step",
            "validated",
            "end",
        ]

    def test_a_run_can_be_stopped_and_resumed(self, pairs, tmp_path):
        settings = (*CHARACTERS, "train.steps=6", "train.validate_every=3")
        stopped = train_small(pairs, settings=settings, out=tmp_path / "m", stop=lambda: True)
        assert (stopped.stopped, stopped.step) == (True, 1)
        resumed = lab.train(out=tmp_path / "m", resume=True)
        assert (resumed.stopped, resumed.step) == (False, 6)
        whole = train_small(pairs, settings=settings, out=tmp_path / "whole")
        weights = [
            (folder / "model.safetensors").read_bytes()
            for folder in (tmp_path / "m", whole.model.path)
        ]
        assert weights[0] == weights[1]

    def test_a_run_that_validates_at_every_step_can_be_stopped(self, pairs, tmp_path):
        settings = (*CHARACTERS, "train.steps=3", "train.validate_every=1")
        assert (
            train_small(pairs, settings=settings, out=tmp_path / "m", stop=lambda: True).step == 1
        )

    def test_the_seed_determines_the_model(self, pairs, tmp_path):
        weights = [
            train_small(pairs, settings=(*CHARACTERS, f"train.seed={seed}"), out=tmp_path / name)
            .model.path.joinpath("model.safetensors")
            .read_bytes()
            for name, seed in (("a", 1), ("b", 1), ("c", 2))
        ]
        assert weights[0] == weights[1] != weights[2]

    def test_the_summary_of_a_file(self, pairs):
        facts = lab.look("translate", pairs)
        assert facts["examples"] == 60
        assert facts["longest_source"].startswith("6 at ")

    def test_a_directory_is_named_after_recipe_and_file(self):
        assert str(lab.default_folder("seq2seq", ["data/fra.eng.tsv.gz"])) == "runs/seq2seq-fra"
        assert str(lab.default_folder("seq2seq", ["-"])) == "runs/seq2seq-stdin"


class TestSplit:
    def test_the_same_source_is_never_on_both_sides(self, tmp_path):
        path = tmp_path / "bits.tsv"
        rows = [(label, " ".join(bits)) for bits, label in parity(400, seed=1, longest=5)]
        path.write_text("".join(f"{label}\t{text}\n" for label, text in rows))
        assert len({text for _, text in rows}) < 70  # most texts occur many times
        settings = (
            "model.embedding=8",
            "model.encoder.size=8",
            "train.steps=1",
            "source.min_count=1",
        )
        model = lab.train(
            "classify", path, settings=(*settings, "data.validation=0.2"), out=tmp_path / "m"
        ).model

        stores = model.path / "run" / "data"
        train, held_out = (
            TokenStore.open(stores / f"{part}_source") for part in ("train", "validation")
        )
        sides = [
            {tuple(store[i].tolist()) for i in range(len(store))} for store in (train, held_out)
        ]
        assert sides[0]
        assert sides[1]
        assert not sides[0] & sides[1]
        assert len(train) + len(held_out) == 400
        texts = [json.loads(line) for line in (stores / "held-out.jsonl").read_text().splitlines()]
        assert len(texts) == len(held_out)

    def test_with_a_validation_file_all_other_examples_are_for_training(self, pairs, tmp_path):
        valid = tmp_path / "valid.tsv"
        valid.write_text("abc\tcba\nxyz\tzyx\n")
        model = train_small(pairs, valid=valid, settings=CHARACTERS, out=tmp_path / "m").model
        assert model.metrics["data"]["train_source_rows"] == 60
        assert model.metrics["data"]["validation_source_rows"] == 2

    def test_the_held_out_part_of_a_long_text_is_limited(self, tmp_path):
        text, wanted = (
            tmp_path / "text.txt",
            ["model.decoder.size=4", "train.steps=1", "data.max_validation=2"],
        )
        text.write_text("abc de\n" * 2000)
        run = seqlab.train("lm", text, settings=wanted, out=tmp_path / "m")
        assert run.model.metrics["data"]["validation_stream_tokens"] == 2 * HELD_OUT_CHARACTERS
        short = seqlab.train(
            "lm", text, settings=[*wanted[:2], "data.validation=0.01"], out=tmp_path / "n"
        )
        assert short.model.metrics["data"]["validation_stream_tokens"] == 140

    def test_one_example_cannot_be_split(self, tmp_path):
        (tmp_path / "p.tsv").write_text("abc\tcba\n")
        with pytest.warns(SeqlabWarning, match="too few examples to hold any out"):
            train_small(tmp_path / "p.tsv", settings=CHARACTERS, out=tmp_path / "m")


class TestTooLong:
    @pytest.fixture
    def train(self, tmp_path):
        """A function that trains on 40 short pairs and two long ones, at lines 11 and 21."""
        rows = [f"{a}\t{b}" for a, b in reversals(40, seed=1, longest=4)]
        rows[10] = rows[20] = "abcdefgh\thgfedcba"
        (tmp_path / "p.tsv").write_text("\n".join(rows))
        (tmp_path / "v.tsv").write_text("abc\tcba\n")

        def train(how, **options):
            settings = (
                *CHARACTERS,
                "data.max_source=5",
                "data.max_target=6",
                f"data.too_long={how}",
            )
            options = {"valid": tmp_path / "v.tsv", **options}
            return train_small(
                tmp_path / "p.tsv", settings=settings, out=tmp_path / "m", **options
            ).model

        return train

    def test_is_cut_with_a_warning_that_names_the_line(self, train, tmp_path):
        with pytest.warns(
            SeqlabWarning, match=r"p.tsv:11: longer than .*; 2 examples of the train part cut"
        ):
            model = train("cut")
        stores, codec = model.path / "run" / "data", model.bundle.codec
        source, target = (
            TokenStore.open(stores / f"train_{side}") for side in ("source", "target")
        )
        assert len(source) == 40
        assert codec.source_tokenizer.decode(source[10].tolist()) == "abcde"
        assert codec.target_tokenizer.decode(target[10].tolist()) == "hgfedc"
        assert target[10].tolist()[-1] == target[0].tolist()[-1]  # a target that was cut still ends

    def test_is_skipped_with_a_warning_that_names_the_line(self, train):
        with pytest.warns(
            SeqlabWarning, match=r"p.tsv:11: longer than .*; 2 examples of the train part skipped"
        ):
            model = train("skip")
        assert model.metrics["data"]["train_source_rows"] == 38

    def test_is_refused_by_its_line_and_nothing_is_written(self, train, tmp_path):
        with pytest.raises(
            DataError, match=r"p.tsv:11: 8 source and 10 target tokens, more than 5 and 6"
        ):
            train("refuse")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["p.tsv", "v.tsv"]

    def test_gives_no_warning_if_everything_fits(self, pairs, tmp_path):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            train_small(pairs, settings=CHARACTERS, out=tmp_path / "m")

    def test_words_and_tags_are_cut_to_the_same_length(self, tmp_path):
        (tmp_path / "t.conll").write_text("a X\nb Y\nc Z\n\nd X\n\n")
        settings = (*SMALL[:2], "train.steps=1", "source.min_count=1", "data.max_source=2")
        (tmp_path / "v.conll").write_text("a X\n")
        with pytest.warns(SeqlabWarning, match="1 example of the train part cut"):
            model = lab.train(
                "tag",
                tmp_path / "t.conll",
                valid=tmp_path / "v.conll",
                settings=settings,
                out=tmp_path / "m",
            ).model
        assert (
            model.metrics["data"]["train_source_tokens"]
            == model.metrics["data"]["train_target_tokens"]
            == 3
        )


def test_an_existing_run_is_not_changed_without_overwrite(pairs, tmp_path):
    train_small(pairs, settings=CHARACTERS, out=tmp_path / "m")
    with pytest.raises(RunError, match="already holds a run"):
        train_small(pairs, settings=CHARACTERS, out=tmp_path / "m")
    with pytest.raises(UsageError, match=re.escape("--overwrite replaces it")):
        lab.train("translate", pairs, out=tmp_path / "m", resume=True, overwrite=True)


@pytest.mark.parametrize(
    ("recipe", "settings", "told"),
    [
        (
            "seq2seq",
            ["model.encoder.kind=transformer", "model.encoder.normalise=batch"],
            "a batch norm needs the whole",
        ),
        ("hmm-tagger", [], "recipe 'hmm-tagger' is fitted by one process"),
    ],
)
def test_unsupported_distributed_training_is_refused(pairs, tmp_path, recipe, settings, told):
    data = tmp_path / "words.conll"
    data.write_text("cats NOUN\nrun VERB\n\n" * 30)
    task, files = ("translate", pairs) if recipe == "seq2seq" else ("tag", data)
    sizes = [*SMALL, *settings] if recipe == "seq2seq" else []
    lab.train(task, files, recipe=recipe, settings=[*sizes, "train.steps=1"], out=tmp_path / "m")
    with pytest.raises(UsageError, match=told):
        fit(
            tmp_path / "m",
            *reopen_run(tmp_path / "m", None, None, ()),
            resume=True,
            report=SilentReporter(),
            stop=bool,
            world=World(0, 2),
        )


def test_final_scores_are_of_the_whole_held_out_part(tmp_path):
    """A file may be sorted: its first thousand lines tell little of the others."""
    train, valid = tmp_path / "train.txt", tmp_path / "valid.txt"
    train.write_text("ab\n" * 50)
    valid.write_text("ab\n" * 1000 + "ba\n" * 1000)
    settings = [
        "data.unit=line",
        "data.max_validation=2000",
        "train.steps=30",
        "train.warmup=0",
        "model.decoder.size=8",
    ]
    run = lab.train(
        "lm", train, valid=[valid], recipe="char-rnn", settings=settings, out=tmp_path / "model"
    )
    validated = json.loads((tmp_path / "model/run/metrics.jsonl").read_text().splitlines()[-1])[
        "validation"
    ]["loss"]
    assert run.model.metrics["validation"]["loss"] == pytest.approx(validated, rel=0.01)
