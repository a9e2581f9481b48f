"""Sources and targets: what they learn, encode, show, parse, and that they survive a bundle."""

import json

import numpy as np
import pytest

from seqlab.codecs.codec import Codec, Nothing, Places
from seqlab.codecs.labels import LabelTarget
from seqlab.codecs.numbers import NumberTarget
from seqlab.codecs.picture import PictureSource
from seqlab.codecs.series import SeriesSource
from seqlab.codecs.text import TextSource, TextTarget, learn_codec, read_codec
from seqlab.codecs.vectors import VectorSource, VectorTarget
from seqlab.codecs.words import WordSource
from seqlab.data.example import Example, Picture
from seqlab.errors import BundleError, DataError, UsageError
from seqlab.padded import Measured, Tokens
from seqlab.recipe import ImageConfig, load_recipe, override
from seqlab.text import EOS, MASK, SEP, SOS, UNK, UNSEEN, Labels, Normaliser, learn

MOST = 1000
LETTERS = learn("characters", ["the cat"], normaliser=Normaliser())
WORDS = learn("words", ["the cat sat"], normaliser=Normaliser())
PIECES = learn("bpe", ["the cat sat"], normaliser=Normaliser(), size=300)
SCALE = Measured((1.0, 2.0), (0.5, 4.0))
IMAGE = ImageConfig(height=2, width=3, channels=1)
SERIES = SeriesSource(("sales",), ("price",), (1.0, 2.0), (3.0, 4.0), (0.5,), 7, True)
LABELS, ANGLES = Labels(("A", "B"), (2, 1)), NumberTarget(Measured((0.0,), (2.0,)), True, "?")
CODECS = {
    "text to text": (
        Codec(TextSource(LETTERS, markers=True, frame=True), TextTarget(WORDS)),
        TextSource,
        TextTarget,
    ),
    "shared": (Codec(TextSource(LETTERS), TextTarget(LETTERS)), TextSource, TextTarget),
    "words to labels": (
        Codec(WordSource(WORDS, LETTERS), LabelTarget(LABELS)),
        WordSource,
        LabelTarget,
    ),
    "spelled text to a label": (
        Codec(TextSource(WORDS, letters=LETTERS), LabelTarget(LABELS)),
        TextSource,
        LabelTarget,
    ),
    "vectors to angles": (Codec(VectorSource(SCALE), ANGLES), VectorSource, NumberTarget),
    "text to frames": (Codec(TextSource(LETTERS), VectorTarget(SCALE)), TextSource, VectorTarget),
    "series": (Codec(SERIES, Nothing()), SeriesSource, Nothing),
    "language model": (Codec(Nothing(), TextTarget(WORDS)), Nothing, TextTarget),
}


@pytest.mark.parametrize("name", CODECS)
def test_a_codec_survives_its_bundle(name):
    codec, reads, writes = CODECS[name]
    stored = json.loads(json.dumps(codec.to_json()))
    again = read_codec(stored, load_recipe("char-lstm"), reads, writes)
    assert again.to_json() == codec.to_json()
    assert (again.reads, again.writes) == (codec.reads, codec.writes)
    assert again.sizes() == codec.sizes()


def test_one_vocabulary_for_both_sides_is_stored_once():
    codec, reads, writes = CODECS["shared"]
    assert codec.to_json()["target"] == "source"
    again = read_codec(codec.to_json(), load_recipe("char-lstm"), reads, writes)
    assert again.source_tokenizer is again.target_tokenizer


@pytest.mark.parametrize("table", [[], {"surce": {}}, {"source": 1}, {}])
def test_a_tokenizer_file_that_is_not_ours_is_refused(table):
    with pytest.raises(BundleError):
        read_codec(table, load_recipe("char-lstm"), TextSource, TextTarget)


def test_a_text_may_hold_markers_and_stand_in_a_frame():
    source = TextSource(LETTERS, markers=True, frame=True)
    [row] = source.encode(["t [MASK]"])
    assert row == [SOS, *LETTERS.encode("t"), MASK, SEP]
    assert source.starts("t") is None
    assert source.entry == Tokens(len(LETTERS))


def test_a_word_that_training_never_saw_is_read_by_its_letters():
    source = TextSource(WORDS, letters=LETTERS)
    [row] = source.encode(["the chat!"])
    assert row[:, 0].tolist()[1:] == [UNK, UNK]  # the word and the mark are both unknown
    assert row[1, 1:5].tolist() == LETTERS.encode("chat")
    assert not row[1, 5:].any()
    assert source.names("the chat!", row) == ("the", "chat", "!")
    [ends] = source.encode(["a" * 20 + "the cat".replace(" ", "") * 3])
    assert ends[0, 1:].tolist() == LETTERS.encode("a" * 12) + LETTERS.encode("thecatthecat")[-12:]


