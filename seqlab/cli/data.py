"""`seqlab data`: download, generate and inspect data."""

import sys
from pathlib import Path

import typer
from typer import Argument, Option

from seqlab.cli.command import Json, add_command, check_task, tasks_help
from seqlab.cli.output import print_facts, print_json, print_table

app = typer.Typer(
    help="Download, generate and inspect data.",
    epilog="\b\nNext:\n  seqlab data list",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def data_list(json: Json = False) -> None:
    """List the public data sets that `seqlab data get` can download.

    Examples:
      seqlab data list

    Next:
      seqlab data get tinyshakespeare
    """
    from dataclasses import asdict

    from seqlab.data.catalogue import datasets

    if json:
        print_json([asdict(each) for each in datasets()])
    else:
        rows = [
            [each.name, f"{each.size / 1e6:.1f} MB", each.licence, each.note] for each in datasets()
        ]
        print_table(["name", "size", "licence", "what it is"], rows)


def data_get(
    name: str = Argument(metavar="NAME", help="a name from `seqlab data list`"),
    out: Path = Option(Path("data"), "--out", "-o", help="directory to write the file to"),
    address: str | None = Option(
        None, help="another URL of the same file", show_default="from `seqlab data list --json`"
    ),
) -> None:
    """Download a public data set and check its SHA-256.

    Examples:
      seqlab data get tinyshakespeare

    Next:
      seqlab train lm data/tinyshakespeare.txt
    """
    from seqlab.data.catalogue import fetch, find

    print(fetch(find(name), out, address=address))


def data_make(
    kind: str = Argument(
        metavar="KIND",
        help="text: dates, copies, reversals or parity; images: shapes, digits or shifted-digits",
    ),
    num: int = Option(
        10_000, "--num", "-n", min=1, help="number of examples; digits: at most all there are"
    ),
    seed: int = Option(1, help="seed of the random numbers"),
    out: Path | None = Option(
        None, "--out", "-o", help="file to write, .npz for images", show_default="stdout"
    ),
) -> None:
    """Generate a training file: text as TSV, images as .npz.

    Examples:
      seqlab data make dates -n 20000 > dates.tsv
      seqlab data make parity > bits.tsv
      seqlab data make shapes --out shapes.npz

    Next:
      seqlab train translate dates.tsv --recipe dates-attention
      seqlab train classify bits.tsv
      seqlab train caption shapes.npz
    """
    from seqlab.data.scenes import SETS, make_pictures
    from seqlab.data.synthetic import make
    from seqlab.errors import UsageError

    if kind in SETS:
        if out is None:
            raise UsageError(
                f"'{kind}' is a set of images, which cannot be printed",
                hint="name the file to write: --out FILE.npz",
            )
        make_pictures(kind, num, out, seed=seed)
    else:
        lines = (f"{source}\t{target}\n" for source, target in make(kind, num, seed=seed))
        if out is None:
            sys.stdout.writelines(lines)
            return
        out.write_text("".join(lines), "utf-8")
    print(out)


def data_look(
    task: str = Argument(metavar="TASK", help=tasks_help()),
    data: list[str] = Argument(metavar="FILE", help="file(s), as for `seqlab train`"),
    settings: list[str] | None = Option(
        None, "--set", "-s", metavar="KEY=VALUE", help="override a setting, like data.source=2"
    ),
    json: Json = False,
) -> None:
    """Read a file as training would, and print what is in it.

    Examples:
      seqlab data look translate pairs.tsv
      seqlab data look translate pairs.tsv --set data.source=2 --set data.target=3

    Next:
      seqlab train translate pairs.tsv
    """
    check_task(task, resume=False)

    import seqlab.lab as lab

    facts = lab.look(task, data, settings=settings or ())
    if json:
        print_json(facts)
    else:
        print_facts({name.replace("_", " "): value for name, value in facts.items()})


add_command(app, "list", data_list)
add_command(app, "get", data_get)
add_command(app, "make", data_make)
add_command(app, "look", data_look)
