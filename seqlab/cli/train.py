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
    program,
    tasks_help,
)
from seqlab.cli.interrupt import Interrupt
from seqlab.cli.output import print_fit, print_json, print_scores, print_table, print_text
from seqlab.cli.serve import serve_training
from seqlab.errors import UsageError
from seqlab.machine import use_device, use_threads

if TYPE_CHECKING:
    from seqlab.lab import Model, Trained

MIN_BATCH_TOKENS = 129  # whoever asks for fewer tokens may have meant examples


def train(
    task: str = Argument("", metavar="TASK", help=tasks_help(), show_default=False),
    data: list[str] | None = Argument(
        None, metavar="FILE", help="file(s) to train on; - is standard input"
    ),
    recipe: str | None = Option(
        None,
        "--recipe",
        "-r",
        help="name of a recipe, or a .toml file",
        show_default="the better of the task's recipe and its baseline",
    ),
    valid: list[str] | None = Option(
        None, "--valid", metavar="FILE", help="validation file(s)", show_default="a part of FILE"
    ),
    out: Path | None = Option(
        None, "--out", "-o", help="directory to write to", show_default="runs/TASK-FILE"
    ),
    settings: list[str] | None = Option(
        None, "--set", "-s", metavar="KEY=VALUE", help="override a setting, like train.steps=500"
    ),
    start: Path | None = Option(
        None,
        "--from",
        metavar="MODEL",
        help="trained model to start from",
        show_default="random weights",
    ),
    resume: bool = Option(False, "--resume", help="continue the run in --out"),
    overwrite: bool = Option(False, "--overwrite", help="delete the run in --out and start again"),
    epochs: float | None = Option(None, help="number of passes over the file (train.epochs)"),
    steps: int | None = Option(None, help="number of steps (train.steps)"),
    minutes: float | None = Option(
        None, help="time limit, including the final scores (train.minutes)"
    ),
    batch: int | None = Option(
        None, help="tokens in a batch; for lm, number of parallel streams of text"
    ),
    lr: float | None = Option(None, help="learning rate (train.learning_rate)"),
    watch: bool = Option(False, "--watch", help="serve a web page with the curves while it trains"),
    score: bool = Option(False, "--score", help="compute the scores even if you interrupt it"),
    threads: Threads = None,
    device: Device = "cpu",
    quiet: bool = Option(False, "--quiet", "-q", help="print no progress"),
    json: Json = False,
) -> None:
    """Train a model on your file.

    Settings that neither a recipe nor an option names are chosen from the file and printed.

    Examples:
      seqlab train translate pairs.tsv      two columns, or two parallel files
      seqlab train classify reviews.tsv     a label and a text on each line
      seqlab train tag corpus.conllu        a word a line, then its tag
      seqlab train lm book.txt              plain text
      seqlab train mask wiki.txt            plain text, to fill in [MASK]
      seqlab train forecast series.csv      a column of times, columns of numbers
      seqlab train caption captions.tsv images.zip
      seqlab train classify few.tsv --from runs/mask-wiki

    Next:
      seqlab predict runs/translate-pairs "an input"
    """
    check_task(task, resume=resume, files=data or ())  # before the slow import of torch

    train_settings = {"epochs": epochs, "steps": steps, "minutes": minutes, "learning_rate": lr}
    overrides = [
        f"train.{name}={value}" for name, value in train_settings.items() if value is not None
    ]
    overrides += settings or []
    # several processes can only stop together, after a step
    interrupt = Interrupt(patient=score or "WORLD_SIZE" in os.environ)
    page = serve_training() if watch else nullcontext(lambda folder: None)
    with interrupt.watching():
        import seqlab.lab as lab
        from seqlab.cli.progress import reporter

        use_device(device)
        if batch is not None:
            overrides.append(lab.batch_setting(batch, task or None, recipe, overrides))
            if batch < MIN_BATCH_TOKENS and "tokens" in overrides[-1]:
                print(f"note: --batch {batch} counts tokens, not examples", file=sys.stderr)
        with page as serve_folder:

            def begun(folder: Path) -> None:
                interrupt.begun(folder)
                serve_folder(folder)

            trained = lab.train(
                task or None,
                data or (),
                valid=valid or (),
                recipe=recipe,
                settings=overrides,
                start=start,
                out=out,
                resume=resume,
                overwrite=overwrite,
                report=reporter(quiet=quiet),
                begun=begun,
                stop=interrupt,
                threads=threads,
                score_if_stopped=score,
            )
        if trained.leads:
            _print_trained(trained, json=json)


