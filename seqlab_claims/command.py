"""`seqlab claims`: the lectures' claims, measured."""

import sys
from pathlib import Path

from typer import Argument, Option

from seqlab.cli.command import Json, Threads
from seqlab.cli.output import print_json, print_table, print_text
from seqlab.machine import use_threads


def claims(
    ids: list[str] | None = Argument(
        None, metavar="CLAIM", help="claims to measure, like C6 C12", show_default="all"
    ),
    out: Path = Option(Path("report"), "--out", "-o", help="directory to write the report to"),
    quick: bool = Option(
        False, "--quick", help="small experiments: about 10 minutes for all, instead of 150"
    ),
    seeds: int | None = Option(
        None, min=1, help="number of seeds of each experiment", show_default="3; with --quick 2"
    ),
    names: bool = Option(False, "--list", help="list the claims"),
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Measure what the lectures claim, and print what is confirmed.

    Results already measured with the same settings are reused. The report is written to README.md in --out.

    Examples:
      seqlab claims --quick
      seqlab claims C6 C12 --out report

    Next:
      seqlab claims --list
    """
    from seqlab.errors import UsageError
    from seqlab_claims.claim import read_claims

    by_id = read_claims()
    chosen = list(dict.fromkeys(name.upper() for name in ids or by_id))
    for name in chosen:
        if name not in by_id:
            raise UsageError(
                f"there is no claim '{name}'",
                hint=f"there are C1 to C{len(by_id)}; --list prints them.",
            )
    if names:
        if json:
            print_json(
                [
                    {"id": n, "claim": by_id[n].words, "data": by_id[n].data, "rule": by_id[n].rule}
                    for n in chosen
                ]
            )
        else:
            print_table(["", "claim"], [[name, by_id[name].words] for name in chosen])
        return

    from seqlab.metrics.scores import duration
    from seqlab_claims.report import PAGE, to_json
    from seqlab_claims.suite import run_claims

    use_threads(threads)
    results = run_claims(
        chosen,
        out=out,
        scale="quick" if quick else "full",
        seeds=seeds,
        report=lambda text: print(text, file=sys.stderr, flush=True),
    )
    if json:
        print_json({name: to_json(by_id[name], result) for name, result in results.items()})
        return
    rows = [
        [n, by_id[n].title, by_id[n].verdict(r.finding), duration(r.seconds)]
        for n, r in results.items()
    ]
    print_table(["", "claim", "verdict", "time"], rows)
    print_text(f"report: {out / PAGE}")
