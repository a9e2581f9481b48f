import json
from contextlib import contextmanager

import pytest
import torch

from seqlab import lab
from seqlab.codecs.codec import Codec, Nothing
from seqlab.codecs.text import TextTarget
from seqlab.data import synthetic
from seqlab.errors import RunError, SeqlabWarning
from seqlab.kernels import calibration, products
from seqlab.layers.tap import listening
from seqlab.padded import Batch, Padded
from seqlab.randomness import current_noise
from seqlab.recipe import TrainConfig, build_recipe
from seqlab.tasks import build_model
from seqlab.text import Normaliser, learn
from seqlab.training.checkpoint import read_checkpoint, write_checkpoint
from seqlab.training.gradient import Batches, GradientLearner, num_steps
from seqlab.training.run import Run
from seqlab.training.weights import load_weights, parameters_of

SMALL = [
    "model.embedding=8",
    "model.dropout=0.3",
    "train.batch_tokens=60",
    "train.warmup=4",
    "train.validate_every=7",
]
RATE = 1e-2
FALLING = [9.0, 8.0, 7.0, 6.0, 5.0, 4.0]


class Watch:
    """Somebody who watches a run, and remembers at which step it stands and how long it was to take."""

    def __init__(self, *, breaks_at=None):
        self.step_now, self.breaks_at, self.validations, self.estimates, self.ended = (
            0,
            breaks_at,
            [],
            [],
            0,
        )
        self.events = []

    def begin(self, estimate, first_step):
        self.estimates.append((estimate, first_step))

    def step(self, step):
        self.step_now = step.step
        if step.step == self.breaks_at:
            raise RuntimeError("the lights went out")

    def plan(self, facts, choices):
        pass

    def say(self, text):
        pass

    def diverged(self, message, action):
        self.events.append((message, action))

    def validated(self, step, metrics, *, best):
        self.validations.append((step, best))

    def end(self):
        self.ended += 1


def stream(folder):
    folder.joinpath("text.txt").write_text(
        " ".join(word for word, _ in synthetic.copies(90, seed=1))
    )
    return (
        "lm",
        "char-lstm",
        ["text.txt"],
        ["model.decoder.size=8", "train.batch_rows=4", "train.bptt=9"],
    )


def lines(folder):
    folder.joinpath("lines.txt").write_text(
        "\n".join(word for word, _ in synthetic.copies(60, seed=1))
    )
    return "lm", "char-gru", ["lines.txt"], ["model.decoder.size=8", "data.unit=line"]


def classify(folder):
    pairs = synthetic.parity(60, seed=1)
    folder.joinpath("bits.tsv").write_text(
        "".join(f"{label}\t{' '.join(bits)}\n" for bits, label in pairs)
    )
    return (
        "classify",
        "bilstm-classifier",
        ["bits.tsv"],
        ["model.encoder.size=8", "source.min_count=1"],
    )


def tag(folder):
    words = [word for word, _ in synthetic.copies(60, seed=1)]
    rows = ("".join(f"{letter}\t{letter in 'aeiou'}\n" for letter in word) + "\n" for word in words)
    folder.joinpath("letters.conll").write_text("".join(rows))
    return "tag", "bilstm-tagger", ["letters.conll"], ["model.encoder.size=8", "source.min_count=1"]


def translate(folder):
    pairs = synthetic.reversals(60, seed=1, longest=5)
    folder.joinpath("pairs.tsv").write_text(
        "".join(f"{source}\t{target}\n" for source, target in pairs)
    )
    sizes = [
        "model.encoder.size=8",
        "model.decoder.size=8",
        "source.kind=characters",
        "decode.max_length=8",
    ]
    return "translate", "seq2seq", ["pairs.tsv"], sizes


def run(folder, make, *settings, name, stops=(), report=None, resume=False):
    """Train into folder/name; `stops` are steps at which it is asked to stop."""
    task, recipe, files, sizes = make(folder)
    watch = report or Watch()
    return lab.train(
        task,
        [] if resume else [folder / file for file in files],
        recipe=None if resume else recipe,
        settings=[] if resume else [*SMALL, *sizes, f"train.learning_rate={RATE}", *settings],
        out=folder / name,
        resume=resume,
        report=watch,
        stop=lambda: watch.step_now in stops,
    )


