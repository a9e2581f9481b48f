"""Write the pages that are generated: `make docs`.

docs/equations.md and docs/api.md come from the docstrings, and the lists in docs/reference.md from the command line and
the recipes. The tables of results in README.md and docs/results.md come from docs/results.json, so that they cannot
disagree.
"""

import ast
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

from typer.main import get_command

import seqlab
from seqlab.cli.app import app
from seqlab.explain.view import View
from seqlab.recipe import load_recipe
from seqlab.recipes import recipe_names
from seqlab.serve.client import Client
from seqlab.trace import Trace

ROOT = Path(__file__).parent.parent
NOTE = "<!-- made by `make docs`: change the docstrings, not this page -->\n"
IDS = re.compile(r"^(E\d+(?:, E\d+)*)")
PUBLIC = [getattr(seqlab, name) for name in seqlab.__all__]


def equations() -> str:
    """Each equation of the lectures: its formula as the docstring has it, its function, and the tests that hold it."""
    lines = [
        "# Equations",
        NOTE,
        "Every equation of the lectures is a pure function in `seqlab/equations/`, in the letters of the slides.",
        "Where a fast twin runs in practice (`seqlab/kernels/`, torch's own layers), a test holds it against these.",
        "",
        "| id | formula | function | tests |",
        "|---|---|---|---|",
    ]
    tests = {path: path.read_text() for path in sorted((ROOT / "tests").rglob("test_*.py"))}
    rows = []
    for path in sorted((ROOT / "seqlab" / "equations").glob("*.py")):
        functions = ast.parse(path.read_text()).body
        for function in functions:
            said = ast.get_docstring(function) if isinstance(function, ast.FunctionDef) else None
            ids = IDS.match(said or "")
            if said is None or ids is None:
                continue
            formula = (
                said.split("\n\n")[0]
                .replace("\n", " ")
                .removeprefix(ids[1])
                .lstrip(":, ")
                .replace("|", "\\|")
            )
            uses = re.compile(
                rf"equations(\.| import ){path.stem}\b.*\b{function.name}\b", re.DOTALL
            )
            held = [
                test.relative_to(ROOT).as_posix()
                for test, text in tests.items()
                if uses.search(text)
            ]
            callers = [
                f.name
                for f in functions
                if isinstance(f, ast.FunctionDef) and _calls(f, function.name)
            ]
            tested = _links(held) or "through " + ", ".join(f"`{name}`" for name in callers)
            where = f"[`{path.stem}.{function.name}`](../seqlab/equations/{path.name})"
            rows.append(
                (
                    [int(i[1:]) for i in ids[1].split(", ")],
                    f"| {ids[1]} | {formula} | {where} | {tested} |",
                )
            )
    return "\n".join(lines + [row for _, row in sorted(rows, key=lambda row: row[0])]) + "\n"


def _calls(function: ast.FunctionDef, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(function))


def _links(tests: list[str]) -> str:
    """Its own test first, then some of the others."""
    first = sorted(tests, key=lambda path: not path.startswith("tests/equations/"))[:3]
    return ", ".join(
        f"[{path.removeprefix('tests/').removesuffix('.py')}](../{path})" for path in first
    )


def api() -> str:
    """What a Python program may use, from its docstrings."""
    lines = [
        "# Python reference",
        NOTE,
        "Everything here is `from seqlab import ...` unless it says otherwise.",
        "",
    ]
    for thing in (*PUBLIC, View, Trace, Client):
        module = "" if thing in PUBLIC else f" (`{thing.__module__}`)"
        if inspect.isclass(thing):
            lines += [f"## {thing.__name__}{module}", "", inspect.getdoc(thing) or "", ""]
            lines += [line for name, member in _members(thing) for line in _described(name, member)]
        elif callable(thing):
            lines += [f"## {thing.__name__}", "", *_described(thing.__name__, thing)]
    return "\n".join(lines).rstrip() + "\n"


def _members(thing: type) -> Iterator[tuple[str, object]]:
    for name, member in vars(thing).items():
        if not name.startswith("_") and isinstance(
            member, FunctionType | property | classmethod | staticmethod
        ):
            yield name, member


def _described(name: str, member: object) -> list[str]:
    function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
    assert callable(function)
    written = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(written, ast.FunctionDef)
    if isinstance(member, property):
        line = f"{name}: {ast.unparse(written.returns)}" if written.returns else name
    else:
        written.body, written.decorator_list = [ast.Pass()], []
        line = ast.unparse(written).removeprefix("def ").removesuffix(":\n    pass")
        line = re.sub(r"\((?:self|cls)(?:, )?", "(", line, count=1)
    return ["```python", line, "```", "", inspect.getdoc(function) or "", ""]


def results_table(links: str) -> str:
    """The table of docs/results.json; `links` leads from the page to the folder docs."""
    results = json.loads((ROOT / "docs" / "results.json").read_text("utf-8"))
    lines = [
        "| task and data | model | score | baseline | seeds | training |",
        "|---|---|---|---|---|---|",
    ]
    for row in results["rows"]:
        data = f"[{row['task']}]({links}{row['details']}), {row['part']}"
        model = row["model"] if " " in row["model"] else f"`{row['model']}`"
        cells = (data, model, row["score"], row["baseline"], row["seeds"], row["time"])
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def command_help() -> str:
    """The help of every command, as a terminal shows it."""
    sections = []
    for name, command in _commands("seqlab", get_command(app)):
        context = command.make_context(name, [], resilient_parsing=True, terminal_width=80)
        sections.append(f"### {name}\n\n```text\n{command.get_help(context).strip()}\n```\n")
    return "\n".join(sections)


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """A command and, if it is a group, the commands in it."""
    subcommands = getattr(command, "commands", None)
    if subcommands is None:
        yield name, command
        return
    for subcommand in subcommands.values():
        yield from _commands(f"{name} {subcommand.name}", subcommand)


def recipe_table() -> str:
    """Every recipe with its task and its description."""
    recipes = sorted(
        map(load_recipe, recipe_names()), key=lambda recipe: (recipe.task, recipe.name)
    )
    lines = ["| recipe | task | what it is |", "|---|---|---|"]
    lines += [f"| `{recipe.name}` | `{recipe.task}` | {recipe.about} |" for recipe in recipes]
    return "\n".join(lines) + "\n"


def with_parts(page: str, parts: dict[str, str]) -> str:
    """A page with each generated part written anew between its two marks."""
    text = (ROOT / page).read_text("utf-8")
    for name, part in parts.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{part}{end}{after}"
    return text


PAGES = {
    "docs/equations.md": equations,
    "docs/api.md": api,
    "README.md": lambda: with_parts("README.md", {"results": results_table("docs/")}),
    "docs/results.md": lambda: with_parts("docs/results.md", {"results": results_table("")}),
    "docs/reference.md": lambda: with_parts(
        "docs/reference.md", {"commands": command_help(), "recipes": recipe_table()}
    ),
}

if __name__ == "__main__":
    for page, make in PAGES.items():
        (ROOT / page).write_text(make(), "utf-8")
        sys.stderr.write(f"{page}\n")
