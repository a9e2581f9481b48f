"""All experiments by their claims, and the function that runs them; known results are reused."""

import inspect
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

from seqlab import __version__
from seqlab_claims import ancestors, attention, cells, decoding, gradients, graphs, transfer
from seqlab_claims.claim import Finding, Scale, document, read_claims
from seqlab_claims.report import Result, read_results, write_report
from seqlab_claims.settings import Settings

EXPERIMENTS: dict[str, Callable[[Settings], Finding]] = {
    "C1": gradients.singular_values,
    "C2": gradients.clipping,
    "C3": cells.lags,
    "C4": cells.cost,
    "C5": cells.directions,
    "C6": attention.bottleneck,
    "C7": attention.both_ends,
    "C8": attention.order,
    "C9": attention.scaling,
    "C10": attention.heads,
    "C11": graphs.parallel,
    "C12": decoding.beams,
    "C13": transfer.few_labels,
    "C14": ancestors.bits_of_the_past,
    "C15": cells.truncation,
    "C16": gradients.deep_stacks,
    "C17": gradients.layer_norm,
    "C18": cells.readable,
    "C19": transfer.contexts,
    "C20": graphs.distances,
    "C21": cells.lstm_or_gru,
    "C22": gradients.over_depth,
    "C23": decoding.exhaustive,
    "C24": attention.longer,
    "C25": ancestors.tracking,
}
RUNS = "runs"  # folder of trainings of the current claim


def run_claims(
    ids: Sequence[str] = tuple(EXPERIMENTS),
    *,
    out: Path,
    scale: Scale = "full",
    seeds: int | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> dict[str, Result]:
    """Measure claims, and update the report in the directory `out` after each."""
    results: dict[str, Result] = {}
    claims = read_claims()
    for number, name in enumerate(ids, 1):
        key = _key(name, scale, seeds)
        previous = read_results(out)
        count = f"{name} ({number} of {len(ids)})"
        if name in previous and previous[name].key == key:
            report(f"{count}: measured before")
        else:
            report(f"{count}: {claims[name].title}")
            settings = Settings(out / RUNS / f"{name}-{key}", scale, seeds, report)
            previous[name] = _measure(name, key, settings)
            write_report(out, claims, read_results(out) | {name: previous[name]})
        results[name] = previous[name]
    return results


def _measure(name: str, key: str, settings: Settings) -> Result:
    """Run an experiment."""
    began = time.process_time()  # CPU time, because other processes may run
    finding = EXPERIMENTS[name](settings)
    shutil.rmtree(settings.folder, ignore_errors=True)
    seconds = round(time.process_time() - began, 1)
    return Result(key, settings.scale, len(settings.seeds), seconds, finding)


def _key(name: str, scale: Scale, seeds: int | None) -> str:
    """Return a hash of everything a result depends on: version, code of the experiment, claims.toml, settings."""
    code = inspect.getsource(sys.modules[EXPERIMENTS[name].__module__])
    return sha256(f"{__version__} {code} {document()} {name} {scale} {seeds}".encode()).hexdigest()[
        :12
    ]
