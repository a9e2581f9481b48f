import json

import pytest

from seqlab.training.checkpoint import MetricsFile
from seqlab.training.log import Reporter, SilentReporter


@pytest.fixture
def metrics(tmp_path):
    made = MetricsFile(tmp_path / "metrics.jsonl")
    for step in (20, 40, 60):
        made.append(step, loss=step / 10)
    made.append(60, validation={"loss": 1.0}, best=True)
    return made


def steps(metrics):
    return [json.loads(line)["step"] for line in metrics.path.read_text("utf-8").splitlines()]


def test_the_log_has_one_object_a_line(metrics):
    first, *_, last = map(json.loads, metrics.path.read_text("utf-8").splitlines())
    assert first == {"step": 20, "loss": 2.0}
    assert last == {"step": 60, "validation": {"loss": 1.0}, "best": True}


@pytest.mark.parametrize(
    ("step", "kept"), [(60, [20, 40, 60, 60]), (59, [20, 40]), (40, [20, 40]), (3, [])]
)
def test_rows_after_a_checkpoint_are_removed(metrics, step, kept):
    metrics.truncate(step)
    assert steps(metrics) == kept


@pytest.mark.parametrize("half", ['{"step": 80, "lo', "{", '{"step": 80}x', "null", '{"loss": 3}'])
def test_an_incomplete_last_line_is_ignored(metrics, half):
    with metrics.path.open("a", encoding="utf-8") as file:
        file.write(half)
    metrics.truncate(1000)
    metrics.append(80, loss=1.0)
    assert steps(metrics) == [20, 40, 60, 60, 80]


def test_truncating_an_empty_log(tmp_path):
    MetricsFile(tmp_path / "metrics.jsonl").truncate(5)
    assert list(tmp_path.iterdir()) == []


def test_the_silent_reporter_is_a_reporter():
    assert isinstance(SilentReporter(), Reporter)
