import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, save

import seqlab
from seqlab import lab
from seqlab.bundle import save_bundle
from seqlab.data.synthetic import reversals
from seqlab.errors import BundleError, RunError
from seqlab.tasks import load_bundle

SMALL = (
    "model.embedding=8",
    "model.encoder.size=8",
    "model.decoder.size=8",
    "train.steps=2",
    "shared=false",
)
NEEDED = ("recipe.toml", "model.safetensors", "tokenizer.json", "metrics.json")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle")
    pairs = folder / "pairs.tsv"
    pairs.write_text("".join(f"{a}\t{b}\n" for a, b in reversals(60, seed=1)))
    lab.train(
        "translate",
        pairs,
        recipe="seq2seq",
        settings=(*SMALL, "source.kind=characters"),
        out=folder / "m",
    )
    return folder / "m"


@pytest.fixture
def bundle(trained, tmp_path):
    """A copy that a test may harm."""
    shutil.copytree(trained, tmp_path / "m", ignore=shutil.ignore_patterns("run"))
    return tmp_path / "m"


def refusal(folder):
    with pytest.raises(BundleError) as caught:
        load_bundle(folder)
    assert caught.value.hint
    return str(caught.value)


def replace(folder, name, content):
    """Another file under the same name, with a manifest that vouches for it."""
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = hashlib.sha256(content).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_saving_and_loading_is_identity(trained, tmp_path):
    first = load_bundle(trained)
    save_bundle(first, tmp_path / "again")
    second = load_bundle(tmp_path / "again")
    assert second.recipe == first.recipe
    assert second.metrics == first.metrics
    assert second.codec.to_json() == first.codec.to_json()
    for one, other in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(one, other)
    for name in (*NEEDED, "vocabulary.txt", "CARD.md", "manifest.json"):
        assert (tmp_path / "again" / name).read_bytes() == (trained / name).read_bytes(), name


def test_int8_is_a_quarter_of_the_size_with_nearly_the_same_answers(trained, tmp_path):
    """Rounding what was rounded changes nothing: a bundle in bytes is saved and loaded like any other."""
    rounded = seqlab.load(trained, int8=True)
    exported = lab.export(trained, tmp_path / "bytes", int8=True)
    again = lab.export(tmp_path / "bytes", tmp_path / "again")
    assert exported.info()["weights"] == again.info()["weights"] == "int8"
    for name in (*NEEDED, "vocabulary.txt", "CARD.md", "manifest.json"):
        assert (tmp_path / "again" / name).read_bytes() == (
            tmp_path / "bytes" / name
        ).read_bytes(), name
    loaded = seqlab.load(tmp_path / "bytes")
    for one, other in zip(
        rounded.bundle.model.parameters(), loaded.bundle.model.parameters(), strict=True
    ):
        assert torch.equal(one, other)
    files = trained / "model.safetensors", tmp_path / "bytes/model.safetensors"
    plain, small = (load(file.read_bytes()) for file in files)
    for name, weight in plain.items():
        if weight.dim() > 1:
            apart = (weight - small[name] * small[f"{name}.scale"][:, None]).abs()
            assert (apart <= 0.51 * small[f"{name}.scale"][:, None]).all()
            assert small[name].nbytes * 4 == weight.nbytes
        else:
            assert torch.equal(weight, small[name])
    assert "matrices as int8" in (tmp_path / "bytes/CARD.md").read_text()
    assert not (tmp_path / "bytes/run").exists()
    assert loaded.predict("abc") == rounded.predict("abc")


def test_an_export_needs_a_new_directory(trained, tmp_path):
    with pytest.raises(RunError, match="this exists already"):
        lab.export(trained, tmp_path, int8=True)


def test_it_has_the_files_of_the_manifest_and_no_temporary_ones(bundle):
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert set(manifest["files"]) | {"manifest.json"} == {path.name for path in bundle.iterdir()}
    for name, digest in manifest["files"].items():
        assert hashlib.sha256((bundle / name).read_bytes()).hexdigest() == digest


def test_the_card_describes_the_model(bundle):
    card = (bundle / "CARD.md").read_text()
    assert card.startswith("# seq2seq\n")
    assert "- task: translate\n" in card
    assert "| baselines: copy of the source: exact | " in card


def test_a_missing_directory(tmp_path):
    assert refusal(tmp_path / "nothing") == f"{tmp_path / 'nothing'}: there is no such model"


def test_a_run_that_has_not_finished(tmp_path):
    (tmp_path / "m" / "run").mkdir(parents=True)
    with pytest.raises(
        BundleError, match=r"holds no finished model \(no manifest.json\)"
    ) as caught:
        load_bundle(tmp_path / "m")
    assert caught.value.hint == "train it to its end, or stop it with Ctrl-C."


def test_a_directory_with_something_else(tmp_path):
    assert "holds no finished model" in refusal(tmp_path)


@pytest.mark.parametrize("name", NEEDED)
def test_a_missing_file(bundle, name):
    (bundle / name).unlink()
    assert refusal(bundle) == f"{bundle / name}: this file of the model is missing"


