"""`python -m experiments.bench`: benchmarks against other libraries."""

import os
import sys
from typing import Annotated, Any

import typer

from seqlab.cli.command import Json, reports_errors
from seqlab.cli.output import print_json, print_table, print_text

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
@reports_errors
def bench(
    name: Annotated[
        str | None, typer.Argument(help="hmm, kalman, recurrent, train or decode; default: all")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="number of runs of each library")] = 7,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads of each library")] = 1,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="print rows of a Markdown table")
    ] = False,
    json: Json = False,
) -> None:
    """Compare the speed with other libraries on the same data.

    Both sides run alternately, and their results must agree. The others' packages are needed: `make bench` installs
    them into an environment of their own.
    """
    for library in ("OMP", "OPENBLAS", "MKL"):  # they ask when they are first imported
        os.environ[f"{library}_NUM_THREADS"] = str(threads)

    import torch

    from experiments.bench.suite import run_bench

    torch.set_num_threads(threads)
    results = []
    for result in run_bench(name, rounds=rounds):
        results.append(result.to_json())
        if markdown:
            print_text(result.to_markdown())
        elif not json:
            _show(result)
    if json:
        print_json(results)


def _show(result: Any) -> None:
    from experiments.bench.race import seconds

    title, each = f"{result.title}; {result.part}", result.times
    columns = [seconds(one.seconds) for one in each], [seconds(one.cpu_seconds) for one in each]
    ratios = [f"{one.ratio:.3g}" for one in each], [f"{one.cpu_ratio:.3g}" for one in each]
    rows = zip(
        [f"{one.name} {one.version}" for one in each],
        *columns,
        *ratios,
        [one.goal for one in each],
        strict=True,
    )
    print_table(
        ["", "time", "CPU time", "ratio", "of CPU time", "wanted"],
        [list(row) for row in rows],
        title=title,
    )
    print_text(
        f"medians; rounds: {result.rounds}, threads: {result.threads}; all results agree to 1e-6"
    )
    if result.missing:
        print(
            f"not installed: {', '.join(result.missing)}; `make bench` installs them apart",
            file=sys.stderr,
        )
    if result.busy:
        print(
            f"this machine is busy (load {result.load:.1f}): trust the ratios of CPU time",
            file=sys.stderr,
        )


if __name__ == "__main__":
    app(prog_name="python -m experiments.bench")
