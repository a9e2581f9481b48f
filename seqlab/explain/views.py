"""The views by name, each one function from a model and an input to a `View`.

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

READ = {"given", "subject"}  # parameters of a view that need an input
OF_SUBJECT = ("output", "hypothesis")  # options that say which answer to the input is looked into
USUAL = (
    "band",
    "evidence",
    "trellis",
    "maps",
    "attention",
    "lens",
)  # what to look at first, the most telling first


def usual_view(bundle: Bundle) -> str:
    """What to look at first in a model of this kind."""
    fitting = views_of(bundle, has_run=False)
    return next((view for view in USUAL if view in fitting), "lens")


def views_of(bundle: Bundle, *, has_run: bool) -> list[str]:
    """The views that have something to show of a model; `has_run` says that the record of its training is there."""
    model = bundle.recipe.model
    tokenizer = bundle.codec.tokenizer
    fitting = task_of(bundle.recipe).views(bundle)
    transforms = any(isinstance(side, TransformerConfig) for side in (model.encoder, model.decoder))
    attends = model.attention is not None or transforms or model.pooling in ("attention", "hops")
    network = not model.classical or model.lds is not None
    turns = (
        isinstance(model.decoder, TransformerConfig)
        and model.decoder.kind == "universal"
        and model.encoder is None
    )
    applies = {
        "attention": attends and network,
        "gradients": network,
        "cells": network and not turns,
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
        if (view in fitting or view in of_any_task) and applies.get(view, True)
    ]


def explain(bundle: Bundle, given: Any, view: str | None, *, folder: Path, **options: Any) -> View:
    """One view of a model at work on an input, its usual one where none is named.

    An option that the view does not know is an error that names its own.
    """
    view = one_of("view", view or usual_view(bundle), VIEWS)
    takes = inspect.signature(VIEWS[view]).parameters
    own = [
        name
        for name, option in takes.items()
        if option.kind is option.KEYWORD_ONLY and name != "folder"
    ]
    if "subject" in takes:
        own += OF_SUBJECT
    for name in options:
        if name not in own:
            hint = f"it takes {', '.join(map(_flag, own)) or 'no options'}."
            raise UsageError(f"the view '{view}' has no {_flag(name)}", hint=hint)
    if given is None and any(
        takes[name].default is inspect.Parameter.empty for name in takes.keys() & READ
    ):
        raise UsageError(
            f"the view '{view}' needs an input to look at", hint="give a text after the model."
        )
    parts: dict[str, Any] = {"bundle": bundle, "given": given, "folder": folder}
    if "subject" in takes:
        answer = {name: options.pop(name) for name in OF_SUBJECT if name in options}
        parts["subject"] = subject(bundle, given, **answer)
    return VIEWS[view](**{name: part for name, part in parts.items() if name in takes}, **options)


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"
