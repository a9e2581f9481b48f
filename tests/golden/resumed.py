"""Runs that were stopped and resumed, one for each learner: their logs, and hashes of the weights they end with."""

import hashlib
from pathlib import Path
from typing import Any

import verbs
from safetensors.numpy import load_file

SMALL = ("model.embedding=6", "model.decoder.size=8", "data.validation=0.1", "decode.max_length=12")
# name: recipe, task, data, settings, after how many steps it is stopped
RUNS: dict[str, tuple[str, str, str, tuple[str, ...], int]] = {
    "gradient": (
        "dates-attention",
        "translate",
        "dates.tsv",
        (
            *(
                *SMALL,
                "model.encoder.size=8",
                "model.dropout=0.2",
                "train.average=ema",
                "train.batch_tokens=256",
            ),
            *("train.steps=8", "train.validate_every=3", "train.warmup=2"),
        ),
        4,
    ),
    "gradient-stream": (
        "char-lstm",
        "lm",
        "text.txt",
        (
            *SMALL,
            "train.steps=8",
            "train.validate_every=3",
            "train.bptt=16",
            "train.batch_rows=4",
            "train.warmup=2",
        ),
        5,
    ),
    "hmm-em": (
        "hmm-lm",
        "lm",
        "text.txt",
        (
            "model.hmm.states=4",
            "train.steps=6",
            "train.restarts=2",
            "data.validation=0.1",
            "target.min_count=1",
        ),
        8,
    ),
    "hmm-em-some-labels": (
        "hmm-tagger",
        "tag",
        "half-tagged.conll",
        ("data.no_label=?", "train.steps=6"),
        3,
    ),
    "lds-em": (
        "lds-forecast",
        "forecast",
        "series.csv",
        ("train.steps=6", "forecast.look_back=48", "forecast.horizon=4", "model.lds.harmonics=1"),
        3,
    ),
    "counting": ("hmm-tagger", "tag", "tagged.conll", ("data.validation=0.1",), 0),
}


class KilledError(Exception):
    """The run ends here, as if its process had been killed."""


def collect_resumed(collection: Any, *, quick: bool = False) -> None:
    """Each run twice: stopped and resumed, and in one go."""
    for name in RUNS:
        collection.add(f"resumed/{name}", _resumed, name)


def _resumed(name: str) -> dict[str, Any]:
    recipe, task, data, settings, steps = RUNS[name]
    parts, whole = f"resumed-{name}", f"whole-{name}"
    if steps:
        stopped_at = _stopped(recipe, task, data, settings, parts, steps)
    else:
        stopped_at = _killed(recipe, task, data, settings, parts)
    log = verbs.resume(parts)
    verbs.train(recipe, task, [data], settings, whole)
    return {
        "stopped_at": stopped_at,
        "log": log,
        "tensors": _shapes(parts),
        "weights": {"sha256": _hash_of_tensors(parts)},
        "file": {"sha256": _hash_of_file(parts)},
        "equals_never_stopped": _hash_of_file(parts) == _hash_of_file(whole),
    }


def _stopped(
    recipe: str, task: str, data: str, settings: tuple[str, ...], out: str, steps: int
) -> int:
    """Stop a run after so many steps, as Ctrl-C does; the step at which it stood."""
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked >= steps

    trained = verbs.trained(recipe, task, [data], settings, out, stop=stop)
    assert trained.stopped, f"{out}: this run was not stopped"
    return trained.step


def _killed(recipe: str, task: str, data: str, settings: tuple[str, ...], out: str) -> int:
    """End a run when its data are prepared, before its first step: counting has only one."""

    def begun(folder: Path) -> None:
        raise KilledError

    try:
        verbs.trained(recipe, task, [data], settings, out, begun=begun)
    except KilledError:
        return 0
    raise AssertionError(f"{out}: this run was not killed")


def _weights(run: str) -> Path:
    return Path(run) / "model.safetensors"


def _shapes(run: str) -> list[list[int]]:
    return sorted(list(tensor.shape) for tensor in load_file(_weights(run)).values())


def _hash_of_file(run: str) -> str:
    return hashlib.sha256(_weights(run).read_bytes()).hexdigest()


def _hash_of_tensors(run: str) -> str:
    """A hash of what the tensors hold, whatever their names."""
    tensors = load_file(_weights(run)).values()
    parts = sorted(
        f"{tensor.dtype} {tensor.shape} ".encode() + tensor.tobytes() for tensor in tensors
    )
    return hashlib.sha256(b"".join(parts)).hexdigest()
