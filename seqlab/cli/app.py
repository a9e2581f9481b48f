"""The verbs."""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from itertools import chain
from os.path import isfile
from pathlib import Path
from typing import Annotated, Any

import typer

from seqlab.cli import data as data_commands
from seqlab.cli.claims import claims
from seqlab.cli.command import (
    INTERRUPTED,
    Device,
    Int8,
    Json,
    ModelPath,
    Threads,
    Workers,
    check_task,
    print_fit,
    print_json,
    print_scores,
    print_table,
    print_text,
    program,
    reports_errors,
    tasks_help,
    use_device,
    use_threads,
)
from seqlab.cli.demonstrate import demo
from seqlab.cli.kernels import kernels
from seqlab.cli.ladder import compare
from seqlab.cli.look import check, doctor, explain
from seqlab.cli.models import export, import_model, info, recipes
from seqlab.cli.serving import serve, served

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(data_commands.app, name="data")


def _version(asked: bool) -> bool:
    if asked:
        from seqlab import __version__

        print(__version__)
        raise typer.Exit
    return asked


@app.callback()
def seqlab(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """A laboratory for sequence models: train one on your own file, use it, look inside."""


def train(
    task: Annotated[str, typer.Argument(help=tasks_help())] = "",
    data: Annotated[list[str] | None, typer.Argument(help="file(s) to train on; - is standard input")] = None,
    recipe: Annotated[str | None, typer.Option("--recipe", "-r", help="a name or .toml file; none: the task's")] = None,
    valid: Annotated[list[str] | None, typer.Option("--valid", help="file(s) to validate on")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="directory; none: runs/RECIPE-FILE")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", "-s", help="override, like train.steps=500")] = None,
    start: Annotated[Path | None, typer.Option("--from", help="a trained model to begin with")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with the run in --out")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="throw away the run in --out")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="serve a page with its curves while it trains")] = False,
    threads: Threads = None,
    device: Device = "cpu",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no progress")] = False,
    json: Json = False,
) -> None:
    """Train a model on your file.

    seqlab train translate pairs.tsv      two columns, or two parallel files

    seqlab train classify reviews.tsv     a label and a text on each line

    seqlab train tag corpus.conllu        one word a line, a blank line between

    seqlab train lm book.txt              plain text

    seqlab train mask wiki.txt            plain text, to fill blanks

    seqlab train forecast series.csv      a column of times, columns of numbers

    seqlab train caption said.tsv images.zip   pictures, and what is said of them

    seqlab train classify few.tsv --from runs/bert-tiny-wiki
    """
    check_task(task, resume=resume)  # before torch is waited for

    from seqlab import lab
    from seqlab.cli.progress import Interrupt, reporter
    from seqlab.doctor import beside_floor
    from seqlab.metrics.scores import duration

    use_threads(threads)
    use_device(device)
    interrupt = Interrupt()
    page = served() if watch else nullcontext(lambda folder: None)
    with interrupt.watching(), page as begun:
        trained = lab.train(
            task or None,
            data or (),
            valid=valid or (),
            recipe=recipe,
            settings=settings or (),
            start=start,
            out=out,
            resume=resume,
            overwrite=overwrite,
            report=reporter(quiet=quiet),
            begun=begun,
            stop=interrupt,
        )
    if not trained.leads:
        return
    model = trained.model
    if json:
        print_json({"path": str(model.path), "stopped": trained.stopped, **model.metrics})
    else:
        held_out = model.metrics["validation"]
        took = duration(model.metrics["seconds"])
        print_scores(held_out, title=f"{model.recipe.name} on {held_out['examples']:,} held out, {took} of training")
        if "fit" in model.metrics:
            print_fit(model.metrics["fit"])
        for finding in beside_floor(model.task, held_out, held_out.get("floors", {})):
            if not finding.well and held_out["examples"] >= 20:  # fewer tell nothing
                print_text(f"note: {finding.said}: {finding.remedy}")
        print_text(f"peak memory: {model.metrics['peak_memory'] / 1e9:.2f} GB")
        print_text(f"model: {model.path}\nuse it: {program()} predict {model.path}{model.task.ask}")
    if trained.stopped:
        print(
            f"stopped at step {trained.step:,}; go on with: {program()} train --resume --out {model.path}",
            file=sys.stderr,
        )
        raise typer.Exit(INTERRUPTED)


def predict(
    model: ModelPath,
    text: Annotated[
        list[str] | None, typer.Argument(help="what to answer; a forecaster's series. None: the lines of --input")
    ] = None,
    source: Annotated[str, typer.Option("--input", "-i", help="file of lines; - is standard input")] = "-",
    greedy: Annotated[bool, typer.Option("--greedy", help="always the likeliest token")] = False,
    temperature: Annotated[float | None, typer.Option(help="sample; below 1 is safer, above 1 wilder")] = None,
    top_k: Annotated[int | None, typer.Option(help="sample among the k likeliest tokens")] = None,
    top_p: Annotated[float | None, typer.Option(help="sample among the likeliest tokens of mass p")] = None,
    beam: Annotated[int | None, typer.Option(help="beam search with this many hypotheses")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="beam: 0 ranks by the sum, 1 by the mean")] = None,
    no_repeat: Annotated[int | None, typer.Option(help="beam: no n-gram of this length twice")] = None,
    min_length: Annotated[int | None, typer.Option(help="beam: shortest answer, in tokens")] = None,
    max_length: Annotated[int | None, typer.Option(help="longest answer, in tokens")] = None,
    prefix: Annotated[str, typer.Option(help="what each translation must begin with")] = "",
    seed: Annotated[int, typer.Option(help="another seed, another sample")] = 0,
    int8: Int8 = False,
    stream: Annotated[bool, typer.Option("--stream", help="lm: show each token as it is chosen")] = False,
    embed: Annotated[bool, typer.Option("--embed", help="a vector for each line, as JSON, or into --out")] = False,
    normalise: Annotated[bool, typer.Option("--normalise", help="with --embed: vectors of length one")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="file of a forecast; with --embed, a .npy or .jsonl")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="picture of a forecast: .svg, .png or .html")] = None,
    threads: Threads = None,
    device: Device = "cpu",
    workers: Workers = 1,
    json: Annotated[bool, typer.Option("--json", help="one JSON object a line, with probabilities")] = False,
) -> None:
    """Use a model: a line in, a line out, same count and order.

    seqlab predict en-fr "Where is the train station?"

    seqlab predict runs/pairs --input lines.txt > answers.txt

    seqlab predict runs/sales sales.csv --out forecast.csv
    """
    from seqlab import lab
    from seqlab.errors import UsageError

    use_threads(threads)
    use_device(device)
    with lab.joined(workers) as world:
        loaded = lab.load(model, int8=int8, world=world)
        series = not loaded.bundle.codec.source.by_line and not embed and not stream
        if (series or stream) and not world.leads:
            return  # there is nothing to share
        if series:
            _forecast(loaded, text or [source], out, json=json)
            if plot is not None:
                loaded.explain((text or [source])[0], "band").save(plot)
            return
        if plot is not None:
            raise UsageError("--plot draws a forecast", hint="`seqlab explain` draws other models.")
        if out is not None and not embed:
            raise UsageError(
                "--out is where --embed puts its vectors, and a forecast its rows",
                hint="answers are printed: > FILE keeps them.",
            )
        decode: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "max_length": max_length}
        decode |= {"beam": beam, "length_penalty": length_penalty, "no_repeat": no_repeat, "min_length": min_length}
        if greedy:
            decode["method"] = "greedy"
        if stream:
            for piece in loaded.stream(" ".join(text or ()), seed=seed, **decode):
                print(piece, end="", flush=True)
            print()
            return
        if embed:
            _embed(loaded, list(text) if text else [*chain(*world.each(_blocks(source)))], out, normalise)
            return
        decode["prefix"] = prefix
        if text:
            if loaded.recipe.source.kind != "vectors" and len(text) == 1 and isfile(text[0]) and world.leads:
                print(f"note: this answers the text '{text[0]}'; for the lines of that file: --input", file=sys.stderr)
            for answer in loaded.predict(list(text), seed=seed, **decode):
                if world.leads:
                    print(_as_line(answer) if json else answer.output)
            return
        row = 0
        for block in world.each(_blocks(source, world.size)):
            for answer in loaded.predict(block, seed=seed, first_row=row, **decode):
                if world.leads:
                    print(_as_line(answer) if json else answer.output.replace("\n", "\\n"))
            sys.stdout.flush()
            row += len(block)


