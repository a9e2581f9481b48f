"""Propose a task for a file: what the file contains, and the command that trains on it."""

import os
import warnings
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from seqlab.data.arrays import stored_name
from seqlab.data.columns import NAMES, Profile, by_content, by_usual_name, is_number, words_of
from seqlab.data.image_archives import SUFFIXES
from seqlab.data.labelled_rows import find_labelled_rows
from seqlab.data.lines import display_name, extension, lines, numbered_lines
from seqlab.data.series_files import read_series
from seqlab.data.tables import HEAD, TABLES, Table, open_table
from seqlab.data.tagged import SENTENCE_ENDS, find_tag_mark, has_blank_lines, read_tagged
from seqlab.data.text_pairs import TEXT_SUFFIXES
from seqlab.data.time_columns import TIME_NAMES
from seqlab.data.time_series import frequency_of
from seqlab.errors import DataError, SeqlabError, SeqlabWarning, UsageError

VECTORS = ("--set", "source.kind=vectors")
PICTURES = ("--recipe", "row-lstm")
PARTS_OF_DATA = ("train", "test", "valid", "validation", "val", "dev", "unsup")
_MIN_WORDS = 3  # of a text, on average; shorter ones may be names


@dataclass(frozen=True)
class Proposal:
    """A task for some files, the reason, and the arguments of the command that trains on them."""

    task: str
    reason: str
    arguments: tuple[str, ...]


