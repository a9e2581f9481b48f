"""What is done to a text before it is cut into tokens. It is stored with the tokenizer, so both always agree."""

import re
import unicodedata
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from seqlab.errors import nearest, shorten
from seqlab.text.stored import odd, parts

Form = Literal["NFC", "NFKC", "none"]

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Normaliser:
    """One spelling for texts that read the same: a Unicode form, perhaps lower case, perhaps letters only.

    NFC makes one character of a letter and its accent; NFKC also folds ligatures, full-width forms and the like.
    `letters_only` is the lectures' cleaning of The Time Machine: whatever is no letter becomes a space, and runs of
    spaces shrink to one.
    """

    form: Form = "NFC"
    lower: bool = False
    letters_only: bool = False

    def __call__(self, text: str) -> str:
        # Half of a surrogate pair is no character: no encoding can hold it, yet JSON can spell it.
        text = self._composed(_SURROGATE.sub("\ufffd", text))
        if self.lower:
            text = self._composed(text.lower())  # lower case can take a letter apart again
        return _letters(text) if self.letters_only else text

    def _composed(self, text: str) -> str:
        return text if self.form == "none" else unicodedata.normalize(self.form, text)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: object) -> "Normaliser":
        stored = parts(data, "the normaliser", {"form": str, "lower": bool, "letters_only": bool})
        if stored["form"] not in get_args(Form):
            hint = nearest(stored["form"], get_args(Form))
            raise odd(f"the normaliser has no form {shorten(stored['form'])}; {hint}")
        return cls(**stored)


def _letters(text: str) -> str:
    """Letters and single spaces. A mark that sits on a letter is part of it: an accent, a vowel sign of Hindi."""
    kept, on_letter = [], False
    for character in text:
        on_letter = character.isalpha() or (on_letter and unicodedata.category(character).startswith("M"))
        kept.append(character if on_letter else " ")
    return re.sub(" +", " ", "".join(kept))
