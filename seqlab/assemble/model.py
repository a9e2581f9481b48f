"""Recipe and vocabulary sizes to a model with its first, random weights."""

import torch
from torch import nn

from seqlab.assemble.vocabularies import Vocabularies
from seqlab.layers.embedding import Embedding
from seqlab.layers.pooling import Pooling
from seqlab.layers.stack import CausalStack, recurrent_stack
from seqlab.models.classifier import Classifier, Tagger
from seqlab.models.decoders import Bridge, RecurrentDecoder
from seqlab.models.encoders import RecurrentEncoder
from seqlab.models.heads import Head
from seqlab.models.language_model import LanguageModel
from seqlab.models.seq2seq import Seq2Seq
from seqlab.recipe import Recipe


def build_model(recipe: Recipe, vocabularies: Vocabularies) -> nn.Module:
    """The model that a recipe describes; its weights depend on the recipe's seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.train.seed)
        return MODELS[recipe.task](recipe, vocabularies)


def _language_model(recipe: Recipe, vocabularies: Vocabularies) -> nn.Module:
    return LanguageModel(_decoder(recipe, vocabularies, summary_size=None))


def _classifier(recipe: Recipe, vocabularies: Vocabularies) -> nn.Module:
    encoder = _encoder(recipe, vocabularies)
    pooling = Pooling(recipe.model.pooling, encoder.output_size, summary_size=encoder.summary_size, name="pooling")
    return Classifier(encoder, pooling, Head(pooling.output_size, len(vocabularies.classes)))


def _tagger(recipe: Recipe, vocabularies: Vocabularies) -> nn.Module:
    encoder = _encoder(recipe, vocabularies)
    return Tagger(encoder, Head(encoder.output_size, len(vocabularies.classes)))


def _seq2seq(recipe: Recipe, vocabularies: Vocabularies) -> nn.Module:
    encoder = _encoder(recipe, vocabularies)
    return Seq2Seq(encoder, _decoder(recipe, vocabularies, summary_size=encoder.summary_size))


MODELS = {"lm": _language_model, "classify": _classifier, "tag": _tagger, "translate": _seq2seq}


def _encoder(recipe: Recipe, vocabularies: Vocabularies) -> RecurrentEncoder:
    settings = recipe.model
    assert settings.encoder is not None
    embedding = Embedding(len(vocabularies.sources), settings.embedding, name="encoder")
    stack = recurrent_stack(settings.embedding, settings.encoder, dropout=settings.dropout, name="encoder")
    return RecurrentEncoder(embedding, stack, dropout=settings.dropout)


def _decoder(recipe: Recipe, vocabularies: Vocabularies, *, summary_size: int | None) -> RecurrentDecoder:
    settings, num_tokens = recipe.model, len(vocabularies.targets)
    assert settings.decoder is not None
    embedding = Embedding(num_tokens, settings.embedding, name="decoder")
    reads_summary = summary_size is not None and settings.context == "every"
    input_size = settings.embedding + (summary_size if summary_size is not None and reads_summary else 0)
    stack = CausalStack(input_size, settings.decoder, dropout=settings.dropout, name="decoder")
    bridge = None
    if summary_size is not None:
        bridge = Bridge(summary_size, stack.state_sizes)
    return RecurrentDecoder(
        embedding,
        stack,
        Head(stack.output_size, num_tokens, tied=embedding.weight if settings.tie else None),
        bridge=bridge,
        reads_summary=reads_summary,
        dropout=settings.dropout,
    )