def propose(paths: Sequence[str]) -> Proposal:
    """Return the task that fits the content of the files; raise a DataError if they cannot be read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeqlabWarning)
        task, reason, *options = _propose(list(paths))
    names = " and ".join(map(display_name, paths))
    if len(paths) == 1 and (train := _training_part(paths[0])):
        reason = f"{reason}; train on the training part"
        paths = [train]
    return Proposal(task, f"{names}: {reason}", ("train", task, *paths, *options))


def _training_part(path: str) -> str:
    """Return the sub-folder "train" of a folder whose sub-folders are parts of a data set; else an empty text."""
    folders = [each for each in Path(path).glob("*") if each.is_dir()]
    if len(folders) < 2 or any(each.name.lower() not in PARTS_OF_DATA for each in folders):
        return ""
    return next((str(each) for each in folders if each.name.lower() == "train"), "")


def holds_vectors(paths: Sequence[str]) -> bool:
    """Whether the sources in the files are sequences of vectors saved by NumPy."""
    path = paths[0] if len(paths) == 1 else ""
    if os.path.isdir(path):
        return any(Path(path).glob("*/*.npy"))
    if extension(path) == ".npz" and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return bool(stored_name(archive, "values")) and "images.npy" not in archive.namelist()
    if not path or extension(path) == ".parquet":
        return False
    if extension(path) in TABLES:
        profiles = open_table(path).profiles
        if any(profile.is_file and _are_vectors(profile.cells) for profile in profiles):
            return True
    return find_labelled_rows(path) is not None


def _propose(paths: list[str]) -> tuple[str, ...]:
    """Return the task, the reason, and options of the command."""
    containers = [
        path for path in paths if os.path.isdir(path) or extension(path) in (".zip", ".npz")
    ]
    tables = [path for path in paths if path not in containers]
    if len(paths) > 2:
        raise UsageError(
            f"{len(paths)} files where one, or two that belong together, are needed",
            hint="join them.",
        )
    if containers:
        return _with_container(containers[0], tables[0] if tables else None)
    if len(paths) == 2:
        return _parallel(paths[0], paths[1])
    path = paths[0]
    kind = extension(path)
    if kind == ".tsv" and _is_a_word_a_line([text for _, text in islice(lines(path), HEAD)]):
        return _tagged(path, "sentences, a word and its tag on each line")
    if kind not in TABLES:
        head = [line for _, line in islice(lines(path), HEAD)]
        if kind in (".conll", ".conllu") or _is_a_word_a_line(head):
            return _tagged(path, "sentences, a word and its tag on each line")
        if find_tag_mark([line.strip() for line in head]):
            return _tagged(path, "sentences of words with their tags")
        profiles = open_table(path).profiles
        if len(profiles) < 2 and not profiles[0].is_numeric:
            if classified := _labelled_rows(path, _count(open_table(path).rows)):
                return classified
            return _forecast(path) if _have_numbers(head[1:] or head) else _plain_text(path)
    return _table(path)


def _tagged(path: str, description: str) -> tuple[str, ...]:
    return "tag", f"{_count(read_tagged([path])):,} {description}"


def _plain_text(path: str) -> tuple[str, ...]:
    count = _count(line for _, line in numbered_lines(path) if line.strip())
    return "lm", f"{count:,} lines of text"


def _table(path: str) -> tuple[str, ...]:
    table = open_table(path)
    rows = _count(table.rows)
    profiles = [profile for profile in table.profiles if profile.cells]
    if classified := _labelled_rows(path, rows):
        return classified
    if series := _series(path, profiles):
        return series
    if len(profiles) < 2:
        return _plain_text(path)
    if (files := by_content(profiles, ("file", "label"), (0, 1))) is not None:
        return _files(profiles[files[0]], profiles[files[1]], rows)
    languages = [each for each in profiles if each.name.lower() in NAMES["language"]]
    if len(languages) > 1 and all(each.is_text for each in languages):
        return "translate", f"{rows:,} lines of two texts"
    is_text = extension(path) in (".csv", ".tsv", ".txt")
    blank_lines = is_text and has_blank_lines([text for _, text in islice(lines(path), HEAD)])
    if _are_tagged(table, profiles, blank_lines=blank_lines):
        return _tagged(path, "sentences with a tag for each word")
    text_column, label_column = by_content(profiles, ("text", "label"), (1, 0)) or (1, 0)
    labels = profiles[label_column]
    if _has_label_name(profiles) or _are_labels(labels):
        order = "a label and a text" if label_column < text_column else "a text and a label"
        _check_texts(table, profiles, rows)
        return "classify", f"{rows:,} lines of {order}"
    if labels.is_numeric:
        raise DataError(
            f"{table.where}: {rows:,} lines of a text and a number, which is regression",
            hint="write a few ranges, such as low and high, into a column; then: seqlab train classify FILE; "
            "to write one from the other: seqlab train translate FILE",
        )
    return "translate", f"{rows:,} lines of two texts"


def _has_label_name(profiles: Sequence[Profile]) -> bool:
    """Whether a column of labels has the name of one. "target" may also name a text."""
    index = by_usual_name(profiles, "label", None)
    if index is None or profiles[index].name.lower() == "target":
        return False
    return profiles[index].is_label


def _are_labels(profile: Profile) -> bool:
    """Whether a column holds labels: short ones, or very few different ones."""
    few = profile.num_distinct <= min(20, len(profile.cells) / 10)
    return profile.is_label and (few or not _is_long(profile))


def _check_texts(table: Table, profiles: Sequence[Profile], rows: int) -> None:
    """Refuse a table of measurements, whose rows are not sequences."""
    numeric = [each for each in profiles if each.is_numeric]
    texts = [each for each in profiles if each.is_text and not each.is_label]
    if len(numeric) > 2 and not texts:
        raise DataError(
            f"{table.where}: {rows:,} rows of {len(numeric)} numbers and a label: neither a text nor a series",
            hint="Seqlab learns from sequences; if the numbers of a row follow each other in time, save them with "
            "NumPy: np.savez('rows.npz', values=array[:, :, None], labels=labels); seqlab train classify rows.npz",
        )


def _labelled_rows(path: str, rows: int) -> tuple[str, ...] | None:
    """A table with a label and numbers in each row, unless the rows themselves follow each other in time."""
    found = find_labelled_rows(path)
    if found is None or not (found.is_series or found.is_named):
        return None
    what = f"a series of {len(found.numbers)}" if found.is_series else f"{len(found.numbers)}"
    return "classify", f"{rows:,} rows, each {what} numbers and a label"


def _series(path: str, profiles: Sequence[Profile]) -> tuple[str, ...] | None:
    """Propose forecasting for a table of numbers over time; return None for other tables."""
    numeric = [profile for profile in profiles if profile.is_numeric and not profile.is_time]
    has_time = any(profile.is_time or profile.name.lower() in TIME_NAMES for profile in profiles)
    has_texts = any(_is_long(profile) and not profile.is_label for profile in profiles)
    timed = has_time and not has_texts
    one_a_row = len(numeric) >= 8 and 2 * len(numeric) > len(profiles)
    if not numeric or not (one_a_row or timed or len(numeric) == len(profiles)):
        return None
    try:
        return _forecast(path)
    except SeqlabError:
        if timed:
            raise
        return None


def _forecast(path: str) -> tuple[str, ...]:
    series = read_series(path)
    subject = f"{len(series.columns):,} series" if len(series.columns) > 1 else "a series"
    frequency = frequency_of(series)
    suffix = "" if frequency in ("unknown", "numbered") else f", {frequency}"
    return "forecast", f"{subject} of {len(series):,} numbers{suffix}"


def _files(files: Profile, others: Profile, rows: int) -> tuple[str, ...]:
    """Propose a task for a table of file names with labels or texts."""
    if others.is_label or others.num_distinct < len(others.cells) / 2:
        return _labelled(f"{rows:,} ", files.cells, " with a label each")
    if _are_vectors(files.cells):
        return "translate", f"{rows:,} .npy files with a text each", *VECTORS
    return "caption", f"{rows:,} pictures with a text each"


def _labelled(count: str, files: Sequence[str], labels: str) -> tuple[str, ...]:
    """Propose classification of files; `count` and `labels` are what the reason says before and after their kind."""
    if _are_vectors(files):
        return "classify", f"{count}.npy files{labels}"
    if files and not any(file.lower().endswith(SUFFIXES) for file in files):
        if any(Path(file).suffix.lower() in TEXT_SUFFIXES for file in files):
            return "classify", f"{count}texts{labels}"
        suffixes = ", ".join(sorted({Path(file).suffix for file in files})[:5])
        raise DataError(
            f"neither texts, pictures nor .npy files, but {suffixes}",
            hint="give a folder with a sub-folder of .txt, .png, .jpg or .npy files for each label.",
        )
    return "classify", f"{count}pictures{labels}", *PICTURES


def _with_container(container: str, table: str | None) -> tuple[str, ...]:
    """Propose a task for a folder or an archive, alone or with a table."""
    if table is not None:
        if any(_is_long(profile) and not profile.is_file for profile in open_table(table).profiles):
            return "caption", "pictures with a text each"
        return "classify", "pictures with a label each", *PICTURES
    names = _names_in(container)
    is_npz = extension(container) == ".npz"
    if is_npz and "images.npy" not in names:
        return "classify", "sequences of vectors with labels"
    if "captions" in {Path(name).stem for name in names}:
        return "caption", "pictures with captions"
    return _labelled("", [] if is_npz else names, " with labels")


def _names_in(container: str) -> list[str]:
    """Return the names of the files in a folder or an archive."""
    if os.path.isdir(container):
        return [
            file.name for file in islice(Path(container).rglob("*"), 2 * HEAD) if file.is_file()
        ]
    if not zipfile.is_zipfile(container):
        raise DataError(
            f"{container}: this is not an archive", hint="it is damaged; make it again."
        )
    with zipfile.ZipFile(container) as archive:
        return [Path(name).name for name in archive.namelist()]


def _are_vectors(files: Sequence[str]) -> bool:
    return any(file.lower().endswith(".npy") for file in files)


def _parallel(source: str, target: str) -> tuple[str, ...]:
    """Propose a task for two files whose lines belong together."""
    sources, targets = (
        [text.strip() for _, text in islice(lines(path), HEAD)] for path in (source, target)
    )
    aligned = [len(text.split()) for text in sources] == [len(text.split()) for text in targets]
    words = " ".join(targets).split()
    if aligned and 5 * len(set(words)) < len(words):
        return "tag", "sentences, and a tag for each word"
    profile = Profile("", tuple(targets))
    if profile.is_label and not _is_long(profile):
        return "classify", "texts, and a label for each"
    return "translate", "two texts on each pair of lines"


def _is_a_word_a_line(head: Sequence[str]) -> bool:
    """Whether each line is a word and its columns, with blank lines or full stops between sentences."""
    rows = [line.split("\t") if "\t" in line else line.split() for line in head if line.strip()]
    rows = [cells for cells in rows if cells[0][:1] != "#" and cells[0] != "-DOCSTART-"]
    width = len(rows[0]) if rows else 0
    if {len(cells) for cells in rows} != {width} or not 1 < width <= 12:
        return False
    firsts = {cells[0] for cells in rows}
    lasts = {cells[-1] for cells in rows}
    has_stops = len(rows) > HEAD / 2 and bool(SENTENCE_ENDS & (firsts | lasts))
    are_tags = len(lasts) <= max(2, len(rows) / 2) or 10 * len(firsts) <= len(rows)
    return (has_blank_lines(head) or has_stops) and are_tags and not is_number(rows[0][-1])


def _are_tagged(table: Table, profiles: Sequence[Profile], *, blank_lines: bool) -> bool:
    """Whether each word of a column has a tag in another column."""
    word = by_usual_name(profiles, "words", None)
    tag = by_usual_name(profiles, "tags", word)
    if word is not None and tag is not None:
        single = all(len(cell.split()) == 1 for cell in profiles[word].cells)
        if single and (blank_lines or any("sent" in name.lower() for name in table.names or ())):
            return True
    columns = by_content(profiles, ("words", "tags"), (0, 1))
    if columns is None:
        return False
    single = all(len(words_of(cell)) == 1 for index in columns for cell in profiles[index].cells)
    split = list if single else words_of  # letters, as of proteins
    words, tags = (
        [word for cell in profiles[index].cells for word in split(cell)] for index in columns
    )
    num_tags = len(set(tags))
    several_rows = len(profiles[columns[0]].cells) > 1
    return several_rows and 2 * num_tags < len(set(words)) and len(tags) > 3 * num_tags


def _have_numbers(head: Sequence[str]) -> bool:
    """Whether lines are columns separated by spaces, one of them numeric; or contain nothing but numbers."""
    rows = [line.replace(",", " ").split() for line in head if line.strip()]
    columns = list(zip(*rows, strict=False))
    is_regular = len(rows) > 2 and len({len(row) for row in rows}) == 1
    if is_regular:
        return any(all(map(is_number, column)) for column in columns)
    return bool(columns) and all(is_number(cell) for row in rows for cell in row)


def _is_long(profile: Profile) -> bool:
    """Whether the cells are texts rather than names."""
    words = sum(len(cell.split()) for cell in profile.cells) / max(1, len(profile.cells))
    return profile.is_text and (words >= _MIN_WORDS or profile.length > 30)


def _count(items: Iterable[object]) -> int:
    return sum(1 for _ in items)
