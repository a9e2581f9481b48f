"""Where tensors are made: on the CPU, or on an accelerator that somebody asks for."""

import os

import torch

from seqlab.errors import UsageError


def use_device(name: str) -> None:
    """Whatever is made from now on is made there: "cpu", "cuda" or "mps"; "auto" is an accelerator if there is one.

    Of many processes on one machine, each takes a GPU of its own.
    """
    there = available()
    chosen = there[0] if name == "auto" else name
    if chosen not in there:
        raise UsageError(
            f"there is no device '{chosen}' here", hint=f"there is: {', '.join(there)}."
        )
    if chosen == "cuda":
        chosen = f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"
        torch.cuda.set_device(chosen)
    if chosen != "cpu":
        torch.set_default_device(chosen)


def available() -> list[str]:
    """The devices that torch can use on this machine, the CPU last."""
    found = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    return [name for name, there in found.items() if there]
