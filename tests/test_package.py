"""The package as a whole: its public names, the speed of `--help`, and that it opens no network connection."""

import os
import re
import statistics
import subprocess
import sys
import sysconfig
from collections import Counter
from pathlib import Path

import pytest

import seqlab
from seqlab.data.synthetic import reversals

SEQLAB = Path(sysconfig.get_path("scripts")) / "seqlab"


def python(code, *words):
    """Run a script in a process of its own; what it prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_does_not_wait_for_torch():
    assert python("import seqlab, sys; print('torch' in sys.modules)") == "False\n"


def test_the_public_names():
    assert sorted(seqlab.__all__) == seqlab.__all__
    assert seqlab.__all__ == [
        "Model",
        "Recipe",
        "SeqlabError",
        "Trained",
        "load",
        "load_recipe",
        "recipe_names",
        "train",
    ]
    for name in set(seqlab.__all__) - {"train"}:  # which has a test of its own
        assert getattr(seqlab, name).__name__ == name
    names = {}
    exec("from seqlab import *", names)
    assert set(names) - {"__builtins__"} == set(seqlab.__all__)


@pytest.mark.parametrize(
    "before", ["seqlab.train", "seqlab.load", "import seqlab.training.gradient"]
)
def test_seqlab_train_is_the_function_after_any_import(before):
    assert python(f"import seqlab\n{before}\nprint(seqlab.train.__module__)") == "seqlab.lab\n"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'seqlab' has no attribute 'trian'"):
        _ = seqlab.trian


def test_the_version_is_that_of_the_installed_package():
    from importlib.metadata import version

    assert seqlab.__version__ == version("seqlab")


def test_help_is_fast():
    times = []
    for _ in range(5):
        before = os.times()  # of the processor: the tests beside this one do not count
        answer = subprocess.run([SEQLAB, "--help"], capture_output=True, text=True, check=True)
        after = os.times()
        times.append(sum(after[2:4]) - sum(before[2:4]))
    assert "train" in answer.stdout
    assert statistics.median(times) < 0.3


@pytest.mark.parametrize(
    "words", [["--help"], ["train", "--help"], ["recipes"], ["data", "list"], ["train", "nothing"]]
)
def test_what_needs_no_torch_does_not_import_it(words):
    code = (
        "import sys\nfrom seqlab.cli import main\nsys.argv[0] = 'seqlab'\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('torch' in sys.modules, 'jaxtyping' in sys.modules)"
    )
    assert python(code, *words).splitlines()[-1] == "False False"


def test_both_ways_of_calling_it_are_the_same():
    commands = ([SEQLAB], [sys.executable, "-m", "seqlab"])
    said = [
        subprocess.run([*command, "recipes"], capture_output=True, check=True).stdout
        for command in commands
    ]
    assert said[0] == said[1]


def test_no_socket_leaves_the_machine(tmp_path):
    """Training, predicting and evaluating, with every way to the network closed."""
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in reversals(60, seed=1)))
    code = """
import sys

def closed(event, details):
    if event.startswith("socket.") and event not in ("socket.__new__", "socket.gethostname"):
        raise RuntimeError(f"{event} {details}")

sys.addaudithook(closed)
import seqlab
small = ["model.embedding=8", "model.encoder.size=8", "model.decoder.size=8", "train.steps=2", "source.size=300"]
options = {"recipe": "seq2seq", "settings": small, "out": sys.argv[1] + "/m"}
trained = seqlab.train("translate", sys.argv[1] + "/pairs.tsv", **options)
model = seqlab.load(sys.argv[1] + "/m")
model.predict("abc")
model.evaluate()
import socket
try:
    socket.create_connection(("127.0.0.1", 9))
except RuntimeError:
    print("closed")
"""
    assert python(code, tmp_path) == "closed\n"


def test_no_two_classes_share_a_name():
    package = Path(seqlab.__file__).parent
    classes = Counter(
        name
        for path in package.rglob("*.py")
        for name in re.findall(r"^class (\w+)", path.read_text("utf-8"), re.MULTILINE)
    )
    assert [name for name, count in classes.items() if count > 1] == []
