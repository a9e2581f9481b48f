"""Build the parts of a recipe with initial random weights: encoders, decoders, pooling and heads.

The task decides which parts make a model.
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
# Of the embeddings of a recurrent language model. Its tokens are few and frequent, and with a smaller deviation it
# learns far more slowly. Other models start with a smaller one, because rare words would only add noise.
LM_EMBEDDING_DEVIATION = 2.0


def build_seeded(recipe: Recipe, make: Callable[[], nn.Module]) -> nn.Module:
    """Build a model whose initial weights depend only on the seed of the recipe, not on the device."""
    device = torch.get_default_device()
    needs_cpu = recipe.model.hmm is not None or recipe.model.lds is not None
    if needs_cpu and device.type != "cpu":
        raise UsageError(f"recipe '{recipe.name}' runs only on the CPU", hint="leave out --device.")
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(recipe.train.seed)
        model = make()
    return model.to(device)


def build_seq2seq(recipe: Recipe, entry: Tokens | Measured, num_tokens: int) -> Seq2Seq:
    """Build an encoder and a decoder over `num_tokens` tokens."""
    encoder = build_encoder(recipe, entry)
    decoder = build_decoder(recipe, num_tokens, encoder=encoder)
    shares_vocabulary = recipe.shared and recipe.source.kind != "vectors"
    if recipe.model.tie and shares_vocabulary:
        source = embedding_of(encoder)
        target = embedding_of(decoder)
        if source.weight.shape == target.weight.shape:
            source.weight = target.weight
    return Seq2Seq(encoder, decoder)


def build_pooling(recipe: Recipe, encoder: Encoder, *, positions: int = 1) -> Pooling:
    """Build the pooling of encoder states into one vector; `positions` is their number, if it is fixed."""
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
    """Build the encoder of a source with at most `most` positions, by default data.max_source."""
    if recipe.image is None or isinstance(entry, Tokens):
        return _sequence_encoder(recipe, entry, most)
    pictures = PictureInputs(list(entry.mean), list(entry.deviation), recipe.image)
    return PictureEncoder(pictures, _picture_encoder(recipe, recipe.image, pictures.size))


def _picture_encoder(recipe: Recipe, image: ImageConfig, row_size: int) -> Encoder:
    settings = recipe.model.encoder
    dropout = recipe.model.dropout
    if isinstance(settings, ConvolutionConfig):
        return ConvolutionalEncoder(settings, image, dropout=dropout)
    if isinstance(settings, GlimpseConfig):
        return GlimpseEncoder(settings, image, dropout=dropout)
    entry = Measured((0.0,) * row_size, (1.0,) * row_size)  # `PictureInputs` has scaled the pixels
    return _sequence_encoder(recipe, entry, None)


def _sequence_encoder(recipe: Recipe, entry: Tokens | Measured, most: int | None) -> Encoder:
    """Build the encoder of a sequence of tokens or of vectors."""
    settings = recipe.model
    stack = settings.encoder
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
    return _start_at_identity(encoder) if stack.quiet_start else encoder


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
    """Build the decoder, which attends to an encoder if there is one."""
    settings = recipe.model
    stack = settings.decoder
    if stack is None:
        raise RecipeError(f"recipe '{recipe.name}' has no decoder", hint="give it [model.decoder].")
    size = stack.size if isinstance(stack, TransformerConfig) else settings.embedding
    is_recurrent_lm = encoder is None and isinstance(stack, StackConfig)
    deviation = LM_EMBEDDING_DEVIATION if is_recurrent_lm and not settings.tie else None
    embedding = Embedding(num_tokens, size, name="decoder", deviation=deviation)
    if isinstance(stack, TransformerConfig):
        decoder = _transformer_decoder(recipe, stack, embedding, encoder)
    elif encoder is None or settings.attention is None:
        decoder = _recurrent_decoder(recipe, stack, embedding, encoder)
    else:
        decoder = _attentive_decoder(recipe, stack, embedding, encoder, settings.attention)
    return _with_pointer(recipe, decoder, encoder) if settings.pointer else decoder


def _with_pointer(
    recipe: Recipe, decoder: TrainableDecoder, encoder: Encoder | None
) -> TrainableDecoder:
    """Return the decoder with a pointer into the source, which must share its vocabulary."""
    if encoder is None or not recipe.shared or recipe.source.kind == "vectors":
        raise RecipeError(
            "'model.pointer' needs one vocabulary for source and target",
            hint="set shared=true, or pointer=false.",
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
    return _start_at_identity(decoder) if stack.quiet_start else decoder


@torch.no_grad()
def _start_at_identity(layers: Layers) -> Layers:
    """Set the last weights of each sublayer to zero, and those of the output unless they are tied to an embedding."""
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
    input_size = settings.embedding
    if encoder is not None and reads_summary:
        input_size += encoder.summary_size
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
    settings = recipe.model
    memory_size = encoder.output_size
    if stack.connection == "dense":
        raise RecipeError(
            "a decoder with attention cannot have dense connections",
            hint="use residual or highway.",
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
    """Build the head over the tokens of an embedding, with tied weights if the recipe says so."""
    return Head(size, len(embedding.weight), tied=embedding.weight if recipe.model.tie else None)


def embedding_of(part: Encoder | TrainableDecoder | nn.Module) -> Embedding:
    """Return the embedding of a part; of a whole model, that of its source."""
    for module in cast(nn.Module, part).modules():
        if isinstance(module, Embedding):
            return module
    raise UsageError(
        "this model has no embeddings", hint="use a model that reads tokens through a network."
    )


def fill(parameter: nn.Parameter, shape: torch.Size, dtype: torch.dtype) -> None:
    """Set the shape of a parameter that depends on the training data, such as the number of n-grams."""
    if isinstance(parameter, UninitializedParameter):
        parameter.materialize(shape, dtype=dtype)
