from threading import Thread

import pytest
import torch

from seqlab.layers.tap import listened_to, listening, tap


def test_a_tap_is_the_identity_when_nobody_listens():
    x = torch.ones(2)
    assert not listened_to()
    assert tap("name", x) is x


def test_a_listener_sees_the_value_under_its_name_and_says_what_goes_on():
    heard = []
    with listening(lambda name, value: heard.append((name, value.clone())) or value * 3):
        assert listened_to()
        assert tap("encoder.h", torch.ones(2)).tolist() == [3, 3]
    ((name, value),) = heard
    assert name == "encoder.h"
    assert value.tolist() == [1, 1]


def test_nobody_listens_after_the_block_even_when_it_raised():
    with pytest.raises(RuntimeError, match="heard enough"), listening(lambda name, value: value):
        raise RuntimeError("heard enough")
    assert not listened_to()


def test_an_inner_listener_takes_the_place_of_the_outer_one():
    one = torch.ones(1)
    with listening(lambda name, value: value + 1):
        with listening(lambda name, value: value + 10):
            assert tap("x", one) == 11
        assert tap("x", one) == 2


def test_a_listener_hears_its_own_thread_only():
    elsewhere = []
    with listening(lambda name, value: value + 1):
        thread = Thread(
            target=lambda: elsewhere.append((listened_to(), float(tap("x", torch.ones(1)))))
        )
        thread.start()
        thread.join()
    assert elsewhere == [(False, 1.0)]
