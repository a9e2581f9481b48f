"""The laws, over every model there is. A new model joins by one line in CASES."""

from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError

from seqlab import laws
from seqlab.bundle import Bundle, save_bundle
from seqlab.codecs.codec import padded
from seqlab.data import synthetic
from seqlab.data.example import Example, Picture
from seqlab.decode.generate import Greedy, Limits, generate
from seqlab.equations.attention import mean_pool
from seqlab.layers.tap import listened_to
from seqlab.models.interface import Decoder, Memory, Reading, SequenceModel
from seqlab.padded import Batch, Padded
from seqlab.recipe import build_recipe, override
from seqlab.tasks import build_model, load_bundle
from seqlab.text import EOS, KINDS, SOS, Normaliser, from_json, learn
from tests.codec_of_examples import learn as learn_codec

CELLS, CONNECTIONS = (
    ("rnn", "relu-rnn", "lstm", "gru", "gru-torch", "mgu"),
    ("plain", "residual", "highway", "dense"),
)
POOLINGS = ("final", "mean", "max", "detectors", "theme", "attention")
SWITCH, CONTEXTS = ("false", "true"), ("first", "every")

WIRINGS, SCORES = ("bahdanau", "luong", "concat"), ("dot", "general", "additive", "scaled")
TRANSFORMER_OPTIONS = (
    "norm=post",
    "normalise=batch",
    "normalise=none",
    "positions=learned",
    "positions=rotary",
    "positions=none",
)
HEADS = "model.{0}.kind={1} model.{0}.size=8 model.{0}.heads=2"


def _both(kind, *options):
    sides = ("encoder", "decoder")
    return " ".join(
        [HEADS.format(s, kind) for s in sides] + [f"model.{s}.{o}" for s in sides for o in options]
    )


# A task, and settings as `--set` takes them, on top of the small recipe below.
CASES = [
    *[
        ("lm", f"model.decoder.kind={c} model.decoder.connection={j}")
        for c, j in product(CELLS, CONNECTIONS)
    ],
    *[("lm", f"model.decoder.kind={c} model.tie=true") for c in CELLS],
    ("lm", "model.embedding=6 model.tie=true model.decoder.connection=dense"),
    ("lm", "target.kind=bpe target.size=300"),
    *[
        ("classify", f"model.pooling={p} model.encoder.bidirectional={b}")
        for p, b in product(POOLINGS, SWITCH)
    ],
    *[("classify", f"model.pooling=attention model.encoder.kind={c}") for c in CELLS],
    *[
        ("tag", f"model.encoder.kind={c} model.encoder.bidirectional={b}")
        for c, b in product(CELLS, SWITCH)
    ],
    *[
        ("tag", f"model.encoder.bidirectional=true model.encoder.connection={j}")
        for j in CONNECTIONS
    ],
    *[
        (
            "translate",
            " ".join(
                f"model.{side}.kind={c} model.{side}.connection={j}"
                for side in ("encoder", "decoder")
            ),
        )
        for c, j in product(CELLS, CONNECTIONS)
    ],
    *[
        ("translate", f"model.encoder.bidirectional={b} model.context={c} model.tie={t}")
        for b, c, t in product(SWITCH, CONTEXTS, SWITCH)
    ],
    *[
        ("translate", f"model.encoder.bidirectional=true model.encoder.connection={j}")
        for j in CONNECTIONS
    ],
    ("translate", "source.kind=bytes target.kind=words model.encoder.kind=gru"),
    ("translate", "shared=true model.tie=true model.decoder.layers=1"),
    *[("lm", HEADS.format("decoder", kind)) for kind in ("transformer", "universal")],
    (
        "lm",
        HEADS.format("decoder", "transformer")
        + " model.decoder.positions=rotary model.decoder.window=3",
    ),
    *[
        ("classify", HEADS.format("encoder", "transformer") + f" model.pooling={p}")
        for p in POOLINGS
    ],
    *[("tag", HEADS.format("encoder", kind)) for kind in ("transformer", "universal")],
    *[
        ("translate", f"model.attention.wiring={w} model.attention.score={s}")
        for w, s in product(WIRINGS, SCORES)
    ],
    *[
        ("translate", f"model.attention.wiring={w} model.attention.feeding=true")
        for w in WIRINGS[1:]
    ],
    *[
        ("translate", f"model.attention.wiring=bahdanau model.decoder.kind={c} model.tie=true")
        for c in CELLS
    ],
    ("translate", HEADS.format("encoder", "transformer") + " model.attention.score=additive"),
    ("translate", HEADS.format("encoder", "universal") + " model.attention.wiring=luong"),
    ("translate", HEADS.format("decoder", "transformer") + " model.encoder.bidirectional=true"),
    *[("translate", _both(kind)) for kind in ("transformer", "universal")],
    *[("translate", _both("transformer", option)) for option in TRANSFORMER_OPTIONS],
    ("translate", _both("transformer") + " shared=true model.tie=true"),
    ("translate", _both("transformer") + " model.encoder.layers=4 model.decoder.layers=1"),
    ("translate", _both("transformer") + " shared=true model.tie=true model.pointer=true"),
    (
        "translate",
        "shared=true model.attention.wiring=luong model.attention.feeding=true model.pointer=true",
    ),
]

