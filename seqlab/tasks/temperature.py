"""Temperature scaling of label probabilities on held-out examples, and the calibration error."""

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

# the key of the temperature in the metrics of a bundle
TEMPERATURE = "temperature"


def temperature_of(bundle: Bundle) -> float:
    """Return the temperature by which a model's logits are divided; 1 if none was fitted."""
    return float(bundle.metrics.get(TEMPERATURE, 1.0))


@torch.inference_mode()
def label_logits(bundle: Bundle, examples: list[Example]) -> tuple[Logits, Labels]:
    """Return the logits at each position with a known label, without temperature, and the labels."""
    model = cast(SequenceModel, bundle.model)
    logits, labels = [], []
    for batch in example_batches(bundle, examples):
        reading = model.read_batch(batch, ())
        labelled = reading.gold.scored & (reading.gold.values >= 0)
        logits.append(model.head(reading.features[labelled]).double().numpy(force=True))
        labels.append(reading.gold.values[labelled].numpy(force=True))
    return np.concatenate(logits), np.concatenate(labels)


def choose_temperature(bundle: Bundle, data: Examples) -> None:
    """Set the temperature that maximises the likelihood of held-out labels; the predicted labels do not change."""
    if isinstance(bundle.codec.target, LabelTarget):
        bundle.metrics[TEMPERATURE] = fit_temperature(*label_logits(bundle, data.all))


def choose_limits(bundle: Bundle, data: Examples) -> None:
    """Set the temperature and the limits of conformal sets; labels that were not in training have probability 0."""
    choose_temperature(bundle, data)
    log_p, labels = log_probabilities(bundle, data.all)
    known = np.exp(log_p[np.arange(len(labels)), labels])
    unknown = np.zeros(len(data.all) - len(labels))
    keep_limits(bundle, np.append(known, unknown))


def log_probabilities(bundle: Bundle, examples: list[Example]) -> tuple[Logits, Labels]:
    """Return the log-probabilities at each position with a known label, with temperature, and the labels."""
    logits, labels = label_logits(bundle, examples)
    scaled = logits / temperature_of(bundle)
    return scaled - np.logaddexp.reduce(scaled, axis=1, keepdims=True), labels


def calibration(bundle: Bundle, examples: list[Example]) -> Scores:
    """Return the calibration error and, if there is a temperature, the loss with it."""
    log_p, labels = log_probabilities(bundle, examples)
    if not len(labels):
        return {}
    scores = {}
    if TEMPERATURE in bundle.metrics:
        loss = -float(log_p[np.arange(len(labels)), labels].mean())
        scores = {"loss": loss, "perplexity": perplexity(loss)}
    scores["calibration_error"] = calibration_error(np.exp(log_p.max(1)), log_p.argmax(1) == labels)
    return scores
