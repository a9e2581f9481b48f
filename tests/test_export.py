"""Models written for other programs give there what they give here; those programs are asked where they are installed.

Weights are random, biases and norms too, so that nothing can be left out or put elsewhere unseen.
"""

import json
import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from seqlab.bundle import Bundle, save_bundle
from seqlab.codecs.codec import padded
from seqlab.data.example import Example
from seqlab.errors import RunError, SeqlabWarning, UsageError
from seqlab.export import export
from seqlab.export.ctranslate2 import tokens_of
from seqlab.huggingface_import import read_huggingface
from seqlab.lab import load
from seqlab.recipe import load_recipe, override
from seqlab.tasks import build_model
from tests.codec_of_examples import learn

WORDS = ["the", "cat", "Dog", "sees", "a", "house", "big", "Ünited", "runs", "it's", "42", "日本"]
DRAWN = random.Random(1)
TEXTS = [" ".join(DRAWN.choice(WORDS) for _ in range(DRAWN.randint(1, 8))) for _ in range(200)]
TINY = ("source.size=300", "source.min_count=1", "model.embedding=12")
BERT = (
    "source.kind=wordpiece",
    "source.frame=true",
    "model.encoder.norm=post",
    "model.encoder.entrance_norm=true",
)
BERT += (
    "model.encoder.positions=learned",
    "model.encoder.scale=false",
    "model.encoder.activation=gelu",
)
TRANSLATOR = (
    "decode.method=greedy",
    "decode.max_length=12",
    "data.max_source=60",
    "data.max_target=60",
)


def stack(side, *more):
    return [
        f"model.{side}.{part}"
        for part in ("size=12", "layers=2", "heads=3", "feed_forward=20", *more)
    ]


def made(folder, name, *settings):
    """A model of a recipe with weights all over the place, stored as if it had been trained."""
    recipe = override(load_recipe(name), [*TINY, *settings])
    tagged = recipe.task == "tag"
    rows = [(text, text[::-1] if recipe.task == "translate" else text[0]) for text in TEXTS]
    rows = [(tuple(s.split()), tuple(w[0] for w in s.split())) for s, _ in rows] if tagged else rows
    codec = learn(recipe, lambda: (Example(source, target, "here") for source, target in rows))
    model, generator = build_model(recipe, codec), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    save_bundle(Bundle(recipe, codec, model, {"validation": {}}), folder)
    return load(folder)


@torch.no_grad()
def states(model, texts):
    """What the encoder makes of each text, without pads."""
    source = padded(model.bundle.codec.source.encode(texts))
    return source.with_values(model.bundle.model.encoder(source).states.values).rows()


def translator(folder, norm, positions):
    sides = [*stack("encoder"), *stack("decoder", "layers=1")]
    alike = [
        f"model.{side}.{what}"
        for side in ("encoder", "decoder")
        for what in (f"norm={norm}", f"positions={positions}")
    ]
    return made(folder, "transformer-tiny", *sides, *alike, *TRANSLATOR)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_translator_writes_the_same_with_hugging_faces_library(tmp_path, norm, positions):
    transformers = pytest.importorskip("transformers")
    model = translator(tmp_path / "ours", norm, positions)
    folder = export(model, "huggingface", tmp_path / "theirs")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    read = tokenizer(TEXTS, return_tensors="pt", padding=True, return_token_type_ids=False)
    assert [
        row[:n] for row, n in zip(read.input_ids.tolist(), read.attention_mask.sum(1), strict=True)
    ] == (model.bundle.codec.source.encode(TEXTS))
    said = tokenizer.batch_decode(theirs.generate(**read), skip_special_tokens=True)
    expected = [answer.output for answer in model.predict(TEXTS)]
    assert said == expected
    assert len({*expected}) > 10
    with torch.no_grad():
        seen = theirs.get_encoder()(**read).last_hidden_state
    for row, known in zip(seen, states(model, TEXTS), strict=True):
        torch.testing.assert_close(row[: len(known)], known, atol=1e-5, rtol=0)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_translator_writes_the_same_with_ctranslate2(tmp_path, norm, positions):
    ctranslate2 = pytest.importorskip("ctranslate2")
    model = translator(tmp_path / "ours", norm, positions)
    folder = export(model, "ctranslate2", tmp_path / "theirs")
    theirs = ctranslate2.Translator(
        str(folder), compute_type="float32", intra_threads=1, inter_threads=1
    )
    codec = model.bundle.codec
    names = tokens_of(codec.source_tokenizer)
    sources = [[names[index] for index in ids] for ids in codec.source.encode(TEXTS)]
    found = theirs.translate_batch(sources, beam_size=1, max_decoding_length=12, return_scores=True)
    expected = model.predict(TEXTS)
    assert [
        codec.target_tokenizer.decode([names.index(t) for t in each.hypotheses[0]])
        for each in found
    ] == [answer.output for answer in expected]


