import json

import numpy as np
import pytest

from seqlab.demo.tracking import Simulation, track

SEEDS = range(4)


@pytest.fixture(scope="module")
def results():
    return [track(seed=seed) for seed in SEEDS]


def test_the_filter_beats_the_last_sighting_and_the_smoother_beats_the_filter(results):
    """C25, for every seed, by at least 20 %."""
    for result in results:
        last, filtered, smoothed, _, _ = result.errors.values()
        assert smoothed < 0.8 * filtered
        assert filtered < 0.8 * last
        assert filtered < 0.8 * result.noise


def test_em_corrects_a_wrong_guess_of_the_noises(results):
    for result in results:
        _, _, smoothed, guessed, learnt = result.errors.values()
        assert learnt < 0.6 * guessed
        assert learnt < 1.3 * smoothed
        assert result.noise_guessed == pytest.approx(result.noise / 10)
        assert result.noise_learnt == pytest.approx(result.noise, rel=0.2)


def test_errors_of_filter_and_smoother_match_their_deviations(results):
    """Errors divided by the expected deviation have a root mean square of 1."""
    for estimate, deviation in (
        ("filtered", "filtered_deviation"),
        ("smoothed", "smoothed_deviation"),
    ):
        normalised = np.stack(
            [(getattr(f, estimate) - f.path) / getattr(f, deviation) for f in results]
        )
        assert np.sqrt(np.square(normalised).mean()) == pytest.approx(1, abs=0.2)


def test_missing_measurements_are_nan_and_the_last_sighting_is_repeated():
    result = track(Simulation(steps=30, missing=0.5, iterations=1), seed=1)
    missing = np.isnan(result.sightings).any(1)
    assert not missing[0]
    assert 5 < result.num_unseen == missing.sum() < 25
    for t in range(1, 30):
        expected = result.last_sighting[t - 1] if missing[t] else result.sightings[t]
        assert (result.last_sighting[t] == expected).all()


def test_the_seed_determines_the_simulation():
    once, again, other = (
        track(Simulation(steps=10, iterations=3), seed=seed) for seed in (3, 3, 4)
    )
    assert once.to_json() == again.to_json()
    assert not np.allclose(once.path, other.path)


def test_the_picture_fits_a_terminal_and_shows_every_path(results):
    for result in results:
        lines = result.picture().splitlines()
        assert len(lines) == 22
        assert max(map(len, lines)) <= 78
        assert set("".join(lines)) == set(" .o*")


def test_json_has_no_nan(results):
    parsed = json.loads(json.dumps(results[0].to_json(), allow_nan=False))
    assert parsed["sightings"].count(None) == results[0].num_unseen
    assert len(parsed["smoothed"]) == len(parsed["path"]) == 80
    assert list(parsed["errors"])[:3] == ["last sighting", "filter", "smoother"]
