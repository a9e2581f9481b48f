"""Recipe and vocabulary sizes to a model with its first, random weights."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import add
from typing import TypeVar, cast

import torch
from torch import nn

from seqlab.assemble.hidden import hidden_model
from seqlab.assemble.vocabularies import Vocabularies
from seqlab.errors import RecipeError, UsageError
from seqlab.layers.attention import MultiHeadAttention, SourceAttention
from seqlab.layers.blocks import FeedForward
from seqlab.layers.embedding import Embedding
from seqlab.layers.inputs import Inputs, SpelledInputs, TokenInputs, VectorInputs
from seqlab.layers.pictures import Pictures
from seqlab.layers.pooling import Pooling
from seqlab.layers.stack import CausalStack, recurrent_stack
from seqlab.models.attentive import AttentiveDecoder, feature_size, input_size
from seqlab.models.classifier import Classifier, Measurer, Tagger
from seqlab.models.decoders import Bridge, RecurrentDecoder
from seqlab.models.elmo import BidirectionalLanguageModel, ElmoInputs, TwoReaders
from seqlab.models.encoders import RecurrentEncoder
from seqlab.models.forecaster import Forecaster, LDSForecaster
from seqlab.models.glimpse import GlimpseEncoder
from seqlab.models.heads import Head
from seqlab.models.interface import Encoder, Teachable
from seqlab.models.language_model import LanguageModel
from seqlab.models.lds import LDS, cycle, local_level, local_linear_trend
from seqlab.models.masked import MaskedLanguageModel
from seqlab.models.outputs import AngleOutput, GaussianOutput, PointOutput, QuantileOutput
from seqlab.models.pictures import ConvolutionalEncoder, FeatureEncoder, PictureEncoder
from seqlab.models.seq2seq import Seq2Seq
from seqlab.models.transformer import Entrance, TransformerDecoder, TransformerEncoder
from seqlab.models.universal import UniversalDecoder, UniversalEncoder
from seqlab.padded import Padded
from seqlab.recipe import Attention, Convolution, Dynamics, Features, Glimpse, Image, Recipe, Stack, Transformer
from seqlab.training.kalman_em import start_lds

Layers = TypeVar("Layers", bound=nn.Module)
LOUD = 2.0
"""The deviation of what a recurrent language model reads: its tokens are few and seen often, and a cell that hardly
hears them at first learns far more slowly. Rare words would only be noise at that volume: other models begin softly."""


def build_model(recipe: Recipe, vocabularies: Vocabularies) -> nn.Module:
    """The model that a recipe describes; its weights depend on the recipe's seed alone, wherever they end up."""
    where = torch.get_default_device()
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(recipe.train.seed)
        hidden = recipe.model.hmm is not None
        if (hidden or recipe.model.lds is not None) and where.type != "cpu":
            raise UsageError(f"recipe '{recipe.name}' is computed on the CPU alone", hint="leave out --device.")
        model = hidden_model(recipe, vocabularies) if hidden else MODELS[recipe.task](recipe, vocabularies)
    return model.to(where)


def _language_model(recipe: Recipe, vocabularies: Vocabularies) -> nn.Module:
    return LanguageModel(_decoder(recipe, vocabularies, encoder=None))


def _classifier(recipe: Recipe, vocabularies: Vocabularies) -> nn.Module:
    encoder = _encoder(recipe, vocabularies)
    pooling = _pooling(recipe, encoder)
    head = Head(pooling.output_size, len(vocabularies.classes))
    return Classifier(encoder, pooling, head, dropout=recipe.model.dropout)


def _pooling(recipe: Recipe, encoder: Encoder, *, positions: int = 1) -> Pooling:
    settings = recipe.model
    return Pooling(
        settings.pooling,
        encoder.output_size,
        summary_size=encoder.summary_size,
        hops=settings.hops if settings.pooling == "hops" else 1,
        penalty=settings.hop_penalty,
        positions=positions,
        theme=settings.theme,
        normalise=settings.pooling_norm,
        name="pooling",
    )


