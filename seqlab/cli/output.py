"""Results on stdout: JSON, text, tables and scores.

rich is imported inside the functions, because `seqlab --help` must be fast.
"""

import json
from collections.abc import Sequence
from typing import Any


def print_json(value: object) -> None:
    """Print one JSON document."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def print_text(text: str, *, style: str | None = None, wrap: bool = False) -> None:
    """Print text; with `wrap`, lines are broken between words if stdout is a terminal.

    Text with a path or an address to copy must not be wrapped.
    """
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    console.print(escape(text), soft_wrap=not (wrap and console.is_terminal), style=style)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "") -> None:
    """Print a table; columns of numbers are aligned on the right."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(header_style="bold", show_header=any(header))
    for column, name in enumerate(header):
        numeric = column > 0 and _are_numbers([row[column] for row in rows if row[column]])
        table.add_column(escape(name), overflow="fold", justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    if title:  # rich would wrap its own title to the width of the table
        print_text(title, style="bold")
    Console(highlight=False).print(table)


def _are_numbers(cells: Sequence[str]) -> bool:
    return bool(cells) and all(cell[0].isdigit() or cell[0] == "-" for cell in cells)


def print_facts(facts: dict[str, Any]) -> None:
    """Print names and values, one pair a line."""
    print_table(["", ""], [[name, _readable(value)] for name, value in facts.items()])


def _readable(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_readable(part)}" for name, part in value.items())
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def print_scores(report: dict[str, Any], *, title: str) -> None:
    """Print each score next to its baselines, and the deciding score with its 95 % interval."""
    from seqlab.metrics.scores import figure, figure_between

    baselines: dict[str, dict[str, float]] = report.get("baselines", {})
    intervals: dict[str, list[float]] = report.get("interval", {})
    names = [name for name, value in report.items() if isinstance(value, float)]
    if "accuracy" in report and "token_accuracy" in names:
        names.remove("token_accuracy")  # the label is the only token, so both are equal
    rows = []
    for name in names:
        row = [name.replace("_", " "), figure_between(name, report[name], intervals.get(name))]
        for scores in baselines.values():
            row.append(figure(name, scores[name]) if name in scores else "")
        rows.append(row)
    print_table(["score", "this model", *baselines], rows, title=title)
    if errors := report.get("mae_by_column"):
        print_text(
            f"mean absolute error in the file's own units: {_list_columns(errors)}", wrap=True
        )
    for name, value in report.items():
        if name.endswith("_signature"):
            print_text(f"{name.replace('_', ' ')}: {value}")
    if report.get("baseline_note"):
        print_text(f"note: {report['baseline_note']}")


def _list_columns(errors: dict[str, float], most: int = 8) -> str:
    columns = [f"{name} {value:.4g}" for name, value in errors.items()]
    if len(columns) > most:
        columns[most:] = [f"and {len(columns) - most} more (--json)"]
    return ", ".join(columns)


def print_fit(fit: dict[str, Any]) -> None:
    """Print how a model was fitted without gradient descent, and whether that has converged."""
    if "climbs" not in fit:
        labels = ": every label was known" if fit["by"] == "counting" else ""
        print_text(f"fitted by {fit['by']}{labels}")
        return
    if "best_climb" not in fit:
        return
    start = "from one start"
    if fit["climbs"] > 1:
        start = f"best of {fit['climbs']} starts (number {fit['best_climb']})"
    end = "converged" if fit["converged"] else "not yet converged; raise train.steps to continue"
    print_text(
        f"fitted by EM, {start}: {fit['objective']:.4f} nats per token after {fit['steps']} steps, {end}"
    )
    if "kept_step" in fit:
        print_text(f"kept: step {fit['kept_step']}, which labels the held-out part best")