def test_words_start_at_their_first_piece():
    source = WordSource(PIECES, frame=True)
    words = ("the", "cat")
    [row] = source.encode([words])
    first, second = source.starts(words)
    assert (first, row[0], row[-1]) == (1, SOS, SEP)
    assert row[first:second] == PIECES.encode("the")
    assert row[second:-1] == PIECES.encode(" cat")
    assert WordSource(WORDS).starts(words) is None
    assert source.load("the  cat") == words


def test_a_label_stands_at_the_first_piece_of_its_word():
    target, example = (
        LabelTarget(Labels(("A", "B"), (2, 1))),
        Example(("the", "cat"), ("B", "new"), "here"),
    )
    assert target.encode([example], [Places(None, 2)]) == [[1, UNSEEN]]
    assert target.encode([example], [Places([1, 3], 5)]) == [[UNSEEN, 1, UNSEEN, UNSEEN, UNSEEN]]
    assert target.cut([0, 1, 0], source=2, target=9) == [0, 1]


def test_a_written_text_keeps_its_end_when_it_is_cut():
    target = TextTarget(WORDS)
    [row] = target.encode([Example("", "the cat sat", "here")], [])
    assert (row[0], row[-1], len(row)) == (SOS, EOS, 5)
    assert target.cut(row, source=9, target=1) == [*row[:2], EOS]
    assert target.longest(3) == 5


def test_numbers_and_frames_know_their_width_and_their_gaps():
    target = NumberTarget(Measured((0.0,), (2.0,)), False, "?")
    [row] = target.encode([Example(("a", "b"), ("1.5", "?"), "here")], [Places(None, 2)])
    assert row[0, 0] == 1.5
    assert np.isnan(row[1, 0])
    frames = VectorTarget(SCALE)
    with pytest.raises(DataError, match="vectors of 3 features where the model was trained on 2"):
        frames.encode([Example("a", np.zeros((4, 3), np.float32), "here")], [])


def test_an_angle_is_off_by_the_shorter_way_round():
    target = NumberTarget(Measured((0.0,), (1.0,)), True)
    assert target.difference(np.array([179.0]), np.array([-179.0])).tolist() == [-2.0]


class TestRequests:
    """What a stranger sends as JSON becomes a value, never the name of a file."""

    def test_a_text_is_a_text_of_bounded_length(self):
        assert TextSource(LETTERS).parse("the", most=MOST) == "the"
        assert WordSource(WORDS).parse("the cat", most=MOST) == ("the", "cat")
        with pytest.raises(UsageError, match="reads text, not numbers"):
            TextSource(LETTERS).parse([1, 2], most=MOST)
        with pytest.raises(UsageError, match="3 letters, more than the limit of 2"):
            TextSource(LETTERS).parse("the", most=2)

    def test_a_path_is_not_opened(self, tmp_path):
        np.save(tmp_path / "secret.npy", np.zeros((2, 2)))
        for source in (VectorSource(SCALE), PictureSource(SCALE, IMAGE)):
            with pytest.raises(UsageError, match="the server opens no files"):
                source.parse(str(tmp_path / "secret.npy"), most=MOST)

    def test_rows_of_numbers_are_vectors_or_pixels(self):
        assert VectorSource(SCALE).parse([[1, 2], [3, 4]], most=MOST).dtype == np.float32
        assert PictureSource(SCALE, IMAGE).parse([[0, 255, 3]], most=MOST).dtype == np.int64
        with pytest.raises(UsageError, match="rows of unequal length"):
            VectorSource(SCALE).parse([[1, 2], [3]], most=MOST)

    def test_a_series_is_the_table_itself(self):
        source = SeriesSource(("y",), (), (0.0,), (1.0,), (1.0,), 1, False)
        series = source.parse("time,y\n2024-01-01,1\n2024-01-02,2\n", most=MOST)
        assert (series.where, series.values.ravel().tolist()) == ("the series", [1.0, 2.0])
        with pytest.raises(DataError, match="the series:2"):
            source.parse("time,y\n2024-01-01,one\n", most=MOST)


def test_a_value_is_shown_in_words_and_can_be_typed():
    frames, picture = np.zeros((3, 2), np.float32), Picture("cat.png", np.zeros((2, 3), np.uint8))
    assert VectorSource(SCALE).show(frames) == "3 frames of 2 features"
    assert VectorSource(SCALE).typed(frames) == ""
    assert WordSource(WORDS).show(("the", "cat")) == "the cat"
    source = PictureSource(Measured((0.0,) * 3, (1.0,) * 3), IMAGE)
    assert source.show(picture) == "cat.png"
    typed = source.typed(picture)
    assert source.parse(typed, most=MOST).values.tolist() == picture.values.tolist()


def test_a_feature_that_never_changes_has_a_deviation_of_one():
    recipe = override(load_recipe("lstm-classifier"), ["source.kind=vectors"])
    frames = np.array([[1.0, 5.0], [3.0, 5.0]], dtype=np.float32)
    codec = learn_codec(
        recipe, lambda: [Example(frames, "yes", "here")], None, VectorSource, LabelTarget
    )
    assert codec.source.entry == Measured((2.0, 5.0), (1.0, 1.0))
    assert codec.target.labels.names == ("yes",)
