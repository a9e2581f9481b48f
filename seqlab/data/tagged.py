"""Sentences whose words have a tag each: CoNLL-U, a word a line, a word a row of a table, or a sentence a row.

Which of these a file is follows from its name and from its first lines. A sentence a row may also be written as
word/TAG word/TAG or word_TAG word_TAG.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, islice, pairwise

from seqlab.data.columns import NAMES, Profile, by_usual_name, words_of
from seqlab.data.example import Example, at_least_one
from seqlab.data.lines import display_name, extension, lines
from seqlab.data.tables import TABLES, Table, open_table
from seqlab.data.text_columns import Layout
from seqlab.data.text_pairs import single_path, two_texts
from seqlab.errors import DataError, UsageError, nearest, shorten, warn

_LOOKED_AT = 100  # rows, to see whether words or characters are tagged
_HEAD = 1000  # lines, to see how a file is written
_JOINING = ("/", "_", "|")  # marks between a word and its tag
_TAGGED = Layout(names=("words", "tags"), positions=(0, 1))
ENDS = {".", "?", "!", "\u3002", "\uff1f", "\uff01", "\u0964"}
_CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")

Words = Iterator[
    tuple[int, list[str]]
]  # the number of each line and its cells; none between two sentences


def read_tagged(
    paths: Sequence[str],
    *,
    words: str | None = None,
    tag: str | None = None,
    encoding: str | None = None,
) -> Iterator[Example]:
    """Sentences as tuples of words with a tag each: CoNLL-U, CoNLL, two columns of a table, or two parallel files.

    `tag` chooses the column: in CoNLL-U by name (upos unless told) or number, in CoNLL by number (else the last), in a
    table as `words` does, by either.
    """
    sentences = None
    if len(paths) != 2 and extension(single_path(paths)) not in (".jsonl", ".json", ".parquet"):
        sentences = _word_a_line(paths[0], words, tag, encoding)
    if sentences is None:
        sentences = _aligned(two_texts(paths, (words, tag), _TAGGED, encoding), paths)
    return at_least_one(sentences, paths)


def _word_a_line(
    path: str, words: str | None, tag: str | None, encoding: str | None
) -> Iterator[Example] | None:
    """The sentences of a file that has a word on each line; None where a line is a sentence."""
    where = display_name(path)
    head = [text.strip() for _, text in islice(lines(path, encoding), _HEAD)]
    if mark := joining_mark(head):
        return _joined_sentences(where, path, encoding, mark)
    if extension(path) == ".conllu" or (extension(path) not in TABLES and _is_conllu(head)):
        return _sentences(
            where, _conllu_words(path, encoding), 1, _conllu_column(tag), len(_CONLLU)
        )
    named = words is not None or not (tag or "0").isdecimal()
    if extension(path) == ".csv" or (named and extension(path) in TABLES):
        table = open_table(
            path, encoding, expected_names=("words", "tags", *filter(None, (words, tag)))
        )
        columns = _columns_of_words(table, words, tag, blank_lines=has_blank_lines(head))
        if columns is None:
            return None
        word, last, group = columns
        return _sentences(where, _table_words(table, group), word, last, max(word, last) + 1)
    if _has_sentences(head, path):
        return None
    word, last = _conll_columns(path, head, tag)
    return _sentences(where, _conll_words(path, encoding), word, last, max(word + 1, last + 1, 2))


def joining_mark(head: Sequence[str]) -> str:
    """What joins each word to its tag, as in "the/DT dog/NN"; empty where tags are written otherwise."""
    tokens = " ".join(head).split()
    for mark in _JOINING:
        pairs = [_word_and_tag(token, mark) for token in tokens]
        words, tags = {word for word, _ in pairs}, {tag for _, tag in pairs}
        joined = len(pairs) > len(head) > 1 and "" not in words | tags
        if joined and len(tags) < len(words) and 4 * len(tags) <= len(pairs):
            return mark
    return ""


def _word_and_tag(token: str, mark: str) -> tuple[str, str]:
    """What stands before and after the mark; of word|POS|TAG the first and the last. A word may hold other marks."""
    parts = token.rsplit(mark)
    if mark == "|" and len(parts) == 3:
        return parts[0], parts[2]
    return mark.join(parts[:-1]), parts[-1]


def _joined_sentences(file: str, path: str, encoding: str | None, mark: str) -> Iterator[Example]:
    """Sentences of words that are joined to their tags."""
    for number, text in lines(path, encoding):
        pairs = [_word_and_tag(token, mark) for token in text.split()]
        untagged = [tag for word, tag in pairs if not (word and tag)]
        if untagged:
            raise DataError(
                f"{file}:{number}: {shorten(untagged[0])} has no tag",
                hint=f"the other words are written as word{mark}TAG.",
            )
        if pairs:
            words, tags = zip(*pairs, strict=True)
            yield Example(words, tags, f"{file}:{number}")


def _has_sentences(head: list[str], path: str) -> bool:
    """Whether a row is a sentence. A .tsv may as well have a word a row: then blank lines stand between sentences."""
    while head and not head[-1]:
        head.pop()
    cells = [text.split("\t") for text in head]
    if extension(path) == ".conll" or (
        extension(path) != ".tsv" and min(map(len, cells), default=0) < 2
    ):
        return False
    like = [len(row) > 1 and len(row[0]) == len(row[1]) > 1 for row in cells]
    return "" not in head and (any(" " in text for text in head) or 2 * sum(like) > len(like))


def _aligned(pairs: Iterator[Example], paths: Sequence[str]) -> Iterator[Example]:
    """A word is what stands between spaces, or where there are none, a character."""
    head = list(islice(pairs, _LOOKED_AT))
    cut = tuple if _spelled(head) else words_of
    for pair in chain(head, pairs):
        words, tags = str(pair.source).strip(), str(pair.target).strip()
        source, target = tuple(cut(words)), tuple(cut(tags))
        if len(source) != len(target):
            line, file = pair.where.rpartition(":")[2], display_name(paths[-1])
            what = "characters" if cut is tuple else "words"
            raise DataError(
                f"{pair.where}: {len(source)} {what} but {len(target)} tags: {shorten(words)}",
                hint=f"each word needs one tag, separated by spaces; line {line} of {file} has {shorten(tags)}.",
            )
        if source:
            yield Example(source, target, pair.where)


def _spelled(pairs: Sequence[Example]) -> bool:
    """Whether characters are tagged, as in proteins: there is no space anywhere, and the lengths agree as a rule."""
    sides = [(str(pair.source).strip(), str(pair.target).strip()) for pair in pairs]
    like = [len(words) == len(tags) > 1 for words, tags in sides]
    return 2 * sum(like) > len(like) and not any(" " in side for both in sides for side in both)


def _sentences(file: str, words: Words, word: int, tag: int, needed: int) -> Iterator[Example]:
    """The words up to a line without any are a sentence; `needed` cells are on a line."""
    sentence: list[tuple[str, str, str]] = []
    for number, cells in chain(words, [(0, [])]):
        where = f"{file}:{number}"
        if not cells:
            if sentence:
                places, source, target = zip(*sentence, strict=True)
                yield Example(source, target, places[0])
            sentence = []
        elif len(cells) < needed or not cells[tag]:
            raise _missing_tag(where, cells, needed)
        else:
            sentence.append((where, cells[word], cells[tag]))


def _columns_of_words(
    table: Table, words: str | None, tag: str | None, *, blank_lines: bool
) -> tuple[int, int, int | None] | None:
    """The columns of the words, of their tags and of what numbers the sentences, where each row is a word.

    None where a row is a sentence.
    """
    profiles = table.profiles
    group = next(
        (place for place, each in enumerate(profiles) if _numbers_sentences(table, place, each)),
        None,
    )
    if group is None and not blank_lines:
        return None
    rest = [place for place in range(len(profiles)) if place != group]
    single = [
        place
        for place in rest
        if profiles[place].cells and all(len(c.split()) == 1 for c in profiles[place].cells)
    ]
    names = table.names or []
    word = names.index(words) if words in names else by_usual_name(profiles, "words", group)
    if word not in single:
        word = max(single, key=lambda place: profiles[place].num_distinct, default=None)
    tags = [place for place in single if place != word and profiles[place].is_label]
    if word is None or not tags:
        return None
    if tag in names:
        return word, names.index(tag), group
    if len(tags) > 1:
        message = f"{table.where}: of the columns {', '.join(map(table.name_of, tags))} the last is the tag"
        warn(f"{message} (--set data.target=NAME chooses another)")
    return word, tags[-1], group


def _numbers_sentences(table: Table, place: int, profile: Profile) -> bool:
    """Whether a column says to which sentence a word belongs: on its first word alone, or the same on each of them."""
    column = [str(cells[place]).strip() if place < len(cells) else "" for _, cells in table.head]
    if len(column) < 4 or not column[0]:
        return False
    if "" in column:
        return profile.num_distinct == len(profile.cells) <= len(column) / 2
    changes = 1 + sum(a != b for a, b in pairwise(column))
    numbered = (
        "sent" in profile.name.lower() or profile.is_numeric or len(profile.cells[0].split()) == 2
    )
    return numbered and 1 < profile.num_distinct == changes <= len(column) / 2


def _table_words(table: Table, group: int | None) -> Words:
    """A sentence ends where the next one has its number, or at a blank line."""
    sentence, before = "", 0
    for number, row in table.rows:
        cells = [str(cell).strip() for cell in row]
        here = cells[group] if group is not None and group < len(cells) else ""
        if (here and here != sentence) or (group is None and number > before + 1):
            yield number, []
            sentence = here
        before = number
        yield number, cells


def _conll_words(path: str, encoding: str | None) -> Words:
    """The cells of each line without comments, which begin with # and have not as many cells as other lines.

    Where no line is blank, a sentence ends after a full stop, a question mark or an exclamation mark.
    """
    head = [text for _, text in islice(lines(path, encoding), _HEAD)]
    tabs = any("\t" in text for text in head)
    widths = {len(_conll_cells(text)) for text in head if not text.startswith("#")}
    continuous = len(head) > _LOOKED_AT and not has_blank_lines(head)
    if continuous:
        what = "no line is blank, so each sentence ends with its full stop, ? or !"
        warn(f"{display_name(path)}: {what}")
    for number, text in lines(path, encoding):
        cells = _conll_cells(text)
        is_comment = len(cells) not in widths or (tabs and "\t" not in text)
        if not text.strip() or text.startswith("-DOCSTART-"):
            yield number, []
        elif not (text.startswith("#") and is_comment) and not (number == 1 and _are_names(cells)):
            yield number, cells
            if continuous and ENDS & {*cells}:
                yield number, []


def _are_names(cells: Sequence[str]) -> bool:
    """Whether a line names the columns."""
    return cells[0].lower() in NAMES["words"] and cells[-1].lower() in NAMES["tags"]


def has_blank_lines(head: Sequence[str]) -> bool:
    """Whether lines without anything, or with nothing but delimiters, stand between others."""
    filled = [bool(text.strip(" \t,;|")) for text in head]
    return False in filled[: len(filled) - filled[::-1].index(True)] if True in filled else False


def _conll_cells(text: str) -> list[str]:
    # A word may hold spaces where tabs separate the columns.
    return [cell.strip() for cell in text.split("\t")] if "\t" in text else text.split()


def _conll_columns(path: str, head: Sequence[str], tag: str | None) -> tuple[int, int]:
    """Where the words and the tags are, -1 for the last column. A column that counts the words is left out; the first
    one may hold the tags and the last one the words."""
    if tag is not None and (not tag.isdecimal() or int(tag) < 1):
        raise UsageError(
            f"'{tag}' is not a column of tags in a CoNLL file",
            hint="its columns have no names: give a number from 1, or nothing for the last.",
        )
    rows = [
        _conll_cells(line) for line in head if line and not line.startswith(("#", "-DOCSTART-"))
    ]
    width = min(map(len, rows), default=0)
    distinct = [len({row[place] for row in rows}) for place in range(max(1, width - 1))]
    numbers = [all(row[place].isdecimal() for row in rows) for place in range(len(distinct))]
    word = next(
        (p for p, many in enumerate(distinct) if 2 * many >= max(distinct) and not numbers[p]), 0
    )
    if tag is not None:
        return (1 if word == 0 and tag == "1" else word), int(tag) - 1
    if (
        width == 2
        and len(rows) >= 50
        and 3 * len({row[0] for row in rows}) < len({row[1] for row in rows})
    ):
        message = (
            f"{display_name(path)}: the words are read from column 2 and the tags from column 1"
        )
        warn(f"{message} (--set data.target=2 turns them round)")
        return 1, 0 if max(map(len, rows)) == 2 else -1
    return word, -1


def _is_conllu(head: Sequence[str]) -> bool:
    rows = [line.split("\t") for line in head if line and not line.startswith("#")]
    return bool(rows) and all(len(row) == len(_CONLLU) and row[0][:1].isdecimal() for row in rows)


def _conllu_column(tag: str | None) -> int:
    tag = "upos" if tag is None else tag.lower()
    if tag.isdecimal() and 2 <= int(tag) <= len(_CONLLU):
        return int(tag) - 1
    if tag not in _CONLLU:
        raise UsageError(
            f"there is no column '{tag}' in a CoNLL-U file", hint=nearest(tag, _CONLLU)
        )
    return _CONLLU.index(tag)


def _conllu_words(path: str, encoding: str | None) -> Words:
    """Multiword tokens ("3-4") and empty nodes ("5.1") are not words of their own."""
    for number, text in lines(path, encoding):
        cells = text.split("\t") if text.strip() else []
        if not text.startswith("#") and not (
            len(cells) == len(_CONLLU) and set("-.") & set(cells[0])
        ):
            yield number, cells


def _missing_tag(where: str, cells: Sequence[str], needed: int) -> DataError:
    row = ", ".join(f"{place} {shorten(cell, 20)}" for place, cell in enumerate(cells, start=1))
    problem = f"{len(cells)} column{'s' if len(cells) != 1 else ''} where {needed} are needed"
    return DataError(
        f"{where}: {problem if len(cells) != needed else 'an empty tag'}: {shorten(' '.join(cells))}",
        hint=f"one word a line, its columns separated by tabs or spaces, a blank line after a sentence; here: {row}.",
    )