def _tagger(recipe: Recipe, vocabularies: Vocabularies) -> nn.Module:
    encoder = _encoder(recipe, vocabularies)
    if vocabularies.numbers is not None:
        numbers = vocabularies.numbers
        output = AngleOutput() if numbers.angles else PointOutput(recipe.forecast.level)
        return Measurer(encoder, output, mean=numbers.mean, deviation=numbers.deviation)
    return Tagger(encoder, Head(encoder.output_size, len(vocabularies.classes)))


def _seq2seq(recipe: Recipe, vocabularies: Vocabularies) -> nn.Module:
    encoder = _encoder(recipe, vocabularies)
    decoder = _decoder(recipe, vocabularies, encoder=encoder)
    _share_embeddings(recipe, encoder, decoder)
    return Seq2Seq(encoder, decoder)


def _masked(recipe: Recipe, vocabularies: Vocabularies) -> nn.Module:
    encoder, num_tokens = _encoder(recipe, vocabularies), len(vocabularies.sources)
    tied = embedding_of(encoder).weight if recipe.model.tie else None
    head = Head(encoder.output_size, num_tokens, tied=tied)
    theme = _pooling(recipe, encoder) if recipe.model.pooling == "theme" else None
    return MaskedLanguageModel(encoder, head, num_tokens=num_tokens, share=recipe.model.masked, theme=theme)


def _two_ways(recipe: Recipe, vocabularies: Vocabularies) -> nn.Module:
    stack = cast(Stack, recipe.model.encoder)
    embedding = Embedding(len(vocabularies.sources), stack.size, name="bilm")
    readers = TwoReaders(embedding, stack, entering=recipe.model.entering, dropout=recipe.model.dropout)
    return BidirectionalLanguageModel(readers, _head(recipe, readers.embedding, stack.size))


OUTPUTS: dict[str, type[GaussianOutput] | type[QuantileOutput]] = {
    "gaussian": GaussianOutput,
    "quantiles": QuantileOutput,
    "point": PointOutput,
}


def _forecaster(recipe: Recipe, vocabularies: Vocabularies) -> nn.Module:
    settings, variables = recipe.forecast, vocabularies.variables
    count, horizon = len(variables.columns), settings.horizon
    if recipe.model.lds is not None:
        start = _system(recipe.model.lds, variables.season, variables.num_covariates, seed=recipe.train.seed)
        return LDSForecaster(start, num_variables=count, horizon=horizon, level=settings.level)
    encoder = _encoder(recipe, vocabularies)
    return Forecaster(
        encoder,
        _pooling(recipe, encoder, positions=_num_patches(recipe)),
        OUTPUTS[settings.output](settings.level),
        patch=settings.patch,
        horizon=horizon,
        num_variables=count,
        num_covariates=variables.num_covariates,
        scale_windows=settings.scale == "window",
        dropout=recipe.model.dropout,
    )


def _num_patches(recipe: Recipe) -> int:
    return math.ceil(recipe.forecast.look_back / recipe.forecast.patch)