HEADS = "model.{0}.kind=transformer model.{0}.size=8 model.{0}.heads=2"


def weights(folder):
    """All that a run has learnt, its optimiser and averages included, and what its bundle holds."""
    _, parts = read_checkpoint(folder / "run" / "last.safetensors")
    flat = {
        f"{part}/{name}": tensor for part, group in parts.items() for name, tensor in group.items()
    }
    return flat | {
        f"bundle/{name}": w for name, w in lab.load(folder).bundle.model.named_parameters()
    }


def metrics(folder):
    """The log without its clocks."""
    rows = map(json.loads, (folder / "run" / "metrics.jsonl").read_text().splitlines())
    return [
        {name: value for name, value in row.items() if name not in ("seconds", "tokens_per_second")}
        for row in rows
    ]


def assert_same(one, other):
    tensors, expected = weights(one), weights(other)
    assert tensors.keys() == expected.keys()
    assert [name for name in expected if not tensors[name].equal(expected[name])] == []
    assert metrics(one) == metrics(other)


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (stream, "train.average=none train.label_smoothing=0.1"),
        (stream, "train.average=ema model.decoder.layers=2"),
        (stream, "train.average=last train.average_last=3 train.optimizer=sgd"),
        (lines, "train.average=last train.average_last=2 train.optimizer=muon"),
        (classify, "train.average=ema"),
        (tag, "train.average=none"),
        (translate, "train.average=last model.tie=true"),
        (
            translate,
            f"{HEADS.format('encoder')} model.encoder.normalise=batch model.attention.wiring=bahdanau",
        ),
        (
            translate,
            f"{HEADS.format('encoder')} {HEADS.format('decoder')} train.optimizer=muon train.average=ema",
        ),
        (
            stream,
            f"{HEADS.format('decoder')} model.decoder.positions=rotary model.decoder.window=4",
        ),
    ],
)
def test_resuming_equals_never_having_stopped(tmp_path, make, settings):
    """Bit for bit, stopped before the first validation and again between two, in the middle of an epoch."""
    whole = run(tmp_path, make, "train.steps=24", *settings.split(), name="whole")
    assert not whole.stopped

    for at, resume in ((4, False), (17, True)):
        part = run(
            tmp_path,
            make,
            "train.steps=24",
            *settings.split(),
            name="parts",
            stops=[at],
            resume=resume,
        )
        assert part.stopped
        assert part.step == at
    assert not run(tmp_path, make, name="parts", resume=True).stopped

    assert_same(tmp_path / "parts", tmp_path / "whole")
    assert [row["step"] for row in metrics(tmp_path / "whole")] == [7, 14, 20, 21, 24, 24]
    epoch = read_checkpoint(tmp_path / "whole" / "run" / "last.safetensors")[0].epoch
    assert epoch >= 1