LETTERS = "model.characters.kind=gru model.characters.size=3 model.characters.bidirectional=true"
ELMO = "model.elmo.kind=lstm model.elmo.size=4 model.elmo.layers=2"
BERT = [
    "norm=post",
    "positions=learned",
    "activation=gelu",
    "scale=false",
    "entrance_norm=true",
    "segments=2",
    "epsilon=1e-12",
]
CASES += [
    ("mask", ""),
    ("mask", "model.encoder.bidirectional=true model.tie=true"),
    ("mask", "model.encoder.bidirectional=true model.pooling=theme model.theme=3"),
    ("mask", HEADS.format("encoder", "transformer") + " model.tie=true source.markers=true"),
    (
        "mask",
        " ".join([HEADS.format("encoder", "transformer"), *(f"model.encoder.{o}" for o in BERT)])
        + " source.frame=true",
    ),
    *[
        ("bilm", f"model.encoder.kind={c} model.encoder.connection=residual")
        for c in ("lstm", "gru")
    ],
    ("classify", "model.pooling=hops model.hop_penalty=0.1 model.encoder.bidirectional=true"),
    ("classify", HEADS.format("encoder", "transformer") + " model.encoder.causal=true"),
    ("classify", f"{ELMO} model.pooling=max"),
    ("tag", LETTERS),
    ("classify", f"source.kind=words {LETTERS} model.pooling=max"),
    ("tag", f"{LETTERS} {ELMO} model.encoder.bidirectional=true"),
    ("tag", f"{LETTERS} {HEADS.format('encoder', 'transformer')}"),
    ("tag", "source.kind=bpe source.size=300"),
    ("tag", "source.kind=wordpiece source.frame=true"),
    *[(task, "source.kind=vectors") for task in ("classify", "tag", "translate")],
    ("classify", HEADS.format("encoder", "transformer") + " source.kind=vectors"),
    ("lm", "model.decoder=none model.hmm.states=4"),
    *[("tag", f"model.encoder=none model.hmm.order={order} source.endings=2") for order in (1, 2)],
    *[
        ("tag", f"model.encoder=none source.kind=vectors model.hmm.emissions={e}")
        for e in ("diagonal", "full")
    ],
]

IMAGE = "source.kind=vectors image.height=6 image.width=5"
CONVOLUTION = (
    f"{IMAGE} model.encoder.kind=convolution model.encoder.size=8 model.encoder.channels=4"
)
GLIMPSE = f"{IMAGE} image.channels=1 model.encoder.kind=glimpse model.encoder.size=5 model.encoder.window=3"
CASES += [
    ("classify", IMAGE),
    ("classify", f"{IMAGE} {HEADS.format('encoder', 'transformer')} model.pooling=attention"),
    (
        "classify",
        f"source.kind=vectors image.height=6 image.width=4 image.patch=2 {HEADS.format('encoder', 'universal')}",
    ),
    ("classify", f"{CONVOLUTION} model.pooling=mean image.shift=1"),
    *[("classify", f"{GLIMPSE} model.pooling={p}") for p in ("final", "mean")],
    *[
        ("caption", f"{CONVOLUTION} {more}")
        for more in ("model.encoder.blocks=2", HEADS.format("decoder", "transformer"))
    ],
    *[
        ("caption", f"{CONVOLUTION} model.attention.wiring={w} model.attention.doubly_stochastic=1")
        for w in ("bahdanau", "luong")
    ],
    ("caption", f"{GLIMPSE} model.attention.wiring=concat"),
    ("caption", "source.kind=vectors model.encoder.kind=features model.attention.wiring=luong"),
]

STACK = {"kind": "lstm", "size": 5, "layers": 2}
SIDES = {"lm": ("decoder",), "translate": ("encoder", "decoder"), "caption": ("encoder", "decoder")}
TEXTS = [pair[0] for pair in synthetic.copies(40, seed=1, longest=9)]
BATCH = ["", "a", *TEXTS[:4]]  # an empty row, one of length one, and others
ROUNDING = {torch.float64: 1e-10, torch.float32: 1e-5}

