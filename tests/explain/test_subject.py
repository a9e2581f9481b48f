import pytest
import torch

from seqlab.errors import DataError, UsageError
from seqlab.tasks import predict, subject, task_of
from seqlab.tasks.task import Job
from seqlab.tasks.text_generation import hypotheses, score
from seqlab.text import SOS
from seqlab.trace import Trace

from .conftest import TRANSFORMER

ENCODERS = ("", "model.encoder.bidirectional=true", TRANSFORMER.split(" model.decoder")[0])
TEXTS = {
    "classify": "the cat",
    "tag": "the dog ran",
    "mask": "the [MASK] ran",
    "lm": "the c",
    "translate": "cat",
}


@pytest.mark.parametrize("task", TEXTS)
def test_a_trace_has_the_logits_of_the_model(task, bundle_of):
    example = subject(bundle_of(task), TEXTS[task])
    trace = example.trace()
    torch.testing.assert_close(
        trace["logits"].reshape(len(example.answers), -1), example.logits(), atol=1e-5, rtol=0
    )
    assert len(example.answer_names) == len(example.answers)


def test_a_hypothesis_of_the_search_keeps_its_log_probability(bundle_of):
    bundle = bundle_of("translate", TRANSFORMER)
    results = hypotheses(Job(bundle, ["the cat"], bundle.recipe.decode))[0]
    second = subject(bundle, "the cat", hypothesis=2)
    assert second.writes == (SOS, *results[1].tokens)
    whole = second.log_probabilities()[: len(results[1].log_probabilities)].sum()
    assert float(whole.detach()) == pytest.approx(results[1].log_probability, abs=1e-5)
    with pytest.raises(UsageError, match="no hypothesis 9"):
        subject(bundle, "the cat", hypothesis=9)


def test_the_answers_are_those_of_predict(bundle_of):
    label = subject(bundle_of("classify"), "the cat")
    assert label.answer_names == (predict(bundle_of("classify"), ["the cat"])[0].output,)
    tags = subject(bundle_of("tag"), "the dog ran")
    assert list(tags.answer_names) == predict(bundle_of("tag"), ["the dog ran"])[0].details["tags"]
    assert tags.source == ("the", "dog", "ran")
    text = subject(bundle_of("lm"), "the c")
    likely = float(text.log_probabilities()[:-1].sum().detach())
    ended = score(task_of(bundle_of("lm").recipe), bundle_of("lm"), [], ["the c"])[
        0
    ]  # includes the end token
    assert likely > ended
    filled = subject(bundle_of("mask"), "the [MASK] ran")
    assert filled.answer_names[0], filled.answer_names[2] == ("the", "ran")
    assert filled.answer_names[1] != "[MASK]"


def test_an_empty_input_and_a_model_without_answers_are_refused(bundle_of):
    with pytest.raises(UsageError, match="the input is empty"):
        subject(bundle_of("classify"), "")
    with pytest.raises(UsageError, match="no position 7"):
        subject(bundle_of("tag"), "the dog ran").place(7)


@pytest.mark.parametrize("settings", ENCODERS)
def test_a_trace_is_saved_and_loaded(settings, bundle_of, tmp_path):
    trace = subject(bundle_of("tag", settings), "the dog ran").trace()
    trace.save(tmp_path / "trace.safetensors")
    again = Trace.load(tmp_path / "trace.safetensors")
    assert again.tokens == trace.tokens
    assert set(again.names()) == set(trace.names())
    for name in trace.names():
        largest = float(trace[name].abs().max())
        torch.testing.assert_close(
            again[name], trace[name].float(), atol=max(0.003, 0.001 * largest), rtol=0
        )
    packed = trace.to_json()
    assert packed["schema"] == 1
    assert packed["values"]["logits"]["type"] == "f16"
    (tmp_path / "other.safetensors").write_bytes(b"nothing")
    with pytest.raises(DataError, match="not a readable trace"):
        Trace.load(tmp_path / "other.safetensors")


def test_backward_states_are_aligned_with_their_tokens(bundle_of):
    """The backward layer reads the last token first, so its state there equals that of the token alone."""
    bundle = bundle_of("tag", "model.encoder.bidirectional=true")
    whole, last = subject(bundle, "the dog ran").trace(), subject(bundle, "ran").trace()
    torch.testing.assert_close(
        whole["encoder.0.backward.h"][0, -1], last["encoder.0.backward.h"].reshape(-1)
    )