class TestProducts:
    """How matrices are multiplied is chosen for this machine, recorded, and kept."""

    SETTINGS = (*HEADS.format("encoder").split(), *HEADS.format("decoder").split(), "train.steps=8")

    @pytest.fixture(autouse=True)
    def fast(self, monkeypatch):
        """A machine on which bfloat16 is the fastest way; the fixture is called with others."""

        def machine(**speeds):
            figures = {"torch": 1.0, "onednn": 2.0, "bfloat16": 4.0, "copy": 1.0} | speeds
            monkeypatch.setattr(calibration, "speeds", lambda: calibration.Speeds(**figures))

        monkeypatch.delenv("SEQLAB_PRODUCTS")
        monkeypatch.setattr(products, "SMALL", 0)
        machine()
        return machine

    def train(self, folder, name, *settings, **options):
        return run(
            folder,
            translate,
            *self.SETTINGS,
            "train.optimizer=muon",
            *settings,
            name=name,
            **options,
        )

    def recorded(self, folder):
        return read_checkpoint(folder / "run" / "last.safetensors")[0].products

    def test_a_resumed_run_goes_on_as_it_began_whatever_is_the_fastest_by_then(
        self, tmp_path, fast
    ):
        self.train(tmp_path, "whole", "train.precision=auto")
        self.train(tmp_path, "parts", "train.precision=auto", stops=[5])
        fast(onednn=9.0)
        self.train(tmp_path, "parts", resume=True)
        assert_same(tmp_path / "parts", tmp_path / "whole")
        assert self.recorded(tmp_path / "parts") == [[0, "auto", "bfloat16"]]

    def test_a_machine_that_is_slow_in_that_way_says_so_and_takes_another(self, tmp_path, fast):
        self.train(tmp_path, "run", "train.precision=auto", stops=[5])
        fast(bfloat16=0.2)
        with pytest.warns(
            SeqlabWarning, match="until step 5 .* 'bfloat16'.* goes on with 'onednn'"
        ):
            self.train(tmp_path, "run", resume=True)
        assert self.recorded(tmp_path / "run") == [[0, "auto", "bfloat16"], [5, "auto", "onednn"]]

    def test_another_precision_is_another_choice_and_float32_stays_float32(self, tmp_path, fast):
        self.train(tmp_path, "run", "train.precision=float32", stops=[5])
        lab.train(out=tmp_path / "run", resume=True, settings=["train.precision=bfloat16"])
        assert self.recorded(tmp_path / "run") == [
            [0, "float32", "onednn"],
            [5, "bfloat16", "bfloat16"],
        ]

    def test_a_run_of_an_earlier_version_goes_on_with_torchs_own_products(
        self, tmp_path, monkeypatch
    ):
        monkeypatch.setenv("SEQLAB_PRODUCTS", "torch")
        self.train(tmp_path, "whole")
        self.train(tmp_path, "parts", stops=[5])
        last = tmp_path / "parts" / "run" / "last.safetensors"
        progress, parts = read_checkpoint(last)
        progress.products = []
        write_checkpoint(last, progress, parts)
        monkeypatch.delenv("SEQLAB_PRODUCTS")
        self.train(tmp_path, "parts", resume=True)
        assert_same(tmp_path / "parts", tmp_path / "whole")
        assert self.recorded(tmp_path / "parts") == [[5, "float32", "torch"]]

    def test_what_learnt_with_bfloat16_products_predicts_in_float32(self, tmp_path):
        trained = self.train(tmp_path, "run", "train.precision=auto").model
        assert {weight.dtype for weight in trained.bundle.model.parameters()} == {torch.float32}
        assert products.current_way(torch.ones(1), 1 << 40) == "torch"


def test_kernels_that_were_built_meanwhile_change_no_run(tmp_path, kernels, monkeypatch):
    """The first training builds them in the background; it goes on as it began, bit for bit."""
    monkeypatch.setenv("SEQLAB_NATIVE", "0")
    run(tmp_path, stream, "train.steps=24", name="whole")
    run(tmp_path, stream, "train.steps=24", name="parts", stops=[4])
    monkeypatch.setenv("SEQLAB_NATIVE", "1")
    run(tmp_path, stream, name="parts", resume=True)
    assert_same(tmp_path / "parts", tmp_path / "whole")


def test_a_run_with_kernels_goes_on_without_them_and_says_so(tmp_path, kernels, monkeypatch):
    run(tmp_path, stream, "train.steps=24", name="parts", stops=[4])
    monkeypatch.setenv("SEQLAB_NATIVE", "0")
    with pytest.warns(SeqlabWarning, match="began with the native kernels"):
        run(tmp_path, stream, name="parts", resume=True)


