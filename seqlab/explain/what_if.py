"""The view `what-if`: the answer after a change: heads or units set to zero, a token replaced, another temperature."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seqlab.bundle import Bundle
from seqlab.errors import UsageError, nearest
from seqlab.explain.charts import Bars, table
from seqlab.explain.view import View
from seqlab.layers.tap import listening
from seqlab.tasks import predict
from seqlab.tasks import subject as subject_of
from seqlab.trace import Trace

ABLATABLE = (".heads", ".weights", ".h", ".c", ".output", ".inner", ".embedding")


@dataclass(frozen=True)
class Ablation:
    """A stage, and which of its heads (of `.heads`) or units to set to zero; no indices means all of it."""

    name: str
    indices: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str, trace: Trace) -> "Ablation":
        """Parse `encoder.0.attention.heads:3` or `decoder.0.h:17,18`; the stages are those of a trace."""
        name, _, list_of_indices = text.partition(":")
        stages = [stage for stage in trace.names() if stage.endswith(ABLATABLE)]
        if name not in stages:
            raise UsageError(f"there is no stage '{name}' to ablate", hint=nearest(name, stages))
        if list_of_indices and not re.fullmatch(r"\d+(,\d+)*", list_of_indices):
            raise UsageError(
                f"'{list_of_indices}' is not a list of heads or units",
                hint="write them as :3 or :3,4.",
            )
        indices = tuple(int(index) for index in list_of_indices.split(",") if index)
        size = trace[name].shape[_dimension(name)]
        for index in indices:
            if index >= size:
                raise UsageError(
                    f"there is no {index} in {name}", hint=f"use a number from 0 to {size - 1}."
                )
        return cls(name, indices)

    def __call__(self, name: str, value: Tensor) -> Tensor:
        if name != self.name:
            return value
        if not self.indices:
            return torch.zeros_like(value)
        return value.index_fill(_dimension(name), torch.tensor(self.indices), 0.0)


@contextmanager
def ablated(ablations: Sequence[Ablation]) -> Iterator[None]:
    """Set these parts of a model to zero within the context."""

    def set_to_zero(name: str, value: Tensor) -> Tensor:
        for ablation in ablations:
            value = ablation(name, value)
        return value

    with listening(set_to_zero):
        yield


def replace_word(words: Sequence[str], change: str) -> list[str]:
    """Apply a change such as `3=word`, which replaces the third word of the input."""
    position, equals, word = change.partition("=")
    if not equals or not position.isdecimal() or not 1 <= int(position) <= len(words):
        raise UsageError(
            f"--replace {change}: not of the form PLACE=WORD",
            hint=f"positions are 1 to {len(words)}: 2=house.",
        )
    return [*words[: int(position) - 1], word, *words[int(position) :]]


def _dimension(name: str) -> int:
    """Return the dimension of heads or units: heads come before positions, units after."""
    return 1 if name.endswith((".heads", ".weights")) else -1


def what_if_view(
    bundle: Bundle,
    given: Any,
    *,
    ablate: Sequence[str] = (),
    replace: str | None = None,
    prefix: str = "",
    temperature: float | None = None,
) -> View:
    """Show the answer before and after the change, and how the log-probability of the old answer changes."""
    if not (ablate or replace or prefix or temperature):
        raise UsageError(
            "the view 'what-if' needs a change to the model or the input",
            hint="give --ablate, --replace, --prefix or --temperature.",
        )
    subject = subject_of(bundle, given)
    ablations = [Ablation.parse(text, subject.trace()) for text in ablate]
    changed = given if replace is None else " ".join(replace_word(str(given).split(), replace))
    decode = bundle.recipe.decode
    changes = [*ablate, *filter(None, [replace, prefix and f"prefix {prefix!r}"])]
    if temperature is not None:
        decode = decode.model_copy(update={"method": "sample", "temperature": temperature})
        changes.append(f"temperature {temperature:g}")
    before = predict(bundle, [given])[0].output
    with torch.inference_mode():
        old = subject.log_probabilities().numpy()
    with ablated(ablations), torch.inference_mode():
        after = predict(bundle, [changed], decode=decode, prefix=prefix)[0].output
        new = subject.log_probabilities().numpy()
    data: dict[str, Any] = {"input": str(given), "changed_input": str(changed)}
    data |= {"before": before, "after": after, "ablated": list(ablate)}
    data |= {"answered": subject.answer_names, "log_probability_before": old}
    parts: list[Any] = [table(["before", before], [["after", after]], title="the answer")]
    parts += [f"before: {before}", f"after:  {after}"]
    if changed == given:
        change = new - old
        data["log_probability_after"] = old + change
        title = "change of the log-probability of each part of the old answer"
        parts += [
            "change of the log-probability of each part of the old answer:",
            Bars(change, subject.answer_names, title=title),
        ]
    return View("what-if", f"what if: {'; '.join(changes)}", data, parts)
