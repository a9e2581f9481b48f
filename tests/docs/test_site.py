"""The documentation as a site: no link is broken, no other host is asked, and the search works."""

import functools
import os
import re
import shutil
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site; a link to a page or a heading that is not there fails the build."""
    folder = tmp_path_factory.mktemp("site")
    build = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert build.returncode == 0, build.stderr
    return folder


def test_every_document_is_a_page_of_the_site(site):
    documents = {
        path.relative_to(ROOT / "docs").with_suffix(".html")
        for path in (ROOT / "docs").rglob("*.md")
    }
    pages = {path.relative_to(site) for path in site.rglob("*.html")}
    renamed = {
        path.with_name("index.html") if path.stem == "README" else path for path in documents
    }
    assert renamed <= pages


def test_no_page_loads_anything_from_another_host(site):
    loaded = re.compile(r"""(?:src=|<link[^>]+href=|url\()["']?(?:https?:)?//[^"')\s>]+""")
    for path in [*site.rglob("*.html"), *site.rglob("*.css")]:
        assert not loaded.findall(path.read_text("utf-8")), path.name


@pytest.mark.browser
def test_the_search_finds_a_page_and_asks_no_other_host(site):
    if not shutil.which("chromium"):
        pytest.skip("needs the browser chromium")
    from playwright.sync_api import sync_playwright

    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(site))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page()
        requests = []
        page.on("request", lambda request: requests.append(request.url))
        page.goto(f"{address}/index.html")
        page.fill("input.md-search__input", "perplexity")
        page.wait_for_selector("a.md-search-result__link[href*='glossary']")
        browser.close()
    server.shutdown()
    assert all(url.startswith(address) for url in requests)