def test_a_killed_run_resumes_from_its_last_checkpoint(tmp_path):
    """What was logged after the checkpoint is done again, and differs in nothing."""
    run(tmp_path, stream, "train.steps=40", name="whole")
    with pytest.raises(RuntimeError, match="the lights went out"):
        run(tmp_path, stream, "train.steps=40", name="parts", report=Watch(breaks_at=27))
    with (tmp_path / "parts" / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 27, "lo')
    watch = Watch()
    run(tmp_path, stream, name="parts", resume=True, report=watch)
    assert watch.estimates[0][1] == 21
    assert_same(tmp_path / "parts", tmp_path / "whole")


def test_another_seed_gives_another_run(tmp_path):
    run(tmp_path, lines, "train.steps=3", name="one")
    run(tmp_path, lines, "train.steps=3", "train.seed=2", name="other")
    one, other = weights(tmp_path / "one"), weights(tmp_path / "other")
    assert not one["bundle/decoder.head.output.weight"].equal(
        other["bundle/decoder.head.output.weight"]
    )


def test_a_tiny_task_is_learnt(tmp_path):
    """A classifier that need only find one letter, in a second or two."""
    words = [word for word, _ in synthetic.copies(300, seed=1, longest=6, letters="abcd")]
    path = tmp_path / "words.tsv"
    path.write_text(
        "".join(f"{'yes' if 'a' in word else 'no'}\t{' '.join(word)}\n" for word in words)
    )
    sizes = [
        "model.embedding=8",
        "model.encoder.size=8",
        "model.dropout=0.1",
        "train.warmup=5",
        "source.min_count=1",
    ]
    fitted = lab.train(
        "classify",
        path,
        out=tmp_path / "out",
        settings=[*sizes, "train.steps=80", "train.batch_tokens=300", "train.learning_rate=0.03"],
    )
    assert fitted.model.predict("b c a d").output == "yes"
    assert fitted.model.predict("b c d d").output == "no"
    assert fitted.model.metrics["validation"]["accuracy"] > 0.9


def test_a_character_model_learns_hello(tmp_path):
    """W4: h, e, l, l, o: what follows an l depends on what came before it."""
    path = tmp_path / "hello.txt"
    path.write_text("hello\n")
    sizes = ["data.unit=line", "model.embedding=8", "model.decoder.size=16"]
    with pytest.warns(UserWarning, match="too few examples to hold any out"):
        fitted = lab.train(
            "lm",
            path,
            recipe="char-rnn",
            out=tmp_path / "out",
            settings=[*sizes, "train.steps=100", "train.warmup=10", "train.learning_rate=0.02"],
        )
    assert fitted.model.predict("", method="greedy").output == "hello"
    assert fitted.model.predict("hel", method="greedy").output == "lo"
    assert {
        answer.output for answer in fitted.model.predict([""] * 20, method="sample", seed=1)
    } == {"hello"}
    assert lab.load(tmp_path / "out").predict("", method="greedy").output == "hello"


class Repeated:
    """Three batches, the same in every epoch, that remembers which were asked for."""

    def __init__(self, *, carries=False):
        self.carries, self.requested = carries, []

    def num_batches(self, epoch):
        return 3

    def batch(self, epoch, index):
        self.requested.append((epoch, index))
        return Batch(torch.tensor([index]), target=Padded.from_rows([[2, 6 + index, 7, 8, 3]]))


def training(folder, *, losses=(), accuracies=(), batches=None, report=None, **settings):
    """A run over the repeated batches, whose validations find these losses, and the weights they were found for."""
    folder.mkdir(exist_ok=True)
    settings = {"steps": 12, "validate_every": 2, "warmup": 0, **settings}
    codec = Codec(Nothing(), TextTarget(learn("characters", ["abc"], normaliser=Normaliser())))
    decoder = {"kind": "gru", "size": 4}
    table = {
        "name": "tiny",
        "task": "lm",
        "model": {"embedding": 3, "decoder": decoder},
        "train": settings,
    }
    recipe = build_recipe(table, where="test")
    model = build_model(recipe, codec)
    remaining, right, recorded = iter(losses), iter(accuracies), []

    def validate():
        recorded.append({name: weight.clone() for name, weight in parameters_of(model).items()})
        return {"loss": next(remaining, 1.0)} | (
            {"token_accuracy": next(right)} if accuracies else {}
        )

    batches = batches or Repeated()
    learner = GradientLearner(model, batches, recipe.train)
    made = Run(learner, recipe.train, validate=validate, folder=folder, report=report or Watch())
    return made, recorded


def test_a_run_takes_its_batches_epoch_by_epoch(tmp_path):
    batches, watch = Repeated(), Watch()
    run, _ = training(tmp_path, batches=batches, report=watch, steps=7)
    assert isinstance(batches, Batches)
    outcome = run.fit()
    places = [(epoch, index) for epoch in range(3) for index in range(3)][:7]
    assert batches.requested[-7:] == places  # before them, those that the estimate looked at
    assert [step for step, _ in watch.validations] == [2, 4, 6, 7]
    assert (outcome.progress.step, outcome.progress.epoch, outcome.progress.index) == (7, 2, 1)
    assert outcome.progress.finished
    assert not outcome.stopped
    assert watch.ended == 1


@pytest.mark.parametrize(
    ("carries", "step", "goes_on"), [(True, 2, True), (True, 4, False), (False, 2, False)]
)
def test_the_state_is_carried_between_batches_of_an_epoch(tmp_path, carries, step, goes_on):
    """E35. Three batches make an epoch: the second continues the first, the fourth begins anew."""

    def after(num):
        run, _ = training(
            tmp_path / str(num), batches=Repeated(carries=carries), steps=num, schedule="constant"
        )
        run.fit()
        return run, read_checkpoint(tmp_path / str(num) / "last.safetensors")[1]

    before, stood = after(step - 1)
    _, tensors = after(step)
    load_weights(before.learner.model, stood["model"])
    begins = (stood["carried"]["0"],) if goes_on else ()
    expected = before.learner.model.read_batch(Repeated().batch(0, (step - 1) % 3), begins).carried[
        0
    ]
    torch.testing.assert_close(tensors["carried"]["0"], expected)


def test_an_estimate_is_made_before_the_run_and_leaves_no_gradient(tmp_path):
    watch = Watch()
    run, _ = training(tmp_path, report=watch)
    estimate = run.estimate()
    assert estimate.num_steps == 12
    assert estimate.num_parameters == sum(p.numel() for p in run.learner.model.parameters())
    assert estimate.seconds > 0
    assert estimate.bytes > 1_000_000
    assert all(p.grad is None or p.grad.eq(0).all() for p in run.learner.model.parameters())
    run.fit()
    assert watch.estimates[0][1] == 0


@pytest.mark.parametrize(("epochs", "steps"), [(1, 3), (2.5, 8), (0.01, 1)])
def test_epochs_are_counted_in_steps(epochs, steps):
    assert num_steps(Repeated(), TrainConfig(epochs=epochs)) == steps
    assert num_steps(Repeated(), TrainConfig(steps=17)) == 17


def test_early_stopping_keeps_the_best_weights(tmp_path):
    watch = Watch()
    run, recorded = training(
        tmp_path, losses=[3.0, 2.0, 2.5, 2.1, 2.0, 1.0], patience=3, report=watch
    )
    outcome = run.fit()
    assert watch.validations == [
        (2, True),
        (4, True),
        (6, False),
        (8, False),
        (10, False),
    ]  # as good is not better
    assert outcome.progress.step == 10
    assert (outcome.progress.best_step, outcome.progress.best_loss) == (4, 2.0)
    kept = parameters_of(run.learner.model)
    assert all(kept[name].equal(recorded[1][name]) for name in kept)
    assert not all(kept[name].equal(recorded[-1][name]) for name in kept)


def test_the_best_by_accuracy_with_ties_broken_by_loss(tmp_path):
    watch = Watch()
    losses, accuracies = [1.0, 1.5, 1.4, 1.3, 1.6, 0.9], [0.5, 0.8, 0.8, 0.7, 0.9, 0.8]
    run, _ = training(tmp_path, losses=losses, accuracies=accuracies, best="accuracy", report=watch)
    outcome = run.fit()
    assert [best for _, best in watch.validations] == [True, True, True, False, True, False]
    assert (
        outcome.progress.best_step,
        outcome.progress.best_loss,
        outcome.progress.best_accuracy,
    ) == (10, 1.6, 0.9)


def test_patience_restarts_with_every_improvement(tmp_path):
    watch = Watch()
    run, _ = training(tmp_path, losses=[3.0, 3.1, 2.9, 3.0, 2.8, 2.9], patience=2, report=watch)
    assert run.fit().progress.step == 12
    assert len(watch.validations) == 6


def test_the_average_is_validated_and_the_weights_are_trained(tmp_path):
    run, recorded = training(tmp_path / "ema", average="ema", learning_rate=0.1, losses=FALLING)
    plain, weights_of = training(
        tmp_path / "none", average="none", learning_rate=0.1, losses=FALLING
    )
    run.fit()
    plain.fit()
    _, averaged = read_checkpoint(tmp_path / "ema" / "last.safetensors")
    _, trained = read_checkpoint(tmp_path / "none" / "last.safetensors")
    name = "decoder.head.output.weight"
    assert averaged["model"][name].equal(trained["model"][name])
    assert averaged["average"][name].equal(recorded[-1][name])
    assert not recorded[-1][name].equal(weights_of[-1][name])
    assert parameters_of(run.learner.model)[name].equal(recorded[-1][name])


def test_a_run_stopped_before_its_first_validation_keeps_its_weights(tmp_path):
    run, recorded = training(tmp_path)
    outcome = run.fit(stop=lambda: True)
    assert outcome.stopped
    assert outcome.progress.step == 1
    assert recorded == []
    _, parts = read_checkpoint(tmp_path / "last.safetensors")
    assert all(
        weight.equal(parts["model"][name])
        for name, weight in parameters_of(run.learner.model).items()
    )


def test_a_non_finite_gradient_ends_the_run_and_keeps_the_checkpoint(tmp_path):
    run, _ = training(tmp_path, report=Watch(), steps=12)

    def poison():
        if run.progress.step == 3:
            with torch.no_grad():
                run.learner.model.decoder.head.output.bias[0] = torch.nan
        return False

    with pytest.raises(
        RunError, match=r"step 4: the gradient is not finite \(rows \[0\] of the training part\)"
    ) as caught:
        run.fit(stop=poison)
    assert "the last checkpoint is unchanged" in caught.value.hint
    progress, parts = read_checkpoint(tmp_path / "last.safetensors")
    assert progress.step == 2
    assert all(weight.isfinite().all() for weight in parts["model"].values())
    assert run.report.ended == 1


class Three(Repeated):
    """Batches of three rows."""

    def batch(self, epoch, index):
        rows = torch.arange(3) + 10 * index
        return Batch(rows, target=Padded.from_rows([[2, 6, 7, 8, 3], [2, 7, 3], [2, 8, 8, 3]]))


@contextmanager
def poisoned(*steps, rows):
    """At some steps what is read of some rows is not a number."""

    def spoil(name, value):
        drawn = current_noise()
        if drawn is None or drawn.step not in steps or not name.endswith("embedding"):
            return value
        return torch.where(
            torch.isin(drawn.rows, torch.tensor([*rows]))[:, None, None], torch.nan, value
        )

    with listening(spoil):
        yield


def log_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_batch_with_a_non_finite_gradient_is_skipped_and_its_row_is_named(tmp_path):
    watch = Watch()
    run, _ = training(tmp_path, batches=Three(), report=watch, steps=12)
    with poisoned(4, rows=[11]):  # step 5 reads the second batch of the second epoch
        outcome = run.fit()
    assert outcome.progress.step == 12
    assert outcome.progress.diverged == [5]
    assert watch.events == [
        ("step 5: the gradient is not finite (rows [11] of the training part)", "skip")
    ]
    assert {"step": 5, "diverged": 5, "rows": [11], "rate": 1.0} in log_of(tmp_path)
    assert all(weight.isfinite().all() for weight in parameters_of(run.learner.model).values())


@pytest.mark.slow
def test_one_bad_batch_in_a_long_run_is_named_and_the_model_works(tmp_path):
    watch = Watch()
    settings = [
        "train.steps=1000",
        "train.validate_every=100",
        "train.patience=none",
        "model.dropout=0",
    ]
    with poisoned(499, rows=range(60)):  # step 500: all of its rows
        trained = run(tmp_path, translate, *settings, name="spoilt", report=watch)
    assert trained.step == 1000
    (event,) = [row for row in metrics(tmp_path / "spoilt") if "diverged" in row]
    assert (event["step"], event["diverged"]) == (500, 500)
    assert event["rows"]
    assert watch.events == [
        (
            f"step 500: the gradient is not finite (rows {event['rows']} of the training part)",
            "skip",
        )
    ]
    assert all(weight.isfinite().all() for weight in weights(tmp_path / "spoilt").values())
    losses = [row["loss"] for row in metrics(tmp_path / "spoilt") if "loss" in row]
    assert losses[-1] < losses[len(losses) // 2] < losses[0]
    assert lab.load(tmp_path / "spoilt").predict("abc").output


def test_a_rollback_restores_the_checkpoint_and_halves_the_learning_rate(tmp_path):
    watch, plain = Watch(), training(tmp_path / "plain", batches=Three(), schedule="constant")[0]
    plain.fit()
    run, _ = training(
        tmp_path / "back", batches=Three(), report=watch, divergence="rollback", schedule="constant"
    )
    spoilt = iter([5, 6])

    def once(name, value):
        drawn = current_noise()
        if drawn is not None and drawn.step == 4 and next(spoilt, None) == 5:
            return value * torch.nan
        return value

    with listening(once):
        outcome = run.fit()
    assert watch.events[0][1] == "rollback"
    assert (outcome.progress.step, outcome.progress.rate, outcome.progress.diverged) == (
        12,
        0.5,
        [5],
    )
    rates = {
        row["step"]: row["learning_rate"]
        for row in log_of(tmp_path / "back")
        if "learning_rate" in row
    }
    before = {
        row["step"]: row["learning_rate"]
        for row in log_of(tmp_path / "plain")
        if "learning_rate" in row
    }
    assert rates[12] == before[12] / 2
    assert all(weight.isfinite().all() for weight in parameters_of(run.learner.model).values())


def test_a_run_without_finite_gradients_ends_with_an_error(tmp_path):
    run, _ = training(tmp_path, batches=Three(), steps=60)
    spoilt = poisoned(*range(4, 60), rows=[0, 10, 20])
    with spoilt, pytest.raises(RunError, match="step 24: the gradient is not finite") as caught:
        run.fit()
    assert "train.learning_rate" in caught.value.hint
    assert read_checkpoint(tmp_path / "last.safetensors")[0].step == 22


def test_a_recipe_can_stop_at_the_first_non_finite_gradient(tmp_path):
    run, _ = training(tmp_path, batches=Three(), divergence="stop")
    with poisoned(4, rows=[11]), pytest.raises(RunError, match=r"step 5: .*rows \[11\]"):
        run.fit()


def test_the_number_of_kept_weights(tmp_path):
    run, recorded = training(tmp_path, keep=3, losses=FALLING)
    run.fit()
    kept = sorted((tmp_path / "kept").iterdir())
    assert [file.name for file in kept] == [
        "00000008.safetensors",
        "00000010.safetensors",
        "00000012.safetensors",
    ]
    name = "decoder.head.output.weight"
    assert read_checkpoint(kept[0])[1]["model"][name].equal(recorded[3][name])


def test_the_step_is_clipped(tmp_path):
    """With plain SGD the weights move by no more than rate times threshold, and the log has the norm before."""
    options = {
        "optimizer": "sgd",
        "momentum": 0.0,
        "weight_decay": 0.0,
        "schedule": "constant",
        "steps": 1,
    }
    run, _ = training(tmp_path, clip=1e-3, learning_rate=0.5, **options)
    before = {name: weight.clone() for name, weight in parameters_of(run.learner.model).items()}
    run.fit()
    after = parameters_of(run.learner.model)
    moved = torch.cat([(after[name] - before[name]).flatten() for name in before]).norm()
    assert moved == pytest.approx(0.5e-3, rel=1e-3)
    first = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])
    assert first["gradient_norm"] > 0.01