@pytest.mark.parametrize("name", NEEDED)
@pytest.mark.parametrize("harm", ["cut", "flipped", "emptied", "longer"])
def test_a_changed_file(bundle, name, harm):
    content = bytearray((bundle / name).read_bytes())
    if harm == "flipped":
        content[len(content) // 2] ^= 1
    changed = {"cut": content[:-1], "flipped": content, "emptied": b"", "longer": content + b" "}[
        harm
    ]
    (bundle / name).write_bytes(changed)
    assert refusal(bundle) == f"{bundle / name}: this file was changed or truncated"


def test_a_flipped_bit_in_the_manifest_is_detected_or_harmless(bundle, trained):
    """What could be hit without being seen is the digest of a page for people, or a blank between two words."""
    whole = (bundle / "manifest.json").read_bytes()
    expected = load_bundle(trained).codec.to_json()
    for place in range(0, len(whole), 7):
        harmed = bytearray(whole)
        harmed[place] ^= 1
        (bundle / "manifest.json").write_bytes(harmed)
        try:
            loaded = load_bundle(bundle)
        except BundleError:
            assert str(bundle) in refusal(bundle)
        else:
            assert loaded.codec.to_json() == expected


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ("", "not valid JSON"),
        ("[]", "not a manifest of Seqlab"),
        ('{"format": 1}', "not a manifest of Seqlab"),
        ('{"format": 1, "files": []}', "not a manifest of Seqlab"),
        ('{"format": 3, "files": {}}', "written in format 3; this version reads format 1 and 2"),
        ('{"files": {}}', "written in format None; this version reads format 1 and 2"),
        ('{"format": 1, "files": {}}', "this file was changed or truncated"),
    ],
)
def test_a_malformed_manifest(bundle, manifest, said):
    (bundle / "manifest.json").write_text(manifest)
    message = refusal(bundle)
    assert message.startswith(str(bundle))
    assert said in message


class TestWithCorrectDigests:
    """Files that were replaced together with their digests are still read with suspicion."""

    def test_weights_of_another_size(self, bundle):
        weights = load((bundle / "model.safetensors").read_bytes())
        name = next(name for name, weight in weights.items() if weight.dim() == 2)
        replace(
            bundle, "model.safetensors", save({**weights, name: weights[name][:-1].contiguous()})
        )
        message = refusal(bundle)
        assert message.startswith(f"{bundle / 'model.safetensors'}: weight '{name}' has shape ")

    @pytest.mark.parametrize("change", ["missing", "extra"])
    def test_weights_of_another_model(self, bundle, change):
        weights = load((bundle / "model.safetensors").read_bytes())
        name = min(weights) if change == "missing" else "surplus"
        weights = {**weights, "surplus": torch.zeros(1)} if change == "extra" else weights | {}
        if change == "missing":
            del weights[name]
        replace(bundle, "model.safetensors", save(weights))
        problem = "missing" if change == "missing" else "not part of the recipe's network"
        assert refusal(bundle) == f"{bundle / 'model.safetensors'}: weight '{name}' is {problem}"

    @pytest.mark.parametrize("content", [b"", b"\0" * 7, b"\xff" * 64, b'{"a": 1}'])
    def test_weights_that_are_not_safetensors(self, bundle, content):
        replace(bundle, "model.safetensors", content)
        assert refusal(bundle).startswith(
            f"{bundle / 'model.safetensors'}: not a safetensors file: "
        )

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("tokenizer.json", b"{"),
            ("tokenizer.json", b"[]"),
            ("tokenizer.json", b'{"source": {"kind": "runes"}}'),
            ("tokenizer.json", b'{"target": {"kind": "characters"}}'),
            ("metrics.json", b"{"),
            ("metrics.json", b"[1]"),
            ("recipe.toml", b"name = "),
            ("recipe.toml", b'name = "x"'),
            ("recipe.toml", b"\xff"),
        ],
    )
    def test_malformed_text_files(self, bundle, name, content):
        replace(bundle, name, content)
        assert refusal(bundle).startswith(f"{bundle / name}: ")


class TestNoPickle:
    def test_the_package_never_mentions_a_way_to_read_one(self):
        package = Path(seqlab.__file__).parent
        ways = re.compile(
            r"\bimport pickle\b|\bfrom pickle\b|\bpickle\.\w|torch\.load|\bdill\b|joblib|allow_pickle=True"
        )
        for path in package.rglob("*.py"):
            assert not ways.search(path.read_text("utf-8")), path

    @pytest.mark.parametrize("name", NEEDED)
    def test_a_bundle_with_a_pickle_in_it_runs_nothing(self, bundle, tmp_path, name):
        made = tmp_path / "made-by-the-pickle"
        payload = (
            b"c" + os.mkdir.__module__.encode() + b"\nmkdir\n(V" + str(made).encode() + b"\ntR."
        )
        replace(bundle, name, payload)
        assert refusal(bundle).startswith(f"{bundle / name}: ")
        assert not made.exists()

        # whoever does unpickle it is harmed: the payload is a real one
        subprocess.run(
            [sys.executable, "-c", f"import pickle; pickle.loads({payload!r})"], check=True
        )
        assert made.exists()
