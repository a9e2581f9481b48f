"""Two hosts that share a folder: network namespaces on this machine, with a cable between them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import seqlab
from seqlab.data.synthetic import reversals

pytestmark = pytest.mark.slow
HOME = str(Path(seqlab.__file__).parent.parent)
SETTINGS = [
    "train.steps=40",
    "train.validate_every=20",
    "model.encoder.size=16",
    "model.decoder.size=16",
]


@pytest.fixture
def hosts():
    """Two names of namespaces that reach each other, each with its address; and away with them."""
    if shutil.which("ip") is None:
        pytest.skip("needs the command `ip` to make network namespaces")
    names = [f"seqlab{os.getpid()}{side}" for side in "ab"]
    if _ip("netns", "add", names[0]).returncode:
        pytest.skip("needs the right to make network namespaces (root, or CAP_SYS_ADMIN)")
    try:
        addresses = dict(zip(names, ("10.213.0.1", "10.213.0.2"), strict=True))
        assert _ip("netns", "add", names[1]).returncode == 0
        cable = [
            "link",
            "add",
            "cable",
            "netns",
            names[0],
            "type",
            "veth",
            "peer",
            "name",
            "cable",
            "netns",
            names[1],
        ]
        assert _ip(*cable).returncode == 0
        for name, address in addresses.items():
            assert (
                _ip("-n", name, "address", "add", f"{address}/24", "dev", "cable").returncode == 0
            )
            assert _ip("-n", name, "link", "set", "cable", "up").returncode == 0
            assert _ip("-n", name, "link", "set", "lo", "up").returncode == 0
        yield addresses
    finally:
        for name in names:
            _ip("netns", "delete", name)


def test_two_hosts_learn_like_one_process(hosts, tmp_path):
    data = tmp_path / "pairs.tsv"
    data.write_text("".join(f"{a}\t{b}\n" for a, b in reversals(400, seed=1, longest=6)))
    train = [
        "-m",
        "seqlab",
        "train",
        "translate",
        data,
        "-r",
        "dates",
        "-q",
        *(w for s in SETTINGS for w in ("-s", s)),
    ]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": HOME,
        "GLOO_SOCKET_IFNAME": "cable",
    }
    first, running = next(iter(hosts.values())), []
    for name, address in hosts.items():
        meet = [f"--rdzv-endpoint={first}:29400", f"--rdzv-conf=is_host={int(address == first)}"]
        torchrun = [
            "-m",
            "torch.distributed.run",
            "--nnodes=2",
            "--nproc-per-node=1",
            "--rdzv-backend=c10d",
            *meet,
        ]
        words = [
            "ip",
            "netns",
            "exec",
            name,
            sys.executable,
            *torchrun,
            f"--local-addr={address}",
            *train,
        ]
        command = [*map(str, [*words, "--out", tmp_path / "two"])]
        running.append(
            subprocess.Popen(
                command,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    outputs = [process.communicate(timeout=900)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0], "\n".join(outputs)

    alone = [*map(str, [sys.executable, *train, "--out", tmp_path / "one"])]
    subprocess.run(alone, env=environment, check=True, capture_output=True, timeout=900)
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    torch.testing.assert_close(two, one, atol=1e-5, rtol=1e-4)


def _ip(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["ip", *words], capture_output=True, check=False)
