"""Temperature scaling finds the temperature that was used, and sets hold the right label as often as asked."""

import numpy as np
import pytest

from seqlab.metrics.calibration import calibration_error, conformal_limit, fit_temperature


def _drawn(
    count: int, *, temperature: float, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits of a model that is `temperature` times too sure, and labels drawn from the true probabilities."""
    random = np.random.default_rng(seed)
    true = random.normal(size=(count, 4)) * 2
    p = np.exp(true) / np.exp(true).sum(1, keepdims=True)
    labels = np.array([random.choice(4, p=row) for row in p])
    return true * temperature, labels, p


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_a_known_temperature_is_recovered(temperature: float) -> None:
    logits, labels, _ = _drawn(4000, temperature=temperature)
    assert fit_temperature(logits, labels) == pytest.approx(temperature, rel=0.1)


def test_a_few_labels_hardly_change_the_temperature() -> None:
    logits, labels, _ = _drawn(5, temperature=1.0)
    assert 0.4 < fit_temperature(logits, labels) < 2.5
    assert fit_temperature(logits[:0], labels[:0]) == 1.0


def test_temperature_scaling_lowers_the_calibration_error() -> None:
    logits, labels, _ = _drawn(4000, temperature=3.0)
    errors = []
    for temperature in (1.0, fit_temperature(logits, labels)):
        p = np.exp(logits / temperature)
        p /= p.sum(1, keepdims=True)
        errors.append(calibration_error(p.max(1), p.argmax(1) == labels))
    assert errors[0] > 0.1
    assert errors[1] < 0.03


def test_a_conformal_set_has_the_requested_coverage() -> None:
    _, labels, p = _drawn(2000, temperature=1.0)
    likelihoods = p[np.arange(2000), labels]
    limit = conformal_limit(likelihoods[:1000], coverage=0.9)
    held = likelihoods[1000:] >= limit
    assert 0.86 <= held.mean() <= 0.94


def test_too_few_labels_for_the_coverage_mean_sets_of_all_labels() -> None:
    _, labels, p = _drawn(5, temperature=1.0)
    assert conformal_limit(p[np.arange(5), labels], coverage=0.99) == 0.0
