"""What a run tells about itself: `metrics.jsonl` for machines, a `Reporter` for whoever watches."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from seqlab.errors import UsageError
from seqlab.training.checkpoint import write_whole

Metrics = Mapping[str, float]


@dataclass(frozen=True)
class Estimate:
    """What a run will take, measured on a few batches before it begins."""

    seconds: float
    bytes: int
    num_steps: int
    num_parameters: int


@dataclass(frozen=True)
class Step:
    """One step, as it is seen from outside."""

    step: int
    num_steps: int
    loss: float
    tokens_per_second: float
    seconds_left: float
    gradient_norm: float | None = None  # EM has none
    learning_rate: float | None = None
    climb: int | None = None  # of EM from several starts
    num_tokens: float = 0.0  # that this step alone was made with


@runtime_checkable
class Reporter(Protocol):
    """Somebody who watches a run."""

    def plan(self, facts: str, choices: Mapping[str, Any]) -> None:
        """What the file is, and the settings that were chosen because of it."""

    def say(self, text: str) -> None:
        """A sentence about what is done before the run begins."""

    def begin(self, estimate: Estimate, first_step: int) -> None: ...

    def step(self, step: Step) -> None: ...

    def validated(self, step: int, metrics: Metrics, *, best: bool) -> None: ...

    def diverged(self, told: str, what: str) -> None:
        """A step had no finite gradient, and what the recipe says is then done."""

    def end(self) -> None: ...


class Silence:
    """Nobody watches."""

    def plan(self, facts: str, choices: Mapping[str, Any]) -> None:
        pass

    def say(self, text: str) -> None:
        pass

    def begin(self, estimate: Estimate, first_step: int) -> None:
        pass

    def step(self, step: Step) -> None:
        pass

    def validated(self, step: int, metrics: Metrics, *, best: bool) -> None:
        pass

    def diverged(self, told: str, what: str) -> None:
        pass

    def end(self) -> None:
        pass


class MetricsFile:
    """One JSON object a line: training steps and validations, in order. Of many processes, one writes it.

    With `tensorboard`, the same numbers go into event files beside it.
    """

    def __init__(self, path: Path, *, writes: bool = True, tensorboard: bool = False) -> None:
        self.path, self.writes = path, writes
        self.curves = Curves(path.parent) if tensorboard and writes else None

    def append(self, step: int, **values: object) -> None:
        if not self.writes:
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")
        if self.curves is not None:
            self.curves.append(step, values)

    def cut_back(self, step: int, *, validated: bool = True) -> None:
        """Forget what was logged after a checkpoint: those steps will be done again, and maybe a validation."""
        if not self.writes or not self.path.exists():
            return
        rows = (row for row in self.rows() if row["step"] <= step)
        kept = [
            json.dumps(row) + "\n"
            for row in rows
            if validated or row["step"] < step or "validation" not in row
        ]
        write_whole(self.path, "".join(kept).encode())
        if self.curves is not None:
            self.curves.cut_back(step)

    def rows(self) -> Iterator[dict[str, Any]]:
        """What was logged so far, up to a line that was cut off by a kill or is just being written."""
        for line in self.path.read_text("utf-8").splitlines() if self.path.exists() else ():
            try:
                row = json.loads(line)
                row["step"] + 0
            except (ValueError, KeyError, TypeError):
                return
            yield row


class Curves:
    """The numbers of a run as curves of TensorBoard: `tensorboard --logdir runs` draws them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writer_class = _summary_writer()
        self._writer: Any = None
        self._purge_step: int | None = None

    def append(self, step: int, values: Mapping[str, object]) -> None:
        """`loss` is the curve train/loss; a group of numbers such as `validation` has curves of its own."""
        if self._writer is None:
            self._writer = self._writer_class(self.folder, purge_step=self._purge_step)
        groups = {"train": values} | {
            name: part for name, part in values.items() if isinstance(part, Mapping)
        }
        for group, part in groups.items():
            for name, value in part.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    self._writer.add_scalar(f"{group}/{name}", value, step)
        self._writer.flush()

    def cut_back(self, step: int) -> None:
        """TensorBoard is to forget what it has read after this step: those steps will be done again."""
        if self._writer is not None:
            self._writer.close()
        self._writer = None
        self._purge_step = step + 1


def _summary_writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UsageError(
            "train.tensorboard needs the package tensorboard, which is not installed",
            hint='pip install "seqlab[tensorboard]", or leave the setting out: metrics.jsonl has the same numbers.',
        ) from None
    return SummaryWriter
