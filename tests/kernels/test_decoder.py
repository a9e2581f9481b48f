"""The search's own way through a Transformer decoder, beside the decoder itself."""

import pytest
import torch

import seqlab
from seqlab.decode.beam import Beam, beam_search
from seqlab.decode.generate import Greedy, Limits, generate, score
from seqlab.kernels import native
from seqlab.layers.inputs import Embedding, Entrance, TokenInputs
from seqlab.layers.linear import Head, Linear, round_to_bytes
from seqlab.layers.tap import listening
from seqlab.models.interface import Memory
from seqlab.models.seq2seq import for_search, reorder
from seqlab.models.transformer import ROOM, Stepping, TransformerDecoder, TransformerEncoder
from seqlab.padded import Padded
from seqlab.recipe import TransformerConfig

OPTIONS = [
    {},
    {"norm": "post"},
    {"positions": "learned", "activation": "gelu", "entrance_norm": True},
    {"positions": "rotary", "window": 3, "activation": "gelu-tanh"},
    {"positions": "none", "window": 1, "scale": False},
    {"size": 20, "heads": 2, "feed_forward": 7},  # sizes that fill no vector
]
LENGTHS = [5, 0, 7, 1]  # an empty source, and one that is all of the width

options = pytest.mark.parametrize("option", OPTIONS, ids=str)


def decoder(option, *, source=True, seed=1, vocabulary=37):
    torch.manual_seed(seed)
    settings = TransformerConfig(**({"size": 24, "layers": 2, "heads": 4} | option))
    entrance = Entrance(settings.size, settings, most=ROOM + 10, dropout=0.0, name="decoder")
    embedding, head = (
        Embedding(vocabulary, settings.size, name="decoder"),
        Head(settings.size, vocabulary),
    )
    made = TransformerDecoder(
        embedding, entrance, settings, head, memory_size=13 if source else None, dropout=0.0
    )
    for parameter in made.parameters():
        if parameter.dim() == 1 and parameter.requires_grad:  # biases and gains that do something
            torch.nn.init.normal_(parameter, 0.5, 0.3)
    return made


def memory(lengths=LENGTHS, *, width=13):
    rows = [torch.randn(length, width) for length in lengths]
    values = torch.zeros(len(rows), max(lengths), width)
    for row, value in zip(values, rows, strict=True):
        row[: len(value)] = value
    return Memory(len(rows), Padded(values, torch.tensor(lengths)))


def apart(one, other):
    return float((one - other).abs().max())


@options
@torch.inference_mode()
def test_steps_in_any_order_are_the_decoders_own(kernels, option):
    """Rows that multiply, change places and end, past the first room of the cache."""
    plain = decoder(option)
    quick, given = Stepping(plain), memory()
    (numbers, state), (context, expected) = quick.start(given), plain.start(given)
    token = torch.tensor([3, 4, 5, 6])
    generator = torch.Generator().manual_seed(2)
    for step in range(ROOM + 5):
        one, state = quick.step(token, numbers, state)
        other, expected = plain.step(token, context, expected)
        assert apart(one, other) < 1e-4 * max(1.0, float(other.abs().max()))
        sources = torch.arange(len(context[0]))
        if step in (4, 9):
            sources = sources[1:]
            numbers, context = reorder(numbers, sources), reorder(context, sources)
        each = len(token) // (len(sources) + (step in (4, 9)))
        chosen = [
            int(s) * each + int(torch.randint(each, (), generator=generator))
            for s in sources
            for _ in range(3)
        ]
        rows = torch.tensor(chosen)
        state, expected = reorder(state, rows), reorder(expected, rows)
        token = torch.randint(37, (len(rows),), generator=generator)


@options
@torch.inference_mode()
def test_a_prompt_is_read_and_gone_on_from(kernels, option):
    plain = decoder(option, source=False)
    quick, tokens = Stepping(plain), torch.randint(37, (2, 9))
    context, state = quick.start(Memory(2))
    first, state = quick.read(tokens[:, :4], context, state)
    second, state = quick.step(tokens[:, 4], context, state)
    third, state = quick.read(tokens[:, 5:8], context, state)
    fourth, _ = quick.step(tokens[:, 8], context, state)
    whole, _ = plain.read(tokens, *plain.start(Memory(2)))
    found = torch.cat([first, second[:, None], third, fourth[:, None]], dim=1)
    torch.testing.assert_close(found, whole, atol=1e-4, rtol=1e-4)


