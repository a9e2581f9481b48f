"""All claims, and the run that measures them one after the other; what was measured before is not measured again."""

import inspect
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

from seqlab import __version__
from seqlab.claims.claim import Claim, Scale, Settings
from seqlab.claims.gradients import C1, C2, C16, C17, C22
from seqlab.claims.report import Result, read_results, write_report
from seqlab.errors import UsageError

CLAIMS = {claim.id: claim for claim in (C1, C2, C16, C17, C22)}
RUNS = "runs"  # trainings of claims that are not done yet


def chosen_claims(ids: Sequence[str]) -> list[Claim]:
    """The claims of these ids, in whatever case they are written; without ids, all."""
    for name in ids:
        if name.upper() not in CLAIMS:
            known = list(CLAIMS)
            raise UsageError(f"there is no claim '{name}'", hint=f"there are {known[0]} to {known[-1]}: `--list`.")
    return [CLAIMS[name.upper()] for name in dict.fromkeys(ids)] or list(CLAIMS.values())


def run_claims(
    ids: Sequence[str] = (),
    *,
    out: Path,
    scale: Scale = "full",
    seeds: int | None = None,
    told: Callable[[str], None] = lambda text: None,
) -> list[Result]:
    """Measure claims and report on them in the directory `out`, which is written anew after each."""
    results, claims = list[Result](), chosen_claims(ids)
    for place, claim in enumerate(claims, 1):
        key, count = _key(claim, scale, seeds), f"{claim.id} ({place} of {len(claims)})"
        known = read_results(out)
        if claim.id in known and known[claim.id].key == key:
            told(f"{count}: measured before")
        else:
            told(f"{count}: {claim.title}")
            known[claim.id] = _measured(claim, key, Settings(out / RUNS / f"{claim.id}-{key}", scale, seeds, told))
            write_report(out, list(CLAIMS.values()), known | {claim.id: known[claim.id]})
        results.append(known[claim.id])
    return results


def _measured(claim: Claim, key: str, settings: Settings) -> Result:
    began = time.perf_counter()
    finding = claim.run(settings)
    seconds = round(time.perf_counter() - began, 1)
    shutil.rmtree(settings.folder, ignore_errors=True)
    verdict, sentence, seeds = claim.verdict(finding), claim.sentence(finding), len(settings.seeds)
    return Result(
        id=claim.id,
        key=key,
        scale=settings.scale,
        seeds=seeds,
        seconds=seconds,
        verdict=verdict,
        sentence=sentence,
        finding=finding,
    )


def _key(claim: Claim, scale: Scale, seeds: int | None) -> str:
    """What a result depends on: the version, the code of the experiment, and the settings."""
    code = inspect.getsource(sys.modules[claim.run.__module__])
    return sha256(f"{__version__} {code} {claim.id} {scale} {seeds}".encode()).hexdigest()[:12]
