"""Baum-Welch compared with hmmlearn: same symbols, same start, same number of iterations."""

import math
from typing import Any

import numpy as np
import torch

import seqlab
from experiments.bench.race import Race, Side, installed
from experiments.hmm_fit import HMMSettings, HMMShape, Restart, baum_welch, start_hmm
from seqlab.models.hmm import HMM
from seqlab.padded import Padded
from seqlab.randomness import uniform
from seqlab.training.baum_welch import HMMData

WANTED = {"log": 25.0, "scaling": 4.0}  # hmmlearn's two implementations; `log` is its default


def baum_welch_race(
    *,
    num: int = 200,
    length: int = 100,
    num_states: int = 16,
    num_symbols: int = 50,
    iterations: int = 20,
) -> Race:
    """E11 from a random start on random symbols; the cost of an iteration does not depend on the data."""
    symbols = (num_symbols * uniform(torch.arange(num * length), 1)).long().view(num, length)
    evidence = HMMData(Padded(symbols, torch.full((num,), length)))
    start = start_hmm(evidence, HMMShape(num_states, num_symbols=num_symbols), seed=1)
    settings = HMMSettings(iterations=iterations, tolerance=-math.inf)
    ours = Side(
        "Seqlab",
        seqlab.__version__,
        lambda: baum_welch(start, evidence, settings=settings),
        _reached,
    )
    there = installed("hmmlearn")
    return Race(
        title=f"Baum-Welch, {num} sequences of {length}, {num_states} states, {num_symbols} symbols",
        part=f"{iterations} iterations",
        ours=ours,
        peers=[_hmmlearn(way, there, start, evidence, iterations) for way in WANTED]
        if there
        else [],
        missing=[] if there else ["hmmlearn"],
    )


def _reached(fit: Restart) -> np.ndarray:
    return np.array([fit.log_likelihood])


def _hmmlearn(way: str, version: str, start: HMM, evidence: HMMData, iterations: int) -> Side:
    from hmmlearn.hmm import CategoricalHMM

    rows = evidence.observations
    symbols, lengths = rows.values.reshape(-1, 1).numpy(), rows.lengths.numpy()
    pi, moves, emitted = (tensor.numpy() for tensor in start.tensors().values())

    def run() -> Any:
        model = CategoricalHMM(
            len(pi),
            implementation=way,
            n_iter=iterations,
            tol=-math.inf,
            init_params="",
            n_features=emitted.shape[1],
        )
        model.startprob_, model.transmat_, model.emissionprob_ = (
            pi.copy(),
            moves.copy(),
            emitted.copy(),
        )
        return model.fit(symbols, lengths)

    def numbers(model: Any) -> np.ndarray:
        return np.array([model.score(symbols, lengths)])

    return Side(f"hmmlearn `{way}`", version, run, numbers, wanted=WANTED[way])
