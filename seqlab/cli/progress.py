"""The progress of a run, on stderr: a bar on a terminal, plain lines elsewhere."""

import sys
import textwrap
import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from seqlab.metrics.scores import count, duration
from seqlab.training.log import Estimate, Metrics, Reporter, SilentReporter, Step

PLAIN_EVERY = 10.0  # seconds between two lines
AFTER_DIVERGENCE = {
    "skip": "this step was skipped",
    "rollback": "back to the last checkpoint, with half the learning rate",
    "stop": "the run stops here",
}
SHORT_NAMES = {"perplexity": "ppl", "token_accuracy": "tok acc"}


def reporter(*, quiet: bool) -> Reporter:
    """Return the reporter that suits stderr."""
    if quiet:
        return SilentReporter()
    console = Console(stderr=True)
    return Bar(console) if console.is_terminal else PlainProgress()


class PlainProgress:
    """A line every ten seconds and for each validation, for a log file."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def plan(self, facts: str, choices: Mapping[str, Any]) -> None:
        for line in plan_lines(facts, choices):
            self.say(line)

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def begin(self, estimate: Estimate, first_step: int) -> None:
        self.say(estimate_line(estimate))
        if first_step:
            self.say(f"resumed at step {first_step:,}")

    def step(self, step: Step) -> None:
        if time.monotonic() - self.last >= PLAIN_EVERY:
            self.last = time.monotonic()
            norm = "" if step.gradient_norm is None else f" gradient {step.gradient_norm:.2f}"
            self.say(
                f"step {step.step}/{step.num_steps} loss {step.loss:.3f} {step.tokens_per_second:,.0f} tokens/s"
                f"{norm} left {duration(step.seconds_left)}"
            )

    def validated(self, step: int, metrics: Metrics, *, best: bool) -> None:
        self.say(validation_line(step, metrics, best=best))

    def diverged(self, message: str, action: str) -> None:
        self.say(f"{message}: {AFTER_DIVERGENCE[action]}")

    def end(self) -> None:
        pass


class Bar(PlainProgress):
    """A progress bar, with a line above it for each validation."""

    def __init__(self, console: Console) -> None:
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=10),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            console=console,
        )
        self.task: TaskID | None = None

    def say(self, text: str) -> None:
        self.progress.console.print(text, highlight=False, markup=False)

    def begin(self, estimate: Estimate, first_step: int) -> None:
        self.say(estimate_line(estimate))
        self.progress.start()
        self.task = self.progress.add_task(
            "train", total=estimate.num_steps, completed=first_step, figures=""
        )

    def step(self, step: Step) -> None:
        if self.task is None:
            return
        norm = "" if step.gradient_norm is None else f" |g| {step.gradient_norm:.2f}"
        figures = f"loss {step.loss:.3f} {step.tokens_per_second:,.0f} tok/s{norm}"
        figures += f" left {duration(step.seconds_left)}"
        self.progress.update(self.task, completed=step.step, total=step.num_steps, figures=figures)

    def end(self) -> None:
        self.progress.stop()


def plan_lines(facts: str, choices: Mapping[str, Any]) -> list[str]:
    """Return lines of 80 columns: what the file contains, and the settings chosen for it by section."""
    if not choices:
        return []
    sections: dict[str, list[str]] = {}
    for path, value in choices.items():
        section, _, name = path.rpartition(".")
        text = f"{value:.3g}" if isinstance(value, float) else value
        sections.setdefault(section, []).append(f"{name}={text}")
    chosen = " ".join(
        f"[{section}] {' '.join(names)}" if section else " ".join(names)
        for section, names in sections.items()
    )
    return [
        f"the file: {facts}",
        *textwrap.wrap(f"chosen for it: {chosen}", 80, break_on_hyphens=False),
    ]


def estimate_line(estimate: Estimate) -> str:
    """Return the size of the model and what the run will need."""
    return (
        f"{count(estimate.num_parameters)} parameters, {estimate.num_steps:,} steps: "
        f"about {duration(estimate.seconds)} and {estimate.bytes / 1e9:.1f} GB of memory"
    )


def validation_line(step: int, metrics: Metrics, *, best: bool) -> str:
    """Return the scores of one validation in at most 80 columns."""
    scores = " ".join(
        f"{SHORT_NAMES.get(name, name)} {_score(name, value)}" for name, value in metrics.items()
    )
    return f"step {step:>6,}  held out: {scores}{'  best' if best else ''}"


def _score(name: str, value: float) -> str:
    return f"{value:.4g}" if name in ("loss", "perplexity") else f"{100 * value:.1f} %"
