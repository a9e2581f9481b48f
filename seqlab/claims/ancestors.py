"""The ancestors: how much a hidden Markov model can carry (C14), and what a Kalman filter is good for (C25)."""

import math
import random
from collections.abc import Callable
from statistics import fmean

import torch
from torch import Tensor

from seqlab.claims.claim import Chart, Claim, Criterion, Finding, Line, Settings, Table
from seqlab.keyed import uniform
from seqlab.models.lds import constant_velocity
from seqlab.padded import Padded
from seqlab.training.em_lds import NOISES, Climb, fit_lds

ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEF"


def _bits(at: Settings) -> Finding:
    sizes = at.pick((2, 4, 8, 16, 32), (2, 4, 8, 16), (2, 4))

    def chain(num: int, seed: int) -> str:
        keyed, order = random.Random(seed), random.Random(0).sample(ALPHABET, len(ALPHABET))
        after = dict(zip(ALPHABET, order, strict=True))
        lines = []
        for _ in range(num):
            line = [keyed.choice(ALPHABET)]
            while len(line) < 40:
                line.append(after[line[-1]] if keyed.random() < 0.95 else keyed.choice(ALPHABET))
            lines.append("".join(line))
        return "\n".join(lines) + "\n"

    train, test = (at.file(f"{n}.txt", chain(num, n)) for n, num in ((1, at.pick(4000, 1000, 20)), (2, at.pick(500, 100, 5))))
    hmm: dict[str, object] = {"target.kind": "characters", "train.restarts": at.pick(3, 1, 1), "train.steps": at.pick(200, 60, 3)}
    rnn: dict[str, object] = {"data.unit": "line", "model.dropout": 0.0, "train.average": "none", "train.steps": at.pick(4000, 500, 3), "train.batch_tokens": 1024, "train.learning_rate": 2e-2, "train.warmup": 20}
    for size in sizes:
        for seed in at.seeds:
            a = at.trained(f"hmm {size}", "lm", train, "hmm-lm", hmm | {"model.hmm.states": size}, seed=seed, valid=test)
            b = at.trained(f"rnn {size}", "lm", train, "char-rnn", rnn | {"model.decoder.size": size, "model.embedding": size}, seed=seed, valid=test)
            for m in (a, b):
                v = m.metrics["validation"]
                print(size, m.recipe.name, m.bundle.num_parameters, (v["floors"]["1-gram"]["loss"] - v["loss"]) / math.log(2), v["floors"], m.metrics["seconds"])
    return Finding(values={}, tables=[], chart=Chart(title="", titles=("", "")))


def paths(kind: str, num: int, steps: int, random: torch.Generator) -> Tensor:
    """Targets in the plane, about one unit fast."""
    noise = torch.randn(num, steps, 2, generator=random).double()
    if kind == "swerves":
        return (0.2 * noise).cumsum(1).cumsum(1)
    if kind == "circles":
        angle = 0.1 * torch.arange(steps).double() + 10 * torch.rand(num, 1, generator=random)
        return 10 * torch.stack([angle.cos(), angle.sin()], dim=-1)
    return (10 * noise * (torch.rand(num, steps, 1, generator=random) < 0.05)).cumsum(1)  # stands, and jumps


def _tracking(at: Settings) -> Finding:
    steps, num, noises = at.pick(200, 100, 12), at.pick(60, 20, 2), (0.5, 2.0, 8.0)

    def errors(kind: str, noise: float, seed: int) -> tuple[float, float, float]:
        """Root mean square errors: of the last sighting, of the filter, of the filter whose noises are guessed."""
        random = torch.Generator().manual_seed(seed)
        path = paths(kind, num, steps, random)
        seen = path + noise * torch.randn(path.shape, generator=random)
        there = torch.rand(num, steps, generator=random) >= 0.2
        there[:, 0] = True
        sightings = Padded(seen, torch.full((num,), steps), there)
        guess = constant_velocity(dimensions=2, acceleration=1.0, noise=1.0)
        learnt = fit_lds(guess, sightings, climb=Climb(learn=NOISES, iterations=at.pick(100, 20, 2))).model
        last = torch.where(there, torch.arange(steps), 0).cummax(1).values
        carried = seen.gather(1, last[..., None].expand(-1, -1, 2))
        places = [model.filter(sightings).mean @ model.observation.mT for model in (learnt, guess)]
        return tuple(float((found - path).square().mean().sqrt()) for found in (carried, *places))

    kinds = ("swerves", "circles", "jumps")
    for kind in kinds:
        for noise in noises:
            print(kind, noise, [[round(v, 2) for v in errors(kind, noise, seed)] for seed in at.seeds])
    return Finding(values={}, tables=[], chart=Chart(title="", titles=("", "")))