def evaluate(
    model: ModelPath,
    data: Annotated[
        list[str] | None, typer.Argument(help="file(s) with known answers; none: what was held out")
    ] = None,
    errors: Annotated[int, typer.Option(min=0, max=10, help="how many mistakes to show")] = 3,
    beam: Annotated[int | None, typer.Option(help="translate by beam search with this many hypotheses")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="beam: 0 ranks by the sum, 1 by the mean")] = None,
    lower: Annotated[bool, typer.Option("--lower", help="score translations without regard to case")] = False,
    int8: Int8 = False,
    page: Annotated[Path | None, typer.Option("--report", help="captions: an HTML page of twenty pictures")] = None,
    threads: Threads = None,
    device: Device = "cpu",
    workers: Workers = 1,
    json: Json = False,
) -> None:
    """Score a model on data with known answers, beside its floor.

    The floor is what needs no model: the majority class, a copy of the input, last season's value.

    seqlab evaluate runs/reviews test.tsv
    """
    from seqlab import lab

    use_threads(threads)
    use_device(device)
    with lab.joined(workers) as world:
        loaded = lab.load(model, int8=int8, world=world)
        report = loaded.evaluate(*(data or ()), lower=lower, beam=beam, length_penalty=length_penalty)
    if not world.leads:
        return
    if page is not None:
        _write_page(loaded, report, page)
    if json:
        print_json(report.to_json() | {"mistakes": list(report.examples)})
        return
    print_scores(report.to_json(), title=f"{loaded.recipe.name} on {report.num_examples:,} {report.unit}")
    if report.by_length:
        from seqlab.metrics.scores import figure

        rows = [
            [n, f"{r['examples']:,}", figure("exact", r["exact"]), f"{r['bleu']:.1f}"]
            for n, r in report.by_length.items()
        ]
        print_table(["source tokens", "examples", "exact", "bleu"], rows, title="by length of the source")
    mistakes = [[m["input"], m["output"], m["expected"]] for m in report.examples[:errors]]
    if mistakes:
        print_table(["input", "answer", "expected"], mistakes, title="some mistakes")


