"""The report of the claims: a page to read, a picture for each claim, and the numbers for machines."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np

from seqlab.claims.claim import Cell, Chart, Claim, Finding, Plain, Scale, Table, Verdict, number
from seqlab.errors import DataError
from seqlab.explain.canvas import Canvas, stack
from seqlab.explain.charts import Band, Curve, bars, line_chart
from seqlab.explain.palette import CATEGORICAL
from seqlab.training.checkpoint import write_whole

PAGE, NUMBERS = "README.md", "results.json"


class Result(Plain):
    """A claim that was measured: how, and what came of it."""

    id: str
    key: str  # of the settings and the code that it comes from
    scale: Scale
    seeds: int
    seconds: float
    verdict: Verdict
    sentence: str
    finding: Finding


def read_results(folder: Path) -> dict[str, Result]:
    """What a report holds already."""
    path = folder / NUMBERS
    if not path.exists():
        return {}
    try:
        return {name: Result.model_validate(row) for name, row in json.loads(path.read_text("utf-8")).items()}
    except ValueError as error:
        raise DataError(
            f"{path}: not the results of claims: {str(error).splitlines()[0]}", hint="give another --out, or delete it."
        ) from None


def write_report(folder: Path, claims: Sequence[Claim], results: Mapping[str, Result]) -> None:
    """The page, its pictures and its numbers; the claims are in the order of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    measured = [claim for claim in claims if claim.id in results]
    for claim in measured:
        write_whole(folder / f"{claim.id}.svg", drawn(results[claim.id].finding.chart).to_svg().encode())
    table = {claim.id: results[claim.id].model_dump() for claim in measured}
    write_whole(folder / NUMBERS, json.dumps(table, indent=1).encode())
    write_whole(folder / PAGE, page(measured, results).encode())


def page(claims: Sequence[Claim], results: Mapping[str, Result]) -> str:
    """The report as Markdown: first all verdicts, then a section for each claim."""
    found = [results[claim.id] for claim in claims]
    verdicts = [result.verdict for result in found]
    counted = ", ".join(f"{verdicts.count(v)} {v}" for v in ("confirmed", "depends", "not confirmed") if v in verdicts)
    summary = [(f"[{c.id}](#{c.id.lower()})", c.title, r.verdict, r.sentence) for c, r in zip(claims, found, strict=True)]
    lines = [
        "# The claims of the lectures, measured",
        "",
        f"{len(claims)} claims: {counted}. Every rule was written before its experiment ran, and holds for every seed: a "
        "claim is confirmed if all its criteria are met with all seeds, not confirmed if none is ever met, and otherwise "
        "it depends. All data is generated or comes with Python and Babel; "
        "`seqlab claims --out DIRECTORY` makes this page again.",
        "",
        *markdown(("", "claim", "verdict", "in numbers: mean (least to most)"), summary),
    ]
    for claim, result in zip(claims, found, strict=True):
        lines += ["", *section(claim, result)]
    return "\n".join(lines) + "\n"


def section(claim: Claim, result: Result) -> list[str]:
    """One claim: what it says, what was done, what was found, and what that does not show."""
    finding, seeds = result.finding, f"{result.seeds} seed{'s' if result.seeds > 1 else ''}"
    rows = [
        (c.rule, number(fmean(v)), number(min(v)), number(max(v)), c.verdict(v))
        for c, v in ((criterion, finding.values[name]) for name, criterion in claim.criteria.items())
    ]
    lines = [f"## {claim.id}", "", f"**{claim.words}**", "", f"*What was done.* {claim.experiment}", ""]
    lines += [f"*Data:* {claim.data}. *Scale:* {result.scale}, {seeds}, {result.seconds:.0f} s.", ""]
    lines += markdown(("criterion, with every seed", "mean", "least", "most", "met"), rows)
    lines += ["", f"![{finding.chart.title}]({claim.id}.svg)"]
    for table in finding.tables:
        lines += ["", f"{table.title[0].upper()}{table.title[1:]}:", "", *markdown(table.header, table.rows)]
    return [*lines, "", f"**Verdict: {result.verdict}.** *What this does not show.* {claim.limits}"]


def markdown(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[str]:
    """A table; numbers stand at the right."""
    right = [bool(rows) and not any(isinstance(row[k], str) and not _figures(row[k]) for row in rows) for k in range(len(header))]
    lines = [header, ["---:" if side else "---" for side in right], *([number(cell) for cell in row] for row in rows)]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def drawn(chart: Chart) -> Canvas:
    """Lines with a band from the least to the most of all seeds, or bars."""
    if not chart.lines:
        values = np.array(list(chart.bars.values()), dtype=float)
        return stack([bars(values, list(chart.bars), x_title=chart.titles[0])], title=chart.title)
    curves, bands = [], []
    for k, line in enumerate(chart.lines):
        colour, x = CATEGORICAL[k % len(CATEGORICAL)], np.array(line.x, dtype=float)
        means, least, most = (np.array([of(row) for row in line.y], dtype=float) for of in (fmean, min, max))
        curves.append(Curve(line.label, means, x, colour))
        bands += [Band("", least, most, x, colour)] if (most > least).any() else []
    canvas = line_chart(curves, bands, titles=chart.titles, x_labels=chart.places)
    return stack([canvas], title=chart.title)


def _figures(cell: Cell) -> bool:
    return isinstance(cell, str) and (not cell or cell[0].isdigit() or cell[0] == "-")
