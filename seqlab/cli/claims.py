"""`seqlab claims`: what the lectures say, measured."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from seqlab.cli.common import Json, Threads, use_threads
from seqlab.cli.told import told


@told
def claims(
    ids: Annotated[list[str] | None, typer.Argument(help="which claims, like C6 C12; none: all")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="directory of the report")] = Path("report"),
    quick: Annotated[bool, typer.Option("--quick", help="small experiments: all in about 10 minutes, not 150")] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="how often each is trained; 3, with --quick 2")] = None,
    names: Annotated[bool, typer.Option("--list", help="the claims there are")] = False,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Measure what the lectures claim, and report what is confirmed, what is not, and what depends.

    seqlab claims --quick

    seqlab claims C6 C12 --out report

    What was measured with the same settings is not measured again; the report is README.md in --out.
    """
    from seqlab.claims.suite import chosen_claims, run_claims
    from seqlab.cli import show
    from seqlab.cli.progress import duration

    chosen = chosen_claims(ids or ())
    if names:
        if json:
            show.as_json([{"id": c.id, "claim": c.words, "data": c.data, "rule": c.rule} for c in chosen])
        else:
            show.table(["", "claim"], [[c.id, c.words] for c in chosen])
        return
    use_threads(threads)
    results = run_claims(
        ids or (),
        out=out,
        scale="quick" if quick else "full",
        seeds=seeds,
        told=lambda text: print(text, file=sys.stderr, flush=True),
    )
    if json:
        show.as_json([result.model_dump() for result in results])
        return
    titles = {claim.id: claim.title for claim in chosen}
    rows = [[r.id, titles[r.id], r.verdict, duration(r.seconds)] for r in results]
    show.table(["", "claim", "verdict", "time"], rows)
    show.say(f"report: {out / 'README.md'}")
