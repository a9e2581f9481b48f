"""`seqlab predict`: answers, vectors and forecasts."""

import json
import sys
from collections.abc import Iterator
from functools import partial
from itertools import chain, islice
from os.path import isfile
from pathlib import Path
from typing import Any

from typer import Argument, Option

from seqlab.cli.command import Device, Int8, ModelPath, Threads, Workers, with_flags
from seqlab.errors import UsageError
from seqlab.machine import use_device, use_threads
from seqlab.options import DecodeOptions


@partial(
    with_flags, options=DecodeOptions, ranges=False
)  # [decode] of the recipe refuses what is out of range
def predict(
    model: ModelPath,
    text: list[str] | None = Argument(
        None, help="what to answer; a forecaster's series. None, or -: the lines of --input"
    ),
    source: str = Option("-", "--input", "-i", help="file of lines; - is standard input"),
    greedy: bool = Option(False, "--greedy", help="always the likeliest token"),
    prefix: str = Option("", help="what each translation must begin with"),
    seed: int = Option(0, help="another seed, another sample"),
    int8: Int8 = False,
    stream: bool = Option(False, "--stream", help="lm: show each token as it is chosen"),
    embed: bool = Option(False, "--embed", help="a vector for each line, as JSON, or into --out"),
    normalise: bool = Option(False, "--normalise", help="with --embed: vectors of length one"),
    out: Path | None = Option(
        None, "--out", "-o", help="file of a forecast; with --embed, a .npy or .jsonl"
    ),
    plot: Path | None = Option(None, help="picture of a forecast: .svg, .png or .html"),
    threads: Threads = None,
    device: Device = "cpu",
    workers: Workers = 1,
    json: bool = Option(False, "--json", help="one JSON object a line, with probabilities"),
    **decode: Any,
) -> None:
    """Use a model: a line in, a line out, same count and order.

    seqlab predict en-fr "Where is the train station?"

    seqlab predict runs/pairs --input lines.txt > answers.txt

    seqlab predict runs/sales sales.csv --out forecast.csv
    """
    import seqlab.lab as lab

    use_threads(threads)
    use_device(device)
    text = None if text == ["-"] else text
    with lab.worker_group(workers) as world:
        loaded = lab.load(model, int8=int8, world=world)
        forecasts = not loaded.bundle.codec.source.by_line and not embed and not stream
        if (forecasts or stream) and not world.leads:
            return  # there is nothing to share
        if forecasts:
            _forecast(loaded, text or [source], out, plot, json=json)
            return
        if plot is not None:
            raise UsageError("--plot draws a forecast", hint="`seqlab explain` draws other models.")
        if out is not None and not embed:
            raise UsageError(
                "--out is where --embed puts its vectors, and a forecast its rows",
                hint="answers are printed: > FILE keeps them.",
            )
        if embed:
            _embed(loaded, text or [*chain(*world.broadcast_each(_blocks(source)))], out, normalise)
            return
        if greedy:
            decode["method"] = "greedy"
        if stream:
            for piece in loaded.stream(" ".join(text or ()), seed=seed, **decode):
                print(piece, end="", flush=True)
            print()
            return
        if (
            text
            and loaded.recipe.source.kind != "vectors"
            and len(text) == 1
            and isfile(text[0])
            and world.leads
        ):
            print(
                f"note: this answers the text '{text[0]}'; for the lines of that file: --input",
                file=sys.stderr,
            )
        row = 0
        for block in [text] if text else world.broadcast_each(_blocks(source, world.size)):
            for answer in loaded.predict(block, seed=seed, first_row=row, prefix=prefix, **decode):
                if world.leads:
                    output = "\t".join(answer.details.get("labels", [answer.output]))
                    line = output if text else output.replace("\n", "\\n")
                    print(
                        _as_json(input=answer.input, output=answer.output, **answer.details)
                        if json
                        else line
                    )
            sys.stdout.flush()
            row += len(block)


def _blocks(source: str, workers: int = 1) -> Iterator[list[str]]:
    """Lines of a file in blocks that are decoded together; a person at a terminal is answered line by line."""
    from seqlab.data.lines import numbered_lines

    size = 1
    if source != "-" or not sys.stdin.isatty():
        size = 2000 * workers
    elif sys.stderr.isatty():
        print("type a line; Ctrl-D ends", file=sys.stderr)
    lines = (text for _, text in numbered_lines(source))
    return iter(lambda: list(islice(lines, size)), [])


def _forecast(
    loaded: Any, files: list[str], out: Path | None, plot: Path | None, *, json: bool
) -> None:
    """What comes after the last row of a file, as CSV, or as one JSON document."""
    if len(files) != 1:
        raise UsageError("a forecaster goes on with one series at a time", hint="give one file.")
    answer = loaded.predict(files[0])
    _write(_as_json(**answer.to_json()) + "\n" if json else answer.to_csv(), out)
    if plot is not None:
        loaded.explain(files[0], "band").save(plot)


def _embed(loaded: Any, texts: list[str], out: Path | None, normalise: bool) -> None:
    """One vector a line: JSON on stdout or in a .jsonl, or all of them in one .npy."""
    import numpy as np

    if out is not None and out.suffix not in (".npy", ".jsonl"):
        raise UsageError(
            f"{out}: vectors go into a .npy or a .jsonl file",
            hint="name the file so, or leave out --out.",
        )
    vectors = loaded.embed(texts, normalise=normalise)
    if not loaded.world.leads:
        return
    if out is not None and out.suffix == ".npy":
        np.save(out, vectors)
        return
    rows = [
        _as_json(input=text, vector=vector.tolist())
        for text, vector in zip(texts, vectors, strict=True)
    ]
    _write("".join(f"{row}\n" for row in rows), out)


def _write(text: str, out: Path | None) -> None:
    if out is None:
        print(text, end="")
    else:
        out.write_text(text, "utf-8")


def _as_json(**values: Any) -> str:
    """One line."""
    return json.dumps(values, ensure_ascii=False)
