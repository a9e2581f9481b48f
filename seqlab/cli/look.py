"""`seqlab explain`, `check` and `doctor`: looking into a model."""

from functools import partial
from pathlib import Path
from typing import Any

import typer
from typer import Argument, Option

from seqlab.cli.command import (
    MODEL,
    Json,
    ModelPath,
    Threads,
    print_json,
    print_table,
    print_text,
    with_flags,
)
from seqlab.machine import use_threads
from seqlab.options import ExplainOptions


@partial(with_flags, options=ExplainOptions)
def explain(
    model: Path | None = Argument(None, help=MODEL),
    text: str | None = Argument(None, help="what the model is to work on"),
    view: str | None = Option(None, "--view", "-v", help="what to look at; --list names all"),
    out: Path | None = Option(None, "--out", "-o", help="a file: .html, .svg, .png or .json"),
    names: bool = Option(False, "--list", help="the views there are"),
    trace: Path | None = Option(None, help="write everything that was recorded, .safetensors"),
    threads: Threads = None,
    json: Json = False,
    **options: Any,
) -> None:
    """Look into a model at work.

    seqlab explain dates "samedi 3 mai 1997"

    seqlab explain runs/pairs "samedi 3 mai 1997" --view beam --out tree.html
    """
    import seqlab.lab as lab
    from seqlab.errors import UsageError
    from seqlab.explain.views import VIEWS

    if names:
        print_table(
            ["view", "what it shows"],
            [[n, str(v.__doc__).split("\n")[0]] for n, v in VIEWS.items()],
        )
        return
    if model is None:
        raise UsageError(
            "which model?", hint="give the directory of a trained one, then what it is to work on."
        )
    use_threads(threads)
    loaded = lab.load(model)
    picture = loaded.explain(
        text, view, **{name: value for name, value in options.items() if value is not None}
    )
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
        print_json(
            [
                {"law": c.law, "difference": c.difference, "allowed": c.allowed, "kept": c.kept}
                for c in checks
            ]
        )
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
    """Does a model use its input, end, and beat its baseline?"""
    import seqlab.lab as lab
    from seqlab.doctor import examine

    use_threads(threads)
    findings = examine(lab.load(model), list(data or ()))
    if json:
        print_json([vars(finding) for finding in findings])
        return
    rows = [
        ["well" if f.well else "LOOK", f.question, f.answer + ("" if f.well else f". {f.remedy}")]
        for f in findings
    ]
    print_table(["", "question", "answer"], rows)
