"""What cannot be shared out is refused at once; two processes that do share are in test_distributed."""

import pytest
from torch import nn, ones

from seqlab.errors import RecipeError
from seqlab.recipe import load_recipe, override
from seqlab.training.sharded import part, sharded, spread, whole


def test_a_weight_that_is_a_single_number_cannot_be_shared_out():
    model = nn.Module()
    model.gain = nn.Parameter(ones(()))
    with pytest.raises(RecipeError, match="weight 'gain' is a single number"):
        sharded(model, 2)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["train.optimizer=muon"], "'muon' needs each matrix whole; with 'shard', take 'adamw' or 'sgd'"),
        (["train.steps=none", "train.epochs=none", "train.minutes=1"], "with 'shard', give 'steps' or 'epochs'"),
    ],
)
def test_settings_that_do_not_go_with_it(settings, told):
    with pytest.raises(RecipeError) as caught:
        override(load_recipe("char-lstm"), ["train.optimizer=adamw", "train.shard=true", *settings])
    assert told in str(caught.value)


def test_of_one_process_everything_is_whole():
    weight = ones(3)
    assert whole(weight) is part(weight) is spread(weight, weight) is weight
