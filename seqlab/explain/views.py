"""All views by name; each is a function from a model and an input to a `View`.

view = explain(bundle, "the cat", "attention", layer="encoder.0.attention")
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seqlab.bundle import Bundle
from seqlab.errors import UsageError, one_of
from seqlab.explain.attention import attention_view
from seqlab.explain.cells import cells_view
from seqlab.explain.evidence import evidence_view
from seqlab.explain.gradients import gradients_view
from seqlab.explain.image_views import glimpses_view, maps_view
from seqlab.explain.lens import lens_view
from seqlab.explain.model_views import bpe_view, embeddings_view, positions_view, training_view
from seqlab.explain.number import number_view
from seqlab.explain.saliency import saliency_view
from seqlab.explain.search_tree import beam_view
from seqlab.explain.state_space import band_view, trellis_view
from seqlab.explain.surprisal import surprisal_view
from seqlab.explain.view import View
from seqlab.explain.what_if import what_if_view
from seqlab.layers.inputs import Positions
from seqlab.recipe import GlimpseConfig, TransformerConfig
from seqlab.tasks import subject, task_of
from seqlab.text.bpe import BPETokenizer

VIEWS: dict[str, Callable[..., View]] = {
    "attention": attention_view,
    "lens": lens_view,
    "number": number_view,
    "surprisal": surprisal_view,
    "beam": beam_view,
    "gradients": gradients_view,
    "cells": cells_view,
    "saliency": saliency_view,
    "what-if": what_if_view,
    "positions": positions_view,
    "embeddings": embeddings_view,
    "bpe": bpe_view,
    "training": training_view,
    "trellis": trellis_view,
    "band": band_view,
    "maps": maps_view,
    "glimpses": glimpses_view,
    "evidence": evidence_view,
}

INPUT_PARAMETERS = {"given", "subject"}  # parameters of a view that need an input
SUBJECT_OPTIONS = ("output", "hypothesis")  # options that choose the answer that is explained
DEFAULTS = (
    "band",
    "evidence",
    "trellis",
    "maps",
    "attention",
    "lens",
)  # the most informative first


def usual_view(bundle: Bundle) -> str:
    """Return the default view of a model."""
    views = views_of(bundle, has_run=False)
    return next((view for view in DEFAULTS if view in views), "lens")


def views_of(bundle: Bundle, *, has_run: bool) -> list[str]:
    """Return the views that apply to a model; `has_run` is whether the record of its training exists."""
    model = bundle.recipe.model
    tokenizer = bundle.codec.tokenizer
    views_of_task = task_of(bundle.recipe).views(bundle)
    has_transformer = any(
        isinstance(side, TransformerConfig) for side in (model.encoder, model.decoder)
    )
    has_attention = (
        model.attention is not None or has_transformer or model.pooling in ("attention", "hops")
    )
    network = not model.classical or model.lds is not None
    is_universal_lm = (
        isinstance(model.decoder, TransformerConfig)
        and model.decoder.kind == "universal"
        and model.encoder is None
    )
    applies = {
        "attention": has_attention and network,
        "gradients": network,
        "cells": network and not is_universal_lm,
        "saliency": network,
        "positions": any(isinstance(module, Positions) for module in bundle.model.modules()),
        "embeddings": tokenizer is not None and network,
        "bpe": isinstance(tokenizer, BPETokenizer),
        "training": has_run,
        "trellis": model.hmm is not None,
        "glimpses": isinstance(model.encoder, GlimpseConfig),
    }
    of_any_task = ("positions", "embeddings", "bpe", "training", "trellis", "glimpses")
    return [
        view
        for view in VIEWS
        if (view in views_of_task or view in of_any_task) and applies.get(view, True)
    ]


def explain(bundle: Bundle, given: Any, view: str | None, *, folder: Path, **options: Any) -> View:
    """Return a view of a model and an input; without a name, the model's default view.

    Raise a UsageError if the view does not have one of the options, or needs an input.
    """
    view = one_of("view", view or usual_view(bundle), VIEWS)
    parameters = inspect.signature(VIEWS[view]).parameters
    known = [
        name
        for name, parameter in parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and name != "folder"
    ]
    if "subject" in parameters:
        known += SUBJECT_OPTIONS
    for name in options:
        if name not in known:
            hint = f"its options are {', '.join(map(_flag, known))}."
            if not known:
                hint = "it has no options."
            raise UsageError(f"the view '{view}' has no {_flag(name)}", hint=hint)
    needs_input = any(
        parameters[name].default is inspect.Parameter.empty
        for name in parameters.keys() & INPUT_PARAMETERS
    )
    if given is None and needs_input:
        raise UsageError(f"the view '{view}' needs an input", hint="give a text after the model.")
    arguments: dict[str, Any] = {"bundle": bundle, "given": given, "folder": folder}
    if "subject" in parameters:
        answer = {name: options.pop(name) for name in SUBJECT_OPTIONS if name in options}
        arguments["subject"] = subject(bundle, given, **answer)
    arguments = {name: value for name, value in arguments.items() if name in parameters}
    return VIEWS[view](**arguments, **options)


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"
