"""Beginning from a model that was trained before: what a new recipe takes over from it, and where its weights go."""

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor, nn

from seqlab.codecs.codec import Codec, Json, Nothing
from seqlab.codecs.text import TextSource
from seqlab.data.vector_files import read_word_vectors
from seqlab.errors import DataError, RecipeError
from seqlab.models.build import embedding_of
from seqlab.recipe import Recipe, StackConfig, build_recipe
from seqlab.text import SPECIALS, WordTokenizer

KEPT = (
    "pooling",
    "hops",
    "hop_penalty",
    "pooling_norm",
    "dropout",
    "masked",
)  # which a new recipe decides
READS = ("classify", "tag")
ANEW = (
    "head.",
    "pooling.",
)  # weights that may have another shape than before, and then begin at random


def take_over(recipe: Recipe, old: Recipe, codec: Codec) -> tuple[Recipe, Codec]:
    """The recipe with the architecture that the old weights fit, and the codec that they know."""
    table = recipe.model_dump()
    if recipe.model.hmm or old.model.hmm:
        raise RecipeError(
            "a hidden Markov model is fitted from its data alone: it starts from no other, and no other from it",
            hint="train without --from.",
        )
    model, before = table["model"], old.model_dump()
    if old.task == recipe.task:
        model |= {key: value for key, value in before["model"].items() if key not in KEPT}
        model["vectors"] = None  # they are in the old weights
        table |= {key: before[key] for key in ("source", "target", "shared")}
    elif old.task == "bilm" and recipe.task in READS:
        model["elmo"], table["source"] = before["model"]["encoder"], before["source"]
        table["train"] |= {
            "encoder_rate": 1.0,
            "encoder_frozen": 0,
        }  # what is old stays as it is, the encoder is new
    elif old.task == "lm" and recipe.task in READS:
        # a decoder without a source reads: its layers are an encoder that sees what stands before
        causal = {} if isinstance(old.model.decoder, StackConfig) else {"causal": True}
        model |= {"encoder": before["model"]["decoder"] | causal, "embedding": old.model.embedding}
        model |= {"elmo": None, "characters": None}
        table["source"] = before["target"]
        codec = Codec(TextSource(codec.target_tokenizer), Nothing())
    elif (
        old.model.encoder is not None
        and old.task not in ("bilm", "forecast")
        and recipe.task in (*READS, "mask")
    ):
        same = ("encoder", "embedding", "characters", "elmo", "theme")
        model |= {key: value for key, value in before["model"].items() if key in same}
        table["source"] = before["source"]
    else:
        raise RecipeError(
            f"a '{recipe.task}' model cannot start from a '{old.task}' model",
            hint="classifiers and taggers start from any model that reads, and every model from one of its own task.",
        )
    _same_length(table, old)
    table["image"] = before["image"]
    return build_recipe(table, where=f"recipe '{recipe.name}' started from '{old.name}'"), codec


def _same_length(table: Json, old: Recipe) -> None:
    """Learned positions are as many as they were."""
    for side, other in (("encoder", "max_source"), ("decoder", "max_target")):
        layers = table["model"].get(side)
        if layers and layers.get("positions") == "learned":
            from_decoder = side == "encoder" and old.task == "lm"
            table["data"][other] = (
                old.data.max_target + 2 if from_decoder else getattr(old.data, other)
            )


@torch.no_grad()
def carry_over(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy each old weight to where it belongs in the new model."""
    parameters = dict(model.named_parameters())
    for name, weight in weights.items():
        # what has an encoder of its own is not read by its decoder's weights
        there = [p for p in _places(name) if p in parameters and (p == name or p not in weights)]
        for place in there[:1]:
            parameter = parameters[place]
            if place.endswith("positions.table"):
                weight = weight[: len(parameter)]  # shorter texts need fewer of them
            if parameter.shape == weight.shape:
                parameter.copy_(weight)
            elif not place.startswith(ANEW):
                shape, other = tuple(weight.shape), tuple(parameter.shape)
                raise RecipeError(
                    f"the model to start from has '{place}' of shape {shape} where the new one has {other}",
                    hint="leave out --set model.*, keep data.max_source no larger, or train without --from.",
                )


def vectors_of(path: str, codec: Codec) -> Float32[np.ndarray, "V D"]:
    """The pretrained vector of each word of the source, not a number where the file has none."""
    tokenizer = codec.tokenizers.get("source")
    if not isinstance(tokenizer, WordTokenizer):
        raise RecipeError(
            "word vectors need words",
            hint="set source.kind to 'words', or leave out model.vectors.",
        )
    ids = {word: index for index, word in enumerate(tokenizer.vocabulary)}
    table: np.ndarray | None = None
    for word, vector in read_word_vectors(path):
        table = (
            np.full((len(ids), len(vector)), np.nan, dtype=np.float32) if table is None else table
        )
        place = ids.get(tokenizer.normaliser(word), 0)
        if place >= len(SPECIALS) and np.isnan(
            table[place, 0]
        ):  # of two spellings the first is the more frequent
            table[place] = vector
    assert table is not None
    if np.isnan(table).all():
        raise DataError(
            f"{path}: none of the training data's words is in it",
            hint="is source.lower set as it was there?",
        )
    return table


@torch.no_grad()
def place_vectors(model: nn.Module, table: Float32[np.ndarray, "V D"]) -> None:
    """Pretrained vectors into the encoder's embedding; words without one begin at random, at the others' scale."""
    weight, vectors = embedding_of(model).weight, torch.from_numpy(table)
    if weight.shape != vectors.shape:
        raise RecipeError(
            f"vectors of {vectors.shape[1]} numbers where the encoder reads {weight.shape[1]}",
            hint="a Transformer's vectors must be as large as model.encoder.size.",
        )
    there = ~vectors[:, 0].isnan()
    weight[~there] *= vectors[there].std() / weight.std()
    weight[there] = vectors[there]


def _places(name: str) -> Iterator[str]:
    """Where a weight of this name may be found in a model of another task."""
    yield name
    if name.startswith("readers."):
        yield f"encoder.inputs.{name}"
    if name == "decoder.embedding.weight":
        yield "encoder.inputs.embedding.weight"
    elif name.startswith("decoder."):
        yield f"encoder.{name.removeprefix('decoder.')}"