def searches(driven, given, prefix, limits):
    """What greedy decoding and a beam find."""
    rows = torch.arange(len(prefix))
    greedy = generate(driven, given, prefix, Greedy(), limits, rows=rows)
    return greedy, beam_search(driven, given, prefix, Beam(width=3), limits).best


def test_searches_find_what_they_found_before(kernels):
    plain, given = decoder({"norm": "post"}, vocabulary=50), memory()
    prefix, limits = Padded.from_rows([[2], [2, 7], [2, 7, 8], [2]]), Limits(end=3, most=20)
    found = []
    for driven in (plain, OnlyADecoder(plain)):
        greedy, best = searches(driven, given, prefix, limits)
        found.append(
            [
                [row.tolist() for row in greedy.tokens.rows()],
                [[h.tokens for h in hs] for hs in best],
            ]
        )
    assert found[0] == found[1]


def test_a_beam_by_the_kernels_is_the_beam_by_torch(kernels):
    """The bookkeeping of each step, over ends, forced prefixes and a vocabulary smaller than the candidates."""
    plain, given = decoder({}, vocabulary=9), memory()
    prefix, limits = Padded.from_rows([[2], [2, 7], [2, 7, 8], [2]]), Limits(3, 12, never=(0, 1))
    for beam in (Beam(width=1), Beam(width=5), Beam(4, min_length=3), Beam(3, no_repeat=2)):
        one = beam_search(OnlyADecoder(plain), given, prefix, beam, limits, record=True)
        with native.without_kernels():
            other = beam_search(OnlyADecoder(plain), given, prefix, beam, limits, record=True)
        assert [[h.tokens for h in hs] for hs in one.best] == [
            [h.tokens for h in hs] for hs in other.best
        ]
        for step, expected in zip(one.steps, other.steps, strict=True):
            torch.testing.assert_close(step.scores, expected.scores)
            kept = (
                expected.scores > -torch.inf
            )  # which of the impossible ones is named says nothing
            for part, same in zip(step[1:], expected[1:], strict=True):
                torch.testing.assert_close(part[kept], same[kept], rtol=1e-5, atol=1e-5)


class TestBytes:
    """Rows that meet int8 weights in a search are rounded to 8 bits: near the floats, and the same in every batch."""

    def searched(self, rows=None):
        plain, given = decoder({"norm": "post", "size": 64}, vocabulary=50), memory()
        round_to_bytes(plain)
        if rows is not None:
            states = given.require_states()
            given = Memory(len(rows), Padded(states.values[rows], states.lengths[rows]))
        prefix = Padded.from_rows([[2]] * given.rows)
        limits = Limits(end=3, most=20)
        return plain, given, prefix, searches(plain, given, prefix, limits)

    def test_scores_are_those_of_the_floats_up_to_the_rounding(self, kernels):
        plain, given, prefix, (greedy, best) = self.searched()
        tokens = [[2, *row.tolist()] for row in greedy.tokens.rows()]
        rescored = score(plain, given, Padded.from_rows(tokens))
        lengths = greedy.tokens.lengths
        found = [
            sum(row[:length]) for row, length in zip(greedy.log_probabilities, lengths, strict=True)
        ]
        assert ((torch.tensor(found) - rescored).abs() < 0.02 * lengths + 0.01).all()
        assert [len(hypotheses) for hypotheses in best] == [3] * len(prefix)

    def test_a_row_gets_bit_by_bit_what_it_gets_alone(self, kernels):
        *_, (greedy, best) = self.searched()
        for row in range(len(LENGTHS)):
            *_, (alone, alone_best) = self.searched([row])
            assert alone.log_probabilities[0] == greedy.log_probabilities[row]
            assert alone_best[0] == best[row]


