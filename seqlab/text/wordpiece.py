"""Text as pieces of words, as for BERT: the longest known piece first, with "##" before pieces inside a word."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, final

from tokenizers import Tokenizer as Library
from tokenizers import models, normalizers, pre_tokenizers, trainers

from seqlab.text import vocabulary as vocabularies
from seqlab.text.vocabulary import SILENT, SPECIALS, UNK, Normaliser
from seqlab.text.words import join

INSIDE = "##"
FLAGS = ("clean", "strip_accents", "space_ideographs")  # what is stored beside the vocabulary
LONGEST_WORD = 100  # characters; what is longer is one UNK, as in BERT


@final
class WordPieceTokenizer:
    """Frequent words are one id, rare ones several; a word with an unknown character is UNK as a whole.

    After the normaliser come the further steps of BERT: `clean` drops control characters, `space_ideographs` makes each
    Chinese character a word, `strip_accents` makes é an e (by default if the text is made lower case).
    """

    kind = "wordpiece"
    encode = vocabularies.library_encode
    encode_all = vocabularies.library_encode_all
    pieces = vocabularies.pieces
    __len__ = vocabularies.length

    def __init__(
        self,
        vocabulary: list[str],
        normaliser: Normaliser,
        *,
        clean: bool = True,
        strip_accents: bool | None = None,
        space_ideographs: bool = True,
    ) -> None:
        self.vocabulary = vocabulary
        self.normaliser = normaliser
        self.clean, self.space_ideographs = clean, space_ideographs
        self.strip_accents = normaliser.lower if strip_accents is None else strip_accents
        # The library gets UNK only: it would recognise the names of the other special tokens in the text.
        ids = vocabularies.ids(vocabulary) | {SPECIALS[UNK]: UNK}
        self._library = _assemble(
            models.WordPiece(ids, unk_token=SPECIALS[UNK], max_input_chars_per_word=LONGEST_WORD),
            _cleaner(self.clean, self.strip_accents, self.space_ideographs),
        )

    @classmethod
    def learn(
        cls, texts: Iterable[str], *, normaliser: Normaliser, size: int, min_count: int
    ) -> "WordPieceTokenizer":
        """Merge pairs until there are `size` ids, or no pair is left that was seen `min_count` times."""
        clean, split = _cleaner(True, normaliser.lower, True), pre_tokenizers.BertPreTokenizer()
        cleaned = (clean.normalize_str(normaliser(text)) for text in texts)
        words = Counter(word for text in cleaned for word, _ in split.pre_tokenize_str(text))
        return cls(_learn_pieces(words, size=size, min_count=min_count), normaliser)

    def decode(self, ids: Sequence[int]) -> str:
        """Join pieces into words, with spaces between words but not before punctuation."""
        words: list[str] = []
        for piece in (self.vocabulary[index] for index in ids if index not in SILENT):
            rest = piece.removeprefix(INSIDE)
            if words and rest and rest != piece:
                words[-1] += rest
            else:
                words.append(rest or piece)
        return join(words)

    def to_json(self) -> dict[str, Any]:
        flags = {name: getattr(self, name) for name in FLAGS}
        return vocabularies.as_json(self, **flags, vocabulary=list(self.vocabulary))

    @classmethod
    def from_json(cls, data: object) -> "WordPieceTokenizer":
        """Read vocabulary and flags, and build the rest anew, so that a file cannot bring its own rules."""
        types = dict.fromkeys(FLAGS, bool)
        normaliser, stored = vocabularies.from_parts(data, "WordPiece", **types, vocabulary=list)
        vocabulary = vocabularies.from_stored(stored["vocabulary"])
        with vocabularies.library_reads("vocabulary"):
            return cls(vocabulary, normaliser, **{flag: stored[flag] for flag in FLAGS})


def _learn_pieces(words: Counter[str], *, size: int, min_count: int) -> list[str]:
    """Learn characters first, then merges.

    The library numbers characters at random and breaks ties of pairs by these numbers. For reproducible results it gets
    the characters in our order, as if they were special tokens, and finds none itself.
    """
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    # Most characters need an id with "##" and one without.
    num_characters = min(size, len(SPECIALS) + (size - len(SPECIALS) + 1) // 2)
    characters = vocabularies.from_counts(counts, size=num_characters, min_count=min_count)
    inside = {character for word in words for character in word[1:]}
    continued = [
        INSIDE + character for character in characters[len(SPECIALS) :] if character in inside
    ]
    library = _assemble(models.WordPiece(unk_token=SPECIALS[UNK]), normalizers.Sequence([]))
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=min_count,
        special_tokens=[*characters, *continued],
        limit_alphabet=0,
        show_progress=False,
    )
    repeated = (f"{word} " * count for word, count in words.items() if len(word) <= LONGEST_WORD)
    library.train_from_iterator(repeated, trainer)
    ids = library.get_vocab(with_added_tokens=False)
    return sorted(ids, key=ids.__getitem__)[:size]


def _cleaner(clean: bool, strip_accents: bool, space_ideographs: bool) -> normalizers.Normalizer:
    """Return BERT's normalisation without lower case, which our normaliser does."""
    return normalizers.BertNormalizer(
        clean_text=clean,
        handle_chinese_chars=space_ideographs,
        strip_accents=strip_accents,
        lowercase=False,
    )


def _assemble(model: models.WordPiece, cleaner: normalizers.Normalizer) -> Library:
    vocabularies.survive_forks()
    library = Library(model)
    library.normalizer = cleaner
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return library
