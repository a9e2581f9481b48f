import json

import numpy as np
import pytest

from seqlab.demo.tracking import Simulation, track

SEEDS = range(4)


@pytest.fixture(scope="module")
def followed():
    return [track(seed=seed) for seed in SEEDS]


def test_the_filter_beats_the_last_sighting_and_the_smoother_beats_the_filter(followed):
    """C25, for every target, and by far."""
    for found in followed:
        last, filtered, smoothed, _, _ = found.errors.values()
        assert smoothed < 0.8 * filtered
        assert filtered < 0.8 * last
        assert filtered < 0.8 * found.noise


def test_em_makes_up_for_a_wrong_guess_of_the_noises(followed):
    for found in followed:
        _, _, smoothed, guessed, learnt = found.errors.values()
        assert learnt < 0.6 * guessed
        assert learnt < 1.3 * smoothed
        assert found.noise_guessed == pytest.approx(found.noise / 10)
        assert found.noise_learnt == pytest.approx(found.noise, rel=0.2)


def test_filter_and_smoother_know_how_far_off_they_are(followed):
    """Errors measured in expected deviations are of size one."""
    for estimate, deviation in (
        ("filtered", "filtered_deviation"),
        ("smoothed", "smoothed_deviation"),
    ):
        apart = np.stack(
            [(getattr(f, estimate) - f.path) / getattr(f, deviation) for f in followed]
        )
        assert np.sqrt(np.square(apart).mean()) == pytest.approx(1, abs=0.2)


def test_what_was_not_seen_is_not_a_number_and_the_last_sighting_stays():
    found = track(Simulation(steps=30, missing=0.5, iterations=1), seed=1)
    unseen = np.isnan(found.sightings).any(1)
    assert not unseen[0]
    assert 5 < found.num_unseen == unseen.sum() < 25
    for t in range(1, 30):
        expected = found.last_sighting[t - 1] if unseen[t] else found.sightings[t]
        assert (found.last_sighting[t] == expected).all()


def test_the_same_seed_is_the_same_target_and_another_another():
    once, again, other = (
        track(Simulation(steps=10, iterations=3), seed=seed) for seed in (3, 3, 4)
    )
    assert once.to_json() == again.to_json()
    assert not np.allclose(once.path, other.path)


def test_the_picture_fits_a_terminal_and_shows_all_there_is(followed):
    for found in followed:
        lines = found.picture().splitlines()
        assert len(lines) == 22
        assert max(map(len, lines)) <= 78
        assert set("".join(lines)) == set(" .o*")


def test_json_has_no_nan(followed):
    told = json.loads(json.dumps(followed[0].to_json(), allow_nan=False))
    assert told["sightings"].count(None) == followed[0].num_unseen
    assert len(told["smoothed"]) == len(told["path"]) == 80
    assert list(told["errors"])[:3] == ["last sighting", "filter", "smoother"]
