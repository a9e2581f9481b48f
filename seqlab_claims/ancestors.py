"""The ancestors: how much a hidden Markov model can carry (C14), and what a Kalman filter is good for (C25)."""

import math
import random
import string

import torch
from torch import Tensor

from seqlab.models.lds import constant_velocity
from seqlab.padded import Padded
from seqlab.training.kalman_em import NOISES, LDSSettings, fit_lds
from seqlab_claims.claim import Finding
from seqlab_claims.settings import Settings, flat, lines, means, minus, over, scores, turned

LETTERS = string.ascii_letters[:32]


def chain(num: int, *, seed: int) -> str:
    """Lines in which each letter is followed by its own one, and now and then by any: 4.6 bits of each are known."""
    keyed = random.Random(seed)
    after = dict(zip(LETTERS, random.Random(0).sample(LETTERS, len(LETTERS)), strict=True))
    text = [keyed.choice(LETTERS)]
    for _ in range(40 * num):
        text.append(after[text[-1]] if keyed.random() < 0.95 else keyed.choice(LETTERS))
    return "".join("".join(text[40 * n : 40 * n + 40]) + "\n" for n in range(num))


def bits_of_the_past(at: Settings) -> Finding:
    """C14: what models with N states or units know of the next letter."""
    num = at.sizes("C14")
    sizes = num["states"]
    train = at.file("train.txt", chain(num["train"], seed=1))
    test = at.file("test.txt", chain(num["test"], seed=2))
    hmm, rnn = at.recipes("C14")
    hidden = at.each(
        {f"HMM {n}": {"model.hmm.states": n} for n in sizes}, "lm", train, "hmm-lm", hmm, test
    )
    units = {f"RNN {n}": {"model.decoder.size": n, "model.embedding": n} for n in sizes}
    networks = at.each(units, "lm", train, "char-rnn", rnn, test)
    baseline = hidden[f"HMM {sizes[0]}"][0].metrics["validation"]["baselines"]["1-gram"]["loss"]
    results = {
        name: [
            [(baseline - loss) / math.log(2) for loss in row]
            for row in scores(models, "loss").values()
        ]
        for name, models in (("HMM", hidden), ("RNN", networks))
    }
    bounds = [math.log2(size) for size in sizes]
    bounded = {"log2 N": bounds}
    places = list(map(str, sizes))
    above = [
        minus(row, [bound] * len(row)) for row, bound in zip(results["HMM"], bounds, strict=True)
    ]
    return Finding(
        {"bound": flat(above), "better": flat(map(minus, results["RNN"], results["HMM"]))},
        [
            means(
                "bits of a letter that the past tells, by N (1-gram, the baseline: 0)",
                places,
                results,
                bounded,
            )
        ],
        lines("What N states or units know of a letter", ("N", "bits"), places, results, bounded),
    )


def paths(kind: str, num: int, steps: int, random: torch.Generator) -> Tensor:
    """Targets in the plane, about one unit fast."""
    noise = torch.randn(num, steps, 2, generator=random).double()
    if kind == "swerves":
        return (0.2 * noise).cumsum(1).cumsum(1)
    if kind == "circles":
        angle = 0.1 * torch.arange(steps).double() + 10 * torch.rand(num, 1, generator=random)
        return 10 * torch.stack([angle.cos(), angle.sin()], dim=-1)
    return (10 * noise * (torch.rand(num, steps, 1, generator=random) < 0.05)).cumsum(
        1
    )  # stands, and jumps


def tracking(at: Settings) -> Finding:
    """C25: targets of three kinds through more and more noise."""
    sizes = at.sizes("C25")
    steps, num = sizes["steps"], sizes["targets"]
    noises = (0.5, 1.0, 2.0, 4.0, 8.0)

    def errors(kind: str, noise: float, seed: int) -> list[float]:
        """Root mean square errors of the last sighting and of the filter, which learns both noises by EM."""
        random = torch.Generator().manual_seed(seed)
        path = paths(kind, num, steps, random)
        observed = path + noise * torch.randn(path.shape, generator=random)
        there = torch.rand(num, steps, generator=random) > 0.2
        there[:, 0] = True
        sightings = Padded(observed, torch.full((num,), steps), there)
        guess = constant_velocity(dimensions=2, acceleration=0.1, noise=4.0)
        model = fit_lds(
            guess, sightings, settings=LDSSettings(learn=NOISES, iterations=sizes["iterations"])
        ).model
        last = (
            torch.where(there, torch.arange(steps), 0).cummax(1).values[..., None].expand(-1, -1, 2)
        )
        results = observed.gather(1, last), model.filter(sightings).mean @ model.observation.mT
        return [float((each - path).square().mean().sqrt()) for each in results]

    kinds, table = ("swerves", "circles", "jumps"), dict[str, list[list[float]]]()
    for kind in kinds:
        both = [turned(errors(kind, noise, seed) for seed in at.seeds) for noise in noises]
        table |= {
            f"{kind}, {way}": [row[k] for row in both]
            for k, way in enumerate(("last sighting", "filter"))
        }
    ratios = {
        k: list(map(over, table[f"{k}, filter"], table[f"{k}, last sighting"])) for k in kinds
    }
    axes, same = ("deviation of the sightings' noise", "share"), {"no better": [1.0] * len(noises)}
    return Finding(
        {"smooth": flat(ratios["swerves"] + ratios["circles"]), "jumps": flat(ratios["jumps"])},
        [means("root mean square error, by the deviation of the sightings' noise", noises, table)],
        lines(
            "Error of the filter as a share of the last sighting's",
            axes,
            map(str, noises),
            ratios,
            same,
        ),
    )
