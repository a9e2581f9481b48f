"""Read sentences with a tag for each word: CoNLL-U, a word a line, a word a row of a table, or a sentence a row.

The format follows from the file's name and its first lines. A sentence in a row may also be written as word/TAG
word/TAG or word_TAG word_TAG.
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

SENTENCE_ENDS = {".", "?", "!", "\u3002", "\uff1f", "\uff01", "\u0964"}
_SAMPLE_ROWS = 100  # rows that show whether words or characters are tagged
_HEAD = 1000  # lines that show the format
_TAG_MARKS = ("/", "_", "|")  # between a word and its tag
_TAGGED = Layout(names=("words", "tags"), positions=(0, 1))
_CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")

# The number of each line and its cells; no cells mark the end of a sentence.
Words = Iterator[tuple[int, list[str]]]


def read_tagged(
    paths: Sequence[str],
    *,
    words: str | None = None,
    tag: str | None = None,
    encoding: str | None = None,
) -> Iterator[Example]:
    """Read sentences as tuples of words and tags: CoNLL-U, CoNLL, two columns of a table, or two parallel files.

    `tag` chooses the column: in CoNLL-U by name (default upos) or number, in CoNLL by number (default the last), in a
    table by either. `words` does the same for tables.
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
    """Read a file that has a word on each line, or words joined to tags; return None if a row is a sentence."""
    where = display_name(path)
    kind = extension(path)
    head = [text.strip() for _, text in islice(lines(path, encoding), _HEAD)]
    if mark := find_tag_mark(head):
        return _joined_sentences(where, path, encoding, mark)
    if kind == ".conllu" or (kind not in TABLES and _is_conllu(head)):
        rows = _conllu_words(path, encoding)
        return _sentences(where, rows, 1, _conllu_column(tag), len(_CONLLU))
    names_columns = words is not None or not (tag or "0").isdecimal()
    if kind == ".csv" or (names_columns and kind in TABLES):
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


def find_tag_mark(head: Sequence[str]) -> str:
    """Return the mark that joins each word to its tag, as in "the/DT dog/NN"; empty if there is none."""
    tokens = " ".join(head).split()
    for mark in _TAG_MARKS:
        pairs = [_word_and_tag(token, mark) for token in tokens]
        words = {word for word, _ in pairs}
        tags = {tag for _, tag in pairs}
        joined = len(pairs) > len(head) > 1 and "" not in words | tags
        if joined and len(tags) < len(words) and 4 * len(tags) <= len(pairs):
            return mark
    return ""


def _word_and_tag(token: str, mark: str) -> tuple[str, str]:
    """Split a token at its last mark; of word|POS|TAG return the first and the last."""
    parts = token.rsplit(mark)
    if mark == "|" and len(parts) == 3:
        return parts[0], parts[2]
    return mark.join(parts[:-1]), parts[-1]


def _joined_sentences(file: str, path: str, encoding: str | None, mark: str) -> Iterator[Example]:
    """Read sentences of words that are joined to their tags."""
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
    """Whether a row is a sentence. If a .tsv has a word a row, there are blank lines between sentences."""
    while head and not head[-1]:
        head.pop()
    rows = [text.split("\t") for text in head]
    kind = extension(path)
    if kind == ".conll" or (kind != ".tsv" and min(map(len, rows), default=0) < 2):
        return False
    if "" in head:
        return False
    num_aligned = sum(len(row) > 1 and len(row[0]) == len(row[1]) > 1 for row in rows)
    return any(" " in text for text in head) or 2 * num_aligned > len(rows)


def _aligned(pairs: Iterator[Example], paths: Sequence[str]) -> Iterator[Example]:
    """Split sentences and their tags at spaces; if there are none, into characters."""
    head = list(islice(pairs, _SAMPLE_ROWS))
    by_character = _are_characters(head)
    split = tuple if by_character else words_of
    for pair in chain(head, pairs):
        words, tags = str(pair.source).strip(), str(pair.target).strip()
        source, target = tuple(split(words)), tuple(split(tags))
        if len(source) != len(target):
            line, file = pair.where.rpartition(":")[2], display_name(paths[-1])
            unit = "characters" if by_character else "words"
            raise DataError(
                f"{pair.where}: {len(source)} {unit} but {len(target)} tags: {shorten(words)}",
                hint=f"each word needs one tag, separated by spaces; line {line} of {file} has {shorten(tags)}.",
            )
        if source:
            yield Example(source, target, pair.where)


