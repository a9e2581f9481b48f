"""`seqlab compare`: which recipe for this file."""

import re
import sys
from pathlib import Path

import typer
from typer import Argument, Option

from seqlab.cli.command import (
    Json,
    Threads,
    check_task,
    print_json,
    print_table,
    print_text,
    tasks_help,
)
from seqlab.cli.interrupt import Interrupt
from seqlab.machine import use_threads

UNITS = {"s": 1 / 60, "m": 1.0, "h": 60.0}


def compare(
    task: str = Argument(help=tasks_help()),
    data: list[str] = Argument(help="file(s) to train on"),
    recipes: str = Option("", "--recipes", "-r", help="hmm,gru,mine.toml; none: the task's ladder"),
    budget: str | None = Option(None, help="time for each training, like 90s, 10m or 1h"),
    seeds: int = Option(1, min=1, help="how often each is trained"),
    valid: list[str] | None = Option(None, "--valid", help="file(s) to validate on"),
    test: list[str] | None = Option(
        None, "--test", help="file(s) to score on; none: what is held out"
    ),
    settings: list[str] | None = Option(None, "--set", "-s", help="override, for all of them"),
    out: Path | None = Option(None, "--out", "-o", help="directory; none: runs/compare-FILE"),
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
    # patient, because the training that is interrupted answers in time by itself
    with Interrupt(
        patient=True, advice="interrupted; the same command goes on where it stopped"
    ).watching():
        ranking = ladder(
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
            announce=lambda text: print(text, file=sys.stderr, flush=True),
        )
    for name in ("report.html", "report.json"):
        ranking.view().save(folder / name)
    if json:
        print_json(ranking.to_json())
    else:
        header, rows = ranking.table()
        print_table(header, rows, title=f"{task}: {ranking.setup}")
        print_text(
            "\n".join(
                [LEGEND, *ranking.failures, ranking.advice, f"report: {folder / 'report.html'}"]
            )
        )
    if not ranking.successes:
        raise typer.Exit(1)


def _minutes(budget: str) -> float:
    from seqlab.errors import UsageError

    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", budget.strip())
    if match is None or float(match[1]) == 0:
        raise UsageError(f"--budget {budget}: not a time", hint="for example 90s, 10m or 1h.")
    return float(match[1]) * UNITS[match[2] or "m"]