def test_an_encoder_computes_the_same_as_megatron_bert(tmp_path):
    transformers = pytest.importorskip("transformers")
    model = made(tmp_path / "ours", "bert-tiny", *stack("encoder"), "model.tie=false")
    folder = export(model, "huggingface", tmp_path / "theirs")
    theirs = transformers.AutoModel.from_pretrained(folder).eval()
    texts = [*TEXTS[:100], *(f"{text} [MASK]" for text in TEXTS[100:])]
    read = transformers.AutoTokenizer.from_pretrained(folder)(
        texts, return_tensors="pt", padding=True
    )
    with torch.no_grad():
        seen = theirs(
            input_ids=read.input_ids, attention_mask=read.attention_mask
        ).last_hidden_state
    for row, known in zip(seen, states(model, texts), strict=True):
        torch.testing.assert_close(row[: len(known)], known, atol=1e-5, rtol=0)


def test_a_tagger_computes_the_same_as_bert(tmp_path):
    transformers = pytest.importorskip("transformers")
    model = made(
        tmp_path / "ours",
        "bilstm-tagger",
        "model.encoder.kind=transformer",
        *BERT,
        *stack("encoder"),
    )
    folder = export(model, "huggingface", tmp_path / "theirs")
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(folder).eval()
    read = transformers.AutoTokenizer.from_pretrained(folder)(
        TEXTS, return_tensors="pt", padding=True
    )
    with torch.no_grad():
        best = theirs(input_ids=read.input_ids, attention_mask=read.attention_mask).logits.argmax(
            -1
        )
    words = [tuple(text.split()) for text in TEXTS]
    starts = [model.bundle.codec.source.starts(each) for each in words]
    said = [
        [theirs.config.id2label[int(row[i])] for i in at]
        for row, at in zip(best, starts, strict=True)
    ]
    assert said == [answer.details["tags"] for answer in model.predict(TEXTS)]


def test_an_exported_model_can_be_imported(tmp_path):
    model = made(
        tmp_path / "ours",
        "bert-tiny",
        *BERT,
        *stack("encoder"),
        "source.form=none",
        "model.encoder.epsilon=1e-6",
    )
    folder = export(model, "huggingface", tmp_path / "theirs")
    with pytest.warns(SeqlabWarning, match="must be learnt"):
        again = read_huggingface(folder)
    assert again.codec.source.encode(TEXTS) == model.bundle.codec.source.encode(TEXTS)
    parameters = dict(model.bundle.model.named_parameters())
    for name, parameter in again.model.encoder.named_parameters():
        assert torch.equal(parameter, parameters[f"encoder.{name}"])
    assert again.recipe.model.encoder == model.recipe.model.encoder


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("bilstm-classifier", ["model.encoder.size=8", "model.encoder.layers=2"]),
        ("self-attentive", ["model.encoder.size=8"]),
        ("transformer-classifier", stack("encoder")),
        ("bilstm-tagger", ["model.encoder.size=8"]),
        ("bert-tiny", stack("encoder", "positions=learned")),
    ],
)
def test_a_graph_computes_the_same(tmp_path, name, settings):
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    model = made(tmp_path / "ours", name, *settings)
    export(model, "onnx", tmp_path / "theirs")
    session = onnxruntime.InferenceSession(tmp_path / "theirs" / "model.onnx")
    tagged = model.recipe.task == "tag"
    for ids in model.bundle.codec.source.encode(
        [tuple(text.split()) if tagged else text for text in TEXTS]
    ):
        (seen,) = session.run(None, {"source": np.array([ids])})
        with torch.no_grad():
            known = model.bundle.model.head(model.bundle.model.features(padded([ids])))
        np.testing.assert_allclose(seen, known, atol=2e-5)
    stored = json.loads((tmp_path / "theirs" / "tokenizer.json").read_text())
    assert stored == model.bundle.codec.to_json()


SAME = "this model has no counterpart in "


