import pytest
import torch

from seqlab.decode.beam import Beam, beam_search
from seqlab.explain.search_tree import recorded_search, replay
from seqlab.padded import Padded
from seqlab.tasks import subject
from seqlab.tasks.writing import target_limits
from seqlab.text import EOS, SOS

from .conftest import TRANSFORMER


@pytest.fixture
def searched(bundle_of):
    bundle = bundle_of("translate", TRANSFORMER)
    looked = subject(bundle, "the cat")
    limits = target_limits(bundle, bundle.recipe.decode)
    with torch.inference_mode():
        return bundle, looked, limits, recorded_search(looked.decoder, looked.memory(), (SOS,), Beam(4), limits)


def test_the_recorded_search_is_the_search(searched):
    _bundle, looked, limits, recorded = searched
    with torch.inference_mode():
        plain = beam_search(looked.decoder, looked.memory(), Padded.from_rows([[SOS]]), Beam(4), limits).best[0]
    assert list(recorded.best) == plain


def test_a_replay_with_the_same_settings_is_exact(searched):
    recorded = searched[3]
    assert replay(recorded) == recorded.best


def test_a_replay_with_another_penalty_finds_what_the_model_would(searched):
    _, looked, limits, recorded = searched
    for penalty in (0.0, 0.6, 2.0):
        with torch.inference_mode():
            asked = beam_search(
                looked.decoder, looked.memory(), Padded.from_rows([[SOS]]), Beam(4, penalty), limits
            ).best[0]
        assert list(replay(recorded, length_penalty=penalty)) == asked


def test_the_tree_holds_each_result_and_what_was_cut_off(searched):
    recorded = searched[3]
    paths = []
    for place, node in enumerate(recorded.nodes):
        path, at = [], place
        while at is not None:
            path.append(recorded.nodes[at].token)
            at = recorded.nodes[at].parent
        paths.append((tuple(reversed(path)), node))
    for best in recorded.best:
        tokens = (*best.tokens, EOS) if best.ended else best.tokens
        scores = [node.score for path, node in paths if path == tokens]
        assert scores == [pytest.approx(best.log_probability, abs=1e-5)]
    assert {node.fate for _, node in paths} >= {"kept", "pruned"}


def test_a_narrower_beam_that_leaves_the_tree_tells_nothing_false(searched):
    _, looked, limits, recorded = searched
    with torch.inference_mode():
        asked = beam_search(looked.decoder, looked.memory(), Padded.from_rows([[SOS]]), Beam(1), limits).best[0]
    found = replay(recorded, width=1)
    assert all(one.tokens == other.tokens[: len(one.tokens)] for one, other in zip(found, asked, strict=False))
