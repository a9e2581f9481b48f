"""Pictures and what is said of them: a table beside a directory, a .zip, an .npz or a .safetensors; or all in one."""

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
from seqlab.data.images import Values, picture_values
from seqlab.data.tables import TABLES
from seqlab.data.text_columns import Layout, RequestedColumns, read_two_columns
from seqlab.errors import DataError, UsageError, warn
from seqlab.recipe import ImageConfig

NAMED = 5  # bad files that are named when they are skipped
_FORMATS = (
    "pictures come from a table of files and captions (.tsv, .csv, .jsonl), beside them or followed by the directory, "
    ".zip, .npz or .safetensors that holds them; a directory or .zip with a captions.tsv or labels.tsv, or with a "
    "sub-directory for each label; or an .npz with images and captions or labels."
)
Caption = tuple[
    str, str, tuple[Box, ...]
]  # where it stands, its text, and where in the picture the things are


def read_pictures(
    paths: Sequence[str],
    image: ImageConfig | None,
    *,
    labels: bool,
    source: str | None = None,
    target: str | None = None,
) -> Iterator[Example]:
    """Each picture once, with all that is said of it one after the other; without `image`, features in its place.

    A table has the columns `image` and `caption` (or `label`), else the first two; "name.jpg#2" is the third caption
    of name.jpg. Files that cannot be used are refused, or skipped and named, as `image` says.
    """
    bad: list[str] = []
    width: int | None = None
    with _opened(paths, labels=labels, columns=(source, target)) as (archive, table):
        for name, captions in table.items():
            first = captions[0][0]
            try:
                picture = Picture(name, picture_values(archive.get(name, first), first, image))
                for where, text, _ in captions:
                    if not text:
                        message = f"{where}: nothing is said of this picture"
                        raise DataError(message, hint="fill it in, or drop the line.")
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
    _warn(bad, unused, paths)
    if width is None:
        raise DataError(
            f"{' and '.join(paths)}: no picture was found that can be used", hint=_FORMATS
        )


def load_picture(path: str, image: ImageConfig | None) -> Values:
    """One picture, or one of those in a .zip, .npz or .safetensors: "all.zip/one.jpg", "all.npz/images/0"."""
    inside = next(
        (p for p in Path(path).parents if p.suffix.lower() in CONTAINERS and p.is_file()), None
    )
    root = Path(path).parent if inside is None else inside
    with open_archive(str(root)) as archive:
        return picture_values(
            archive.get(Path(path).relative_to(root).as_posix(), path), path, image
        )


def _warn(bad: list[str], unused: list[str], paths: Sequence[str]) -> None:
    for message in bad[:NAMED]:
        warn(f"{message}; skipped")
    if len(bad) > NAMED:
        warn(f"and {len(bad) - NAMED} more pictures skipped")
    if unused:
        message = f"1 picture has nothing said of it and is not used: {unused[0]}"
        if len(unused) > 1:
            message = f"{len(unused):,} pictures have nothing said of them and are not used, the first is {unused[0]}"
        warn(f"{paths[-1]}: {message}")


@contextmanager
def _opened(
    paths: Sequence[str], *, labels: bool, columns: RequestedColumns
) -> Iterator[tuple[ImageArchive, dict[str, list[Caption]]]]:
    """Where the pictures are, and what is said of each."""
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
            yield archive, _table(first, columns, layout)
        elif isinstance(archive, Arrays):
            yield archive, _in_arrays(archive, columns[1], labels=labels)
        elif isinstance(archive, Files):
            yield archive, _inside(archive, columns, layout, labels=labels)
        else:
            raise DataError(f"{first}: features alone, and nothing is said of them", hint=_FORMATS)


def _is_container(path: str) -> bool:
    return os.path.isdir(path) or Path(path).suffix.lower() in CONTAINERS


def _table(
    path: str, columns: RequestedColumns, layout: Layout, name_of_path: str = ""
) -> dict[str, list[Caption]]:
    table: dict[str, list[Caption]] = {}
    for line, (name, text) in read_two_columns(path, columns, layout):
        name = re.sub(r"#\d+$", "", name.strip())
        table.setdefault(name, []).append(
            (f"{line.replace(path, name_of_path or path)} ({name})", text.strip(), ())
        )
    return table


def _inside(
    files: Files, columns: RequestedColumns, layout: Layout, *, labels: bool
) -> dict[str, list[Caption]]:
    """The table that lies with the pictures; without one, the directory of each is its label."""
    stem = ("labels", "captions") if labels else ("captions",)
    for name in (s + ending for s in stem for ending in (*TABLES, ".txt")):
        if files.size(name) is not None:
            path = os.path.join(files.path, name)
            with TemporaryDirectory() as folder:
                return _table(
                    files.archive.extract(name, folder) if files.archive else path,
                    columns,
                    layout,
                    path,
                )
    named = (
        {n: PurePosixPath(n).parent.name for n in sorted({*files.files.values()})} if labels else {}
    )
    if not named or not all(named.values()):
        missing = "labels.tsv, and no sub-directory for each label" if labels else "captions.tsv"
        raise DataError(f"{files.path}: there is no {missing} in it", hint=_FORMATS)
    return {name: [(os.path.join(files.path, name), label, ())] for name, label in named.items()}


def _in_arrays(archive: Arrays, target: str | None, *, labels: bool) -> dict[str, list[Caption]]:
    """`images` beside `captions` or `labels`, one or several for each; `boxes` say where the `nouns` are."""
    pictures = archive.whole("images")
    target = target or ("labels" if labels else "captions")
    texts = archive.whole(target, "numbers or strings")
    if len(texts) != len(pictures) or texts.ndim > 2:
        raise DataError(
            f"{archive.path}: {len(pictures)} pictures but {target} of the shape {texts.shape}",
            hint="there is one text for each picture, or a row of them.",
        )
    boxed = archive.has("boxes") and archive.has("nouns")
    boxes = (
        zip(archive.whole("nouns", "numbers or strings"), archive.whole("boxes"), strict=True)
        if boxed
        else None
    )
    table: dict[str, list[Caption]] = {}
    for number, row in enumerate(texts.reshape(len(texts), -1).tolist()):
        where = f"{archive.path}[{number}]"
        things = zip(*next(boxes), strict=True) if boxes else ()
        places = tuple(cast(Box, (str(noun), *map(float, box))) for noun, box in things)
        captions = [(where, text, places) for text in texts_of(row) if text]
        table[f"images/{number}"] = captions or [(where, "", ())]
    return table
