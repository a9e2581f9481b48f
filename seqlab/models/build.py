"""A recipe's parts as networks with their first, random weights: encoders, decoders, pooling, heads.

Which of them make a model is for the task to say.
"""

from collections.abc import Callable
from typing import TypeVar, cast

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter

from seqlab.errors import RecipeError, UsageError
from seqlab.layers.inputs import (
    Embedding,
    Entrance,
    Inputs,
    SpelledInputs,
    TokenInputs,
    VectorInputs,
)
from seqlab.layers.linear import Head
from seqlab.layers.pooling import Pooling
from seqlab.layers.stack import CausalStack, recurrent_stack
from seqlab.layers.transformer import FeedForward, MultiHeadAttention
from seqlab.models.elmo import BidirectionalReaders, ElmoInputs
from seqlab.models.image_encoders import (
    ConvolutionalEncoder,
    FeatureEncoder,
    GlimpseEncoder,
    PictureEncoder,
    PictureInputs,
)
from seqlab.models.interface import Encoder, TrainableDecoder
from seqlab.models.pointer import PointerDecoder
from seqlab.models.recurrent import (
    AttentiveDecoder,
    Bridge,
    RecurrentDecoder,
    RecurrentEncoder,
    SourceAttention,
    attentive_sizes,
)
from seqlab.models.seq2seq import Seq2Seq
from seqlab.models.transformer import TransformerDecoder, TransformerEncoder
from seqlab.padded import Measured, Tokens
from seqlab.recipe import (
    AttentionConfig,
    ConvolutionConfig,
    FeaturesConfig,
    GlimpseConfig,
    ImageConfig,
    Recipe,
    StackConfig,
    TransformerConfig,
)

Layers = TypeVar("Layers", bound=nn.Module)
LM_EMBEDDING_DEVIATION = 2.0
"""The deviation of what a recurrent language model reads: its tokens are few and seen often, and a cell that hardly
hears them at first learns far more slowly. Rare words would only be noise at that volume: other models begin softly."""


def build_seeded(recipe: Recipe, make: Callable[[], nn.Module]) -> nn.Module:
    """A model whose first weights depend on the recipe's seed alone, on whatever device it ends up."""
    device = torch.get_default_device()
    on_cpu = recipe.model.hmm is not None or recipe.model.lds is not None
    if on_cpu and device.type != "cpu":
        raise UsageError(
            f"recipe '{recipe.name}' is computed on the CPU alone", hint="leave out --device."
        )
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(recipe.train.seed)
        model = make()
    return model.to(device)


def build_seq2seq(recipe: Recipe, entry: Tokens | Measured, num_tokens: int) -> Seq2Seq:
    """An encoder and a decoder that writes one of `num_tokens` tokens at each step."""
    encoder = build_encoder(recipe, entry)
    decoder = build_decoder(recipe, num_tokens, encoder=encoder)
    if (
        recipe.model.tie and recipe.shared and recipe.source.kind != "vectors"
    ):  # one vocabulary serves both
        source, target = embedding_of(encoder), embedding_of(decoder)
        if source.weight.shape == target.weight.shape:
            source.weight = target.weight
    return Seq2Seq(encoder, decoder)


def build_pooling(recipe: Recipe, encoder: Encoder, *, positions: int = 1) -> Pooling:
    """How the states of an encoder become one vector; `positions` is how many there are, where that is fixed."""
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
    )


def build_encoder(recipe: Recipe, entry: Tokens | Measured, *, most: int | None = None) -> Encoder:
    """What reads a source whose positions enter as `entry` says, at most `most` of them, else data.max_source."""
    if recipe.image is None or isinstance(entry, Tokens):
        return _sequence_encoder(recipe, entry, most)
    pictures = PictureInputs(list(entry.mean), list(entry.deviation), recipe.image)
    return PictureEncoder(pictures, _picture_encoder(recipe, recipe.image, pictures.size))


def _picture_encoder(recipe: Recipe, image: ImageConfig, row_size: int) -> Encoder:
    settings, dropout = recipe.model.encoder, recipe.model.dropout
    if isinstance(settings, ConvolutionConfig):
        return ConvolutionalEncoder(settings, image, dropout=dropout)
    if isinstance(settings, GlimpseConfig):
        return GlimpseEncoder(settings, image, dropout=dropout)
    entry = Measured((0.0,) * row_size, (1.0,) * row_size)  # the numbers are scaled already
    return _sequence_encoder(recipe, entry, None)


def _sequence_encoder(recipe: Recipe, entry: Tokens | Measured, most: int | None) -> Encoder:
    """What reads a sequence of tokens or of vectors."""
    settings, stack = recipe.model, recipe.model.encoder
    if isinstance(stack, StackConfig):
        inputs = _inputs(recipe, entry, settings.embedding)
        layers = recurrent_stack(inputs.size, stack, dropout=settings.dropout, name="encoder")
        return RecurrentEncoder(inputs, layers, dropout=settings.entrance_dropout)
    if isinstance(stack, FeaturesConfig):
        return FeatureEncoder(_inputs(recipe, entry, stack.size), dropout=settings.entrance_dropout)
    if not isinstance(stack, TransformerConfig):
        raise RecipeError(
            f"recipe '{recipe.name}' has no encoder for a sequence", hint="give it [model.encoder]."
        )
    inputs = _inputs(recipe, entry, stack.size)
    longest = recipe.data.max_source if most is None else most
    entrance = Entrance(
        inputs.size, stack, most=longest, dropout=settings.entrance_dropout, name="encoder"
    )
    encoder = TransformerEncoder(inputs, entrance, stack, dropout=settings.dropout)
    return _quiet(encoder) if stack.quiet_start else encoder


