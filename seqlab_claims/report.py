"""The report of the claims: a page, a chart for each claim, and the numbers as JSON."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

import numpy as np
from pydantic import TypeAdapter

from seqlab.errors import DataError
from seqlab.explain.canvas import Canvas, stack
from seqlab.explain.charts import Bars
from seqlab.explain.palette import CATEGORICAL
from seqlab.explain.plots import Band, Curve, Lines
from seqlab.training.checkpoint import write_whole
from seqlab_claims.claim import Cell, Chart, Claim, Finding, Scale, Verdict, number

PAGE, NUMBERS = "README.md", "results.json"
OPENING = """A criterion was written down before its experiment ran, and must be met each time: with every seed, and in
every case that it names. A claim is confirmed if all its criteria are met, not confirmed if none ever is; otherwise it
depends. All data is generated or comes with Python and Babel: `seqlab claims --out DIRECTORY` makes this page again."""


@dataclass(frozen=True)
class Result:
    """The measurement of a claim."""

    key: str  # hash of the settings and the code
    scale: Scale
    seeds: int
    seconds: float
    finding: Finding


def read_results(folder: Path) -> dict[str, Result]:
    """Return the results in a report, by claim; none if there is no report yet."""
    path = folder / NUMBERS
    if not path.exists():
        return {}
    try:
        table = json.loads(path.read_text("utf-8"))
        return {
            name: TypeAdapter(Result).validate_python(row["result"]) for name, row in table.items()
        }
    except (ValueError, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"{path} does not contain results of claims: {reason}",
            hint="choose another --out, or delete this file.",
        ) from None


def write_report(folder: Path, claims: Mapping[str, Claim], results: Mapping[str, Result]) -> None:
    """Write the page, its charts and its numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    measured = {claim: results[name] for name, claim in claims.items() if name in results}
    for claim, result in measured.items():
        write_whole(folder / f"{claim.id}.svg", draw(result.finding.chart).to_svg().encode())
    table = {claim.id: to_json(claim, result) for claim, result in measured.items()}
    write_whole(
        folder / NUMBERS, json.dumps(table, indent=1, ensure_ascii=False, allow_nan=False).encode()
    )
    write_whole(folder / PAGE, page(measured).encode())


def to_json(claim: Claim, result: Result) -> dict[str, Any]:
    """Return a result with its verdict, as JSON."""
    verdict, sentence = claim.verdict(result.finding), claim.sentence(result.finding)
    return {
        "claim": claim.words,
        "verdict": verdict,
        "sentence": sentence,
        "result": asdict(result),
    }


def page(results: Mapping[Claim, Result]) -> str:
    """Return the report as Markdown: all verdicts, then a section for each claim."""
    rows = [
        (f"[{c.id}](#{c.id.lower()})", c.title, c.verdict(r.finding), c.sentence(r.finding))
        for c, r in results.items()
    ]
    verdicts = Counter(row[2] for row in rows)
    some = [(verdicts[verdict], verdict) for verdict in get_args(Verdict) if verdict in verdicts]
    counted = ", ".join(
        f"{num} {'depend' if num > 1 and word == 'depends' else word}" for num, word in some
    )
    lines = [
        "# The claims of the lectures, measured",
        "",
        f"Of {len(results)} claims: {counted}.",
        "",
        OPENING,
        "",
    ]
    lines += markdown(("", "claim", "verdict", "in numbers: mean (least to most)"), rows)
    for claim, result in results.items():
        lines += ["", *section(claim, result)]
    return "\n".join(lines) + "\n"


def section(claim: Claim, result: Result) -> list[str]:
    """Return the section of a claim: its text, the experiment, the results, and its limits."""
    finding, seeds = result.finding, f"{result.seeds} seed{'s' if result.seeds > 1 else ''}"
    judged = [(criterion, finding.values[name]) for name, criterion in claim.criteria.items()]
    rows = [(c.rule, fmean(v), min(v), max(v), c.verdict(v)) for c, v in judged]
    lines = [
        f"## {claim.id}",
        "",
        f"> {claim.words}",
        "",
        f"*What was done.* {claim.experiment}",
        "",
    ]
    lines += [
        f"*Data:* {claim.data}. *Scale:* {result.scale}, {seeds}, {result.seconds:.0f} s.",
        "",
    ]
    lines += markdown(("criterion", "mean", "least", "most", "met"), rows)
    lines += ["", f"![{finding.chart.title}]({claim.id}.svg)"]
    for table in finding.tables:
        lines += [
            "",
            f"{table.title[0].upper()}{table.title[1:]}:",
            "",
            *markdown(table.header, table.rows),
        ]
    return [
        *lines,
        "",
        f"**Verdict: {claim.verdict(finding)}.** *What this does not show.* {claim.limits}",
    ]


def markdown(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[str]:
    """Return a table in Markdown with numbers aligned on the right."""
    rules = [
        "---" if all(isinstance(row[k], str) for row in rows) else "---:"
        for k in range(len(header))
    ]
    return [f"| {' | '.join(map(number, cells))} |" for cells in (header, rules, *rows)]


def draw(chart: Chart) -> Canvas:
    """Draw lines with a band from minimum to maximum over the seeds, or bars."""
    if not chart.lines:
        values = np.array(list(chart.bars.values()), dtype=float)
        return stack(
            [Bars(values, list(chart.bars), x_title=chart.titles[0]).draw()], title=chart.title
        )
    curves, bands = [], []
    for k, line in enumerate(chart.lines):
        colour = "muted" if line.beside else CATEGORICAL[k % len(CATEGORICAL)]
        x = np.array(line.x, dtype=float)
        means, least, most = (
            np.array([of(row) for row in line.y], dtype=float) for of in (fmean, min, max)
        )
        curves.append(Curve(line.label, means, x, colour, dashed=line.beside))
        bands += [Band("", least, most, x, colour)] if (most > least).any() else []
    canvas = Lines(curves, bands, titles=chart.titles, x_labels=chart.places).draw()
    return stack([canvas], title=chart.title)
