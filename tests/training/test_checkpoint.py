import errno
import os
import subprocess
import sys

import pytest
import torch

from seqlab.errors import RunError
from seqlab.training.checkpoint import (
    Progress,
    locked,
    read_checkpoint,
    write_checkpoint,
    write_whole,
)

PROGRESS = Progress(
    step=7, epoch=2, index=3, seconds=1.25, best_loss=0.1 + 0.2, best_step=6, worse=1
)
PARTS = {
    "model": {"a.weight": torch.randn(3, 4).T, "b": torch.tensor([1.0, float("inf")])},
    "optimizer": {"0.step": torch.tensor(7.0), "0.exp_avg": torch.randn(3, dtype=torch.float64)},
    "carried": {"0": torch.arange(6).view(2, 3)},
}


def test_a_checkpoint_is_restored_bit_for_bit(tmp_path):
    write_checkpoint(tmp_path / "last", PROGRESS, {**PARTS, "average": {}})
    progress, parts = read_checkpoint(tmp_path / "last")
    assert progress == PROGRESS
    assert parts.keys() == PARTS.keys()
    for part, group in PARTS.items():
        assert parts[part].keys() == group.keys()
        for name, tensor in group.items():
            assert parts[part][name].dtype == tensor.dtype
            assert parts[part][name].equal(tensor)


def test_a_checkpoint_without_a_best_loss(tmp_path):
    write_checkpoint(tmp_path / "last", Progress(), {"model": {"w": torch.ones(1)}})
    assert read_checkpoint(tmp_path / "last")[0] == Progress()


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_crash_while_writing_leaves_the_old_checkpoint(tmp_path, monkeypatch, moment):
    path = tmp_path / "last.safetensors"
    write_checkpoint(path, PROGRESS, PARTS)
    before = path.read_bytes()

    def crash(*_):
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(*{"fsync": (os, "fsync", crash), "replace": (os, "rename", crash)}[moment])
        patched.setattr(type(path), "replace", crash if moment == "replace" else type(path).replace)
        with pytest.raises(
            RunError, match=r"last\.safetensors: writing failed: no space left"
        ) as caught:
            write_checkpoint(path, Progress(step=8), {"model": {"w": torch.ones(1)}})

    assert "--resume" in caught.value.hint
    assert path.read_bytes() == before
    assert read_checkpoint(path)[0].step == 7
    write_checkpoint(
        path, Progress(step=8), {"model": {"w": torch.ones(1)}}
    )  # what was left over does not disturb
    assert read_checkpoint(path)[0].step == 8
    assert [file.name for file in tmp_path.iterdir()] == ["last.safetensors"]


@pytest.mark.parametrize("left", [0, 4, 100, 0.5, 0.99])
def test_a_truncated_checkpoint_is_refused_by_name(tmp_path, left):
    path = tmp_path / "last.safetensors"
    write_checkpoint(path, PROGRESS, PARTS)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(left * len(whole)) if isinstance(left, float) else left])
    with pytest.raises(RunError, match=r"last\.safetensors: not a complete checkpoint") as caught:
        read_checkpoint(path)
    assert caught.value.hint == "train again with --overwrite."


def test_a_file_that_is_not_a_checkpoint_is_refused(tmp_path):
    from safetensors.torch import save_file

    save_file({"model/w": torch.ones(1)}, tmp_path / "other", metadata={"format": "pt"})
    (tmp_path / "text").write_text("hello, " * 100)
    for name in ("other", "text"):
        with pytest.raises(RunError, match=f"{name}: not a complete checkpoint"):
            read_checkpoint(tmp_path / name)


def test_a_missing_checkpoint_is_an_expected_error(tmp_path):
    with pytest.raises(RunError, match="there is no checkpoint to resume from"):
        read_checkpoint(tmp_path / "last.safetensors")


def test_a_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "file.bin"
    write_whole(path, b"old and long")
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


HOLD = """
import sys, time
from pathlib import Path
from seqlab.training.checkpoint import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_the_lock_of_a_directory_and_its_release_after_a_kill(tmp_path):
    folder = tmp_path / "runs" / "a"
    with subprocess.Popen([sys.executable, "-c", HOLD, folder], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout.readline() == b"locked\n"
            message = f"process {other.pid} is training in this directory"
            with pytest.raises(RunError, match=message) as caught, locked(folder):
                pass
            assert "--out" in caught.value.hint
        finally:
            other.kill()
    assert (tmp_path / "runs" / ".a.lock").exists()  # killed, it could not clear up
    with locked(folder):
        assert (tmp_path / "runs" / ".a.lock").read_text() == str(os.getpid())
    assert list(tmp_path.rglob("*")) == [tmp_path / "runs"]


def test_a_lock_leaves_no_new_folders(tmp_path):
    with locked(tmp_path / "deep" / "er" / "a"):
        pass
    assert list(tmp_path.iterdir()) == []
