"""The models that come with the package: they exist, they answer, and their scores are those of their cards."""

import gzip
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import numpy as np
import pytest

import seqlab
from seqlab.bundle import find_bundle, shipped
from seqlab.data.batching import held_out_keys, source_key
from seqlab.data.example import Example
from seqlab.data.synthetic import dates, reversals, split_dates
from seqlab.errors import BundleError, UsageError
from seqlab.lab import export
from tests.scoring import evaluate_examples

ROOT = Path(__file__).parent.parent
MODELS = ("dates", "en-fr", "fr-en", "time-machine")
TATOEBA = "tatoeba-en-fr/fra.txt.gz"
SOURCE = {"en-fr": 0, "fr-en": 1}  # which of its columns a translator reads
ANSWERS = {
    "dates": {
        "samedi 3 mai 1997": "1997-05-03",
        "July 4, 1976": "1976-07-04",
        "9. November 1989": "1989-11-09",
        "3 May 2021": "2021-05-03",
    },
    "en-fr": {
        "Where is the train station?": "Où est la gare ?",
        "My brother is taller than me.": "Mon frère est plus grand que moi.",
    },
    "fr-en": {"Où est la gare ?": "Where is the station?"},
}


@pytest.fixture(scope="module")
def loaded():
    return {name: seqlab.load(name) for name in shipped()}


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A directory with nothing in it, to stand in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_all_that_are_promised_are_there_and_small():
    assert tuple(shipped()) == MODELS
    files = [file for folder in shipped().values() for file in folder.iterdir()]
    assert sum(file.stat().st_size for file in files) < 16e6


@pytest.mark.parametrize("name", MODELS)
def test_each_answers(loaded, name):
    model = loaded[name]
    assert model.bundle.int8
    for given, answer in ANSWERS.get(name, {}).items():
        assert model.predict(given).output == answer
    if model.recipe.task == "lm":
        words = model.predict("The Time Traveller", max_length=200).output.lower().split()
        common = {"the", "of", "and", "a", "to", "i", "was", "in", "my", "that", "it", "had"}
        assert len(common.intersection(words)) >= 3


@pytest.mark.parametrize("name", MODELS)
def test_each_card_says_where_it_comes_from_and_how_good_it_is(loaded, name):
    card = (loaded[name].path / "CARD.md").read_text("utf-8")
    notes = loaded[name].metrics["notes"]
    assert list(notes) == ["recipe", "time", "data", "licence", "attribution", "limits"]
    assert all(f"- {what}: {said}\n" in card for what, said in notes.items())
    assert "- trained: " in card
    assert notes["recipe"].startswith("`seqlab train ")
    score = "perplexity" if loaded[name].recipe.task == "lm" else "exact"
    assert f"| {score} | {loaded[name].metrics['validation'][score]:.4g} |" in card
    if name in SOURCE:
        assert "CC BY 2.0" in notes["licence"]
        assert "tatoeba.org" in notes["attribution"]


def test_what_is_handed_on_keeps_its_card(tmp_path):
    export("dates", tmp_path / "mine")
    assert (tmp_path / "mine" / "CARD.md").read_text() == (
        shipped()["dates"] / "CARD.md"
    ).read_text()