class OnlyADecoder:
    """A decoder without its quick way."""

    def __init__(self, decoder):
        self.start, self.read, self.step = decoder.start, decoder.read, decoder.step


def test_who_listens_hears_the_decoder_itself(kernels):
    plain, unknown = decoder({}), decoder({"normalise": "batch"})
    assert isinstance(for_search(plain), Stepping)
    assert for_search(unknown) is unknown  # no kernel knows this norm
    with listening(lambda name, value: value):
        assert for_search(plain) is plain


def test_without_kernels_the_search_takes_the_decoder_itself(monkeypatch):
    monkeypatch.setenv("SEQLAB_NATIVE", "0")
    plain = decoder({})
    assert for_search(plain) is plain


@pytest.mark.parametrize(
    "decode", [{"method": "greedy"}, {"beam": 4}, {"method": "sample", "top_k": 20}], ids=str
)
def test_a_shipped_model_answers_as_it_does_without_kernels(kernels, decode):
    model = seqlab.load("en-fr")
    texts = ["Where is the train station?", "I have never seen it before.", ""]
    found = model.predict(texts, seed=7, max_length=40, **decode)
    with native.without_kernels():
        expected = model.predict(texts, seed=7, max_length=40, **decode)
    assert [answer.output for answer in found] == [answer.output for answer in expected]


@pytest.mark.parametrize(
    "option", [*OPTIONS, {"normalise": "batch"}, {"causal": True, "window": 3}], ids=str
)
@pytest.mark.parametrize("lengths", [LENGTHS, [0, 0]], ids=str)
def test_an_encoder_that_skips_the_padding_says_what_the_other_says(option, lengths):
    """With a gradient every position is computed, without one only the real ones."""
    torch.manual_seed(1)
    settings = TransformerConfig(**({"size": 24, "layers": 2, "heads": 4} | option))
    entrance = Entrance(settings.size, settings, most=ROOM + 10, dropout=0.0, name="encoder")
    inputs = TokenInputs(Embedding(37, settings.size, name="encoder"))
    encoder = TransformerEncoder(inputs, entrance, settings, dropout=0.0)
    source = Padded.from_rows([torch.randint(37, (length,)).tolist() for length in lengths])
    whole = encoder(source)
    with torch.inference_mode():
        packed = encoder(source)
    torch.testing.assert_close(
        packed.states.values, whole.states.values.detach(), atol=1e-5, rtol=1e-5
    )
    torch.testing.assert_close(packed.summary, whole.summary.detach(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "option",
    [option for option in OPTIONS if "window" not in option] + [{"positions": "rotary"}],
    ids=str,
)
@torch.inference_mode()
def test_an_encoder_in_bytes_is_itself_by_torch_and_each_row_is_its_own(kernels, option):
    torch.manual_seed(1)
    settings = TransformerConfig(**({"size": 24, "layers": 2, "heads": 4} | option))
    entrance = Entrance(settings.size, settings, most=ROOM + 10, dropout=0.0, name="encoder")
    inputs = TokenInputs(Embedding(37, settings.size, name="encoder"))
    encoder = TransformerEncoder(inputs, entrance, settings, dropout=0.0)
    round_to_bytes(encoder)
    texts = [torch.randint(37, (length,)).tolist() for length in LENGTHS]
    source = Padded.from_rows(texts)
    native_states = encoder(source).require_states()
    with native.without_kernels():
        states = encoder(source).require_states()
    torch.testing.assert_close(native_states.values, states.values, atol=2e-3, rtol=2e-3)
    for row, text in enumerate(texts):
        alone = encoder(Padded.from_rows([text])).require_states().values[0]
        assert torch.equal(alone, native_states.values[row, : len(text)])


@torch.inference_mode()
def test_bytes_without_native_kernels_are_the_rounded_floats():
    torch.manual_seed(1)
    layer, x = Linear(9, 5), torch.randn(2, 3, 9)
    round_to_bytes(layer)
    torch.testing.assert_close(layer(x), torch.nn.functional.linear(x, layer.weight, layer.bias))
