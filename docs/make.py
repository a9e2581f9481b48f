"""The pages that are made of the code: `make docs` writes docs/equations.md and docs/api.md."""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import seqlab
from seqlab.explain.view import View
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


PAGES = {"equations.md": equations, "api.md": api}

if __name__ == "__main__":
    for page, make in PAGES.items():
        (ROOT / "docs" / page).write_text(make())
        sys.stderr.write(f"docs/{page}\n")
