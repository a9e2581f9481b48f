"""A trace of a model at work: it reads an input and the output it gave, whatever search found that."""

from typing import cast

import torch

from seqlab.bundle import Bundle
from seqlab.errors import UsageError
from seqlab.explain.trace import Trace
from seqlab.models.seq2seq import Seq2Seq
from seqlab.padded import Padded
from seqlab.text import EOS, SOS


@torch.inference_mode()
def capture_translation(bundle: Bundle, source: str, output: str) -> Trace:
    """Everything inside while the model reads `source` and writes `output`."""
    if bundle.recipe.task != "translate":
        raise UsageError(f"a '{bundle.recipe.task}' model translates nothing", hint="give a model of task 'translate'.")
    model, vocabularies = cast(Seq2Seq, bundle.model), bundle.vocabularies
    read, written = vocabularies.sources.encode(source), vocabularies.targets.encode(output)
    trace = Trace(vocabularies.sources.pieces(read), vocabularies.targets.pieces([*written, EOS]))
    with trace.recording():
        context, state = model.decoder.start(model.encoder(Padded.from_rows([read])))
        model.decoder.read(torch.tensor([[SOS, *written]]), context, state)
    return trace
