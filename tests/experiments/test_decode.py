import pytest

from experiments.bench.decode import SETTINGS, Setting, _best, _compare, _result, _run, _together
from seqlab.errors import RunError

OURS, PEER = Setting("seqlab", "float32"), Setting("ctranslate2", "float32")
TWICE = Setting("seqlab", "int8", batches=2)


def answers(seconds, tokens=((1, 2), (3, 4)), cells=((1, 1), (32, 1))):
    return {
        cell: {"seconds": seconds, "cpu": 2 * seconds, "tokens": [list(row) for row in tokens]}
        for cell in cells
    }


def test_a_side_decodes_in_a_process_of_its_own():
    found = _run(OURS, "small", [(1, 1), (2, 2)])
    assert all(0 < answer["seconds"] < 1 for answer in found.values())
    assert [len(row) for row in found[2, 2]["tokens"]] == [24, 24]


def test_every_side_has_its_settings_and_at_most_two_processors():
    assert {setting.side for setting in SETTINGS} == {"seqlab", "transformers", "ctranslate2"}
    assert max(setting.batches * setting.threads for setting in SETTINGS) == 2


def test_the_best_setting_of_a_side_is_the_fastest_that_the_cell_allows():
    tried = {OURS: answers(2.0), TWICE: answers(1.0), PEER: answers(3.0)}
    assert _best(tried, (32, 1)) == [TWICE, PEER]
    assert _best(tried, (1, 1)) == [OURS, PEER]  # one row is not worked on by two


def test_speeds_of_workers_add_up():
    both = _together([lambda: answers(1.0)[1, 1], lambda: answers(1.0)[1, 1]])
    assert both["seconds"] == 0.5
    assert both["cpu"] == 2.0


def test_sides_that_say_something_else_are_not_timed():
    _compare({OURS: answers(1.0), PEER: answers(2.0)})
    with pytest.raises(RunError, match="CTranslate2 float32, 1 x 1 and Seqlab do not agree: 50%"):
        _compare({OURS: answers(1.0), PEER: answers(2.0, tokens=((1, 2), (3, 5)))})


def test_a_result_is_the_median_of_pairs():
    again = {
        OURS: [answers(s) for s in (1.0, 2.0, 4.0)],
        PEER: [answers(s) for s in (2.0, 6.0, 4.0)],
    }
    result = _result("small", (32, 1), [OURS, PEER], again, ["transformers"], 3, 0.0)
    assert result.title == "Decoding, small, batch 32, greedy"
    assert [time.ratio for time in result.times] == [1.0, 2.0]
    assert result.times[1].seconds == 4.0
    assert result.missing == ["transformers"]