def _system(settings: Dynamics, season: int, num_inputs: int, *, seed: int) -> LDS:
    """Where EM begins, for values of deviation 1: free states, or a trend and waves that all move a little."""
    if settings.states:
        typical = Padded(torch.ones(1, 1, dtype=torch.float64), torch.ones(1, dtype=torch.long))
        return start_lds(typical, num_states=settings.states, num_inputs=num_inputs, seed=seed)
    parts = [cycle(season / k, wander=1e-4) for k in range(1, min(settings.harmonics, season // 2) + 1)]
    if settings.trend == "slope":
        parts.append(local_linear_trend(level=0.05, slope=1e-4, noise=0.2))
    elif settings.trend == "level" or not parts:
        parts.append(local_level(level=0.05, noise=0.2))
    whole = reduce(add, parts)
    if not float(whole.observation_noise):
        whole = replace(whole, observation_noise=torch.full_like(whole.observation_noise, 0.2))
    inputs = torch.zeros(len(whole.transition), num_inputs, dtype=torch.float64) if num_inputs else None
    return replace(whole, input_matrix=inputs)


MODELS = {
    "lm": _language_model,
    "mask": _masked,
    "bilm": _two_ways,
    "classify": _classifier,
    "tag": _tagger,
    "translate": _seq2seq,
    "forecast": _forecaster,
    "caption": _seq2seq,
}


def _encoder(recipe: Recipe, vocabularies: Vocabularies) -> Encoder:
    if recipe.image is None:
        return _sequence_encoder(recipe, lambda size: _inputs(recipe, vocabularies, size))
    assert vocabularies.features is not None
    scale = vocabularies.features
    pictures = Pictures(list(scale.mean), list(scale.deviation), recipe.image)
    return PictureEncoder(pictures, _picture_encoder(recipe, recipe.image, pictures.size))


def _picture_encoder(recipe: Recipe, image: Image, row_size: int) -> Encoder:
    settings, dropout = recipe.model.encoder, recipe.model.dropout
    if isinstance(settings, Convolution):
        return ConvolutionalEncoder(settings, image, dropout=dropout)
    if isinstance(settings, Glimpse):
        return GlimpseEncoder(settings, image, dropout=dropout)
    # its numbers are scaled already
    return _sequence_encoder(recipe, lambda size: VectorInputs([0.0] * row_size, [1.0] * row_size, size))


def _sequence_encoder(recipe: Recipe, made: Callable[[int], Inputs]) -> Encoder:
    """What reads a sequence of vectors; `made` gives those of a size."""
    settings, stack = recipe.model, recipe.model.encoder
    assert isinstance(stack, Stack | Transformer | Features)
    inputs = made(settings.embedding if isinstance(stack, Stack) else stack.size)
    if isinstance(stack, Features):
        return FeatureEncoder(inputs, dropout=settings.entering)
    if isinstance(stack, Transformer):
        most = _num_patches(recipe) if recipe.task == "forecast" else recipe.data.max_source
        entrance = Entrance(inputs.size, stack, most=most, dropout=settings.entering, name="encoder")
        kind = UniversalEncoder if stack.kind == "universal" else TransformerEncoder
        encoder = kind(inputs, entrance, stack, dropout=settings.dropout)
        return _quiet(encoder) if stack.quiet_start else encoder
    layers = recurrent_stack(inputs.size, stack, dropout=settings.dropout, name="encoder")
    return RecurrentEncoder(inputs, layers, dropout=settings.entering)


def _inputs(recipe: Recipe, vocabularies: Vocabularies, size: int) -> Inputs:
    if vocabularies.series is not None:
        width = recipe.forecast.patch * (2 + vocabularies.series.num_covariates)  # value, seen or not, what is known
        return VectorInputs([0.0] * width, [1.0] * width, size)
    if vocabularies.features is not None:
        scale = vocabularies.features
        return VectorInputs(list(scale.mean), list(scale.deviation), size)
    num_tokens = len(vocabularies.sources)
    embedding = Embedding(num_tokens, size, name="encoder", unseen=recipe.model.word_dropout)
    embedding.weight.requires_grad_(not recipe.model.frozen_vectors)
    inputs: Inputs = TokenInputs(embedding)
    if recipe.model.characters is not None and vocabularies.letters is not None:
        inputs = SpelledInputs(embedding, len(vocabularies.letters), recipe.model.characters)
    if recipe.model.elmo is not None:
        own = Embedding(num_tokens, recipe.model.elmo.size, name="bilm")
        inputs = ElmoInputs(inputs, TwoReaders(own, recipe.model.elmo, entering=0.0, dropout=0.0))
    return inputs


def _decoder(recipe: Recipe, vocabularies: Vocabularies, *, encoder: Encoder | None) -> Teachable:
    settings, stack, num_tokens = recipe.model, recipe.model.decoder, len(vocabularies.targets)
    assert stack is not None
    size = stack.size if isinstance(stack, Transformer) else settings.embedding
    loud = LOUD if encoder is None and isinstance(stack, Stack) and not settings.tie else None
    embedding = Embedding(num_tokens, size, name="decoder", deviation=loud)
    if isinstance(stack, Transformer):
        return _transformer_decoder(recipe, stack, embedding, encoder)
    if encoder is None or settings.attention is None:
        return _recurrent_decoder(recipe, stack, embedding, encoder)
    return _attentive_decoder(recipe, stack, embedding, encoder, settings.attention)


def _transformer_decoder(
    recipe: Recipe, stack: Transformer, embedding: Embedding, encoder: Encoder | None
) -> Teachable:
    dropout = recipe.model.dropout
    most = recipe.data.max_target + 2  # SOS and EOS
    entrance = Entrance(stack.size, stack, most=most, dropout=recipe.model.entering, name="decoder")
    kind = UniversalDecoder if stack.kind == "universal" else TransformerDecoder
    memory_size = None if encoder is None else encoder.output_size
    head = _head(recipe, embedding, stack.size)
    decoder = kind(embedding, entrance, stack, head, memory_size=memory_size, dropout=dropout)
    return _quiet(decoder) if stack.quiet_start else decoder


@torch.no_grad()
def _quiet(layers: Layers) -> Layers:
    """What ends a sublayer begins at zero, and so does the output unless it is an embedding's too."""
    for module in layers.modules():
        if isinstance(module, MultiHeadAttention):
            module.mix.weight.zero_()
        elif isinstance(module, FeedForward):
            module.narrow.weight.zero_()
        elif isinstance(module, Head) and module.output.weight is not embedding_of(layers).weight:
            module.output.weight.zero_()
    return layers


def _recurrent_decoder(recipe: Recipe, stack: Stack, embedding: Embedding, encoder: Encoder | None) -> Teachable:
    settings = recipe.model
    reads_summary = encoder is not None and settings.context == "every"
    input_size = settings.embedding + (encoder.summary_size if encoder is not None and reads_summary else 0)
    layers = CausalStack(input_size, stack, dropout=settings.dropout, name="decoder")
    return RecurrentDecoder(
        embedding,
        layers,
        _head(recipe, embedding, layers.output_size),
        bridge=None if encoder is None else Bridge(encoder.summary_size, layers.state_sizes),
        reads_summary=reads_summary,
        dropout=settings.entering,
    )


def _attentive_decoder(
    recipe: Recipe, stack: Stack, embedding: Embedding, encoder: Encoder, attention: Attention
) -> Teachable:
    settings, memory_size = recipe.model, encoder.output_size
    if stack.connection == "dense":
        raise RecipeError("a decoder with attention cannot be densely connected", hint="use residual or highway.")
    read = input_size(attention, settings.embedding, stack.size, memory_size)
    layers = CausalStack(read, stack, dropout=settings.dropout, name="decoder")
    features = feature_size(attention, layers, memory_size)
    return AttentiveDecoder(
        embedding,
        layers,
        SourceAttention(attention.score, stack.size, memory_size, name="decoder.attention"),
        _head(recipe, embedding, features),
        bridge=Bridge(encoder.summary_size, layers.state_sizes),
        memory_size=memory_size,
        settings=attention,
        dropout=settings.entering,
    )


def _head(recipe: Recipe, embedding: Embedding, size: int) -> Head:
    return Head(size, len(embedding.weight), tied=embedding.weight if recipe.model.tie else None)


def _share_embeddings(recipe: Recipe, encoder: Encoder, decoder: Teachable) -> None:
    """One table for source and target, where one vocabulary serves both and the recipe ties what can be tied."""
    if recipe.model.tie and recipe.shared and recipe.source.kind != "vectors":
        source, target = embedding_of(encoder), embedding_of(decoder)
        if source.weight.shape == target.weight.shape:
            source.weight = target.weight


def embedding_of(part: Encoder | Teachable | nn.Module) -> Embedding:
    """Where a part keeps its embedding; of a whole model, the one that it reads its source with."""
    found = next((module for module in cast(nn.Module, part).modules() if isinstance(module, Embedding)), None)
    if found is None:
        raise UsageError("this model has no embeddings", hint="it reads symbols as they are, or features.")
    return found
