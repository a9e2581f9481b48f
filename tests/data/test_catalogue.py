import gzip
import hashlib
import threading
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from seqlab.data.catalogue import Dataset, datasets, fetch, find
from seqlab.errors import DataError, UsageError

CONTENT = b"It was the best of times\n" * 5000


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A real server on this machine, and what it holds."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    held = tmp_path / "held"
    held.mkdir()
    (held / "text.txt").write_bytes(CONTENT)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_QuietHandler, directory=str(held)))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def dataset(server):
    return Dataset(
        name="times",
        address=f"{server}/text.txt",
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        size=len(CONTENT),
        licence="public domain",
        note="one line, often",
    )


def test_a_file_is_fetched_and_named(dataset, tmp_path):
    path = fetch(dataset, tmp_path / "data")
    assert path == tmp_path / "data" / "times.txt"
    assert path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path]


def test_what_is_there_is_not_fetched_again(dataset, tmp_path):
    fetch(dataset, tmp_path)
    assert (
        fetch(replace(dataset, address="http://127.0.0.1:9/text.txt"), tmp_path).read_bytes()
        == CONTENT
    )


def test_another_address_is_checked_all_the_same(dataset, server, tmp_path):
    away = replace(dataset, address="https://example.invalid/text.txt")
    assert fetch(away, tmp_path, address=f"{server}/text.txt").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sha256": "0" * 64}, "its sha256 is [0-9a-f]{64}, not 0{64}"),
        ({"size": 1000}, "it is longer than 1,000 bytes"),
    ],
)
def test_another_file_is_not_kept(dataset, tmp_path, change, message):
    directory = tmp_path / "data"
    with pytest.raises(
        DataError, match=f"this is not the file of the catalogue: {message}"
    ) as caught:
        fetch(replace(dataset, **change), directory)
    assert "Nothing was kept" in caught.value.hint
    assert list(directory.iterdir()) == []


def test_a_file_that_is_not_there(dataset, server, tmp_path):
    with pytest.raises(DataError, match=r"gone\.txt: the server answers 404"):
        fetch(dataset, tmp_path, address=f"{server}/gone.txt")


def test_a_server_that_does_not_answer(dataset, tmp_path):
    with pytest.raises(DataError, match=r"cannot be reached: .*refused") as caught:
        fetch(dataset, tmp_path, address="http://127.0.0.1:9/text.txt")
    assert "check the network" in caught.value.hint


@pytest.mark.parametrize("address", ["file:///etc/hostname", "text.txt"])
def test_only_the_network_is_asked(dataset, tmp_path, address):
    with pytest.raises(UsageError, match="is not an address on the network"):
        fetch(dataset, tmp_path, address=address)


def test_the_catalogue_is_in_order():
    names = [dataset.name for dataset in datasets()]
    assert len(set(names)) == len(names)
    for dataset in datasets():
        assert find(dataset.name) is dataset
        assert dataset.address.startswith("http")
        assert len(bytes.fromhex(dataset.sha256)) == 32
        assert dataset.size > 0
        assert dataset.licence
        assert dataset.note


def test_a_name_that_is_not_in_the_catalogue():
    with pytest.raises(UsageError, match="there is no data set 'tinyshakespear'") as caught:
        find("tinyshakespear")
    assert caught.value.hint == "did you mean 'tinyshakespeare'?"


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("timemachine", "timemachine/timemachine.txt"),
        ("tinyshakespeare", "tinyshakespeare/input.txt"),
        ("wikitext-2-valid", "wikitext-2/wiki.valid.tokens.gz"),
        ("multi30k-val-fr", "multi30k/val.fr.gz"),
        ("etth1", "ett/ETTh1.csv.gz"),
    ],
)
def test_the_descriptions_fit_the_files(shared_data, name, file):
    content = shared_data(file).read_bytes()
    if file.endswith(".gz") and not find(name).address.endswith(".gz"):
        content = gzip.decompress(content)
    assert (hashlib.sha256(content).hexdigest(), len(content)) == (
        find(name).sha256,
        find(name).size,
    )
