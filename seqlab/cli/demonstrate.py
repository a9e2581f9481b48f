"""`seqlab demo`: the lectures' point in two minutes."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from seqlab.cli.common import Json, Threads, program, use_threads
from seqlab.cli.told import INTERRUPTED, told


@told
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="directory for the model")] = Path("runs/dates"),
    steps: Annotated[int | None, typer.Option(min=1, help="fewer steps for a quick look")] = None,
    threads: Threads = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no progress")] = False,
    json: Json = False,
) -> None:
    """Learn to read dates in 48 languages, without attention and with it, then try days never seen in any of them."""
    from seqlab.cli import show
    from seqlab.cli.progress import Interrupt, reporter
    from seqlab.demo import LINES, run_demo

    use_threads(threads)
    if not json:
        show.say(LINES)

    def report(recipe: str) -> Any:
        if not quiet:
            print(f"\n{recipe}", file=sys.stderr)
        return reporter(quiet=quiet)

    interrupt = Interrupt()
    with interrupt.watching():
        result = run_demo(out, steps=steps, report=report, stop=interrupt)
    if json:
        show.as_json(result.to_json())
    else:
        _show_demo(result)
    if result.stopped is not None:
        again = f"{program()} train --resume --out {result.stopped.path}"
        print(f"stopped; go on with: {again}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)


def _show_demo(result: Any) -> None:
    from seqlab.cli import show

    best = result.models[-1]
    rows = [[written, read, "" if read == iso else f"is {iso}"] for written, read, iso in best.shown]
    show.table(["written", f"read by {best.recipe}", ""], rows, title="days never seen in training")
    errors = [[tried.recipe, *row] for tried in result.models for row in tried.errors]
    if errors:
        show.table(["model", "written", "read as", "is"], errors, title="some of their errors")
    if result.alignment:
        show.say(f"where it looked (a row for each character it wrote):\n{result.alignment}")
    rows = [
        [tried.recipe, f"{tried.parameters:,}", f"{tried.seconds:.0f} s", f"{100 * tried.exact:.1f} %"]
        for tried in result.models
    ]
    rows.append(["copy of the input", "", "", f"{100 * result.floor:.1f} %"])
    title = f"exact on {result.num_test:,} days never seen in any language"
    show.table(["model", "parameters", "training", "exact"], rows, title=title)
    show.say(f'try it: {program()} predict {best.path} "samedi 3 mai 1997"')
