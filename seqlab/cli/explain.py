"""`seqlab explain`, `check` and `doctor`: look into a model and examine it."""

from pathlib import Path
from typing import Any

import typer
from typer import Argument, Option

from seqlab.cli.command import MODEL, Json, ModelPath, Threads, with_flags
from seqlab.cli.output import print_json, print_table, print_text
from seqlab.machine import use_threads
from seqlab.options import ExplainOptions


@with_flags(ExplainOptions)
def explain(
    model: Path | None = Argument(None, metavar="MODEL", help=MODEL),
    text: str | None = Argument(
        None, metavar="INPUT", help="input of the model: a text, or a file of a series or an image"
    ),
    view: str | None = Option(
        None,
        "--view",
        "-v",
        help="what to show; --list prints all views",
        show_default="the first view of the model's task",
    ),
    out: Path | None = Option(
        None,
        "--out",
        "-o",
        help="file to write: .html, .svg, .png or .json",
        show_default="print to the terminal",
    ),
    names: bool = Option(False, "--list", help="list the views"),
    trace: Path | None = Option(
        None, help="also write all recorded tensors to this .safetensors file"
    ),
    threads: Threads = None,
    json: Json = False,
    **options: Any,
) -> None:
    """Show what a model computes for one input.

    An option that begins with the name of a view, like "attention:", belongs to that view.

    Examples:
      seqlab explain dates "samedi 3 mai 1997"
      seqlab explain runs/pairs "samedi 3 mai 1997" --view beam --out tree.html

    Next:
      seqlab explain --list
    """
    import seqlab.lab as lab
    from seqlab.errors import UsageError
    from seqlab.explain.views import VIEWS

    if names:
        rows = [[name, str(view.__doc__).split("\n")[0]] for name, view in VIEWS.items()]
        print_table(["view", "what it shows"], rows)
        return
    if model is None:
        raise UsageError(
            "no model is named",
            hint='give a model and an input, for example: seqlab explain dates "3 mai 1997"',
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
    data: list[str] | None = Argument(
        None, metavar="FILE", help="file(s) of examples", show_default="the held-out part"
    ),
    resume: bool = Option(
        False, "--resume", help="test instead that a copy of its run can be stopped and resumed"
    ),
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Test the laws that every model must keep.

    Padding, batching, caching and recording must not change an answer, and a search must report correct scores.
    With --resume: a run that is stopped and resumed must equal, bit for bit, one that was never stopped.

    Examples:
      seqlab check runs/pairs
      seqlab check runs/pairs --resume

    Next:
      seqlab doctor runs/pairs
    """
    import seqlab.lab as lab
    from seqlab.laws import Check, resuming_equals_never_having_stopped
    from seqlab.laws import check as check_laws

    use_threads(threads)
    loaded = lab.load(model)
    if resume:
        difference = resuming_equals_never_having_stopped(model)
        checks = [Check("resuming equals never having stopped", difference, 0.0)]
    else:
        checks = list(check_laws(loaded.bundle.model, loaded.some_batch(*(data or ()))))
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
    data: list[str] | None = Argument(
        None, metavar="FILE", help="file(s) with known answers", show_default="the held-out part"
    ),
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Check that a model uses its input and beats its baseline.

    It also checks that generation ends, that answers do not repeat themselves, and that the data is not training data.
    Each finding that is not "ok" comes with a remedy.

    Examples:
      seqlab doctor runs/pairs
      seqlab doctor runs/pairs test.tsv

    Next:
      seqlab evaluate runs/pairs
    """
    import seqlab.lab as lab
    from seqlab.doctor import examine

    use_threads(threads)
    findings = examine(lab.load(model), list(data or ()))
    if json:
        print_json([vars(finding) for finding in findings])
        return
    rows = []
    for finding in findings:
        if finding.well:
            rows.append(["ok", finding.question, finding.answer])
        else:
            rows.append(["CHECK", finding.question, f"{finding.answer}; {finding.remedy}"])
    print_table(["", "question", "answer"], rows)