DECODERS = [case for case in CASES if case[0] in SIDES]

every_case = pytest.mark.parametrize(("task", "settings"), CASES, ids=map(" ".join, CASES))
every_decoder = pytest.mark.parametrize(("task", "settings"), DECODERS, ids=map(" ".join, DECODERS))
both_precisions = pytest.mark.parametrize("dtype", ROUNDING, ids=["double", "single"])


def example(task, text, settings=""):
    """What a task is to learn about a text; a word of a sentence is a letter here, and so is a frame of vectors."""
    source = tuple(text) if task == "tag" else text
    if "image.height" in settings:
        width = (4 if "width=4" in settings else 5) * (1 if "channels=1" in settings else 3)
        pixels = np.random.default_rng(list(text.encode())).integers(
            0, 256, (6, width), dtype=np.uint8
        )
        source = Picture(text, pixels)
    elif "kind=vectors" in settings:
        source = np.asarray(
            [[ord(letter), ord(letter) % 7, 1] for letter in text], dtype=np.float32
        ).reshape(-1, 3)
    if task == "tag":
        return Example(
            source, tuple("vowel" if letter in "aeiou" else "consonant" for letter in text), ""
        )
    label = "long" if len(text) > 4 else "short"
    target = {"lm": text, "mask": "", "bilm": "", "classify": label}.get(task, text[::-1])
    return Example("" if task == "lm" else source, target, "")


@cache
def bundle(task, settings):
    """The small recipe with the case's settings: its codec and its model, no weight of which is zero."""
    small = {
        "name": "small",
        "task": task,
        "source": {"kind": {"tag": "words", "caption": "vectors"}.get(task, "characters")},
        "model": {
            "embedding": 5 if task == "bilm" else 4,
            **dict.fromkeys(SIDES.get(task, ("encoder",)), STACK),
        },
        "train": {"steps": 1},
    }
    recipe = override(build_recipe(small, where="test"), settings.split())
    codec = learn_codec(recipe, lambda: [example(task, text, settings) for text in TEXTS])
    model = build_model(recipe, codec)
    generator = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        if parameter.dtype == torch.float64:
            continue  # probabilities of a hidden Markov model, which must stay such
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    return Bundle(recipe, codec, model, {})


def in_precision(task, settings, dtype):
    whole = bundle(task, settings)
    model = build_model(whole.recipe, whole.codec).to(dtype)
    model.load_state_dict(whole.model.state_dict())
    return model


def batch_of(task, settings, texts=tuple(BATCH)):
    codec = bundle(task, settings).codec
    sources, targets = zip(
        *codec.encode([example(task, text, settings) for text in texts]), strict=True
    )
    source = None if task == "lm" else padded(sources)
    return Batch(
        torch.arange(len(texts)),
        source,
        None if task in ("mask", "bilm") else Padded.from_rows(targets),
    )


def memory_of(model, batch):
    return Memory(len(batch)) if batch.source is None else model.encoder(batch.source)


def logits_of(model, batch):
    reading = model.read_batch(batch, ())
    return model.head(reading.features[reading.gold.scored])


@every_case
def test_padding_changes_nothing(task, settings):
    model, batch = in_precision(task, settings, torch.float64), batch_of(task, settings)
    assert isinstance(model, SequenceModel)
    assert laws.padding_changes_nothing(model, batch, extra=4, junk=2) < 1e-10


@every_case
def test_a_batch_equals_its_rows_one_by_one(task, settings):
    model = in_precision(task, settings, torch.float64)
    assert laws.a_batch_equals_its_rows(model, batch_of(task, settings)) < 1e-10


@every_case
@both_precisions
def test_looking_changes_nothing(task, settings, dtype):
    model = in_precision(task, settings, dtype)
    assert laws.looking_changes_nothing(model, batch_of(task, settings)) < ROUNDING[dtype]


@every_case
def test_save_and_load_is_identity(task, settings, tmp_path):
    saved, batch = bundle(task, settings), batch_of(task, settings)
    save_bundle(saved, tmp_path)
    loaded = load_bundle(tmp_path)
    assert loaded.recipe == saved.recipe
    assert loaded.codec.to_json() == saved.codec.to_json()
    found, expected = logits_of(loaded.model, batch), logits_of(saved.model, batch)
    assert expected.numel() > 0
    assert found.equal(expected)


@every_decoder
def test_the_future_never_changes_the_past(task, settings):
    model, batch = in_precision(task, settings, torch.float64), batch_of(task, settings)
    assert isinstance(model.decoder, Decoder)
    memory = memory_of(model, batch)
    assert (
        laws.the_future_never_changes_the_past(model.decoder, memory, batch.target.values) < 1e-10
    )