def _are_characters(pairs: Sequence[Example]) -> bool:
    """Whether characters are tagged, as in proteins: no text has a space, and most pairs have equal lengths."""
    texts = [(str(pair.source).strip(), str(pair.target).strip()) for pair in pairs]
    num_aligned = sum(len(words) == len(tags) > 1 for words, tags in texts)
    has_spaces = any(" " in words or " " in tags for words, tags in texts)
    return 2 * num_aligned > len(texts) and not has_spaces


def _sentences(file: str, words: Words, word: int, tag: int, needed: int) -> Iterator[Example]:
    """Collect the words of each sentence; `word` and `tag` are columns, and each line needs `needed` cells."""
    sentence: list[tuple[str, str, str]] = []
    for number, cells in chain(words, [(0, [])]):
        where = f"{file}:{number}"
        if not cells:
            if sentence:
                locations, source, target = zip(*sentence, strict=True)
                yield Example(source, target, locations[0])
            sentence = []
        elif len(cells) < needed or not cells[tag]:
            raise _missing_tag(where, cells, needed)
        else:
            sentence.append((where, cells[word], cells[tag]))


def _columns_of_words(
    table: Table, words: str | None, tag: str | None, *, blank_lines: bool
) -> tuple[int, int, int | None] | None:
    """Return the columns of the words, the tags, and the sentence numbers (if any) of a table with a word in each row.

    Return None if a row is a sentence.
    """
    profiles = table.profiles
    group = next(
        (index for index, each in enumerate(profiles) if _numbers_sentences(table, index, each)),
        None,
    )
    if group is None and not blank_lines:
        return None
    single = [
        index
        for index, profile in enumerate(profiles)
        if index != group
        and profile.cells
        and all(len(cell.split()) == 1 for cell in profile.cells)
    ]
    names = table.names or []
    word = names.index(words) if words in names else by_usual_name(profiles, "words", group)
    if word not in single:
        word = max(single, key=lambda index: profiles[index].num_distinct, default=None)
    tags = [index for index in single if index != word and profiles[index].is_label]
    if word is None or not tags:
        return None
    if tag in names:
        return word, names.index(tag), group
    if len(tags) > 1:
        candidates = ", ".join(map(table.name_of, tags))
        message = f"{table.where}: of the columns {candidates} the last is read as the tag"
        warn(f"{message} (--set data.target=NAME chooses another)")
    return word, tags[-1], group


def _numbers_sentences(table: Table, index: int, profile: Profile) -> bool:
    """Whether a column identifies sentences: it has a number on the first word of each, or on all of its words."""
    column = [str(cells[index]).strip() if index < len(cells) else "" for _, cells in table.head]
    if len(column) < 4 or not column[0]:
        return False
    if "" in column:
        return profile.num_distinct == len(profile.cells) <= len(column) / 2
    num_sentences = 1 + sum(cell != following for cell, following in pairwise(column))
    like_a_number = (
        "sent" in profile.name.lower() or profile.is_numeric or len(profile.cells[0].split()) == 2
    )
    return like_a_number and 1 < profile.num_distinct == num_sentences <= len(column) / 2


def _table_words(table: Table, group: int | None) -> Words:
    """Yield the rows; a sentence ends before the next sentence number, or at a blank line."""
    sentence = ""
    previous = 0
    for number, row in table.rows:
        cells = [str(cell).strip() for cell in row]
        current = cells[group] if group is not None and group < len(cells) else ""
        if (current and current != sentence) or (group is None and number > previous + 1):
            yield number, []
            sentence = current
        previous = number
        yield number, cells