class TestScores:
    """Each card's scores, measured again on what its training held out."""

    def test_of_dates_whose_days_are_in_no_language_of_the_training_part(self, loaded):
        pytest.importorskip("babel", reason="dates need the extra 'demo'")
        kept_apart = (
            2_000 / 82_000 * 2**64
        )  # the days that `split_dates` gave to no language of the training part
        fresh = [
            dated for dated in dates(10_000, seed=2) if source_key(dated[1], seed=1) < kept_apart
        ]
        assert len(fresh) > 200
        assert _exact(loaded["dates"], fresh) == pytest.approx(
            loaded["dates"].metrics["validation"]["exact"], abs=0.02
        )

    @pytest.mark.slow
    def test_of_all_dates_kept_apart(self, loaded):
        pytest.importorskip("babel", reason="dates need the extra 'demo'")
        _, held_out = split_dates(80_000, 2_000, seed=1)
        promised = loaded["dates"].metrics["validation"]
        assert promised["examples"] == len(held_out)
        assert _exact(loaded["dates"], held_out) == pytest.approx(promised["exact"], abs=0.002)

    @pytest.mark.parametrize("name", [name for name in MODELS if name in SOURCE])
    def test_of_translations(self, loaded, shared_data, name):
        model, examples = loaded[name], _held_out(loaded[name], shared_data(TATOEBA), SOURCE[name])
        promised = model.metrics["validation"]
        assert promised["examples"] == len(examples)
        some = evaluate_examples(model.bundle, examples[::10], None).scores
        assert some["loss"] == pytest.approx(promised["loss"], abs=0.15)
        assert some["bleu"] == pytest.approx(
            promised["bleu"], abs=5
        )  # two hundred sentences tell no more

    @pytest.mark.slow
    @pytest.mark.parametrize("name", [name for name in MODELS if name in SOURCE])
    def test_of_all_translations(self, loaded, shared_data, name):
        model = loaded[name]
        scores = evaluate_examples(
            model.bundle, _held_out(model, shared_data(TATOEBA), SOURCE[name]), None
        ).scores
        assert scores["loss"] == pytest.approx(model.metrics["validation"]["loss"], abs=0.001)
        assert scores["bleu"] == pytest.approx(model.metrics["validation"]["bleu"], abs=0.3)

    def test_of_the_book(self, loaded, shared_data, tmp_path):
        model, text = (
            loaded["time-machine"],
            shared_data("timemachine/timemachine.txt").read_text("utf-8"),
        )
        (tmp_path / "end.txt").write_text(
            text[int(len(text) * (1 - model.recipe.data.validation)) :], "utf-8"
        )
        scores = model.evaluate(tmp_path / "end.txt").scores
        assert scores["loss"] == pytest.approx(model.metrics["validation"]["loss"], abs=0.01)


