"""How sure a model of labels may say it is: its temperature, chosen on held-out labels, and its calibration error."""

from typing import cast

import numpy as np
import torch

from seqlab.bundle import Bundle
from seqlab.codecs.labels import LabelTarget
from seqlab.data.example import Example
from seqlab.equations.decoding import perplexity
from seqlab.metrics.calibration import Labels, Logits, calibration_error, fit_temperature
from seqlab.models.interface import SequenceModel
from seqlab.tasks.conformal import keep_limits
from seqlab.tasks.examples import Examples, example_batches
from seqlab.tasks.task import Scores

TEMPERATURE = "temperature"  # of the labels, in a bundle's metrics; without it, one


def temperature_of(bundle: Bundle) -> float:
    """What a model's logits are divided by before they become probabilities."""
    return float(bundle.metrics.get(TEMPERATURE, 1.0))


@torch.inference_mode()
def label_logits(bundle: Bundle, examples: list[Example]) -> tuple[Logits, Labels]:
    """The logits of each label that is known, and the label, before any temperature."""
    model, logits, labels = cast(SequenceModel, bundle.model), [], []
    for batch in example_batches(bundle, examples):
        reading = model.read_batch(batch, ())
        labelled = reading.gold.scored & (reading.gold.values >= 0)
        logits.append(model.head(reading.features[labelled]).double().numpy(force=True))
        labels.append(reading.gold.values[labelled].numpy(force=True))
    return np.concatenate(logits), np.concatenate(labels)


def choose_temperature(bundle: Bundle, data: Examples) -> None:
    """Set the temperature under which held-out labels are likeliest; answers stay the same."""
    if isinstance(bundle.codec.target, LabelTarget):
        bundle.metrics[TEMPERATURE] = fit_temperature(*label_logits(bundle, data.all))


def choose_limits(bundle: Bundle, data: Examples) -> None:
    """Set the temperature, and the limits of conformal sets; a label that training did not see is in none of them."""
    choose_temperature(bundle, data)
    log_p, labels = log_probabilities(bundle, data.all)
    unknown = np.zeros(len(data.all) - len(labels))
    keep_limits(bundle, np.append(np.exp(log_p[np.arange(len(labels)), labels]), unknown))


def log_probabilities(bundle: Bundle, examples: list[Example]) -> tuple[Logits, Labels]:
    """The log-probabilities of each label that is known, and the label, temperature included."""
    logits, labels = label_logits(bundle, examples)
    scaled = logits / temperature_of(bundle)
    return scaled - np.logaddexp.reduce(scaled, axis=1, keepdims=True), labels


def calibration(bundle: Bundle, examples: list[Example]) -> Scores:
    """How far the model's certainty is from how often it is right, and its loss, temperature included."""
    log_p, labels = log_probabilities(bundle, examples)
    if not len(labels):
        return {}
    error = calibration_error(np.exp(log_p.max(1)), log_p.argmax(1) == labels)
    loss = -float(log_p[np.arange(len(labels)), labels].mean())
    changed = (
        {"loss": loss, "perplexity": perplexity(loss)} if TEMPERATURE in bundle.metrics else {}
    )
    return {**changed, "calibration_error": error}
