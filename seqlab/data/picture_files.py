"""Read pictures with captions or labels: a table with a directory, .zip, .npz or .safetensors; or all in one."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import cast

from seqlab.data.arrays import texts_of
from seqlab.data.example import Box, Example, Picture
from seqlab.data.image_archives import CONTAINERS, Arrays, Files, ImageArchive, open_archive
from seqlab.data.pixels import Values, picture_values
from seqlab.data.tables import TABLES
from seqlab.data.text_columns import Layout, RequestedColumns, read_two_columns
from seqlab.errors import DataError, UsageError, warn
from seqlab.recipe import ImageConfig

MAX_WARNINGS = 5  # skipped files that are named
_FORMATS = (
    "pictures come from a table of files and captions (.tsv, .csv, .jsonl) in their directory, or followed by the "
    "directory, .zip, .npz or .safetensors that holds them; a directory or .zip with a captions.tsv or labels.tsv, or "
    "with a sub-directory for each label; or an .npz with images and captions or labels."
)
Caption = tuple[str, str, tuple[Box, ...]]  # its location in the file, its text, its boxes


def read_pictures(
    paths: Sequence[str],
    image: ImageConfig | None,
    *,
    labels: bool,
    source: str | None = None,
    target: str | None = None,
) -> Iterator[Example]:
    """Read each picture once, with an example for each of its captions; without `image`, pictures are features.

    A table has the columns `image` and `caption` (or `label`), else the first two; "name.jpg#2" is the third caption
    of name.jpg. Files that cannot be used are refused, or with `image.bad` "skip" skipped with a warning.
    """
    bad: list[str] = []
    width: int | None = None
    with _opened(paths, labels=labels, columns=(source, target)) as (archive, table):
        for name, captions in table.items():
            first = captions[0][0]
            try:
                picture = Picture(name, picture_values(archive.get(name, first), first, image))
                _require_texts(captions)
            except DataError as error:
                if image is None or image.bad == "refuse":
                    raise
                bad.append(str(error))
                continue
            width = width or picture.values.shape[1]
            if picture.values.shape[1] != width:
                raise DataError(
                    f"{first}: {picture.values.shape[1]} features where those before have {width}",
                    hint="features of all pictures come from the same network.",
                )
            for where, text, boxes in captions:
                yield Example(picture, text, where, boxes)
        unused = sorted(archive.others(table))
    _warn_of_skipped(bad, unused, paths)
    if width is None:
        raise DataError(
            f"{' and '.join(paths)}: no picture was found that can be used", hint=_FORMATS
        )


def load_picture(path: str, image: ImageConfig | None) -> Values:
    """Read one picture, which may be in a .zip, .npz or .safetensors: "all.zip/one.jpg", "all.npz/images/0"."""
    parents = Path(path).parents
    containers = (p for p in parents if p.suffix.lower() in CONTAINERS and p.is_file())
    root = next(containers, Path(path).parent)
    with open_archive(str(root)) as archive:
        content = archive.get(Path(path).relative_to(root).as_posix(), path)
        return picture_values(content, path, image)


def _require_texts(captions: Sequence[Caption]) -> None:
    for where, text, _ in captions:
        if not text:
            raise DataError(
                f"{where}: this picture has an empty caption or label",
                hint="fill it in, or drop the line.",
            )


def _warn_of_skipped(bad: list[str], unused: list[str], paths: Sequence[str]) -> None:
    for message in bad[:MAX_WARNINGS]:
        warn(f"{message}; skipped")
    if len(bad) > MAX_WARNINGS:
        warn(f"and {len(bad) - MAX_WARNINGS} more pictures skipped")
    if unused:
        message = f"1 picture has no caption or label and is not used: {unused[0]}"
        if len(unused) > 1:
            message = f"{len(unused):,} pictures have no caption or label and are not used, the first is {unused[0]}"
        warn(f"{paths[-1]}: {message}")


@contextmanager
def _opened(
    paths: Sequence[str], *, labels: bool, columns: RequestedColumns
) -> Iterator[tuple[ImageArchive, dict[str, list[Caption]]]]:
    """Open the archive of the pictures, and read the captions of each."""
    if len(paths) > 2:
        raise UsageError(
            f"{len(paths)} files where a table and its pictures are needed", hint=_FORMATS
        )
    names = ("image", "label" if labels else "caption")
    layout = Layout(names=names, positions=(0, 1), few_labels=labels)
    first, second = (paths[0], None) if len(paths) == 1 else sorted(paths, key=_is_container)
    if second is None and not _is_container(first):
        second = os.path.dirname(first)
    with open_archive(second if second is not None else first) as archive:
        if second is not None:
            yield archive, _read_table(first, columns, layout)
        elif isinstance(archive, Arrays):
            yield archive, _captions_in_arrays(archive, columns[1], labels=labels)
        elif isinstance(archive, Files):
            yield archive, _captions_in_files(archive, columns, layout, labels=labels)
        else:
            raise DataError(f"{first}: features without captions or labels", hint=_FORMATS)


def _is_container(path: str) -> bool:
    return os.path.isdir(path) or Path(path).suffix.lower() in CONTAINERS


def _read_table(
    path: str, columns: RequestedColumns, layout: Layout, display_path: str = ""
) -> dict[str, list[Caption]]:
    """Read the captions of each picture from a table; `display_path` is its path in messages."""
    table: dict[str, list[Caption]] = {}
    for line, (name, text) in read_two_columns(path, columns, layout):
        name = re.sub(r"#\d+$", "", name.strip())
        where = f"{line.replace(path, display_path or path)} ({name})"
        table.setdefault(name, []).append((where, text.strip(), ()))
    return table


def _captions_in_files(
    files: Files, columns: RequestedColumns, layout: Layout, *, labels: bool
) -> dict[str, list[Caption]]:
    """Read the table next to the pictures; without one, the directory of each picture is its label."""
    stems = ("labels", "captions") if labels else ("captions",)
    for name in (stem + suffix for stem in stems for suffix in (*TABLES, ".txt")):
        if files.size(name) is None:
            continue
        path = os.path.join(files.path, name)
        if files.archive is None:
            return _read_table(path, columns, layout)
        with TemporaryDirectory() as folder:
            return _read_table(files.archive.extract(name, folder), columns, layout, path)
    names = sorted({*files.files.values()}) if labels else []
    directories = {name: PurePosixPath(name).parent.name for name in names}
    if not directories or not all(directories.values()):
        missing = "labels.tsv, and no sub-directory for each label" if labels else "captions.tsv"
        raise DataError(f"{files.path}: there is no {missing} in it", hint=_FORMATS)
    return {
        name: [(os.path.join(files.path, name), label, ())] for name, label in directories.items()
    }


def _captions_in_arrays(
    archive: Arrays, target: str | None, *, labels: bool
) -> dict[str, list[Caption]]:
    """Read one or several `captions` or `labels` for each of the `images`; `boxes` locate their `nouns`."""
    pictures = archive.whole("images")
    target = target or ("labels" if labels else "captions")
    texts = archive.whole(target, "numbers or strings")
    if len(texts) != len(pictures) or texts.ndim > 2:
        raise DataError(
            f"{archive.path}: {len(pictures)} pictures but {target} of shape {texts.shape}",
            hint="there is one text for each picture, or a row of them.",
        )
    located = None
    if archive.has("boxes") and archive.has("nouns"):
        nouns = archive.whole("nouns", "numbers or strings")
        located = zip(nouns, archive.whole("boxes"), strict=True)
    table: dict[str, list[Caption]] = {}
    for number, row in enumerate(texts.reshape(len(texts), -1).tolist()):
        where = f"{archive.path}[{number}]"
        things = zip(*next(located), strict=True) if located else ()
        boxes = tuple(cast(Box, (str(noun), *map(float, box))) for noun, box in things)
        captions = [(where, text, boxes) for text in texts_of(row) if text]
        table[f"images/{number}"] = captions or [(where, "", ())]
    return table
