import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqlab.errors import BundleError
from seqlab.text import Normaliser

ANY = st.text(st.characters(exclude_categories=()))
"""Any Python string, halves of surrogate pairs included."""


def test_a_letter_and_its_accent_become_one_character():
    assert Normaliser()("cafe\u0301") == "café"
    assert Normaliser(form="none")("cafe\u0301") == "cafe\u0301"


def test_the_compatible_form_folds_ligatures_and_wide_letters():
    assert Normaliser(form="NFKC")("ﬁne Ｗ²") == "fine W2"
    assert Normaliser(form="NFC")("ﬁne Ｗ²") == "ﬁne Ｗ²"


def test_lower_case():
    assert Normaliser(lower=True)("ÉCOLE Straße") == "école straße"


def test_the_time_machine_is_cleaned_as_on_the_slide():
    clean = Normaliser(lower=True, letters_only=True)
    assert (
        clean("The Time Machine, by H. G. Wells [1898]\n\n\nI\n")
        == "the time machine by h g wells i "
    )
    assert clean(" \n 1898 ❤️ _") == " "


def test_a_mark_on_a_letter_is_part_of_it():
    assert Normaliser(letters_only=True)("हिन्दी, 12!") == "हिन्दी "
    assert Normaliser(form="none", letters_only=True)("cafe\u0301s") == "cafe\u0301s"


def test_half_a_surrogate_pair_is_replaced():
    assert Normaliser()("a\ud83db") == "a\ufffdb"


@given(ANY, st.sampled_from(["NFC", "NFKC"]), st.booleans())
def test_the_result_has_the_form_and_can_be_encoded(text, form, lower):
    result = Normaliser(form=form, lower=lower)(text)
    assert unicodedata.is_normalized(form, result)
    assert result.encode("utf-8").decode("utf-8") == result


@given(ANY, st.sampled_from(["NFC", "NFKC", "none"]), st.booleans())
def test_letters_only_leaves_letters_marks_and_single_spaces(text, form, lower):
    result = Normaliser(form=form, lower=lower, letters_only=True)(text)
    assert all(
        character == " " or unicodedata.category(character)[0] in "LM" for character in result
    )
    assert "  " not in result


def test_lines_cleaned_apart_join_like_lines_cleaned_together():
    clean = Normaliser(lower=True, letters_only=True)
    assert clean("The Time\n") + clean("Traveller (for so)\n") == "the time traveller for so "


def test_json_and_back():
    normaliser = Normaliser(form="NFKC", lower=True, letters_only=True)
    assert Normaliser.from_json(normaliser.to_json()) == normaliser


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "must be an object"),
        ({"form": "NFC", "lower": False}, "lacks its part 'letters_only'"),
        ({"form": "NFX", "lower": False, "letters_only": False}, "no form 'NFX'"),
        ({"form": "NFC", "lower": 1, "letters_only": False}, "'lower' must be true or false"),
        (
            {"form": "NFC", "lower": False, "letters_only": False, "stem": True},
            "does not belong to it: 'stem'",
        ),
    ],
)
def test_an_odd_normaliser_is_refused(data, message):
    with pytest.raises(BundleError, match=message) as caught:
        Normaliser.from_json(data)
    assert "train again" in caught.value.hint
