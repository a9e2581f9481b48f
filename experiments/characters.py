"""Time to a given loss on characters: a plain GPT and recipes of Seqlab, in turn, in one run.

    python experiments/characters.py input.txt [--rounds 1] [--only gpt-tiny]

The last tenth of the text is held out. Everybody's clock runs from the first step to the end of the last one; the
losses are nats a character over the whole held-out part, each model reading it as it was trained to.
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import seqlab

CONTEXT, ROWS, STEPS, RATE = 64, 12, 2000, 1e-3
TINY = (
    "train.steps=255",
    "train.batch_rows=24",
    "train.bptt=64",
    "train.learning_rate=2e-2",
    "train.warmup=5",
)
SMALL = ("model.decoder.size=192", "model.dropout=0", "train.batch_rows=16", "train.bptt=48")
QUICK = ("train.learning_rate=2e-2", "train.average=none", "train.steps=290")
RECIPES = {  # a recipe, its settings, and the loss that is wanted
    "gpt-tiny": ("gpt-tiny", (*TINY, "train.weight_decay=0"), 1.88),
    "char-lstm of 192 units": ("char-lstm", (*SMALL, *QUICK), 1.88),
    "char-lstm, 1,500 steps": ("char-lstm", ("train.steps=1500",), 1.4697),
    "char-lstm": ("char-lstm", (), 1.42),
}


class Block(nn.Module):
    """Pre-norm self-attention and a feed-forward layer of four times the width."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(size), nn.LayerNorm(size)])
        self.qkv, self.mix = (
            nn.Linear(size, 3 * size, bias=False),
            nn.Linear(size, size, bias=False),
        )
        self.wide, self.narrow = (
            nn.Linear(size, 4 * size, bias=False),
            nn.Linear(4 * size, size, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.norms[0](x)).chunk(3, -1)
        )
        x = x + self.mix(
            F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        )
        return x + self.narrow(F.gelu(self.wide(self.norms[1](x))))


class PlainGPT(nn.Module):
    """Four layers of 128 features, learned positions, tied embedding: the baseline."""

    def __init__(
        self, num_tokens: int, *, size: int = 128, layers: int = 4, heads: int = 4
    ) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(num_tokens, size), nn.Embedding(CONTEXT, size)
        self.blocks = nn.Sequential(*(Block(size, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(size)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.blocks(self.tokens(ids) + self.positions.weight[: ids.shape[1]])
        return self.norm(x) @ self.tokens.weight.T


def plain(text: str) -> tuple[float, float]:
    """Return the seconds of the baseline's steps, and its loss on the held-out tenth."""
    torch.manual_seed(1)
    letters = {letter: place for place, letter in enumerate(sorted(set(text)))}
    ids = torch.tensor([letters[letter] for letter in text])
    train, held_out = ids[: int(0.9 * len(ids))], ids[int(0.9 * len(ids)) :]
    model = PlainGPT(len(letters))
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.99))
    began = time.perf_counter()
    for step in range(STEPS):
        warm = min(1.0, (step + 1) / 100)
        rate = RATE * warm * (0.1 + 0.45 * (1 + math.cos(math.pi * step / STEPS)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        starts = torch.randint(len(train) - CONTEXT - 1, (ROWS,))
        windows = torch.stack([train[s : s + CONTEXT + 1] for s in starts.tolist()])
        loss = F.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    seconds = time.perf_counter() - began
    rows = held_out[: (len(held_out) - 1) // CONTEXT * CONTEXT + 1].unfold(0, CONTEXT + 1, CONTEXT)
    with torch.inference_mode():
        losses = [
            F.cross_entropy(model(r[:, :-1]).flatten(0, 1), r[:, 1:].flatten()) * len(r)
            for r in rows.split(64)
        ]
    return seconds, float(torch.stack(losses).sum() / len(rows))


def ours(text: Path, recipe: str, settings: tuple[str, ...]) -> tuple[float, float]:
    """Return the seconds from the first to the last step, and the held-out loss."""
    with tempfile.TemporaryDirectory() as folder:
        words = ("data.validation=0.1", "train.validate_every=100000", *settings)
        seqlab.train("lm", text, recipe=recipe, settings=words, out=Path(folder) / "m")
        lines = [
            json.loads(line)
            for line in (Path(folder) / "m/run/metrics.jsonl").read_text().splitlines()
        ]
    last = lines[-1]
    return next(line["seconds"] for line in reversed(lines) if "validation" not in line), last[
        "validation"
    ]["loss"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text", type=Path)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", action="append", choices=RECIPES)
    asked = parser.parse_args()
    chosen = {name: RECIPES[name] for name in asked.only or RECIPES}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ("a plain GPT", *chosen)}
    for _ in range(asked.rounds):
        times["a plain GPT"].append(plain(asked.text.read_text()))
        for name, (recipe, settings, _) in chosen.items():
            times[name].append(ours(asked.text, recipe, settings))
            print(name, *times[name][-1], file=sys.stderr, flush=True)
    base = statistics.median(seconds for seconds, _ in times["a plain GPT"])
    print(
        "| model | seconds | relative to the plain GPT | loss | required |\n|---|---|---|---|---|"
    )
    for name, found in times.items():
        seconds, loss = (statistics.median(column) for column in zip(*found, strict=True))
        wanted = chosen[name][2] if name in chosen else ""
        print(
            f"| {name} | {seconds:.0f} | {seconds / base:.2f} | {loss:.3f} | {wanted} |", flush=True
        )


if __name__ == "__main__":
    main()