# in the order in which one meets them, which is that of --help
VERBS: list[Callable[..., None]] = [train, predict, evaluate, explain, compare, doctor, check, serve, info]
VERBS += [export, recipes, import_model, demo, claims, kernels]
for verb in VERBS:
    app.command(verb.__name__.removesuffix("_model"))(reports_errors(verb))


def _blocks(source: str, workers: int = 1) -> Any:
    """Lines of a file in blocks that are decoded together; a person at a terminal is answered line by line."""
    from itertools import islice

    from seqlab.data.lines import numbered_lines

    size = 1
    if source != "-" or not sys.stdin.isatty():
        size = 2000 * workers
    elif sys.stderr.isatty():
        print("type a line; Ctrl-D ends", file=sys.stderr)
    lines = (text for _, text in numbered_lines(source))
    return iter(lambda: list(islice(lines, size)), [])


def _forecast(loaded: Any, files: list[str], out: Path | None, *, json: bool) -> None:
    """What comes after the last row of a file, as CSV, or as one JSON document."""
    from json import dumps

    from seqlab.errors import UsageError

    if len(files) != 1:
        raise UsageError("a forecaster goes on with one series at a time", hint="give one file.")
    answer = loaded.predict(files[0])
    written = dumps(answer.to_json(), ensure_ascii=False) + "\n" if json else answer.to_csv()
    if out is None:
        print(written, end="")
    else:
        out.write_text(written, "utf-8")


def _embed(loaded: Any, texts: list[str], out: Path | None, normalise: bool) -> None:
    """One vector a line: JSON on stdout or in a .jsonl, or all of them in one .npy."""
    import json

    import numpy as np

    from seqlab.errors import UsageError

    if out is not None and out.suffix not in (".npy", ".jsonl"):
        raise UsageError(
            f"{out}: vectors go into a .npy or a .jsonl file", hint="name the file so, or leave out --out."
        )
    vectors = loaded.embed(texts, normalise=normalise)
    if not loaded.world.leads:
        return
    if out is not None and out.suffix == ".npy":
        np.save(out, vectors)
        return
    rows = (
        json.dumps({"input": t, "vector": v.tolist()}, ensure_ascii=False) for t, v in zip(texts, vectors, strict=True)
    )
    if out is None:
        for row in rows:
            print(row)
    else:
        out.write_text("".join(f"{row}\n" for row in rows), "utf-8")


def _write_page(loaded: Any, report: Any, page: Path) -> None:
    from seqlab.errors import UsageError

    if report.page is None:
        raise UsageError("--report shows pictures with their captions", hint="it is for 'caption' models of pictures.")
    page.write_text(report.page(f"{loaded.recipe.name} on {report.num_examples:,} pictures"), "utf-8")


def _as_line(answer: Any) -> str:
    import json

    return json.dumps({"input": answer.input, "output": answer.output, **answer.details}, ensure_ascii=False)