@pytest.mark.parametrize(
    ("to", "name", "settings", "said"),
    [
        (
            "huggingface",
            "bilstm-classifier",
            (),
            "it has no counterpart of the output layers of a 'bilstm-classifier'",
        ),
        ("huggingface", "bilstm-tagger", (), "its encoder is of kind 'lstm', not a Transformer"),
        (
            "huggingface",
            "bert-tiny",
            stack("encoder", "positions=rotary"),
            "it has rotary positions",
        ),
        (
            "huggingface",
            "bert-tiny",
            stack("encoder", "norm=post"),
            "a norm after its residual sums but none on its embeddings",
        ),
        (
            "huggingface",
            "bert-tiny",
            (*stack("encoder"), "source.kind=words"),
            "it reads a tokenizer of kind 'words'",
        ),
        (
            "huggingface",
            "transformer-tiny",
            (*stack("encoder"), *stack("decoder"), "model.tie=false"),
            "one embedding table",
        ),
        (
            "huggingface",
            "transformer-tiny",
            ("model.encoder.norm=post",),
            "encoder and its decoder differ in 'norm'",
        ),
        ("huggingface", "gpt-tiny", stack("decoder"), "output layers of a 'gpt-tiny'"),
        ("ctranslate2", "seq2seq", (), "its encoder is of kind 'lstm'"),
        (
            "ctranslate2",
            "bert-tiny",
            stack("encoder"),
            "it is a 'mask' model, and only translators go there",
        ),
        (
            "onnx",
            "transformer-tiny",
            (*stack("encoder"), *stack("decoder")),
            "a 'translate' model does more than one pass",
        ),
        (
            "onnx",
            "lstm-classifier",
            ("model.encoder.kind=gru",),
            "a 'gru' encoder with these inputs is a loop",
        ),
        ("onnx", "hmm-tagger", (), "or is no network"),
    ],
)
def test_models_without_a_counterpart_are_refused_with_the_reason(
    tmp_path, to, name, settings, said
):
    if to != "huggingface":
        pytest.importorskip(to)
    model = made(tmp_path / "ours", name, *settings)
    with pytest.raises(UsageError, match=SAME) as told:
        export(model, to, tmp_path / "theirs")
    assert said in str(told.value)
    assert "nothing was written" in told.value.hint
    assert not (tmp_path / "theirs").exists()


def test_an_int8_model_is_exported_except_to_onnx(tmp_path):
    model = made(tmp_path / "ours", "bert-tiny", *BERT, *stack("encoder"), "source.form=none")
    rounded = load(tmp_path / "ours", int8=True)
    export(rounded, "huggingface", tmp_path / "theirs")
    weights = load_file(tmp_path / "theirs" / "model.safetensors")
    name = "bert.embeddings.word_embeddings.weight"
    torch.testing.assert_close(
        weights[name], model.bundle.model.encoder.inputs.embedding.weight, atol=0.02, rtol=0
    )
    assert not torch.equal(weights[name], model.bundle.model.encoder.inputs.embedding.weight)
    pytest.importorskip("onnx")
    with pytest.raises(UsageError, match="its matrices are int8"):
        export(rounded, "onnx", tmp_path / "graph")


@pytest.mark.parametrize("to", ["ctranslate2", "onnx"])
def test_a_missing_package_is_named(tmp_path, monkeypatch, to):
    model = made(tmp_path / "ours", "bilstm-classifier", "model.encoder.size=8")
    monkeypatch.setitem(sys.modules, to, None)
    with pytest.raises(UsageError, match=f"the package {to} is not installed") as told:
        export(model, to, tmp_path / "theirs")
    assert told.value.hint.startswith(f"pip install {to}")


def test_an_existing_directory_or_an_unknown_format_is_refused(tmp_path):
    model = made(tmp_path / "ours", "bilstm-classifier", "model.encoder.size=8")
    with pytest.raises(RunError, match="this exists already"):
        export(model, "onnx", tmp_path / "ours")
    with pytest.raises(UsageError, match="there is no format 'huggingfaces'") as told:
        export(model, "huggingfaces", tmp_path / "theirs")
    assert told.value.hint == "did you mean 'huggingface'?"


def test_the_command(tmp_path):
    made(tmp_path / "ours", "bert-tiny", *stack("encoder"))
    command = [
        sys.executable,
        "-m",
        "seqlab",
        "export",
        tmp_path / "ours",
        "--to",
        "huggingface",
        "-o",
    ]
    done = subprocess.run([*command, tmp_path / "theirs"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"huggingface: {tmp_path / 'theirs'}\n"), (
        done.stderr
    )
    names = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in (tmp_path / "theirs").iterdir()} == names