def _inputs(recipe: Recipe, entry: Tokens | Measured, size: int) -> Inputs:
    if isinstance(entry, Measured):
        return VectorInputs(list(entry.mean), list(entry.deviation), size)
    embedding = Embedding(entry.num_tokens, size, name="encoder", unseen=recipe.model.word_dropout)
    embedding.weight.requires_grad_(not recipe.model.frozen_vectors)
    inputs: Inputs = TokenInputs(embedding)
    if recipe.model.characters is not None and entry.num_letters:
        inputs = SpelledInputs(embedding, entry.num_letters, recipe.model.characters)
    if recipe.model.elmo is not None:
        own = Embedding(entry.num_tokens, recipe.model.elmo.size, name="bilm")
        inputs = ElmoInputs(
            inputs, BidirectionalReaders(own, recipe.model.elmo, entering=0.0, dropout=0.0)
        )
    return inputs


def build_decoder(
    recipe: Recipe, num_tokens: int, *, encoder: Encoder | None = None
) -> TrainableDecoder:
    """What writes tokens, looking at what an encoder has read if there is one."""
    settings, stack = recipe.model, recipe.model.decoder
    if stack is None:
        raise RecipeError(f"recipe '{recipe.name}' has no decoder", hint="give it [model.decoder].")
    size = stack.size if isinstance(stack, TransformerConfig) else settings.embedding
    loud = (
        LM_EMBEDDING_DEVIATION
        if encoder is None and isinstance(stack, StackConfig) and not settings.tie
        else None
    )
    embedding = Embedding(num_tokens, size, name="decoder", deviation=loud)
    if isinstance(stack, TransformerConfig):
        decoder = _transformer_decoder(recipe, stack, embedding, encoder)
    elif encoder is None or settings.attention is None:
        decoder = _recurrent_decoder(recipe, stack, embedding, encoder)
    else:
        decoder = _attentive_decoder(recipe, stack, embedding, encoder, settings.attention)
    return _copying(recipe, decoder, encoder) if settings.pointer else decoder


def _copying(
    recipe: Recipe, decoder: TrainableDecoder, encoder: Encoder | None
) -> TrainableDecoder:
    """The decoder with a pointer into the source, whose tokens must be the target's."""
    if encoder is None or not recipe.shared or recipe.source.kind == "vectors":
        raise RecipeError(
            "'model.pointer' copies tokens of the source", hint="set shared=true, or pointer=false."
        )
    head = cast(Head, decoder.head)
    size = (head.project or head.output).in_features
    return PointerDecoder(decoder, head, size=size, memory_size=encoder.output_size)


def _transformer_decoder(
    recipe: Recipe, stack: TransformerConfig, embedding: Embedding, encoder: Encoder | None
) -> TrainableDecoder:
    dropout = recipe.model.dropout
    most = recipe.data.max_target + 2  # SOS and EOS
    entrance = Entrance(
        stack.size, stack, most=most, dropout=recipe.model.entrance_dropout, name="decoder"
    )
    memory_size = None if encoder is None else encoder.output_size
    head = build_head(recipe, embedding, stack.size)
    decoder = TransformerDecoder(
        embedding, entrance, stack, head, memory_size=memory_size, dropout=dropout
    )
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


def _recurrent_decoder(
    recipe: Recipe, stack: StackConfig, embedding: Embedding, encoder: Encoder | None
) -> TrainableDecoder:
    settings = recipe.model
    reads_summary = encoder is not None and settings.context == "every"
    input_size = settings.embedding + (
        encoder.summary_size if encoder is not None and reads_summary else 0
    )
    layers = CausalStack(input_size, stack, dropout=settings.dropout, name="decoder")
    return RecurrentDecoder(
        embedding,
        layers,
        build_head(recipe, embedding, layers.output_size),
        bridge=None if encoder is None else Bridge(encoder.summary_size, layers.state_sizes),
        reads_summary=reads_summary,
        dropout=settings.entrance_dropout,
    )


def _attentive_decoder(
    recipe: Recipe,
    stack: StackConfig,
    embedding: Embedding,
    encoder: Encoder,
    attention: AttentionConfig,
) -> TrainableDecoder:
    settings, memory_size = recipe.model, encoder.output_size
    if stack.connection == "dense":
        raise RecipeError(
            "a decoder with attention cannot be densely connected", hint="use residual or highway."
        )
    input_size, feature_size = attentive_sizes(
        attention, settings.embedding, stack.size, memory_size
    )
    layers = CausalStack(input_size, stack, dropout=settings.dropout, name="decoder")
    return AttentiveDecoder(
        embedding,
        layers,
        SourceAttention(attention.score, stack.size, memory_size, name="decoder.attention"),
        build_head(recipe, embedding, feature_size),
        bridge=Bridge(encoder.summary_size, layers.state_sizes),
        memory_size=memory_size,
        settings=attention,
        dropout=settings.entrance_dropout,
    )


def build_head(recipe: Recipe, embedding: Embedding, size: int) -> Head:
    """Logits of the tokens of an embedding, whose weights it shares where the recipe ties them."""
    return Head(size, len(embedding.weight), tied=embedding.weight if recipe.model.tie else None)


def embedding_of(part: Encoder | TrainableDecoder | nn.Module) -> Embedding:
    """Where a part keeps its embedding; of a whole model, the one that it reads its source with."""
    for module in cast(nn.Module, part).modules():
        if isinstance(module, Embedding):
            return module
    raise UsageError(
        "this model has no embeddings", hint="it reads symbols as they are, or features."
    )


def fill(parameter: nn.Parameter, shape: torch.Size, dtype: torch.dtype) -> None:
    """Give a parameter its size where only the training data decide it: how many examples or n-grams there are."""
    if isinstance(parameter, UninitializedParameter):
        parameter.materialize(shape, dtype=dtype)
