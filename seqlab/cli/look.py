"""`seqlab explain`, `check` and `doctor`: looking into a model."""

from pathlib import Path

import typer
from typer import Argument, Option

from seqlab.cli.command import MODEL, Json, ModelPath, Threads, print_json, print_table, print_text, use_threads

# what `explain` is told besides the options of a view
NO_OPTIONS = ("model", "text", "view", "out", "names", "trace", "threads", "json")


def explain(
    model: Path | None = Argument(None, help=MODEL),
    text: str | None = Argument(None, help="what the model is to work on"),
    view: str | None = Option(None, "--view", "-v", help="what to look at; --list names all"),
    out: Path | None = Option(None, "--out", "-o", help="a file: .html, .svg, .png or .json"),
    names: bool = Option(False, "--list", help="the views there are"),
    output: str | None = Option(None, help="look at this answer instead of the model's own"),
    layer: str | None = Option(None, help="a layer or stage by its name"),
    cell: str | None = Option(None, help="number: which of a stage's numbers, as 0,2,5"),
    head: int | None = Option(None, min=1, help="attention: one head"),
    hypothesis: int | None = Option(None, min=1, help="attention: the n-th best of a beam"),
    position: int | None = Option(None, min=1, help="which part of the answer, counted from 1"),
    unit: int | None = Option(None, min=0, help="cells: one unit"),
    pattern: str | None = Option(None, help="cells: a regular expression to follow"),
    method: str | None = Option(None, help="saliency: integrated, gradient or leave-one-out"),
    ablate: list[str] | None = Option(None, help="what-if: silence NAME or NAME:3,4"),
    replace: str | None = Option(None, help="what-if: another word, as PLACE=WORD"),
    prefix: str | None = Option(None, help="what-if: what the answer must begin with"),
    temperature: float | None = Option(None, help="what-if: sample at this temperature"),
    beam: int | None = Option(None, min=1, help="beam: how many hypotheses"),
    length_penalty: float | None = Option(None, help="beam: 0 ranks by the sum, 1 by the mean"),
    replay_beam: int | None = Option(None, min=1, help="beam: search the tree again, this wide"),
    replay_penalty: float | None = Option(None, help="beam: rank the tree again"),
    column: str | None = Option(None, help="band: which column of the series"),
    trace: Path | None = Option(None, help="write everything that was recorded, .safetensors"),
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Look into a model at work.

    seqlab explain dates "samedi 3 mai 1997"

    seqlab explain runs/pairs "samedi 3 mai 1997" --view beam --out tree.html
    """
    options = {name: value for name, value in locals().items() if name not in NO_OPTIONS and value is not None}

    import seqlab.lab as lab
    from seqlab.errors import UsageError
    from seqlab.explain.views import VIEWS

    if names:
        print_table(["view", "what it shows"], [[n, str(v.__doc__).split("\n")[0]] for n, v in VIEWS.items()])
        return
    if model is None:
        raise UsageError("which model?", hint="give the directory of a trained one, then what it is to work on.")
    use_threads(threads)
    loaded = lab.load(model)
    picture = loaded.explain(text, view, **options)
    if trace is not None:
        from seqlab.tasks import subject

        subject(loaded.bundle, text or "").trace().save(trace)
    if json:
        print(picture.to_json())
    elif out is not None:
        picture.save(out)
        print_text(f"{picture.name}: {out}")
    else:
        picture.show()


def check(
    model: ModelPath,
    data: list[str] | None = Argument(None, help="file(s) of examples; none: what was held out"),
    resume: bool = Option(False, "--resume", help="stop and resume a copy of its run instead"),
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
        checks = list(laws_of(loaded.bundle.model, loaded.some_batch(*(data or ()))))
    if json:
        print_json([{"law": c.law, "difference": c.difference, "allowed": c.allowed, "kept": c.kept} for c in checks])
    else:
        rows = [["kept" if c.kept else "BROKEN", c.law, f"{c.difference:.2g}"] for c in checks]
        print_table(["", "law", "largest difference"], rows, title=f"laws on {loaded.recipe.name}")
    if not all(c.kept for c in checks):
        raise typer.Exit(1)


def doctor(
    model: ModelPath,
    data: list[str] | None = Argument(None, help="file(s) with known answers; none: held out"),
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
