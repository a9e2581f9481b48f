"""`seqlab train` and `seqlab evaluate`."""

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer import Argument, Option

from seqlab.cli.command import (
    INTERRUPTED,
    Conformal,
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
    tasks_help,
)
from seqlab.cli.interrupt import Interrupt
from seqlab.cli.serving import served
from seqlab.errors import UsageError
from seqlab.machine import use_device, use_threads

if TYPE_CHECKING:
    from seqlab.lab import Model, Trained

FEW_TOKENS = 129  # a smaller batch is what somebody asks for who counts examples


def train(
    task: str = Argument("", help=tasks_help()),
    data: list[str] | None = Argument(None, help="file(s) to train on; - is standard input"),
    recipe: str | None = Option(
        None, "--recipe", "-r", help="a name or .toml file; none: the task's"
    ),
    valid: list[str] | None = Option(None, "--valid", help="file(s) to validate on"),
    out: Path | None = Option(None, "--out", "-o", help="directory; none: runs/TASK-FILE"),
    settings: list[str] | None = Option(None, "--set", "-s", help="override, like train.steps=500"),
    start: Path | None = Option(None, "--from", help="a trained model to begin with"),
    resume: bool = Option(False, "--resume", help="go on with the run in --out"),
    overwrite: bool = Option(False, "--overwrite", help="throw away the run in --out"),
    epochs: float | None = Option(None, help="how often to read the file: train.epochs"),
    steps: int | None = Option(None, help="how many steps to make: train.steps"),
    minutes: float | None = Option(
        None, help="how long it may take, scores included: train.minutes"
    ),
    batch: int | None = Option(
        None, help="tokens in a batch; of one long text, streams side by side"
    ),
    lr: float | None = Option(None, help="train.learning_rate"),
    watch: bool = Option(False, "--watch", help="serve a page with its curves while it trains"),
    score: bool = Option(
        False, "--score", help="score the model even if the training is interrupted"
    ),
    threads: Threads = None,
    device: Device = "cpu",
    quiet: bool = Option(False, "--quiet", "-q", help="no progress"),
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

    seqlab train classify few.tsv --from runs/mask-wiki
    """
    check_task(task, resume=resume, files=data or ())  # before torch is waited for

    lengths = {"epochs": epochs, "steps": steps, "minutes": minutes, "learning_rate": lr}
    chosen = [f"train.{name}={value}" for name, value in lengths.items() if value is not None] + (
        settings or []
    )
    interrupt = Interrupt(
        patient=score or "WORLD_SIZE" in os.environ
    )  # many processes can only stop together
    page = served() if watch else nullcontext(lambda folder: None)
    with interrupt.watching():
        import seqlab.lab as lab
        from seqlab.cli.progress import reporter

        use_device(device)
        if batch is not None:
            chosen.append(lab.batch_setting(batch, task or None, recipe, chosen))
            if batch < FEW_TOKENS and "tokens" in chosen[-1]:
                print(
                    f"note: --batch {batch} is a number of tokens, not of examples", file=sys.stderr
                )
        with page as begun:

            def runs(folder: Path) -> None:
                interrupt.begun(folder)
                begun(folder)

            trained = lab.train(
                task or None,
                data or (),
                valid=valid or (),
                recipe=recipe,
                settings=chosen,
                start=start,
                out=out,
                resume=resume,
                overwrite=overwrite,
                report=reporter(quiet=quiet),
                begun=runs,
                stop=interrupt,
                threads=threads,
                score_if_stopped=score,
            )
        if trained.leads:
            _show(trained, json=json)


def _show(trained: "Trained", *, json: bool) -> None:
    """Print what was trained, and how to go on with a training that was stopped."""
    model = trained.model
    if json:
        print_json({"path": str(model.path), "stopped": trained.stopped, **model.metrics})
    else:
        if trained.scored:
            _show_scores(model)
        print_text(
            f"model: {model.path}\nuse it: {program()} predict {model.path}{model.task.predict_arguments}"
        )
    if trained.stopped:
        print(
            f"stopped at step {trained.step:,}; go on with: {program()} train --resume --out {model.path}",
            file=sys.stderr,
        )
        raise typer.Exit(INTERRUPTED)


def _show_scores(model: "Model") -> None:
    from seqlab.held_out import compare_with_baseline
    from seqlab.metrics.scores import duration
    from seqlab.tasks.settings import HELD_OUT

    held_out = model.metrics["validation"]
    took = duration(model.metrics["seconds"])
    number, folds = held_out["examples"], held_out.get("folds")
    where = f"{number:,} held out" + (f" in {folds} folds" if folds else "")
    print_scores(held_out, title=f"{model.recipe.name} on {where}, {took} of training")
    if "fit" in model.metrics:
        print_fit(model.metrics["fit"])
    baselines, steps = held_out.get("baselines", {}), model.metrics["steps"]
    for finding in compare_with_baseline(
        model.task, held_out, baselines, recipe=model.recipe, steps=steps
    ):
        if not finding.well:
            print_text(f"note: {finding.answer}; {finding.remedy}", wrapped=True)
    if number < HELD_OUT:
        print_text(f"note: {number} held out tell little{_possible_scores(held_out)}", wrapped=True)
    if selection := model.metrics.get("selection"):
        print_text(selection["sentence"], wrapped=True)
        print_text(f"the other one: {model.path}/{selection['other']}")
    print_text(f"peak memory: {model.metrics['peak_memory'] / 1e9:.2f} GB")


def _possible_scores(held_out: dict[str, Any]) -> str:
    """What the score might have been with other examples, where there are enough to say."""
    from seqlab.metrics.scores import figure

    for name, (low, high) in held_out.get("interval", {}).items():
        limits = f"from {figure(name, low)} to {figure(name, high)}"
        return f": with as many others it may have {name.replace('_', ' ')} anywhere {limits}"
    return ""


def evaluate(
    model: ModelPath,
    data: list[str] | None = Argument(
        None, help="file(s) with known answers; none: what was held out"
    ),
    errors: int = Option(3, min=0, max=10, help="how many mistakes to show"),
    beam: int | None = Option(None, help="translate by beam search with this many hypotheses"),
    length_penalty: float | None = Option(None, help="beam: 0 ranks by the sum, 1 by the mean"),
    lower: bool = Option(False, "--lower", help="score translations without regard to case"),
    conformal: Conformal = None,
    int8: Int8 = False,
    page: Path | None = Option(None, "--report", help="captions: an HTML page of twenty pictures"),
    threads: Threads = None,
    device: Device = "cpu",
    workers: Workers = 1,
    json: Json = False,
) -> None:
    """Score a model on data with known answers, beside its baseline.

    The baseline is what needs no model: the majority class, a copy of the input, last season's value.

    seqlab evaluate runs/reviews test.tsv
    """
    import seqlab.lab as lab

    use_threads(threads)
    use_device(device)
    with lab.worker_group(workers) as world:
        loaded = lab.load(model, int8=int8, world=world)
        decode = {"beam": beam, "length_penalty": length_penalty, "conformal": conformal}
        report = loaded.evaluate(*(data or ()), lower=lower, **decode)
    if not world.leads:
        return
    if page is not None:
        _write_page(loaded, report, page)
    if json:
        print_json(report.to_json() | {"mistakes": list(report.examples)})
        return
    print_scores(
        report.to_json(), title=f"{loaded.recipe.name} on {report.num_examples:,} {report.unit}"
    )
    if report.by_length:
        from seqlab.metrics.scores import figure

        rows = [
            [n, f"{r['examples']:,}", figure("exact", r["exact"]), f"{r['bleu']:.1f}"]
            for n, r in report.by_length.items()
        ]
        print_table(
            ["source tokens", "examples", "exact", "bleu"], rows, title="by length of the source"
        )
    mistakes = [[m["input"], m["output"], m["expected"]] for m in report.examples[:errors]]
    if mistakes:
        print_table(["input", "answer", "expected"], mistakes, title="some mistakes")


def _write_page(loaded: Any, report: Any, page: Path) -> None:
    if report.page is None:
        raise UsageError(
            "--report shows pictures with their captions",
            hint="it is for 'caption' models of pictures.",
        )
    page.write_text(
        report.page(f"{loaded.recipe.name} on {report.num_examples:,} pictures"), "utf-8"
    )
