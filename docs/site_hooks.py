"""Hooks of the documentation site: pages from the project's root, and links to files that the site does not have.

README.md becomes the start page. A link to source code, which the site does not hold, becomes plain text.
"""

import re
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT_PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!\w+://|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the project's root; their links to docs/ lead to the same pages here."""
    root = PurePosixPath(config["config_file_path"]).parent
    for source, page in ROOT_PAGES.items():
        with open(root / source, encoding="utf-8") as file:
            text = file.read().replace("](docs/", "](")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Keep a link that leads to a file of the site; of any other keep its text."""
    folder = PurePosixPath(page.file.src_uri).parent

    def replace(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        path = normpath(folder / target)
        path = ROOT_PAGES.get(path.removeprefix("../"), path) if path.startswith("../") else path
        if files.get_file_from_path(path):
            up = "../" * len([part for part in folder.parts if part != "."])
            return f"[{text}]({up}{path}{anchor})"
        return text

    return LINK.sub(replace, markdown)
