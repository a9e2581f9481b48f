import pytest
import torch

from seqlab.decode.beam import Beam, beam_search
from seqlab.explain.search_tree import beam_view, recorded_search
from seqlab.padded import Padded
from seqlab.tasks import subject
from seqlab.tasks.text_generation import target_limits
from seqlab.text import EOS, SOS

from .conftest import TRANSFORMER


@pytest.fixture
def search(bundle_of):
    bundle = bundle_of("translate", TRANSFORMER)
    example = subject(bundle, "the cat")
    limits = target_limits(bundle, bundle.recipe.decode)
    with torch.inference_mode():
        return (
            bundle,
            example,
            limits,
            recorded_search(example.decoder, example.memory(), (SOS,), Beam(4), limits),
        )


def test_the_recorded_search_is_the_search(search):
    _bundle, example, limits, recorded = search
    with torch.inference_mode():
        plain = beam_search(
            example.decoder, example.memory(), Padded.from_rows([[SOS]]), Beam(4), limits
        ).best[0]
    assert list(recorded.best) == plain


def test_the_recorded_search_with_another_penalty_is_the_search(search):
    _, example, limits, _ = search
    for penalty in (0.0, 0.6, 2.0):
        beam = Beam(4, penalty)
        with torch.inference_mode():
            plain = beam_search(
                example.decoder, example.memory(), Padded.from_rows([[SOS]]), beam, limits
            ).best[0]
            recorded = recorded_search(example.decoder, example.memory(), (SOS,), beam, limits)
        assert list(recorded.best) == plain


def test_the_tree_holds_results_and_pruned_hypotheses(search):
    recorded = search[3]
    paths = []
    for place, node in enumerate(recorded.nodes):
        path = []
        at = place
        while at is not None:
            path.append(recorded.nodes[at].token)
            at = recorded.nodes[at].parent
        paths.append((tuple(reversed(path)), node))
    for best in recorded.best:
        tokens = (*best.tokens, EOS) if best.ended else best.tokens
        scores = [node.score for path, node in paths if path == tokens]
        assert scores == [pytest.approx(best.log_probability, abs=1e-5)]
    assert {node.fate for _, node in paths} >= {"kept", "pruned"}


def test_a_replay_with_the_same_settings_is_exact(search):
    data = beam_view(search[0], "the cat", beam=4, replay_beam=4).data
    assert data["replayed"] == data["hypotheses"] != []


@pytest.mark.parametrize(("width", "penalty"), [(1, 1.0), (4, 0.0), (2, 0.6), (6, 2.0)])
def test_a_replay_equals_a_search_with_those_settings(search, width, penalty):
    """A result that is not in the recorded tree has an empty path."""
    bundle, example, limits, _ = search
    view = beam_view(bundle, "the cat", beam=4, replay_beam=width, replay_penalty=penalty)
    beam = Beam(width, penalty)
    with torch.inference_mode():
        plain = beam_search(
            example.decoder, example.memory(), Padded.from_rows([[SOS]]), beam, limits
        ).best[0]
    assert [result["score"] for result in view.data["replayed"]] == [best.score for best in plain]
    nodes = view.data["nodes"]
    for result, best in zip(view.data["replayed"], plain, strict=True):
        assert [nodes[place]["token"] for place in result["path"]][: len(best.tokens)] in (
            list(best.tokens),
            [],
        )
