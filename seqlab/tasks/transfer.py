"""Transfer learning: the settings that a new recipe takes from a trained model, and the copying of its weights."""

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

# settings of [model] that the new recipe decides
OWN_SETTINGS = ("pooling", "hops", "hop_penalty", "pooling_norm", "dropout", "masked")
# tasks that can start from any model that reads text
READING_TASKS = ("classify", "tag")
# weights that stay random if their shape differs from the old one
REPLACEABLE = ("head.", "pooling.")


def take_over(recipe: Recipe, old: Recipe, codec: Codec) -> tuple[Recipe, Codec]:
    """Return the recipe with the architecture of an old model, and the codec of the old model."""
    if recipe.model.hmm or old.model.hmm:
        raise RecipeError(
            "a hidden Markov model cannot start from another model, nor another model from it",
            hint="train without --from.",
        )
    table = recipe.model_dump()
    model = table["model"]
    old_table = old.model_dump()
    old_model = old_table["model"]
    if old.task == recipe.task:
        model |= {key: value for key, value in old_model.items() if key not in OWN_SETTINGS}
        # the word vectors are in the old weights
        model["vectors"] = None
        table |= {key: old_table[key] for key in ("source", "target", "shared")}
    elif old.task == "bilm" and recipe.task in READING_TASKS:
        model["elmo"] = old_model["encoder"]
        table["source"] = old_table["source"]
        # the old layers are not trained, and the encoder is new
        table["train"] |= {"encoder_rate": 1.0, "encoder_frozen": 0}
    elif old.task == "lm" and recipe.task in READING_TASKS:
        # the layers of a decoder without a source become a causal encoder
        causal = {} if isinstance(old.model.decoder, StackConfig) else {"causal": True}
        model |= {"encoder": old_model["decoder"] | causal, "embedding": old.model.embedding}
        model |= {"elmo": None, "characters": None}
        table["source"] = old_table["target"]
        codec = Codec(TextSource(codec.target_tokenizer), Nothing())
    elif (
        old.model.encoder is not None
        and old.task not in ("bilm", "forecast")
        and recipe.task in (*READING_TASKS, "mask")
    ):
        shared = ("encoder", "embedding", "characters", "elmo", "theme")
        model |= {key: value for key, value in old_model.items() if key in shared}
        table["source"] = old_table["source"]
    else:
        raise RecipeError(
            f"a '{recipe.task}' model cannot start from a '{old.task}' model",
            hint="classifiers and taggers start from any model that reads, and every model from one of its own task.",
        )
    _keep_num_positions(table, old)
    table["image"] = old_table["image"]
    return build_recipe(table, where=f"recipe '{recipe.name}' started from '{old.name}'"), codec


def _keep_num_positions(table: Json, old: Recipe) -> None:
    """Set the maximum lengths so that there are as many learned positions as in the old model."""
    for side, limit in (("encoder", "max_source"), ("decoder", "max_target")):
        layers = table["model"].get(side)
        if layers and layers.get("positions") == "learned":
            from_decoder = side == "encoder" and old.task == "lm"
            table["data"][limit] = (
                old.data.max_target + 2 if from_decoder else getattr(old.data, limit)
            )


@torch.no_grad()
def carry_over(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy old weights to the corresponding parameters of a new model."""
    parameters = dict(model.named_parameters())
    for name, weight in weights.items():
        # if the old model has an encoder, the weights of its decoder are not copied to the new encoder
        targets = [
            target
            for target in _target_names(name)
            if target in parameters and (target == name or target not in weights)
        ]
        if not targets:
            continue
        target = targets[0]
        parameter = parameters[target]
        if target.endswith("positions.table"):
            # shorter texts need fewer positions
            weight = weight[: len(parameter)]
        if parameter.shape == weight.shape:
            parameter.copy_(weight)
        elif not target.startswith(REPLACEABLE):
            old_shape, new_shape = tuple(weight.shape), tuple(parameter.shape)
            raise RecipeError(
                f"'{target}' of the model to start from has the shape {old_shape}, but the new model needs {new_shape}",
                hint="leave out --set model.*, keep data.max_source no larger, or train without --from.",
            )


def vectors_of(path: str, codec: Codec) -> Float32[np.ndarray, "V D"]:
    """Read the pretrained vector of each word of the source; words without a vector get NaN."""
    tokenizer = codec.tokenizers.get("source")
    if not isinstance(tokenizer, WordTokenizer):
        raise RecipeError(
            "word vectors need words",
            hint="set source.kind to 'words', or leave out model.vectors.",
        )
    ids = {word: index for index, word in enumerate(tokenizer.vocabulary)}
    table: np.ndarray | None = None
    for word, vector in read_word_vectors(path):
        if table is None:
            table = np.full((len(ids), len(vector)), np.nan, dtype=np.float32)
        index = ids.get(tokenizer.normaliser(word), 0)
        # if words differ only in their case, the first one is the most frequent
        if index >= len(SPECIALS) and np.isnan(table[index, 0]):
            table[index] = vector
    assert table is not None
    if np.isnan(table).all():
        raise DataError(
            f"{path}: no word of the training data has a vector in this file",
            hint="check that source.lower suits the words of the file.",
        )
    return table


@torch.no_grad()
def place_vectors(model: nn.Module, table: Float32[np.ndarray, "V D"]) -> None:
    """Copy pretrained vectors into the encoder's embedding; other words keep random vectors of the same scale."""
    weight = embedding_of(model).weight
    vectors = torch.from_numpy(table)
    if weight.shape != vectors.shape:
        raise RecipeError(
            f"the word vectors have {vectors.shape[1]} numbers, but the encoder reads {weight.shape[1]}",
            hint="a Transformer's vectors must be as large as model.encoder.size.",
        )
    has_vector = ~vectors[:, 0].isnan()
    weight[~has_vector] *= vectors[has_vector].std() / weight.std()
    weight[has_vector] = vectors[has_vector]


def _target_names(name: str) -> Iterator[str]:
    """Yield the names that the parameter of an old weight may have in a model of another task."""
    yield name
    if name.startswith("readers."):
        yield f"encoder.inputs.{name}"
    if name == "decoder.embedding.weight":
        yield "encoder.inputs.embedding.weight"
    elif name.startswith("decoder."):
        yield f"encoder.{name.removeprefix('decoder.')}"
