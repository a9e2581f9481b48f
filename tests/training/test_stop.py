"""What has to wait, and what is done before a process ends at once."""

import pytest

from seqlab.machine import abandonable, cleaning, finish_up, must_wait, saving


def test_a_stop_waits_only_if_work_would_be_lost():
    assert not must_wait()
    with saving(lambda: None):
        assert must_wait()
        with abandonable():
            assert not must_wait()
        assert must_wait()
    assert not must_wait()


def test_before_the_process_ends_work_is_saved_and_then_cleaned_up():
    done = []
    with cleaning(lambda: done.append("outer")), cleaning(lambda: done.append("inner")):
        with saving(lambda: done.append("saved")):
            finish_up(save=True)
            assert done == ["saved", "inner", "outer"]
            done.clear()
            finish_up(save=False)
            assert done == ["inner", "outer"]
            done.clear()
        finish_up(save=True)
        assert done == ["inner", "outer"]
        done.clear()
    assert done == ["inner", "outer"]


def test_a_failing_cleanup_does_not_prevent_others():
    done = []

    def fail():
        raise OSError

    with cleaning(lambda: done.append("cleaned")), saving(fail):
        finish_up(save=True)
        assert done == ["cleaned"]


def test_cleanup_after_an_exception():
    done = []
    with pytest.raises(ValueError, match="x"), cleaning(lambda: done.append(1)):
        raise ValueError("x")
    assert done == [1]