@every_decoder
@both_precisions
def test_reading_equals_stepping(task, settings, dtype):
    model, batch = in_precision(task, settings, dtype), batch_of(task, settings)
    memory = memory_of(model, batch)
    assert (
        laws.reading_equals_stepping(model.decoder, memory, batch.target.values) < ROUNDING[dtype]
    )


@every_decoder
def test_reported_scores_equal_rescoring_and_top_one_is_greedy(task, settings):
    model, batch = in_precision(task, settings, torch.float64), batch_of(task, settings)
    prefix = Padded.from_rows([[SOS], [SOS, 7, 8], [SOS, 9], [SOS], [SOS, 7, 7, 7, 6], [SOS, 8]])
    search = laws.SearchCase(model.decoder, memory_of(model, batch), prefix, EOS)
    assert laws.reported_scores_equal_rescoring(search) < 1e-10
    assert laws.top_one_equals_greedy(search) == 0
    assert laws.beam_one_equals_greedy(search) == 0
    assert laws.beam_scores_equal_rescoring(search) < 1e-10


def test_the_models_cover_every_kind_of_ending():
    """Else the laws about decoding would say little: among the models some rows end by themselves, some are cut."""
    ended = []
    for task, settings in DECODERS:
        model, batch = in_precision(task, settings, torch.float64), batch_of(task, settings)
        prefix, rows = Padded.from_rows([[SOS]] * len(batch)), torch.arange(len(batch))
        limits = Limits(end=EOS, most=12)
        out = generate(model.decoder, memory_of(model, batch), prefix, Greedy(), limits, rows=rows)
        ended += (out.tokens.lengths < 12).tolist()
    assert 0.02 < sum(ended) / len(ended) < 0.98


class Broken:
    """A model whose reading was tampered with."""

    def __init__(self, model, tamper):
        self.model, self.tamper, self.head = model, tamper, model.head

    def read_batch(self, batch, carried):
        reading = self.model.read_batch(batch, carried)
        return Reading(self.tamper(reading.features, batch), reading.gold)


class Peeking:
    """A decoder that sees one token too far, and one token at a time sees none too far."""

    def __init__(self, decoder):
        self.decoder, self.start = decoder, decoder.start

    def read(self, tokens, context, state):
        logits, state = self.decoder.read(tokens, context, state)
        return logits + tokens.roll(-1, dims=1)[..., None], state

    def step(self, token, context, state):
        return self.decoder.step(token, context, state)


def test_a_violated_law_is_detected():
    model, batch = in_precision("lm", "", torch.float64), batch_of("lm", "")
    wider = Broken(model, lambda features, batch: features + batch.target.values.shape[1] / 100)
    mixed = Broken(model, lambda features, batch: features + features.mean(0))
    watched = Broken(model, lambda features, batch: features + listened_to())
    assert laws.padding_changes_nothing(wider, batch) > 1e-3
    assert laws.a_batch_equals_its_rows(mixed, batch) > 1e-3
    assert laws.looking_changes_nothing(watched, batch) > 1e-3
    decoder, memory, tokens = Peeking(model.decoder), Memory(len(batch)), batch.target.values
    assert laws.the_future_never_changes_the_past(decoder, memory, tokens) > 0.5
    assert laws.reading_equals_stepping(decoder, memory, tokens) > 0.5


def test_shapes_in_signatures_are_enforced_here(request):
    """`make test` says so; a bare pytest does not, and is three times as fast."""
    if not request.config.getoption("jaxtyping_packages"):
        pytest.skip("without --jaxtyping-packages shapes are not enforced")
    with pytest.raises(TypeCheckError):
        mean_pool(torch.zeros(2, 3, 4), torch.ones(2, 5, dtype=torch.bool))


@pytest.mark.parametrize("kind", KINDS)
def test_a_tokenizer_decodes_what_it_encodes(kind):
    """Every text made of what was seen comes back, from the tokenizer and from its copy on disk."""
    written = [" ".join(TEXTS[i : i + 3]) for i in range(len(TEXTS) - 2)]
    texts = (
        written
        if kind in ("words", "wordpiece")
        else [*written, *(dated[0] for dated in synthetic.dates(40, seed=2))]
    )
    tokenizer = learn(kind, texts, normaliser=Normaliser(), size=2000)
    again = from_json(tokenizer.to_json())
    for text in texts:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == Normaliser()(text)
        assert again.encode(text) == ids
        assert again.decode(ids) == tokenizer.decode(ids)
    assert tokenizer.encode_all(texts) == [tokenizer.encode(text) for text in texts]
