"""Small models with random weights, of every task that answers something: enough to look into."""

from functools import cache

import pytest
import torch

from seqlab.bundle import Bundle
from seqlab.data.example import Example
from seqlab.recipe import build_recipe, override
from seqlab.tasks import build_model
from tests.codec_of_examples import learn

SENTENCES = ("the cat saw a dog", "a dog (the big one) ran", 'she said "no" to the cat', "the end")
STACK = {"kind": "lstm", "size": 12, "layers": 2}
SIDES = {"lm": ("decoder",), "translate": ("encoder", "decoder")}
TRANSFORMER = " ".join(
    f"model.{side}.kind=transformer model.{side}.size=12 model.{side}.heads=3"
    for side in ("encoder", "decoder")
)


def _example(task: str, text: str) -> Example:
    words = tuple(text.split())
    if task == "tag":
        return Example(words, tuple("short" if len(word) < 4 else "long" for word in words), "")
    target = {
        "lm": text,
        "mask": "",
        "classify": "short" if len(text) < 9 else "long",
        "translate": text[::-1],
    }[task]
    return Example("" if task == "lm" else text, target, "")


@cache
def small_bundle(task: str, settings: str = "") -> Bundle:
    small = {
        "name": "small",
        "task": task,
        "data": {"unit": "line"},
        "source": {"kind": "words" if task in ("tag", "mask") else "characters"},
        "model": {"embedding": 8, **dict.fromkeys(SIDES.get(task, ("encoder",)), STACK)},
        "train": {"steps": 1},
        "decode": {"method": "beam", "beam": 3, "max_length": 8},
    }
    recipe = override(build_recipe(small, where="test"), settings.split())
    codec = learn(recipe, lambda: [_example(task, text) for text in SENTENCES])
    model = build_model(recipe, codec)
    generator = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    return Bundle(recipe, codec, model, {})


@pytest.fixture
def bundle_of():
    """A function from a task and settings to a model."""
    return small_bundle