def _conll_words(path: str, encoding: str | None) -> Words:
    """Yield the cells of each line, without the header and comments.

    A comment begins with # and has another number of cells than the other lines. If no line is blank, a sentence ends
    after a full stop, a question mark or an exclamation mark.
    """
    head = [text for _, text in islice(lines(path, encoding), _HEAD)]
    tabs = any("\t" in text for text in head)
    widths = {len(_conll_cells(text)) for text in head if not text.startswith("#")}
    continuous = len(head) > _SAMPLE_ROWS and not has_blank_lines(head)
    if continuous:
        rule = "no line is blank, so each sentence ends at a full stop, ? or !"
        warn(f"{display_name(path)}: {rule}")
    for number, text in lines(path, encoding):
        cells = _conll_cells(text)
        is_comment = len(cells) not in widths or (tabs and "\t" not in text)
        if not text.strip() or text.startswith("-DOCSTART-"):
            yield number, []
        elif not (text.startswith("#") and is_comment) and not (number == 1 and _is_header(cells)):
            yield number, cells
            if continuous and SENTENCE_ENDS & {*cells}:
                yield number, []


def _is_header(cells: Sequence[str]) -> bool:
    return cells[0].lower() in NAMES["words"] and cells[-1].lower() in NAMES["tags"]


def has_blank_lines(head: Sequence[str]) -> bool:
    """Whether there are empty lines, or lines of delimiters only, before the last filled line."""
    filled = [bool(text.strip(" \t,;|")) for text in head]
    if True not in filled:
        return False
    last = len(filled) - filled[::-1].index(True)
    return False in filled[:last]


def _conll_cells(text: str) -> list[str]:
    # A word may contain spaces if tabs separate the columns.
    return [cell.strip() for cell in text.split("\t")] if "\t" in text else text.split()


def _conll_columns(path: str, head: Sequence[str], tag: str | None) -> tuple[int, int]:
    """Return the columns of the words and the tags, -1 for the last column.

    The words are in the first column that is not a word count and has many values. Of two columns, the first may hold
    the tags.
    """
    if tag is not None and (not tag.isdecimal() or int(tag) < 1):
        raise UsageError(
            f"'{tag}' is not a column of tags in a CoNLL file",
            hint="its columns have no names: give a number from 1, or nothing for the last.",
        )
    rows = [
        _conll_cells(line) for line in head if line and not line.startswith(("#", "-DOCSTART-"))
    ]
    width = min(map(len, rows), default=0)
    columns = [[row[index] for row in rows] for index in range(max(1, width - 1))]
    num_distinct = [len({*column}) for column in columns]
    word = 0
    for index, column in enumerate(columns):
        if 2 * num_distinct[index] >= max(num_distinct) and not all(map(str.isdecimal, column)):
            word = index
            break
    if tag is not None:
        return (1 if word == 0 and tag == "1" else word), int(tag) - 1
    if width == 2 and len(rows) >= 50 and 3 * num_distinct[0] < len({row[1] for row in rows}):
        name = display_name(path)
        message = f"{name}: the words are read from column 2 and the tags from column 1"
        warn(f"{message} (--set data.target=2 swaps them)")
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
    """Yield the cells of each line, without comments, multiword tokens ("3-4") and empty nodes ("5.1")."""
    for number, text in lines(path, encoding):
        if text.startswith("#"):
            continue
        cells = text.split("\t") if text.strip() else []
        if len(cells) != len(_CONLLU) or not set("-.") & set(cells[0]):
            yield number, cells


def _missing_tag(where: str, cells: Sequence[str], needed: int) -> DataError:
    row = ", ".join(f"{column} {shorten(cell, 20)}" for column, cell in enumerate(cells, start=1))
    problem = f"{len(cells)} column{'s' if len(cells) != 1 else ''} where {needed} are needed"
    return DataError(
        f"{where}: {problem if len(cells) != needed else 'an empty tag'}: {shorten(' '.join(cells))}",
        hint=f"one word a line, its columns separated by tabs or spaces, a blank line after a sentence; here: {row}.",
    )