def _print_trained(trained: "Trained", *, json: bool) -> None:
    """Print the scores and the command to use the model, or to resume a run that was stopped."""
    model = trained.model
    if json:
        print_json({"path": str(model.path), "stopped": trained.stopped, **model.metrics})
    else:
        if trained.scored:
            _print_training_scores(model)
        print_text(
            f"model: {model.path}\nuse it: {program()} predict {model.path}{model.task.predict_arguments}"
        )
    if trained.stopped:
        print(
            f"stopped at step {trained.step:,}; to continue: {program()} train --resume --out {model.path}",
            file=sys.stderr,
        )
        raise typer.Exit(INTERRUPTED)


def _print_training_scores(model: "Model") -> None:
    """Print the held-out scores of a new model, and notes about how far they can be trusted."""
    from seqlab.held_out import compare_with_baseline
    from seqlab.metrics.scores import duration
    from seqlab.tasks.settings import HELD_OUT

    held_out = model.metrics["validation"]
    seconds = duration(model.metrics["seconds"])
    num_examples = held_out["examples"]
    part = f"{num_examples:,} held out"
    if folds := held_out.get("folds"):
        part += f" in {folds} folds"
    print_scores(held_out, title=f"{model.recipe.name} on {part}, {seconds} of training")
    if "fit" in model.metrics:
        print_fit(model.metrics["fit"])
    findings = compare_with_baseline(
        model.task,
        held_out,
        held_out.get("baselines", {}),
        recipe=model.recipe,
        steps=model.metrics["steps"],
    )
    for finding in findings:
        if not finding.well:
            print_text(f"note: {finding.answer}; {finding.remedy}", wrap=True)
    if num_examples < HELD_OUT:
        print_text(f"note: {num_examples} held out are few{_score_range(held_out)}", wrap=True)
    if selection := model.metrics.get("selection"):
        print_text(selection["sentence"], wrap=True)
        print_text(f"the other one: {model.path}/{selection['other']}")
    print_text(f"peak memory: {model.metrics['peak_memory'] / 1e9:.2f} GB")


def _score_range(held_out: dict[str, Any]) -> str:
    """Return what the 95 % interval of the first score means, or nothing if there is none."""
    from seqlab.metrics.scores import figure

    for name, (low, high) in held_out.get("interval", {}).items():
        limits = f"between {figure(name, low)} and {figure(name, high)}"
        return f": on as many others, {name.replace('_', ' ')} may be anywhere {limits}"
    return ""


def evaluate(
    model: ModelPath,
    data: list[str] | None = Argument(
        None, metavar="FILE", help="file(s) with known answers", show_default="the held-out part"
    ),
    errors: int = Option(3, min=0, max=10, help="number of mistakes to print"),
    beam: int | None = Option(
        None,
        help="translate by beam search with this many hypotheses",
        show_default="as in the recipe",
    ),
    length_penalty: float | None = Option(
        None,
        help="beam: 0 ranks by total log-probability, 1 by the mean per token",
        show_default="as in the recipe",
    ),
    lower: bool = Option(False, "--lower", help="ignore case when scoring translations"),
    conformal: Conformal = None,
    int8: Int8 = False,
    page: Path | None = Option(
        None, "--report", help="caption: also write an HTML page with twenty images"
    ),
    threads: Threads = None,
    device: Device = "cpu",
    workers: Workers = 1,
    json: Json = False,
) -> None:
    """Score a model on data with known answers, next to its baseline.

    Baselines are simple answers, such as the majority class, a copy of the input, or last season's value.

    Examples:
      seqlab evaluate runs/reviews
      seqlab evaluate runs/reviews test.tsv

    Next:
      seqlab doctor runs/reviews test.tsv
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
    title = f"{loaded.recipe.name} on {report.num_examples:,}"
    if page is not None:
        if report.page is None:
            raise UsageError(
                "--report is only for models of the task 'caption'", hint="leave out --report."
            )
        page.write_text(report.page(f"{title} pictures"), "utf-8")
    if json:
        print_json(report.to_json() | {"mistakes": list(report.examples)})
        return
    print_scores(report.to_json(), title=f"{title} {report.unit}")
    if report.by_length:
        _print_by_length(report.by_length)
    mistakes = [[m["input"], m["output"], m["expected"]] for m in report.examples[:errors]]
    if mistakes:
        print_table(["input", "answer", "expected"], mistakes, title="some mistakes")


def _print_by_length(by_length: dict[str, dict[str, Any]]) -> None:
    """Print the scores of translations by the length of their source."""
    from seqlab.metrics.scores import figure

    rows = [
        [length, f"{s['examples']:,}", figure("exact", s["exact"]), f"{s['bleu']:.1f}"]
        for length, s in by_length.items()
    ]
    header = ["source tokens", "examples", "exact", "bleu"]
    print_table(header, rows, title="by length of the source")
