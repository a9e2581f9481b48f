"""Strings <-> ids: five kinds of tokenizer with the same special ids, their normalisation, and label names."""

from seqlab.text.bpe import BPETokenizer
from seqlab.text.characters import ByteTokenizer, CharacterTokenizer
from seqlab.text.labels import UNSEEN, Labels
from seqlab.text.tokenizer import KINDS, Tokenizer, from_json, learn, vocabulary_text
from seqlab.text.vocabulary import EOS, MASK, PAD, SEP, SOS, SPECIALS, UNK, Normaliser
from seqlab.text.wordpiece import WordPieceTokenizer
from seqlab.text.words import WordTokenizer, learn_words
