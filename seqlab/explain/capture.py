"""A trace of a model at work: it reads an input and the output it gave, whatever search found that."""

from typing import cast

import torch

from seqlab.assemble.vocabularies import padded
from seqlab.bundle import Bundle
from seqlab.errors import UsageError
from seqlab.explain.trace import Trace
from seqlab.models.seq2seq import Seq2Seq
from seqlab.reading import Source, encode_sources
from seqlab.text import EOS, SOS


@torch.inference_mode()
def capture_translation(bundle: Bundle, source: Source, output: str) -> Trace:
    """Everything inside while the model reads `source`, a text or a picture, and writes `output`."""
    if bundle.recipe.task not in ("translate", "caption"):
        raise UsageError(f"a '{bundle.recipe.task}' model translates nothing", hint="give a model of task 'translate'.")
    model, vocabularies = cast(Seq2Seq, bundle.model), bundle.vocabularies
    [read], written = encode_sources(bundle, [source], first_row=0), vocabularies.targets.encode(output)
    trace = Trace(target=vocabularies.targets.pieces([*written, EOS]))
    with trace.recording():
        memory = model.encoder(padded([read]))
        context, state = model.decoder.start(memory)
        model.decoder.read(torch.tensor([[SOS, *written]]), context, state)
    if vocabularies.source is not None:
        trace.source = vocabularies.source.pieces(cast(list[int], read))
    elif memory.states is not None:  # a place of a picture, or a frame, by its number
        trace.source = [str(place) for place in range(memory.states.values.shape[1])]
    return trace
