"""The subjects of models that read a source: an input that the model has read, ready for the views."""

import torch

from seqlab.codecs.codec import padded
from seqlab.codecs.labels import labels_in
from seqlab.errors import UsageError
from seqlab.subject import Question, Subject
from seqlab.tasks.examples import encode_inputs


def source_subject(question: Question) -> Subject:
    """Return the subject of a model that has read its input, without an answer."""
    bundle = question.bundle
    source = bundle.codec.source
    value = source.load(question.input)
    [row] = encode_inputs(bundle, [value])
    if not len(row):
        raise UsageError("the input is empty", hint="give a text that is not empty.")
    reads = padded([row])
    names = source.names(value, row)
    if names is None:
        # frames, and locations in the grid of a picture encoder, are numbered; linear models have no encoder
        encoder = getattr(bundle.model, "encoder", None)
        with torch.inference_mode():
            states = reads if encoder is None else encoder(reads).states
        names = tuple(str(position + 1) for position in range(states.values.shape[1]))
    return Subject(bundle, question.input, reads, (), names, (), (), ())


def label_subject(question: Question) -> Subject:
    """Return the subject with the most probable label of each position, or of the whole source."""
    subject = source_subject(question)
    names = labels_in(question.bundle.codec).names
    with torch.inference_mode():
        best = tuple(subject.logits().argmax(-1).tolist())
    return subject.answering(best, tuple(names[label] for label in best))
