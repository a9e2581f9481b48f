import pytest
from rich.cells import cell_len

from seqlab.explain.figure_text import cut, pad_to_width, text_width, visible


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("abc", 3),
        ("日本", 4),
        ("ｆｕｌｌ", 8),
        ("😀", 2),
        ("👩‍👩‍👧", 2),  # three joined to one
        ("👍🏽", 2),  # a tone of skin belongs to the thumb
        ("❤️", 2),
        ("🇩🇪", 2),
        ("e\u0301", 1),
        ("שלום", 4),
        ("", 0),
    ],
)
def test_width_in_columns_as_a_terminal_shows_it(text, columns):
    assert cell_len(text) == columns


@pytest.mark.parametrize(
    "text", ["short", "a rather long label", "日本語の単語", "👩‍👩‍👧 family", "", "\x1b[31mred"]
)
@pytest.mark.parametrize("columns", [1, 2, 5, 9])
def test_a_padded_text_has_exactly_its_columns(text, columns):
    assert cell_len(pad_to_width(text, columns)) == columns
    assert cell_len(pad_to_width(text, columns, right=True)) == columns


def test_a_cut_text_ends_in_an_ellipsis():
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdef", 4) == "abc…"
    assert cut("日本語", 4) == "日…"
    assert cut("abc", 0) == ""


def test_control_characters_become_visible_signs():
    assert visible("a\nb\tc") == "a↵b⇥c"
    assert visible("\x1b[31m\x00\x7f\x85") == "␛[31m␀␡�"
    assert visible("  ") == "␣␣"
    assert visible("a b") == "a b"
    assert visible("\u202eevil\u2066\ud800\uffff") == "�evil���"
    assert visible("שלום 😀 é") == "שלום 😀 é"


def test_wide_text_takes_more_pixels():
    assert text_width("iii", 10) < text_width("aaa", 10) < text_width("MMM", 10)
    assert text_width("日本", 10, monospace=True) == pytest.approx(4 * 6.02)
