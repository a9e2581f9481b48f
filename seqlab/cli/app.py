"""The verbs."""

import shutil
import sys
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from seqlab.cli.told import INTERRUPTED, told

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="directory of a trained model")]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]
Threads = Annotated[Optional[int], typer.Option(min=1, help="CPU threads to use")]  # noqa: UP045  (typer's own form)


def _version(asked: bool) -> bool:
    if asked:
        from seqlab import __version__

        print(__version__)
        raise typer.Exit
    return asked


Version = Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")]


@app.callback()
def seqlab(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """A laboratory for sequence models: train one on your own file, use it, look inside."""


@app.command()
@told
def train(
    task: Annotated[str, typer.Argument(help="lm, classify, tag or translate")] = "",
    data: Annotated[list[str] | None, typer.Argument(help="file(s) to train on; - is standard input")] = None,
    recipe: Annotated[str | None, typer.Option("--recipe", "-r", help="a recipe's name, or a .toml file")] = None,
    valid: Annotated[list[str] | None, typer.Option("--valid", help="file(s) to validate on")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="directory for the model")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", "-s", help="override, like train.steps=500")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with the run in --out")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="throw away the run in --out")] = False,
    threads: Threads = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no progress")] = False,
    json: Json = False,
) -> None:
    """Train a model on your file.

    seqlab train translate pairs.tsv      two columns, or two parallel files

    seqlab train classify reviews.tsv     a label and a text on each line

    seqlab train tag corpus.conllu        one word a line, blank line between sentences

    seqlab train lm book.txt              plain text
    """
    _check_task(task, resume=resume)  # before torch is waited for

    from seqlab import lab
    from seqlab.cli import show
    from seqlab.cli.progress import Interrupt, duration, reporter

    _use_threads(threads)
    interrupt = Interrupt()
    with interrupt.watching():
        trained = lab.train(
            task or None,  # type: ignore[arg-type]
            data or (),
            valid=valid or (),
            recipe=recipe,
            settings=settings or (),
            out=out,
            resume=resume,
            overwrite=overwrite,
            report=reporter(quiet=quiet),
            stop=interrupt,
        )
    model = trained.model
    if json:
        show.as_json({"path": str(model.path), "stopped": trained.stopped, **model.metrics})
    else:
        held_out = model.metrics["validation"]
        took = duration(model.metrics["seconds"])
        show.scores(held_out, title=f"{model.recipe.name} on {held_out['examples']:,} held out, {took} of training")
        show.say(f"model: {model.path}\nuse it: {_command()} predict {model.path}")
    if trained.stopped:
        print(
            f"stopped at step {trained.step:,}; go on with: {_command()} train --resume --out {model.path}",
            file=sys.stderr,
        )
        raise typer.Exit(INTERRUPTED)


@app.command()
@told
def predict(
    model: ModelPath,
    text: Annotated[list[str] | None, typer.Argument(help="what to answer; without it, lines of --input")] = None,
    source: Annotated[str, typer.Option("--input", "-i", help="file of lines; - is standard input")] = "-",
    greedy: Annotated[bool, typer.Option("--greedy", help="always the likeliest token")] = False,
    temperature: Annotated[float | None, typer.Option(help="sample; below 1 is bolder, above 1 wilder")] = None,
    top_k: Annotated[int | None, typer.Option(help="sample among the k likeliest tokens")] = None,
    top_p: Annotated[float | None, typer.Option(help="sample among the likeliest tokens of mass p")] = None,
    beam: Annotated[int | None, typer.Option(help="beam search with this many hypotheses")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="beam: 0 ranks by the sum, 1 by the mean")] = None,
    no_repeat: Annotated[int | None, typer.Option(help="beam: no n-gram of this length twice")] = None,
    min_length: Annotated[int | None, typer.Option(help="beam: shortest answer, in tokens")] = None,
    max_length: Annotated[int | None, typer.Option(help="longest answer, in tokens")] = None,
    prefix: Annotated[str, typer.Option(help="what each translation must begin with")] = "",
    seed: Annotated[int, typer.Option(help="another seed, another sample")] = 0,
    stream: Annotated[bool, typer.Option("--stream", help="lm: show each token as it is chosen")] = False,
    threads: Threads = None,
    json: Annotated[bool, typer.Option("--json", help="one JSON object a line, with probabilities")] = False,
) -> None:
    """Use a model: a line in, a line out, same count and order.

    seqlab predict runs/dates "samedi 3 mai 1997"

    seqlab predict runs/dates --input lines.txt > answers.txt
    """
    from seqlab import lab

    _use_threads(threads)
    loaded = lab.load(model)
    decode: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "max_length": max_length}
    decode |= {"beam": beam, "length_penalty": length_penalty, "no_repeat": no_repeat, "min_length": min_length}
    if greedy:
        decode["method"] = "greedy"
    if stream:
        for piece in loaded.stream(" ".join(text or ()), seed=seed, **decode):
            print(piece, end="", flush=True)
        print()
        return
    decode["prefix"] = prefix
    if text:
        for answer in loaded.predict(list(text), seed=seed, **decode):
            print(_as_line(answer) if json else answer.output)
        return
    row = 0
    for block in _blocks(source):
        for answer in loaded.predict(block, seed=seed, first_row=row, **decode):
            print(_as_line(answer) if json else answer.output.replace("\n", "\\n"))
        sys.stdout.flush()
        row += len(block)


