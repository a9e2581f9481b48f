"""`seqlab demo`: the lectures' points in two minutes."""

import sys
from pathlib import Path
from typing import Any

import typer
from typer import Argument, Option

from seqlab.cli.command import (
    INTERRUPTED,
    Json,
    Threads,
    print_json,
    print_table,
    print_text,
    program,
)
from seqlab.cli.serving import serve_demo
from seqlab.errors import UsageError, nearest
from seqlab.machine import use_threads

DEMOS = ("dates", "tracking")


def demo(
    which: str = Argument("dates", help="dates or tracking"),
    out: Path = Option(Path("runs/dates"), "--out", "-o", help="dates: directory for the model"),
    steps: int | None = Option(None, min=1, help="dates: fewer steps for a quick look"),
    seed: int = Option(0, help="tracking: another seed, another target"),
    plot: Path | None = Option(None, help="tracking: a picture, .svg, .png or .html"),
    serve: bool = Option(True, help="dates: end with a page to try it; only on a terminal"),
    threads: Threads = None,
    quiet: bool = Option(False, "--quiet", "-q", help="no progress"),
    json: Json = False,
) -> None:
    """The lectures' points on data made on the spot.

    seqlab demo             dates in 48 languages, without attention and with it

    seqlab demo tracking    follow a moving target from noisy sightings
    """
    if which not in DEMOS:
        raise UsageError(f"there is no demo '{which}'", hint=nearest(which, DEMOS))
    use_threads(threads)
    if which == "tracking":
        _track(seed, plot, json)
    else:
        _read_dates(out, steps, quiet, json, serve)


def _read_dates(out: Path, steps: int | None, quiet: bool, json: bool, serve: bool) -> None:
    """Two models learn from the same dates, then are tried on days never seen in any language."""
    from seqlab.cli.interrupt import Interrupt
    from seqlab.cli.progress import reporter
    from seqlab.demo.dates import LINES, run_demo

    if not json:
        print_text(LINES)

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
        _show_demo(result)
    if result.stopped is not None:
        again = f"{program()} train --resume --out {result.stopped.path}"
        print(f"stopped; go on with: {again}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    if serve and not json and sys.stdout.isatty():
        serve_demo([Path(tried.path) for tried in reversed(result.models)])


def _track(seed: int, plot: Path | None, json: bool) -> None:
    """A moving target, followed by its last sighting, the Kalman filter, the smoother, and EM."""
    from seqlab.demo.tracking import track

    tracked = track(seed=seed)
    if plot is not None:
        tracked.view().save(plot)
    if json:
        print_json({"seed": seed, **tracked.to_json()})
        return
    print_text(tracked.picture())
    print_text(". where it was   o where it was seen   * where the smoother puts it\n")
    rows = [
        [name, f"{error:.2f}", f"{error / tracked.noise:.2f}"]
        for name, error in tracked.errors.items()
    ]
    rows.append(["the noise of a sighting", f"{tracked.noise:.2f}", "1.00"])
    title = f"how far off, over {len(tracked.path)} steps, {tracked.num_unseen} of them without a sighting"
    print_table(["followed by", "root mean square", "of the noise"], rows, title=title)
    print_text(
        f"EM took the noise for {tracked.noise_guessed:.2f} at first; "
        f"after {tracked.iterations} iterations for {tracked.noise_learnt:.2f}"
    )


def _show_demo(result: Any) -> None:
    best = result.models[-1]
    rows = [
        [written, read, "" if read == iso else f"is {iso}"] for written, read, iso in best.shown
    ]
    print_table(
        ["written", f"read by {best.recipe}", ""], rows, title="days never seen in training"
    )
    errors = [[tried.recipe, *row] for tried in result.models for row in tried.errors]
    if errors:
        print_table(["model", "written", "read as", "is"], errors, title="some of their errors")
    if result.alignment:
        print_text(f"where it looked (a row for each character it wrote):\n{result.alignment}")
    rows = [
        [
            tried.recipe,
            f"{tried.parameters:,}",
            f"{tried.seconds:.0f} s",
            f"{100 * tried.exact:.1f} %",
        ]
        for tried in result.models
    ]
    rows.append(["copy of the input", "", "", f"{100 * result.baseline:.1f} %"])
    title = f"exact on {result.num_test:,} days never seen in any language"
    print_table(["model", "parameters", "training", "exact"], rows, title=title)
    print_text(f'try it: {program()} predict {best.path} "samedi 3 mai 1997"')
