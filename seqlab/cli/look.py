"""`seqlab explain`, `check` and `doctor`: looking into a model."""

from pathlib import Path
from typing import Annotated, Any

import typer

from seqlab.cli.command import MODEL, Json, ModelPath, Threads, print_json, print_table, print_text, use_threads


def explain(
    model: Annotated[Path | None, typer.Argument(help=MODEL)] = None,
    text: Annotated[str | None, typer.Argument(help="what the model is to work on")] = None,
    view: Annotated[str | None, typer.Option("--view", "-v", help="what to look at; --list names all")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="a file: .html, .svg, .png or .json")] = None,
    names: Annotated[bool, typer.Option("--list", help="the views there are")] = False,
    output: Annotated[str | None, typer.Option(help="look at this answer instead of the model's own")] = None,
    layer: Annotated[str | None, typer.Option(help="a layer or stage by its name")] = None,
    cell: Annotated[str | None, typer.Option(help="number: which of a stage's numbers, as 0,2,5")] = None,
    head: Annotated[int | None, typer.Option(min=1, help="attention: one head")] = None,
    hypothesis: Annotated[int | None, typer.Option(min=1, help="attention: the n-th best of a beam")] = None,
    position: Annotated[int | None, typer.Option(min=1, help="which part of the answer, counted from 1")] = None,
    unit: Annotated[int | None, typer.Option(min=0, help="cells: one unit")] = None,
    pattern: Annotated[str | None, typer.Option(help="cells: a regular expression to follow")] = None,
    method: Annotated[str | None, typer.Option(help="saliency: integrated, gradient or leave-one-out")] = None,
    ablate: Annotated[list[str] | None, typer.Option(help="what-if: silence NAME or NAME:3,4")] = None,
    replace: Annotated[str | None, typer.Option(help="what-if: another word, as PLACE=WORD")] = None,
    prefix: Annotated[str | None, typer.Option(help="what-if: what the answer must begin with")] = None,
    temperature: Annotated[float | None, typer.Option(help="what-if: sample at this temperature")] = None,
    beam: Annotated[int | None, typer.Option(min=1, help="beam: how many hypotheses")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="beam: 0 ranks by the sum, 1 by the mean")] = None,
    replay_beam: Annotated[int | None, typer.Option(min=1, help="beam: search the tree again, this wide")] = None,
    replay_penalty: Annotated[float | None, typer.Option(help="beam: rank the tree again")] = None,
    column: Annotated[str | None, typer.Option(help="band: which column of the series")] = None,
    trace: Annotated[Path | None, typer.Option(help="write everything that was recorded, .safetensors")] = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Look into a model at work.

    seqlab explain dates "samedi 3 mai 1997"

    seqlab explain runs/pairs "samedi 3 mai 1997" --view beam --out tree.html
    """
    import seqlab.lab as lab
    from seqlab.errors import UsageError
    from seqlab.explain.views import VIEWS

    if names:
        print_table(["view", "what it shows"], [[n, str(v.__doc__).split("\n")[0]] for n, v in VIEWS.items()])
        return
    if model is None:
        raise UsageError("which model?", hint="give the directory of a trained one, then what it is to work on.")
    use_threads(threads)
    given: dict[str, Any] = {
        "output": output, "layer": layer, "cell": cell, "head": head, "hypothesis": hypothesis, "position": position,
        "unit": unit, "pattern": pattern, "method": method, "ablate": ablate, "replace": replace, "prefix": prefix,
        "temperature": temperature, "beam": beam, "length_penalty": length_penalty, "replay_beam": replay_beam,
        "replay_penalty": replay_penalty, "column": column,
    }  # fmt: skip
    loaded = lab.load(model)
    seen = loaded.explain(text, view, **{name: value for name, value in given.items() if value is not None})
    if trace is not None:
        from seqlab.tasks import subject

        subject(loaded.bundle, text or "").trace().save(trace)
    if json:
        print(seen.to_json())
    elif out is not None:
        seen.save(out)
        print_text(f"{seen.name}: {out}")
    else:
        seen.show()


def check(
    model: ModelPath,
    data: Annotated[list[str] | None, typer.Argument(help="file(s) of examples; none: what was held out")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="stop and resume a copy of its run instead")] = False,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Hold a model against the laws that every model must keep.

    Padding, batching, caching, searching and looking must change nothing.

    With --resume: on copies of its run, stopping and resuming must equal never having stopped, bit for bit.
    """
    import seqlab.lab as lab
    from seqlab.laws import Check, resuming_equals_never_having_stopped
    from seqlab.laws import check as laws_of

    use_threads(threads)
    loaded = lab.load(model)
    if resume:
        apart = resuming_equals_never_having_stopped(model)
        checks = [Check("resuming equals never having stopped", apart, 0.0)]
    else:
        checks = list(laws_of(loaded.bundle.model, loaded.some_batch(*(data or ()))))  # type: ignore[arg-type]
    if json:
        print_json([{"law": c.law, "difference": c.difference, "allowed": c.allowed, "kept": c.kept} for c in checks])
    else:
        rows = [["kept" if c.kept else "BROKEN", c.law, f"{c.difference:.2g}"] for c in checks]
        print_table(["", "law", "largest difference"], rows, title=f"laws on {loaded.recipe.name}")
    if not all(c.kept for c in checks):
        raise typer.Exit(1)


def doctor(
    model: ModelPath,
    data: Annotated[list[str] | None, typer.Argument(help="file(s) with known answers; none: held out")] = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Is a model well: does it use its input, end, and beat its floor?"""
    import seqlab.lab as lab
    from seqlab.doctor import examine

    use_threads(threads)
    findings = examine(lab.load(model), list(data or ()))
    if json:
        print_json([vars(finding) for finding in findings])
        return
    rows = [["well" if f.well else "LOOK", f.question, f.said + ("" if f.well else f". {f.remedy}")] for f in findings]
    print_table(["", "question", "answer"], rows)
