"""`seqlab demo`: date normalisation without and with attention, and a Kalman filter that tracks a target."""

import sys
from pathlib import Path
from typing import Any

import typer
from typer import Argument, Option

from seqlab.cli.command import INTERRUPTED, Json, Threads, program
from seqlab.cli.output import print_json, print_table, print_text
from seqlab.cli.serve import serve_demo
from seqlab.errors import UsageError, nearest
from seqlab.machine import use_threads

DEMOS = ("dates", "tracking")


def demo(
    which: str = Argument("dates", metavar="NAME", help="dates or tracking"),
    out: Path = Option(
        Path("runs/dates"), "--out", "-o", help="dates: directory to write the model to"
    ),
    steps: int | None = Option(
        None, min=1, help="dates: number of training steps", show_default="as in the recipes"
    ),
    seed: int = Option(0, help="tracking: seed of the simulation"),
    plot: Path | None = Option(None, help="tracking: also draw it: .svg, .png or .html"),
    serve: bool = Option(True, help="dates: serve a web page at the end, if on a terminal"),
    threads: Threads = None,
    quiet: bool = Option(False, "--quiet", "-q", help="print no progress"),
    json: Json = False,
) -> None:
    """Train models on generated data and compare them, in two minutes.

    Examples:
      seqlab demo             dates in 48 languages, without attention and with it
      seqlab demo tracking    follow a moving target from noisy measurements

    Next:
      seqlab predict runs/dates-attention "samedi 3 mai 1997"
    """
    if which not in DEMOS:
        raise UsageError(f"there is no demo '{which}'", hint=nearest(which, DEMOS))
    use_threads(threads)
    if which == "tracking":
        _run_tracking(seed, plot, json)
    else:
        _run_dates(out, steps, quiet, json, serve)


def _run_dates(out: Path, steps: int | None, quiet: bool, json: bool, serve: bool) -> None:
    """Train two models on the same dates and test them on days that are in no training example."""
    from seqlab.cli.interrupt import Interrupt
    from seqlab.cli.progress import reporter
    from seqlab.demo.dates import INTRODUCTION, run_demo

    if not json:
        print_text(INTRODUCTION)

    def report(recipe: str) -> Any:
        if not quiet:
            print(f"\n{recipe}", file=sys.stderr)
        return reporter(quiet=quiet)

    interrupt = Interrupt()
    with interrupt.watching():
        result = run_demo(out, steps=steps, report=report, stop=interrupt)
    if json:
        print_json(result.to_json())
    else:
        _print_dates(result)
    if result.stopped is not None:
        command = f"{program()} train --resume --out {result.stopped.path}"
        print(f"stopped; to continue: {command}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    if serve and not json and sys.stdout.isatty():
        serve_demo([Path(model.path) for model in reversed(result.models)])


def _print_dates(result: Any) -> None:
    """Print some answers, some errors, the attention of one answer, and the accuracy of both models."""
    best = result.models[-1]
    answers = [
        [text, answer, "" if answer == iso else f"correct: {iso}"]
        for text, answer, iso in best.shown
    ]
    print_table(
        ["input", f"answer of {best.recipe}", ""], answers, title="days never seen in training"
    )
    errors = [[model.recipe, *row] for model in result.models for row in model.errors]
    if errors:
        print_table(["model", "input", "answer", "correct"], errors, title="some errors")
    if result.alignment:
        print_text(f"attention (one row for each character of the answer):\n{result.alignment}")
    scores = []
    for model in result.models:
        exact = f"{100 * model.exact:.1f} %"
        scores.append([model.recipe, f"{model.parameters:,}", f"{model.seconds:.0f} s", exact])
    scores.append(["copy of the input", "", "", f"{100 * result.baseline:.1f} %"])
    title = f"exact answers on {result.num_test:,} days never seen in any language"
    print_table(["model", "parameters", "training", "exact"], scores, title=title)
    print_text(f'try it: {program()} predict {best.path} "samedi 3 mai 1997"')


def _run_tracking(seed: int, plot: Path | None, json: bool) -> None:
    """Follow a target by its last measurement, the Kalman filter, the smoother, and EM."""
    from seqlab.demo.tracking import track

    result = track(seed=seed)
    if plot is not None:
        result.view().save(plot)
    if json:
        print_json({"seed": seed, **result.to_json()})
        return
    print_text(result.picture())
    print_text(". true path   o measurements   * path estimated by the smoother\n")
    rows = [
        [name, f"{error:.2f}", f"{error / result.noise:.2f}"]
        for name, error in result.errors.items()
    ]
    rows.append(["noise of a measurement", f"{result.noise:.2f}", "1.00"])
    title = (
        f"error over {len(result.path)} steps, {result.num_unseen} of them without a measurement"
    )
    print_table(["estimate", "root mean square", "relative to the noise"], rows, title=title)
    print_text(
        f"noise: first guess {result.noise_guessed:.2f}; "
        f"learnt by {result.iterations} iterations of EM {result.noise_learnt:.2f}"
    )
