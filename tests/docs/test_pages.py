"""Generated pages are up to date, links lead somewhere, and the companion covers the lectures."""

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def pages():
    spec = importlib.util.spec_from_file_location("docs_make", ROOT / "docs" / "make.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made.PAGES


@pytest.mark.parametrize(
    "page",
    ["docs/equations.md", "docs/api.md", "docs/reference.md", "README.md", "docs/results.md"],
)
def test_a_generated_page_is_up_to_date(page, pages):
    assert (ROOT / page).read_text("utf-8") == pages[page](), "run `make docs`"


def test_the_readme_fits_one_screen():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 80


def test_every_equation_of_the_lectures_has_a_function_and_a_test():
    rows = [
        line.split(" | ")
        for line in (ROOT / "docs" / "equations.md").read_text().splitlines()
        if "](../" in line
    ]
    ids = {int(i) for row in rows for i in re.findall(r"\bE(\d+)", row[0])}
    assert ids >= set(range(1, 69))
    assert all("test_" in row[-1] or "through `" in row[-1] for row in rows)


@pytest.mark.parametrize(
    "path", [*sorted(ROOT.glob("docs/**/*.md")), ROOT / "README.md"], ids=lambda p: p.name
)
def test_no_link_of_the_documents_is_dead(path):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text()):
        assert "://" in target or (path.parent / target).exists(), target


@pytest.mark.parametrize("path", sorted(ROOT.glob("docs/**/*.md")), ids=lambda p: p.name)
def test_every_experiment_that_the_documents_name_is_there(path):
    for script in re.findall(r"experiments/\w+\.py", path.read_text()):
        assert (ROOT / script).exists(), script


def test_every_function_that_the_companion_names_is_where_it_says():
    named = re.findall(
        r"\[`([\w.]+)`\]\(\.\./(seqlab/[\w/]+\.py)\)", (ROOT / "docs" / "lectures.md").read_text()
    )
    assert len(named) > 50
    for name, path in named:
        module = path.removesuffix(".py").replace("/", ".")
        rest = f"seqlab.{name}".removeprefix(module).removeprefix(".")
        assert not rest or hasattr(importlib.import_module(module), rest), name


def test_every_system_and_worked_example_of_the_lectures_has_a_row():
    rows = re.findall(
        r"^\| ([SW]\d+) \|", (ROOT / "docs" / "lectures.md").read_text(), re.MULTILINE
    )
    assert {*rows} == {f"S{n}" for n in range(1, 31)} | {f"W{n}" for n in range(1, 12)}
