import pytest
import torch

from seqlab import lab
from seqlab.data.synthetic import reversals
from seqlab.errors import UsageError
from seqlab.explain.attention import alignment
from seqlab.tasks import subject

SMALL = (
    "model.embedding=24",
    "model.encoder.size=32",
    "model.decoder.size=32",
    "train.batch_tokens=512",
)
KINDS = {
    "bahdanau": ("model.attention.wiring=bahdanau",),
    "luong": (
        "model.attention.wiring=luong",
        "model.attention.score=general",
        "model.attention.feeding=true",
    ),
    "transformer": ("model.encoder.kind=transformer", "model.decoder.kind=transformer"),
}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    path.write_text(
        "".join(f"{a}\t{b}\n" for a, b in reversals(3000, seed=1, longest=7, letters="abcdef"))
    )
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_a_trace_holds_the_alignment_and_the_output_it_belongs_to(kind, pairs, tmp_path):
    settings = (*SMALL, *KINDS[kind], "train.steps=2")
    model = lab.train(
        "translate", pairs, recipe="dates", settings=settings, out=tmp_path / "m"
    ).model
    example = subject(model.bundle, "abc", output="cb")
    trace = example.trace()
    weights = torch.from_numpy(alignment(example))
    assert trace.tokens["source"] == tuple("abc")
    assert trace.tokens["answered"][:2] == ("c", "b")
    assert weights.shape == (3, 3)  # a row for the end token too
    torch.testing.assert_close(weights.sum(-1), torch.ones(3))
    assert trace["logits"].shape[:2] == (1, 3)


def test_attention_learns_to_read_backwards(pairs, tmp_path):
    """The first output letter is the last input letter, and the attention weights show it."""
    settings = (*SMALL, *KINDS["bahdanau"], "train.steps=350", "train.learning_rate=1e-2")
    model = lab.train(
        "translate", pairs, recipe="dates", settings=settings, out=tmp_path / "m"
    ).model
    output = model.predict("abcdef").output
    assert output == "fedcba"
    weights = alignment(subject(model.bundle, "abcdef"))
    assert weights[:6].argmax(-1).tolist() == [5, 4, 3, 2, 1, 0]


def test_a_model_without_attention_has_no_alignment(pairs, tmp_path):
    settings = (*SMALL, "train.steps=2")
    model = lab.train(
        "translate", pairs, recipe="dates", settings=settings, out=tmp_path / "m"
    ).model
    with pytest.raises(UsageError, match="no attention"):
        alignment(subject(model.bundle, "abc", output="cb"))
