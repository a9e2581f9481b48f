"""The model once more with something changed: a head or unit silenced, a token replaced, another temperature."""

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
    """A tap by name, and which of its heads (of `.heads`) or units; none means all of it."""

    name: str
    places: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str, trace: Trace) -> "Ablation":
        """`encoder.0.attention.heads:3` or `decoder.0.h:17,18`; what there is comes from a trace."""
        name, _, places = text.partition(":")
        taps = [tap for tap in trace.names() if tap.endswith(ABLATABLE)]
        if name not in taps:
            raise UsageError(
                f"there is nothing called '{name}' to silence", hint=nearest(name, taps)
            )
        if places and not re.fullmatch(r"\d+(,\d+)*", places):
            raise UsageError(
                f"'{places}' are no numbers of heads or units", hint="write them as :3 or :3,4."
            )
        chosen = tuple(int(place) for place in places.split(",") if place)
        size = trace[name].shape[_dimension(name)]
        for place in chosen:
            if place >= size:
                raise UsageError(f"there is no {place} in {name}", hint=f"it has 0 to {size - 1}.")
        return cls(name, chosen)

    def __call__(self, name: str, value: Tensor) -> Tensor:
        if name != self.name:
            return value
        if not self.places:
            return torch.zeros_like(value)
        return value.index_fill(_dimension(name), torch.tensor(self.places), 0.0)


@contextmanager
def ablated(ablations: Sequence[Ablation]) -> Iterator[None]:
    """Within this block, these parts of a model are silent."""

    def silence(name: str, value: Tensor) -> Tensor:
        for ablation in ablations:
            value = ablation(name, value)
        return value

    with listening(silence):
        yield


def replaced(words: Sequence[str], change: str) -> list[str]:
    """`3=word`: the third token of the input is another."""
    place, equals, word = change.partition("=")
    if not equals or not place.isdecimal() or not 1 <= int(place) <= len(words):
        raise UsageError(
            f"--replace {change}: not of the form PLACE=WORD",
            hint=f"places are 1 to {len(words)}: 2=house.",
        )
    return [*words[: int(place) - 1], word, *words[int(place) :]]


def _dimension(name: str) -> int:
    """Where heads or units are counted: heads stand before positions, units after."""
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
    """The answer as it is and as it would be, and how likely the model then still finds what it said before."""
    if not (ablate or replace or prefix or temperature):
        raise UsageError(
            "what if what?", hint="give --ablate, --replace, --prefix or --temperature."
        )
    subject = subject_of(bundle, given)
    silent = [Ablation.parse(text, subject.trace()) for text in ablate]
    changed = given if replace is None else " ".join(replaced(str(given).split(), replace))
    decode = bundle.recipe.decode
    changes = [*ablate, *filter(None, [replace, prefix and f"prefix {prefix!r}"])]
    if temperature is not None:
        decode = decode.model_copy(update={"method": "sample", "temperature": temperature})
        changes.append(f"temperature {temperature:g}")
    before = predict(bundle, [given])[0].output
    with torch.inference_mode():
        old = subject.log_probabilities().numpy()
    with ablated(silent), torch.inference_mode():
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
        title = "change in the log-probability of the old answer's parts"
        parts += [
            "the old answer's log-probability changes by:",
            Bars(change, subject.answer_names, title=title),
        ]
    return View("what-if", f"what if: {'; '.join(changes)}", data, parts)
