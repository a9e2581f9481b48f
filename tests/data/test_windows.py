"""Windows of a table: which there are, what they hold, and what they may not see."""

import numpy as np
import pytest

from seqlab.data.windows import Windows

LOOK, AHEAD = 3, 2


def table(rows=12, columns=2, known=0):
    values = np.arange(rows * (columns + known), dtype=np.float32).reshape(rows, -1)
    return values


def windows(values, num_variables=2, *, begin=LOOK, end=None):
    return Windows(
        values,
        num_variables,
        look_back=LOOK,
        horizon=AHEAD,
        begin=begin,
        end=len(values) if end is None else end,
    )


def test_every_moment_of_every_variable_is_there_once():
    all_of_them = windows(table())
    assert len(all_of_them) == 2 * (12 - LOOK - AHEAD + 1)
    seen = {
        (int(all_of_them.origins(rows)[i]), int(row % 2))
        for rows in all_of_them.in_order(budget=20)
        for i, row in enumerate(rows)
    }
    assert seen == {(origin, variable) for origin in range(3, 11) for variable in range(2)}


def test_a_window_holds_what_was_and_what_followed():
    values = table(known=1)
    batch = windows(values).batch(np.array([0, 5]))  # variable 0 at row 3, variable 1 at row 5
    assert batch.source.values.tolist() == [values[0:3, 0].tolist(), values[2:5, 1].tolist()]
    assert batch.target.values.tolist() == [values[3:5, 0].tolist(), values[5:7, 1].tolist()]
    assert batch.covariates.values[1, :, 0].tolist() == values[2:7, 2].tolist()
    assert batch.rows.tolist() == [0, 5]


def test_a_part_is_not_left_by_its_horizons():
    part = windows(table(), begin=6, end=9)
    targets = [part.batch(np.array([row])).target.values.numpy() for row in range(len(part))]
    assert np.unique(np.concatenate(targets, axis=None)).tolist() == list(range(12, 18))


def test_a_gap_is_zero_and_not_observed():
    values = table()
    values[4, 0] = np.nan
    batch = windows(values).batch(np.array([2, 4]))  # rows 4 and 5 of variable 0
    assert batch.target.observed.tolist() == [[False, True], [True, True]]
    assert batch.source.observed.tolist() == [[True, True, True], [True, True, False]]
    assert batch.source.values[1, 2] == 0


@pytest.mark.parametrize("most", [1, 3, 100])
def test_a_sample_lies_evenly_and_takes_all_variables(most):
    rows = np.concatenate(list(windows(table()).in_order(budget=20, most=most)))
    assert len(rows) == 2 * min(most, 8)
    assert rows[0] == 0
    assert (rows.reshape(-1, 2) % 2 == [0, 1]).all()
    if most > 1:
        assert rows[-1] == 15


def test_the_whole_part_is_a_row_for_each_variable():
    values = table(known=1)
    whole = windows(values, end=7).whole(most=100)
    assert whole.source.values.tolist() == values[:7, :2].T.tolist()
    assert whole.covariates.values.tolist() == [values[:7, 2:].tolist()] * 2
    assert windows(values, end=7).whole(most=2).source.values.tolist() == values[5:7, :2].T.tolist()
