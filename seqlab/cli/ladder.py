"""`seqlab compare`: which recipe for this file."""

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from seqlab.cli.command import Json, Threads, check_task, print_json, print_table, print_text, tasks_help, use_threads

UNITS = {"s": 1 / 60, "m": 1.0, "h": 60.0}


def compare(
    task: Annotated[str, typer.Argument(help=tasks_help())],
    data: Annotated[list[str], typer.Argument(help="file(s) to train on")],
    recipes: Annotated[str, typer.Option("--recipes", "-r", help="hmm,gru,mine.toml; none: the task's ladder")] = "",
    budget: Annotated[str | None, typer.Option(help="time for each training, like 90s, 10m or 1h")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="how often each is trained")] = 1,
    valid: Annotated[list[str] | None, typer.Option("--valid", help="file(s) to validate on")] = None,
    test: Annotated[
        list[str] | None, typer.Option("--test", help="file(s) to score on; none: what is held out")
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", "-s", help="override, for all of them")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="directory; none: runs/compare-FILE")] = None,
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

    from seqlab.compare import LEGEND
    from seqlab.compare import compare as ladder
    from seqlab.data.lines import STDIN, lines
    from seqlab.errors import UsageError

    if STDIN in data:
        raise UsageError("standard input can be read only once", hint="put it into a file.")
    for file in (*data, *(valid or ()), *(test or ())):
        if not Path(file).exists():
            next(lines(file))  # says what is wrong with it, before every recipe does
    use_threads(threads)
    folder = out or Path("runs") / f"compare-{Path(data[0]).name.split('.')[0]}"
    found = ladder(
        task,
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
    for name in ("report.html", "report.json"):
        found.view().save(folder / name)
    if json:
        print_json(found.to_json())
    else:
        header, rows = found.table()
        print_table(header, rows, title=f"{task}: {found.asked}")
        print_text("\n".join([LEGEND, *found.failures, found.advice, f"report: {folder / 'report.html'}"]))
    if not found.done:
        raise typer.Exit(1)


def _minutes(budget: str) -> float:
    from seqlab.errors import UsageError

    read = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", budget.strip())
    if read is None or float(read[1]) == 0:
        raise UsageError(f"--budget {budget}: not a time", hint="for example 90s, 10m or 1h.")
    return float(read[1]) * UNITS[read[2] or "m"]
