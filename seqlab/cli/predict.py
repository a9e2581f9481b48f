"""`seqlab predict`: answers, vectors and forecasts."""

import json
import sys
from collections.abc import Iterator
from itertools import chain, islice
from os.path import isfile
from pathlib import Path
from typing import Any

from typer import Argument, Option

from seqlab.cli.command import Device, Int8, ModelPath, Threads, Workers, with_flags
from seqlab.errors import UsageError
from seqlab.machine import use_device, use_threads
from seqlab.options import DecodeOptions

BLOCK = 2000  # lines that are decoded together


@with_flags(DecodeOptions, check_ranges=False)  # the section [decode] of the recipe checks them
def predict(
    model: ModelPath,
    text: list[str] | None = Argument(
        None,
        metavar="INPUT",
        help="input text(s); for a forecaster, the file of a series",
        show_default="the lines of --input",
    ),
    source: str = Option(
        "-",
        "--input",
        "-i",
        metavar="FILE",
        help="file with one input a line; - is standard input",
    ),
    greedy: bool = Option(False, "--greedy", help="the same as --method greedy"),
    prefix: str = Option("", help="translate: text that each answer must begin with"),
    seed: int = Option(0, help="seed of sampling"),
    int8: Int8 = False,
    stream: bool = Option(False, "--stream", help="print each token as soon as it is generated"),
    embed: bool = Option(
        False, "--embed", help="print a vector for each input as JSON, or write all to --out"
    ),
    normalise: bool = Option(False, "--normalise", help="with --embed: vectors of length 1"),
    out: Path | None = Option(
        None,
        "--out",
        "-o",
        help="file to write a forecast to (.csv), or the vectors of --embed (.npy or .jsonl)",
        show_default="stdout",
    ),
    plot: Path | None = Option(
        None, help="also draw the forecast into this file: .svg, .png or .html"
    ),
    threads: Threads = None,
    device: Device = "cpu",
    workers: Workers = 1,
    json: bool = Option(
        False, "--json", help="print one JSON object for each input, with probabilities"
    ),
    **decode: Any,
) -> None:
    """Apply a model: one answer per input line, in the same order.

    Decoding options from --method on default to [decode] of the model's recipe.

    Examples:
      seqlab predict en-fr "Where is the train station?"
      seqlab predict runs/pairs --input lines.txt > answers.txt
      seqlab predict runs/sales sales.csv --out forecast.csv

    Next:
      seqlab explain en-fr "Where is the train station?"
    """
    import seqlab.lab as lab

    use_threads(threads)
    use_device(device)
    text = None if text == ["-"] else text
    if greedy:
        decode["method"] = "greedy"
    with lab.worker_group(workers) as world:
        loaded = lab.load(model, int8=int8, world=world)
        forecasts = not loaded.bundle.codec.source.by_line and not embed and not stream
        if (forecasts or stream) and not world.leads:
            return  # this work cannot be divided
        if forecasts:
            _forecast(loaded, text or [source], out, plot, json=json)
            return
        _check_files(out, plot, embed=embed)
        if embed:
            _embed(loaded, text or [*chain(*world.broadcast_each(_blocks(source)))], out, normalise)
        elif stream:
            _stream(loaded, " ".join(text or ()), seed, decode)
        elif text:
            if world.leads:
                _note_file_name(loaded, text)
            _answer(loaded, [text], json=json, escape=False, seed=seed, prefix=prefix, **decode)
        else:
            blocks = world.broadcast_each(_blocks(source, world.size))
            _answer(loaded, blocks, json=json, escape=True, seed=seed, prefix=prefix, **decode)


def _check_files(out: Path | None, plot: Path | None, *, embed: bool) -> None:
    """Raise a UsageError for a file that an answer in text is not written to."""
    if plot is not None:
        raise UsageError(
            "--plot is only for forecasters",
            hint="`seqlab explain MODEL INPUT --out FILE` draws other models.",
        )
    if out is not None and not embed:
        raise UsageError(
            "--out is only for forecasts and for vectors (--embed)",
            hint="answers are printed; write them to a file with > FILE.",
        )


def _note_file_name(loaded: Any, text: list[str]) -> None:
    """Print a note if the input text is the name of a file, whose lines may have been meant."""
    if len(text) == 1 and isfile(text[0]) and loaded.recipe.source.kind != "vectors":
        print(
            f"note: this is the answer to the text '{text[0]}'; to read the lines of that file, use --input",
            file=sys.stderr,
        )


def _answer(loaded: Any, blocks: Any, *, json: bool, escape: bool, **options: Any) -> None:
    """Print the answer to each text of each block; with `escape`, a line break in an answer is printed as \\n."""
    row = 0
    for block in blocks:
        for answer in loaded.predict(block, first_row=row, **options):
            if not loaded.world.leads:
                continue
            if json:
                print(_as_json(input=answer.input, output=answer.output, **answer.details))
                continue
            line = "\t".join(answer.details.get("labels", [answer.output]))
            print(line.replace("\n", "\\n") if escape else line)
        sys.stdout.flush()
        row += len(block)


def _stream(loaded: Any, text: str, seed: int, decode: dict[str, Any]) -> None:
    """Print an answer piece by piece, while it is generated."""
    for piece in loaded.stream(text, seed=seed, **decode):
        print(piece, end="", flush=True)
    print()


def _blocks(source: str, workers: int = 1) -> Iterator[list[str]]:
    """Yield the lines of a file in blocks that are decoded together; of a terminal, single lines."""
    from seqlab.data.lines import numbered_lines

    size = 1
    if source != "-" or not sys.stdin.isatty():
        size = BLOCK * workers
    elif sys.stderr.isatty():
        print("type a line and press Enter; Ctrl-D ends", file=sys.stderr)
    lines = (text for _, text in numbered_lines(source))
    return iter(lambda: list(islice(lines, size)), [])


def _forecast(
    loaded: Any, files: list[str], out: Path | None, plot: Path | None, *, json: bool
) -> None:
    """Write the forecast that follows the last row of a file, as CSV or as one JSON document."""
    if len(files) != 1:
        raise UsageError(
            f"a forecaster reads one series, not {len(files)}", hint="name one file at a time."
        )
    answer = loaded.predict(files[0])
    _write(_as_json(**answer.to_json()) + "\n" if json else answer.to_csv(), out)
    if plot is not None:
        loaded.explain(files[0], "band").save(plot)


def _embed(loaded: Any, texts: list[str], out: Path | None, normalise: bool) -> None:
    """Write one vector for each text: JSON lines, or a matrix if the file ends in .npy."""
    import numpy as np

    if out is not None and out.suffix not in (".npy", ".jsonl"):
        raise UsageError(
            f"{out}: vectors are written as .npy or .jsonl",
            hint="use one of these endings, or leave out --out to print them.",
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
    """Return one line of JSON."""
    return json.dumps(values, ensure_ascii=False)
