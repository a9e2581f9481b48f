"""`seqlab data`: get, make and look at data."""

import sys
from pathlib import Path

import typer
from typer import Argument, Option

from seqlab.cli.command import (
    Json,
    check_task,
    print_facts,
    print_json,
    print_table,
    reports_errors,
    tasks_help,
)

app = typer.Typer(help="Get, make and look at data.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
@reports_errors
def data_list(json: Json = False) -> None:
    """Public data sets that `data get` can fetch."""
    from dataclasses import asdict

    from seqlab.data.catalogue import datasets

    if json:
        print_json([asdict(each) for each in datasets()])
    else:
        rows = [
            [each.name, f"{each.size / 1e6:.1f} MB", each.licence, each.note] for each in datasets()
        ]
        print_table(["name", "size", "licence", "what it is"], rows)


@app.command("get")
@reports_errors
def data_get(
    name: str = Argument(help="a name of `data list`"),
    out: Path = Option(Path("data"), "--out", "-o", help="directory"),
    address: str | None = Option(None, help="another address of the same file"),
) -> None:
    """Download a public data set and check its sha256."""
    from seqlab.data.catalogue import fetch, find

    print(fetch(find(name), out, address=address))


@app.command("make")
@reports_errors
def data_make(
    kind: str = Argument(help="dates, copies, reversals, parity; shapes, digits, shifted-digits"),
    num: int = Option(10_000, "--num", "-n", min=1, help="examples; of digits, all there are"),
    seed: int = Option(1, help="another seed, other examples"),
    out: Path | None = Option(None, "--out", "-o", help="the file; of pictures, an .npz"),
) -> None:
    """Make a file to learn from: text as TSV, pictures as an .npz.

    seqlab data make dates -n 20000 > dates.tsv        seqlab train translate dates.tsv -r dates-attention

    seqlab data make parity > bits.tsv                 seqlab train classify bits.tsv

    seqlab data make shapes --out shapes.npz           seqlab train caption shapes.npz
    """
    from seqlab.data.scenes import SETS, make_pictures
    from seqlab.data.synthetic import make
    from seqlab.errors import UsageError

    if kind in SETS:
        if out is None:
            raise UsageError(
                f"'{kind}' are pictures, which are not printed",
                hint="--out FILE.npz says where they go.",
            )
        make_pictures(kind, num, out, seed=seed)
    else:
        lines = (f"{left}\t{right}\n" for left, right in make(kind, num, seed=seed))
        if out is None:
            sys.stdout.writelines(lines)
            return
        out.write_text("".join(lines), "utf-8")
    print(out)


@app.command("look")
@reports_errors
def data_look(
    task: str = Argument(help=tasks_help()),
    data: list[str] = Argument(help="file(s), as for train"),
    settings: list[str] | None = Option(None, "--set", "-s", help="override, like data.source=2"),
    json: Json = False,
) -> None:
    """Read a file as training would, and say what is in it."""
    check_task(task, resume=False)

    import seqlab.lab as lab

    facts = lab.look(task, data, settings=settings or ())
    if json:
        print_json(facts)
    else:
        print_facts({name.replace("_", " "): value for name, value in facts.items()})