class TestNames:
    def test_a_directory_goes_before_a_name(self, elsewhere):
        assert find_bundle("dates") == shipped()["dates"]
        (elsewhere / "dates").mkdir()
        assert find_bundle("dates") == Path("dates")
        with pytest.raises(BundleError, match="dates: this directory holds no finished model"):
            seqlab.load("dates")

    def test_of_an_unknown_one_the_nearest_and_all_are_told(self, run, elsewhere):
        all_of_them = f"`seqlab train` makes one; these come with Seqlab: {', '.join(MODELS)}."
        said = run("predict", "date", "3 May 2021")
        assert said.error == (
            "date: there is no such model",
            f"did you mean 'dates'? {all_of_them}",
        )
        assert run("predict", "runs/mine", "3 May 2021").error[1] == all_of_them

    def test_the_verbs_take_them(self, run, elsewhere):
        assert run("predict", "dates", "3 May 2021").stdout == "2021-05-03\n"
        (elsewhere / "days.tsv").write_text("3 May 2021\t2021-05-03\n")
        assert "100.0 %" in run("evaluate", "dates", "days.tsv").stdout
        assert "3 ␣ M a y ␣ 2 0 2 1" in run("explain", "dates", "3 May 2021").stdout
        assert run("export", "dates", "--out", "mine").code == 0
        assert run("predict", "mine", "3 May 2021").stdout == "2021-05-03\n"
        more = run(
            "train",
            "translate",
            "days.tsv",
            "--from",
            "dates",
            "-q",
            "-s",
            "train.steps=1",
            "-o",
            "more",
        )
        assert more.code == 0, more.stderr

    def test_info_names_them_and_tells_of_each(self, run):
        assert ", ".join(MODELS) in run("info").stdout
        told = run("info", "dates").stdout
        assert "Unicode CLDR" in told
        assert (
            "│ recipe      │ dates-attention" in told
        )  # by its name; the command has a row of its own
        assert "│ made by     │ `seqlab train translate" in told
        assert run("info", "nothing").code == 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_wheel_in_a_fresh_environment_without_a_network(tmp_path):
    """The wheel, its dependencies borrowed from this environment, in a namespace with no way out."""
    if (
        shutil.which("unshare") is None
        or subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode
    ):
        pytest.skip("needs the right to make a namespace without a network")
    source = tmp_path / "source"
    shutil.copytree(
        ROOT / "seqlab", source / "seqlab", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    build = [
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        tmp_path,
        source,
    ]
    subprocess.run([sys.executable, "-m", *map(str, build)], check=True)
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    site = next((tmp_path / "env").glob("lib/python*/site-packages"))
    [wheel] = tmp_path.glob("*.whl")
    install = ["pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel]
    subprocess.run([sys.executable, "-m", *map(str, install)], check=True)
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (tmp_path / "words.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in reversals(200, seed=1)))
    (tmp_path / "try.py").write_text(CUT_OFF)
    done = subprocess.run(
        ["unshare", "-rn", python, "try.py", *shipped()],
        cwd=tmp_path, capture_output=True, text=True, timeout=1200, env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[0].startswith(str(site))
    assert said[1:] == [*(f"{name}: an answer" for name in shipped()), "the page opens", "compared"]


CUT_OFF = """
import fcntl, socket, struct, subprocess, sys
from pathlib import Path
import seqlab
from seqlab.serve.client import Client
from urllib.request import urlopen

try:
    socket.create_connection(("192.0.2.1", 80), timeout=1)
    raise SystemExit("there is a network")
except OSError:
    pass
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:  # the loopback of a new namespace is down
    fcntl.ioctl(wire, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))
print(seqlab.__file__)
command = [str(Path(sys.executable).parent / "seqlab")]
for name in sys.argv[1:]:
    asked = subprocess.run([*command, "predict", name, "3 May 2021"], capture_output=True, text=True, check=True)
    print(f"{name}: {'an answer' if asked.stdout.strip() else 'nothing'}")
server = subprocess.Popen([*command, "serve", "--port", "0"], stderr=subprocess.PIPE, text=True)
try:
    address = server.stderr.readline().split(" at ")[1].split()[0]
    assert [model["name"] for model in Client(address, timeout=60).models()] == sys.argv[1:]
    with urlopen(address, timeout=60) as page:
        assert b"<script" in page.read()
    print("the page opens")
finally:
    server.terminate()
    server.wait()
small = ["-s", "model.embedding=8", "-s", "model.encoder.size=8", "-s", "model.decoder.size=8", "-s", "source.size=300"]
compare = ["compare", "translate", "words.tsv", "--recipes", "seq2seq,bahdanau", "--budget", "1s", *small]
subprocess.run([*command, *compare], check=True, capture_output=True)
assert Path("runs/compare-words/report.html").stat().st_size > 1000
print("compared")
"""


def _exact(model, dated):
    answers = model.predict([text for text, _, _ in dated])
    return sum(
        answer.output == day for answer, (_, day, _) in zip(answers, dated, strict=True)
    ) / len(dated)


def _held_out(model, path, source):
    """What training held out of this file, found as training found it."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    keys = np.array(
        [source_key(row[source], seed=model.recipe.train.seed) for row in rows], dtype=np.uint64
    )
    data = model.recipe.data
    held = held_out_keys(
        keys, np.zeros(len(keys), np.int64), fraction=data.validation, most=data.max_validation
    )
    chosen = [row for row, key in zip(rows, keys.tolist(), strict=True) if key in held]
    return [Example(row[source], row[1 - source], path.name) for row in chosen]


def test_printing_a_model_says_what_it_is_and_how_good():
    summary = str(seqlab.load("dates")).splitlines()
    assert summary[0].startswith("dates-attention, a model for 'translate' with ")
    assert summary[-1].startswith("on ")
    assert "exact" in summary[-1]


def test_an_unknown_option_of_decoding_names_the_nearest():
    with pytest.raises(UsageError, match="there is no option 'bem'") as error:
        seqlab.load("dates").predict("3 mai 1997", bem=3)
    assert error.value.hint == "did you mean 'beam'?"
