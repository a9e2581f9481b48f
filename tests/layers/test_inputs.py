import torch

from seqlab.layers.inputs import Embedding
from seqlab.randomness import noise

IDS = torch.arange(40).view(2, 20)


def test_in_training_a_share_of_the_tokens_goes_unseen_as_a_whole():
    embedding = Embedding(40, 8, name="encoder", unseen=0.5)
    with noise(1, 2, torch.tensor([5, 6])):
        seen = embedding(IDS)
    gone = (seen == 0).all(-1)
    assert 8 <= int(gone.sum()) <= 32
    torch.testing.assert_close(seen[~gone], 2 * embedding(IDS)[~gone])


def test_outside_of_training_every_token_is_seen():
    embedding = Embedding(40, 8, name="encoder", unseen=0.5)
    assert not (embedding(IDS) == 0).all(-1).any()
