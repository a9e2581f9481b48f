"""Baselines of forecasts, on series whose future is plain."""

import numpy as np

from seqlab.metrics.forecasts import LinearForecast, carried_forward, season_ago, seasonal_error

NAN = np.nan


def test_missing_values_are_forward_filled_and_the_start_is_the_mean():
    values = np.array([[NAN, 1.0], [2.0, NAN], [NAN, NAN], [4.0, 5.0]])
    assert carried_forward(values).tolist() == [[0, 1], [2, 1], [2, 1], [4, 5]]


def test_the_seasonal_forecast_is_the_last_value_at_that_phase():
    filled = np.arange(10.0)[:, None]
    said = season_ago(filled, np.array([6]), np.array([0]), horizon=5, season=3)
    assert said.tolist() == [[3, 4, 5, 3, 4]]
    assert season_ago(filled, np.array([6]), np.array([0]), horizon=3, season=1).tolist() == [
        [5, 5, 5]
    ]
    assert season_ago(filled, np.array([2]), np.array([0]), horizon=2, season=7).tolist() == [
        [0, 0]
    ]


def test_the_error_of_a_season_ago_skips_what_is_missing():
    values = np.array([[1.0, 0], [2, 0], [4, NAN], [NAN, 0], [8, 3]])
    assert seasonal_error(values, 2).tolist() == [3.5, 0.0]
    assert seasonal_error(values, 9).tolist() == [0, 0]


def test_a_linear_map_fits_a_line_and_a_wave():
    t = np.arange(300.0)
    series = np.stack([0.1 * t, np.sin(t / 3) + 5], axis=1)
    windows = [(series[i : i + 20].T, series[i + 20 : i + 25].T) for i in range(200)]
    fitted = LinearForecast.fit(
        (past, ahead, np.ones_like(ahead, dtype=bool)) for past, ahead in windows
    )
    ahead = fitted(series[250:270].T)
    np.testing.assert_allclose(ahead, series[270:275].T, atol=0.02)


def test_windows_with_a_missing_future_are_left_out():
    past, good, bad = np.ones((1, 4)), np.ones((1, 2)), np.full((1, 2), 1e9)
    seen = np.ones((1, 2), dtype=bool)
    fitted = LinearForecast.fit([(past, good, seen), (past, bad, ~seen)])
    np.testing.assert_allclose(fitted(past), [[1, 1]])