@app.command()
@told
def evaluate(
    model: ModelPath,
    data: Annotated[
        list[str] | None, typer.Argument(help="file(s) with known answers; none: what was held out")
    ] = None,
    errors: Annotated[int, typer.Option(min=0, max=10, help="how many mistakes to show")] = 3,
    beam: Annotated[int | None, typer.Option(help="translate by beam search with this many hypotheses")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="beam: 0 ranks by the sum, 1 by the mean")] = None,
    lower: Annotated[bool, typer.Option("--lower", help="score translations without regard to case")] = False,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Score a model on data with known answers, beside the floor that needs no model."""
    from seqlab import lab
    from seqlab.cli import show

    _use_threads(threads)
    loaded = lab.load(model)
    report = loaded.evaluate(*(data or ()), lower=lower, beam=beam, length_penalty=length_penalty)
    if json:
        show.as_json(report.to_json() | {"mistakes": list(report.examples)})
        return
    show.scores(report.to_json(), title=f"{loaded.recipe.name} on {report.num_examples:,} {_unit(loaded)}")
    if report.by_length:
        rows = [
            [n, f"{r['examples']:,}", show.figure("exact", r["exact"]), f"{r['bleu']:.1f}"]
            for n, r in report.by_length.items()
        ]
        show.table(["source tokens", "examples", "exact", "bleu"], rows, title="by length of the source")
    mistakes = [[m["input"], m["output"], m["expected"]] for m in report.examples[:errors]]
    if mistakes:
        show.table(["input", "answer", "expected"], mistakes, title="some mistakes")


@app.command()
@told
def info(
    model: Annotated[Path | None, typer.Argument(help="directory of a trained model; none: this installation")] = None,
    json: Json = False,
) -> None:
    """What a model is, or what this installation is."""
    from seqlab.cli import show

    if model is None:
        facts = _installation()
    else:
        from seqlab import lab

        facts = lab.load(model).info()
    if json:
        show.as_json(facts)
        return
    metrics = facts.pop("metrics", None)
    show.table(["", ""], [[name, _readable(value)] for name, value in facts.items()])
    if metrics:
        show.scores(metrics["validation"], title=f"held out, after {metrics['steps']:,} steps, {metrics['seconds']} s")


@app.command()
@told
def recipes(
    name: Annotated[str | None, typer.Argument(help="a recipe to show in full")] = None,
    json: Json = False,
) -> None:
    """The recipes that come with Seqlab; with a name, that one as TOML to copy and change."""
    from seqlab.cli import show
    from seqlab.recipe import DEFAULTS, load_recipe, recipe_names, to_toml

    if name is not None:
        recipe = load_recipe(name)
        if json:
            show.as_json(recipe.model_dump())
        else:
            print(to_toml(recipe), end="")
        return
    known = sorted((load_recipe(each) for each in recipe_names()), key=lambda recipe: (recipe.task, recipe.name))
    if json:
        show.as_json([{"name": r.name, "task": r.task, "about": r.about} for r in known])
        return
    defaults = set(DEFAULTS.values())
    rows = [[r.task, r.name + (" (default)" if r.name in defaults else ""), r.about] for r in known]
    show.table(["task", "recipe", "what it is"], rows)


data_app = typer.Typer(help="Get, make and look at data.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(data_app, name="data")


@data_app.command("list")
@told
def data_list(json: Json = False) -> None:
    """Public data sets that `data get` can fetch."""
    from dataclasses import asdict

    from seqlab.cli import show
    from seqlab.data.catalogue import datasets

    if json:
        show.as_json([asdict(each) for each in datasets()])
    else:
        rows = [[each.name, f"{each.size / 1e6:.1f} MB", each.licence, each.note] for each in datasets()]
        show.table(["name", "size", "licence", "what it is"], rows)


@data_app.command("get")
@told
def data_get(
    name: Annotated[str, typer.Argument(help="a name of `data list`")],
    out: Annotated[Path, typer.Option("--out", "-o", help="directory")] = Path("data"),
    address: Annotated[str | None, typer.Option(help="another address of the same file")] = None,
) -> None:
    """Download a public data set and check its sha256."""
    from seqlab.data.catalogue import fetch, find

    print(fetch(find(name), out, address=address))


@data_app.command("make")
@told
def data_make(
    kind: Annotated[str, typer.Argument(help="dates, copies, reversals or parity")],
    num: Annotated[int, typer.Option("--num", "-n", min=1, help="examples")] = 10_000,
    seed: Annotated[int, typer.Option(help="another seed, other examples")] = 1,
) -> None:
    """Make examples of a synthetic task, as TSV on stdout."""
    from seqlab.data.synthetic import make

    for source, target in make(kind, num, seed=seed):
        print(f"{source}\t{target}")


@data_app.command("look")
@told
def data_look(
    task: Annotated[str, typer.Argument(help="lm, classify, tag or translate")],
    data: Annotated[list[str], typer.Argument(help="file(s), as for train")],
    settings: Annotated[list[str] | None, typer.Option("--set", "-s", help="override, like data.source=2")] = None,
    json: Json = False,
) -> None:
    """Read a file as training would, and say what is in it."""
    _check_task(task, resume=False)

    from seqlab import lab
    from seqlab.cli import show

    facts = lab.look(task, data, settings=settings or ())  # type: ignore[arg-type]
    if json:
        show.as_json(facts)
    else:
        show.table(["", ""], [[name.replace("_", " "), _readable(value)] for name, value in facts.items()])


@app.command()
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

    _use_threads(threads)
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
        again = f"{_command()} train --resume --out {result.stopped.path}"
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
    show.say(f'try it: {_command()} predict {best.path} "samedi 3 mai 1997"')


def _command() -> str:
    """How this program was called, so that what we say can be copied and run."""
    if sys.argv[0].endswith("__main__.py"):
        return "python -m seqlab"
    return "seqlab" if shutil.which("seqlab") else sys.argv[0]


def _check_task(task: str, *, resume: bool) -> None:
    from seqlab.errors import UsageError, nearest
    from seqlab.recipe import DEFAULTS

    if task not in DEFAULTS and not (resume and not task):
        said = f"there is no task '{task}'" if task else "which task?"
        raise UsageError(said, hint=nearest(task, DEFAULTS))


def _use_threads(threads: int | None) -> None:
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def _blocks(source: str) -> Any:
    """Lines of a file in blocks that are decoded together; a person at a terminal is answered line by line."""
    from itertools import islice

    from seqlab.data.lines import numbered_lines

    size = 1
    if source != "-" or not sys.stdin.isatty():
        size = 2000
    elif sys.stderr.isatty():
        print("type a line; Ctrl-D ends", file=sys.stderr)
    lines = (text for _, text in numbered_lines(source))
    return iter(lambda: list(islice(lines, size)), [])


def _as_line(answer: Any) -> str:
    import json

    return json.dumps({"input": answer.input, "output": answer.output, **answer.details}, ensure_ascii=False)


def _unit(loaded: Any) -> str:
    return "tokens" if loaded.recipe.task == "lm" and loaded.recipe.data.unit == "stream" else "examples"


def _readable(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_readable(part)}" for name, part in value.items())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _installation() -> dict[str, Any]:
    import platform

    import torch

    import seqlab

    return {
        "seqlab": seqlab.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "recurrent layers": "torch's kernels",
    }
