"""The notebooks run from top to bottom, each in a namespace of its own, and show what they say they show."""

import ast
import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))


def run(cell, names):
    """Execute a cell as a notebook does; the value of its last line, where that is an expression."""
    code = ast.parse(cell)
    last = code.body.pop() if isinstance(code.body[-1], ast.Expr) else None
    exec(compile(code, "cell", "exec"), names)
    return (
        None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    )


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda path: path.stem)
def shown(request, tmp_path_factory):
    """A notebook's name, what its cells showed, and what its variables are in the end."""
    document = json.loads(request.param.read_text("utf-8"))
    names = {"__name__": "notebook"}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("notebook"))
        cells = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
        return request.param.stem, [run("".join(cell["source"]), names) for cell in cells], names


def test_every_cell_runs_and_views_show_themselves(shown):
    _, values, _ = shown
    views = [value for value in values if hasattr(value, "_repr_html_")]
    assert len(views) >= 4
    for view in views:
        page = view._repr_html_()
        assert page.startswith("<iframe srcdoc=")
        assert "&lt;svg" in page


def test_the_model_of_a_notebook_has_learnt_what_the_text_says(shown):
    name, _, names = shown
    said = {
        "first-model": ("14 July 1999", "1999-07-14"),
        "attention-inside-out": ("abcde", "edcba"),
    }[name]
    assert names["model"].predict(said[0]).output == said[1]
    assert names["model"].metrics["validation"]["exact"] > 0.7


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_what_jupyter_writes_without_results(path):
    document = json.loads(path.read_text("utf-8"))
    assert (document["nbformat"], document["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in document["cells"]]
    assert len({*ids}) == len(ids)
    for cell in document["cells"]:
        assert cell["cell_type"] in ("code", "markdown")
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
            assert max(map(len, "".join(cell["source"]).splitlines())) <= 120
