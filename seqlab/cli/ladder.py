"""`seqlab compare`: which recipe for this file."""

import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from seqlab.cli.common import TASKS, Json, Threads, check_task
from seqlab.cli.told import told

UNITS = {"s": 1 / 60, "m": 1.0, "h": 60.0}


@told
def compare(
    task: Annotated[str, typer.Argument(help=TASKS)],
    data: Annotated[list[str], typer.Argument(help="file(s) to train on")],
    recipes: Annotated[str, typer.Option("--recipes", "-r", help="names with commas between; none: the ladder")] = "",
    budget: Annotated[str | None, typer.Option(help="time for each training, like 90s, 10m or 1h")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="how often each is trained")] = 1,
    valid: Annotated[list[str] | None, typer.Option("--valid", help="file(s) to validate on")] = None,
    test: Annotated[
        list[str] | None, typer.Option("--test", help="file(s) to score on; none: what is held out")
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", "-s", help="override, for all of them")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="directory for models and report")] = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Train several recipes on the same data and say which to take.

    seqlab compare translate pairs.tsv --budget 10m

    seqlab compare tag corpus.conllu --recipes hmm,bilstm,char --seeds 3

    What is trained already is not trained again; the report is report.html in --out.
    """
    check_task(task, resume=False)
    minutes = None if budget is None else _minutes(budget)

    from seqlab.cli import show
    from seqlab.compare import compare as ladder
    from seqlab.data.lines import STDIN, lines
    from seqlab.errors import UsageError

    if STDIN in data:
        raise UsageError("standard input can be read only once", hint="put it into a file.")
    for file in (*data, *(valid or ()), *(test or ())):
        if not Path(file).exists():
            next(lines(file))  # says what is wrong with it, before every recipe does
    folder = out or Path("runs") / f"compare-{Path(data[0]).name.split('.')[0]}"
    found = ladder(
        task,  # type: ignore[arg-type]
        data,
        [name.strip() for name in recipes.split(",") if name.strip()],
        out=folder,
        valid=valid or (),
        test=test or (),
        settings=settings or (),
        seeds=seeds,
        minutes=minutes,
        threads=threads,
        told=lambda text: print(text, file=sys.stderr, flush=True),
    )
    found.view().save(folder / "report.html")
    if json:
        show.as_json(found.to_json())
        return
    rows = [_row(rung, found.measure) for rung in found.rungs]
    header = ["recipe", found.measure.replace("_", " "), "floor", "weights", "time", "per s", "GB", "MB"]
    show.table(header, rows, title=f"{task}, {seeds} seed{'s' if seeds > 1 else ''}")
    show.say("weights of the model; time of training; answers per s; GB of memory in training, at most; MB on disk")
    show.say(f"{found.advice}\nreport: {folder / 'report.html'}")
    if not found.done:
        raise typer.Exit(1)


def _minutes(budget: str) -> float:
    from seqlab.errors import UsageError

    read = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", budget.strip())
    if read is None or float(read[1]) == 0:
        raise UsageError(f"--budget {budget}: not a time", hint="for example 90s, 10m or 1h.")
    return float(read[1]) * UNITS[read[2] or "m"]


def _row(rung: Any, measure: str) -> list[str]:
    from seqlab.cli import show
    from seqlab.cli.progress import count, duration

    if rung.failed:
        return [rung.recipe, f"failed: {rung.failed}", *[""] * 6]
    spread = f" ±{show.figure(measure, rung.spread).removesuffix(' %')}" if len(rung.scores) > 1 else ""
    speed = "" if rung.answers_per_second is None else f"{rung.answers_per_second:,.0f}"
    return [
        rung.recipe,
        show.figure(measure, rung.score) + spread,
        "" if rung.floor is None else show.figure(measure, rung.floor),
        count(rung.parameters),
        duration(rung.seconds),
        speed,
        f"{rung.memory / 1e9:.2f}",
        f"{rung.bytes / 1e6:.1f}",
    ]
