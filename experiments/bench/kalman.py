"""The Kalman filter and smoother compared with pykalman and statsmodels: same series, same parameters."""

from collections.abc import Callable
from typing import Any

import numpy as np

import seqlab
from experiments.bench.race import Race, Side, installed
from seqlab.equations.kalman import Filtered, Smoothed
from seqlab.kernels.kalman import kalman_filter, rts_smoother
from seqlab.models.lds import LDS, constant_velocity
from seqlab.padded import Padded


def kalman_race(*, num: int = 100, length: int = 1000) -> Race:
    """E14 and E15 for moving targets (4 states) with noisy measurements of two coordinates."""
    model = constant_velocity(dimensions=2, acceleration=0.1, noise=1.0, initial_variance=10.0)
    _, rows = model.sample(num, length, seed=1)
    sides = {"pykalman": _pykalman, "statsmodels": _statsmodels}
    there = {name: version for name in sides if (version := installed(name))}
    return Race(
        title=f"Kalman filter and smoother, {num} series of {length:,} steps, 4 states",
        part="one series",
        ours=Side(
            "Seqlab",
            seqlab.__version__,
            lambda: _both(model, rows),
            lambda both: _numbers(*both),
            parts=num,
        ),
        peers=[sides[name](version, model, rows.values.numpy()) for name, version in there.items()],
        missing=[name for name in sides if name not in there],
    )


def _both(model: LDS, rows: Padded) -> tuple[Filtered, Smoothed]:
    evidence = model.evidence(rows)
    filtered = kalman_filter(model.system, evidence)
    return filtered, rts_smoother(model.system, filtered, evidence.real)


def _numbers(filtered: Filtered, smoothed: Smoothed) -> np.ndarray:
    """Return the log-likelihood of each series, and the norms of its smoothed means and covariances."""
    sizes = smoothed.mean.flatten(1).norm(dim=1), smoothed.covariance.flatten(1).norm(dim=1)
    return np.stack([part.numpy() for part in (filtered.log_likelihood, *sizes)], axis=1)


def _pykalman(version: str, model: LDS, values: np.ndarray) -> Side:
    from pykalman import KalmanFilter

    transition, observation, noise, seen_noise, mean, covariance = (
        x.numpy() for x in model.tensors().values()
    )
    peer = KalmanFilter(transition, observation, noise, seen_noise, None, None, mean, covariance)
    some = values[:2]  # a fifth of a second each
    return Side(
        "pykalman",
        version,
        lambda: [peer.smooth(series) for series in some],
        lambda found: _rows(found, [peer.loglikelihood(series) for series in some]),
        parts=len(some),
        wanted=50.0 if len(values) > 1 else None,
    )


def _statsmodels(version: str, model: LDS, values: np.ndarray) -> Side:
    from statsmodels.tsa.statespace import kalman_smoother as peers

    (width, size), matrices = (
        model.observation.shape,
        {"design": model.observation, "transition": model.transition},
    )
    matrices |= {"state_cov": model.process_noise, "obs_cov": model.observation_noise}
    wanted = (
        peers.SMOOTHER_STATE | peers.SMOOTHER_STATE_COV | peers.SMOOTHER_STATE_AUTOCOV
    )  # what ours gives, no more

    def prepared(series: np.ndarray) -> Any:
        peer = peers.KalmanSmoother(
            k_endog=width, k_states=size, selection=np.eye(size), smoother_output=wanted
        )
        for name, matrix in matrices.items():
            peer[name] = matrix.numpy()
        peer.initialize_known(model.initial_mean.numpy(), model.initial_covariance.numpy())
        peer.bind(series)
        return peer

    ready = [
        prepared(series) for series in values
    ]  # one for each: a smoother keeps the first series that it has seen

    def numbers(found: list[Any]) -> np.ndarray:
        return _rows(
            [(one.smoothed_state, one.smoothed_state_cov) for one in found],
            [one.llf for one in found],
        )

    return Side(
        "statsmodels",
        version,
        lambda: [peer.smooth() for peer in ready],
        numbers,
        parts=len(values),
        wanted=3.0 if len(values) > 1 else None,
    )


def _rows(found: list[tuple[np.ndarray, np.ndarray]], log_likelihoods: list[float]) -> np.ndarray:
    size: Callable[[np.ndarray], float] = lambda x: float(np.sqrt(np.square(x).sum()))  # noqa: E731
    return np.array(
        [[llf, *map(size, both)] for llf, both in zip(log_likelihoods, found, strict=True)]
    )
