"""Every command in the documents is typed: in order, in an empty directory, with its trainings cut to two steps.

A message shown after a command that fails is the one that is said; a file shown after `head` or `cat` is the one made.
What is not run has its reason in one of two tables; its options, recipes, settings, views and names are checked.
"""

import os
import random
import re
import shlex
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import pytest
from typer.main import get_command

from seqlab.cli.app import app
from seqlab.compare import find_recipe
from seqlab.data.catalogue import find
from seqlab.data.synthetic import dates
from seqlab.explain.views import VIEWS
from seqlab.recipe import load_recipe, override
from seqlab.recipes import default_recipes
from seqlab.tasks import task_named

ROOT = Path(__file__).parent.parent.parent
TUTORIALS = sorted(ROOT.glob("docs/tutorials/*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
NOT_RUN = {  # by how a command begins
    "make": "sets up an environment of its own",
    ".": "of the shell that types it",
    "pip": "downloads",
    "curl": "asks a server: tests/serve",
    "seqlab serve": "stays until Ctrl-C: tests/cli/test_serve.py",
    "seqlab data get": "downloads: tests/data/test_catalogue.py",
}
ONLY_READ = {  # pages whose data we may not give, or whose commands take longer than a test
    "docs/results.md": "real data, minutes to hours",
    "docs/cluster.md": "several processes and machines: tests/training/test_distributed.py",
    "docs/serve.md": "talks to a server: tests/serve",
    "docs/lectures.md#long": "real data, minutes to hours",
}
SHORT = ("steps=2", "batch_tokens=256", "batch_rows=4", "bptt=16")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"`(seqlab [^`]+)`")


@dataclass(frozen=True)
class Command:
    """One command of a page, and the text that the page shows after it."""

    text: str
    shown: str
    long: bool  # the page says of its section that it takes long

    @property
    def stages(self):
        """The words of each part between bars, and the file that the last one is kept in."""
        lexer = shlex.shlex(self.text.replace("\\\n", " "), posix=True, punctuation_chars="|>")
        lexer.whitespace_split = True
        parts, kept, words = [[]], None, iter(lexer)
        for word in words:
            if word == "|":
                parts.append([])
            elif word == ">":
                kept = next(words)
            else:
                parts[-1].append(word)
        return parts, kept


def commands(page):
    """The commands of a page's ```sh blocks, whole: with their continuation lines and what stands up to EOF."""
    text, place = page.read_text(), 0
    fences = list(FENCE.finditer(text))
    for this, after in zip_longest(fences, fences[1:]):
        long = "<!-- long -->" in text[place : this.start()]
        place = this.end()
        if this[1] != "sh":
            continue
        follows = after and after[1] == "text" and not text[this.end() : after.start()].strip()
        found = [line for line in re.findall(WHOLE, this[2]) if not line.startswith("#")]
        for number, line in enumerate(found, 1):
            yield Command(line, after[2] if follows and number == len(found) else "", long)


WHOLE = re.compile(r"^\S.*<<'EOF'.*\n(?:.*\n)*?EOF$|^\S(?:.*\\\n)*.*$", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_can_be_understood(page):
    """Also those that stand in a sentence or a table."""
    written = [
        stage
        for command in commands(page)
        if "EOF" not in command.text
        for stage in command.stages[0]
    ]
    written += [
        shlex.split(span.replace("\\|", "|").replace("\n", " "))
        for span in SPAN.findall(page.read_text())
    ]
    for words in written:
        if "seqlab" in words[:5] and words[0] not in ("pip", "make"):
            understood(words[words.index("seqlab") + 1 :])


def understood(words):
    """Parse as the program would, and look up every name; a name in capitals or with dots stands for any."""
    group = get_command(app)
    if not words or words[0] in ("--help", "--version") or "..." in words:
        return
    command = group.commands[words[0]]
    while hasattr(command, "commands"):
        if len(words) == 1:
            return
        command, words = command.commands[words[1]], words[1:]
    if "--help" in words or words == [command.name]:
        return
    asked = command.make_context(command.name, list(words[1:])).params
    if words[0] in ("train", "compare", "look") and not asked.get("resume"):
        task = asked["task"]
        if not task.islower():  # TASK, or a file that a task is proposed for
            return
        names = [name for name in (asked.get("recipes") or "").split(",") if name] or [
            asked.get("recipe")
        ]
        for name in names:
            if name is None or not name.endswith(".toml"):
                recipe = find_recipe(task, name) if name else load_recipe(default_recipes()[task])
                override(
                    recipe,
                    [
                        each
                        for each in asked["settings"] or ()
                        if not re.search(r"\.\.\.|=[A-Z]$", each)
                    ],
                )
    if words[0] == "explain" and asked["view"] is not None:
        assert asked["view"] in VIEWS
    if words[0] == "recipes" and asked["name"] is not None:
        load_recipe(asked["name"])
    if words[0] == "get":
        find(asked["name"])


@pytest.mark.parametrize(
    "page",
    [*TUTORIALS, ROOT / "docs" / "lectures.md", ROOT / "docs" / "choosing.md"],
    ids=lambda p: p.stem,
)
def test_a_page_works_from_an_empty_directory(page, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    follow(page, run, shortened)


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_works_as_it_stands(page, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    follow(page, run, lambda words: words)


def test_the_readme_works_with_files_that_the_reader_brings(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bring_files(tmp_path)
    short = shortened(["train", "translate", "pairs.tsv", "--recipe", "dates-attention"])
    assert run(*short, "--out", "runs/dates-attention", "-q").code == 0
    follow(
        ROOT / "README.md",
        run,
        lambda words: shortened(words) + ["--overwrite"] * (words[0] == "train"),
    )


def test_every_page_is_run_or_has_a_reason():
    run = {
        *TUTORIALS,
        ROOT / "README.md",
        ROOT / "docs" / "lectures.md",
        ROOT / "docs" / "choosing.md",
    }
    for page in PAGES:
        name = page.relative_to(ROOT).as_posix()
        assert page in run or name in ONLY_READ or all(left_out(each) for each in commands(page)), (
            name
        )


def left_out(command):
    return any(command.text == start or command.text.startswith(f"{start} ") for start in NOT_RUN)


def follow(page, run, changed):
    """Type what a page says, one command after the other, and see that it goes as the page says."""
    for command in commands(page):
        if left_out(command) or command.long:
            continue
        if "<<'EOF'" in command.text or "seqlab " not in command.text:
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            done = subprocess.run(
                ["bash", "-c", command.text],
                env={**os.environ, "PATH": path},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{command.text}\n{done.stderr}"
            if command.shown and command.text.startswith(("head", "cat ")):
                assert done.stdout == command.shown, command.text
            continue
        parts, kept = command.stages
        given, fails = b"", command.shown.startswith("error: ")
        for words in parts:
            if words[0] == "seqlab":
                said = run(*changed(words[1:]), stdin=given)
                assert bool(said.code) is fails, f"{command.text}\n{said.stdout}{said.stderr}"
                assert not fails or said.stderr.endswith(command.shown), (
                    f"{command.text}\n{said.stderr}"
                )
                given = said.stdout.encode()
            else:
                given = subprocess.run(words, input=given, capture_output=True, check=True).stdout
        if kept is not None:
            Path(kept).write_bytes(given)


def shortened(words):
    """The same command with little to do."""
    if words[0] == "train" and "--resume" not in words:
        settings = [*(f"train.{each}" for each in SHORT), "data.max_validation=8"]
        return [*words, *(word for each in settings for word in ("--set", each))]
    if words[0] == "compare":
        return [*words, "--recipes", task_named(words[1]).ladder[0], "--budget", "1s"]
    if words[:2] == ["data", "make"]:
        return [*words, "-n", "60"]
    return words


def bring_files(folder):
    """Small files with the names of the README."""
    draw = random.Random(1)
    written = [(text, iso) for text, iso, _ in dates(60, seed=1)]
    words = [
        [draw.choice(["the", "cat", "sat", "on", "a", "mat"]) for _ in range(6)] for _ in range(60)
    ]
    lines = "".join(" ".join(each) + "\n" for each in words)
    rest = "\t_" * 6 + "\n"
    sentences = "".join(
        "".join(f"{n}\t{w}\t_\t{w[0].upper()}{rest}" for n, w in enumerate(s, 1)) + "\n"
        for s in words
    )
    labelled = "".join(f"{draw.choice(['good', 'bad'])}\t{' '.join(each)}\n" for each in words)
    hours = "".join(
        f"2024-01-{1 + h // 24:02d} {h % 24:02d}:00,{h % 24 + draw.random():.2f}\n"
        for h in range(480)
    )
    files = {
        "pairs.tsv": "".join(f"{source}\t{target}\n" for source, target in written),
        "test.tsv": "".join(f"{source}\t{target}\n" for source, target in written[:5]),
        "reviews.tsv": labelled,
        "few.tsv": labelled,
        "corpus.conllu": sentences,
        "book.txt": lines * 5,
        "wiki.txt": lines,
        "series.csv": f"time,value\n{hours}",
        "captions.tsv": "".join(
            f"{n}.png\ta picture of {each[0]}\n" for n, each in enumerate(words)
        ),
    }
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    from PIL import Image

    with zipfile.ZipFile(folder / "images.zip", "w") as archive:
        for number in range(len(words)):
            with archive.open(f"{number}.png", "w") as picture:
                Image.new("RGB", (16, 16), (4 * number, 0, 0)).save(picture, "PNG")
