"""Compare the package with the commit named in the file TAGGED, bit for bit, on this machine: what `make golden` runs.

The outputs of that commit are kept in `.golden/`, and collected again only where the collector has changed.
"""

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from compare import present_names, read_values, report

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
KEPT = ROOT / ".golden"
TAG = "before-tasks"


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Compare the package with the tagged commit, bit for bit."
    )
    parser.add_argument(
        "--only", help="sections, with commas between: answers, losses, resumed, views, http"
    )
    only = parser.parse_args().only
    KEPT.mkdir(exist_ok=True)
    commit = (HERE / "TAGGED").read_text("utf-8").strip()
    before = KEPT / f"{commit[:12]}-{_collector(only)}.json"
    if not before.exists():
        collect_commit(commit, before, only)
    after = KEPT / "present.json"
    collect(ROOT, after, only)
    print(f"{commit[:12]} ({TAG}) beside the present state:")
    sys.exit(report(present_names(read_values(before)), read_values(after)))


def collect_commit(commit: str, out: Path, only: str | None) -> None:
    """Collect the outputs of a commit, in a directory that is removed afterwards."""
    if subprocess.run(
        ["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=ROOT, capture_output=True
    ).returncode:
        sys.exit(
            f"error: commit {commit} is not in this clone\n"
            f"hint: `git fetch --unshallow`, or `git fetch origin {commit}`, or the tag {TAG} from a clone that has it."
        )
    archive = subprocess.run(
        ["git", "archive", commit, "seqlab"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(archive)) as tar:
            tar.extractall(folder, filter="data")
        part = Path(folder) / "outputs.json"
        collect(Path(folder), part, only, "--tagged")
        shutil.move(part, out)


def collect(package: Path, out: Path, only: str | None = None, *options: str) -> None:
    """Collect the outputs of the package in a directory, in a process of its own."""
    words = [sys.executable, str(HERE / "collect.py"), str(out), *options]
    words += [] if only is None else ["--only", only]
    environment = {**os.environ, "PYTHONPATH": str(package), "OMP_NUM_THREADS": "1"}
    if subprocess.run(words, env=environment).returncode and "--tagged" in options:
        sys.exit(
            "error: not all outputs of the tagged commit could be collected; the lines above say which"
        )


def _collector(only: str | None) -> str:
    """A hash of what the kept outputs depend on beside the commit: the collector, the sections and this machine."""
    import torch

    own = (Path(__file__), HERE / "compare.py", HERE / "renew.py", HERE / "test_golden.py")
    files = sorted(path for path in HERE.glob("*.py") if path not in own)
    parts = [path.read_bytes() for path in files]
    parts += [
        f"{only} {torch.__version__} {platform.python_version()} {platform.node()} {platform.machine()}".encode()
    ]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


if __name__ == "__main__":
    main()
