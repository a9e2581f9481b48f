"""Results as tables on stdout."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from seqlab.metrics.figures import figure


def as_json(value: object) -> None:
    """One JSON document."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def scores(report: dict[str, Any], *, title: str) -> None:
    """Scores, each with its floors beside it."""
    floors: dict[str, dict[str, float]] = report.get("floors", {})
    said_twice = {"token_accuracy"} if "accuracy" in report else set()  # where a label is the only token
    names = [name for name, value in report.items() if isinstance(value, float) and name not in said_twice]
    rows = [
        [name.replace("_", " "), figure(name, report[name])]
        + [figure(name, floor[name]) if name in floor else "" for floor in floors.values()]
        for name in names
    ]
    table(["score", "this model", *floors], rows, title=title)
    for name, value in report.items():
        if name.endswith("_signature"):
            say(f"{name.replace('_', ' ')}: {value}")
    if report.get("floor_note"):
        say(f"note: {report['floor_note']}")


def verdict(fit: dict[str, Any]) -> None:
    """How a hidden Markov model was fitted, and how far that can be trusted."""
    if fit["by"] == "counting":
        say("fitted by counting: every label was known")
    elif "best_climb" in fit:
        end = "converged" if fit["converged"] else "not yet converged: train.steps would let it go on"
        which = f"climb {fit['best_climb']} of {fit['climbs']}, which got highest" if fit["climbs"] > 1 else "one climb"
        say(f"fitted by EM: {which}: {fit['objective']:.4f} nats a token after {fit['steps']} steps, {end}")
        if "kept_step" in fit:
            say(f"kept: step {fit['kept_step']}, which labels the held-out part best")


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "") -> None:
    drawn = Table(header_style="bold", show_header=any(header))
    for place, name in enumerate(header):
        drawn.add_column(escape(name), overflow="fold", justify="right" if place and _figures(rows, place) else "left")
    for row in rows:
        drawn.add_row(*(escape(cell) for cell in row))
    if title:  # not the table's own, which is broken where the table is narrow
        Console(highlight=False, soft_wrap=True).print(escape(title), style="bold")
    Console(highlight=False).print(drawn)


def say(text: str) -> None:
    Console(highlight=False, soft_wrap=True).print(escape(text))


def _figures(rows: Iterable[Sequence[str]], place: int) -> bool:
    cells = [row[place] for row in rows if row[place]] if isinstance(rows, list) else []
    return bool(cells) and all(cell[0].isdigit() or cell[0] == "-" for cell in cells)
