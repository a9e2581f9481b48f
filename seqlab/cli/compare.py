"""`seqlab compare`: which recipe is best for a file."""

import re
import sys
from pathlib import Path

import typer
from typer import Argument, Option

from seqlab.cli.command import Json, Threads, check_task, tasks_help
from seqlab.cli.interrupt import Interrupt
from seqlab.cli.output import print_json, print_table, print_text
from seqlab.machine import use_threads

MINUTES_PER_UNIT = {"s": 1 / 60, "m": 1.0, "": 1.0, "h": 60.0}


def compare(
    task: str = Argument(metavar="TASK", help=tasks_help()),
    data: list[str] = Argument(metavar="FILE", help="file(s) to train on"),
    recipes: str = Option(
        "",
        "--recipes",
        "-r",
        metavar="NAMES",
        help="recipes to train, separated by commas, like hmm,gru,mine.toml",
        show_default="those proposed for the task",
    ),
    budget: str | None = Option(
        None, help="time limit for each training: 90s, 10m, 1h", show_default="no limit"
    ),
    seeds: int = Option(1, min=1, help="number of seeds to train each recipe with"),
    valid: list[str] | None = Option(
        None, "--valid", metavar="FILE", help="validation file(s)", show_default="a part of FILE"
    ),
    test: list[str] | None = Option(
        None,
        "--test",
        metavar="FILE",
        help="file(s) to compute the scores on",
        show_default="the validation part",
    ),
    settings: list[str] | None = Option(
        None, "--set", "-s", metavar="KEY=VALUE", help="override a setting of every recipe"
    ),
    out: Path | None = Option(
        None, "--out", "-o", help="directory to write to", show_default="runs/compare-FILE"
    ),
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Train several recipes on the same data and recommend one.

    Trainings that are already complete in --out are reused. The report is written to report.html in --out.

    Examples:
      seqlab compare translate pairs.tsv --budget 10m
      seqlab compare tag corpus.conllu --recipes hmm,bilstm,char --seeds 3

    Next:
      seqlab explain runs/compare-corpus/bilstm-tagger-1 "a sentence"
    """
    check_task(task, resume=False)
    minutes = None if budget is None else _minutes(budget)

    from seqlab.compare import LEGEND
    from seqlab.compare import compare as compare_recipes
    from seqlab.data.lines import STDIN, lines
    from seqlab.errors import UsageError

    if STDIN in data:
        raise UsageError("standard input can be read only once", hint="write it to a file first.")
    for file in (*data, *(valid or ()), *(test or ())):
        if not Path(file).exists():
            next(lines(file))  # raises the error once, instead of once for each recipe
    use_threads(threads)
    folder = out or Path("runs") / f"compare-{Path(data[0]).name.split('.')[0]}"
    # patient: the training that is interrupted stops in time by itself
    interrupt = Interrupt(patient=True, advice="interrupted; run the same command to continue")
    with interrupt.watching():
        ranking = compare_recipes(
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
        report = f"report: {folder / 'report.html'}"
        print_text("\n".join([LEGEND, *ranking.failures, ranking.advice, report]))
    if not ranking.successes:
        raise typer.Exit(1)


def _minutes(budget: str) -> float:
    """Return the minutes of a time such as 90s, 10m, 1h or 10."""
    from seqlab.errors import UsageError

    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", budget.strip())
    if match is None or float(match[1]) == 0:
        raise UsageError(f"--budget {budget} is not a time", hint="for example 90s, 10m or 1h.")
    return float(match[1]) * MINUTES_PER_UNIT[match[2]]
