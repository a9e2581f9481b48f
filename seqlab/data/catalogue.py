"""Public data sets that somebody with a network can fetch: where they are, what they weigh, whose they are.

Nothing here is part of Seqlab or travels with it. A file is kept only if it is, byte for byte, the one described.
"""

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from urllib.parse import urlsplit

from seqlab.errors import DataError, UsageError, nearest

TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 1 << 16
_GITHUB = "https://raw.githubusercontent.com"


@dataclass(frozen=True)
class Dataset:
    """One file on the network; `size` in bytes."""

    name: str
    address: str
    sha256: str
    size: int
    licence: str
    note: str

    @property
    def file_name(self) -> str:
        """The name with the endings of the address: "multi30k-train-en.gz"."""
        return self.name + PurePosixPath(urlsplit(self.address).path).suffix


DATASETS = (
    Dataset(
        name="timemachine",
        address="http://d2l-data.s3-accelerate.amazonaws.com/timemachine.txt",
        sha256="8424dbd9532ac81f7e5f0b6add90e6952baea29158309d7d1bf3884f4e12c516",
        size=178_979,
        licence="public domain",
        note="H. G. Wells, The Time Machine: 178,979 characters; lm",
    ),
    Dataset(
        name="tinyshakespeare",
        address=f"{_GITHUB}/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        size=1_115_394,
        licence="public domain",
        note="plays by Shakespeare: 1,115,394 characters, the last 10% for validation; lm",
    ),
    Dataset(
        name="wikitext-2-train",
        address=f"{_GITHUB}/pytorch/examples/main/word_language_model/data/wikitext-2/train.txt",
        sha256="9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
        size=10_797_148,
        licence="CC BY-SA 3.0",
        note="Wikipedia articles in words, rare ones as <unk> (Merity et al. 2016); lm",
    ),
    Dataset(
        name="wikitext-2-valid",
        address=f"{_GITHUB}/pytorch/examples/main/word_language_model/data/wikitext-2/valid.txt",
        sha256="f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
        size=1_121_681,
        licence="CC BY-SA 3.0",
        note="Wikipedia articles in words, rare ones as <unk> (Merity et al. 2016); lm",
    ),
    Dataset(
        name="wikitext-2-test",
        address=f"{_GITHUB}/pytorch/examples/main/word_language_model/data/wikitext-2/test.txt",
        sha256="d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
        size=1_256_449,
        licence="CC BY-SA 3.0",
        note="Wikipedia articles in words, rare ones as <unk> (Merity et al. 2016); lm",
    ),
    Dataset(
        name="multi30k-train-en",
        address=f"{_GITHUB}/multi30k/dataset/master/data/task1/raw/train.en.gz",
        sha256="d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
        size=568_929,
        licence="none stated; for research",
        note="captions of images, English side, parallel by line (Elliott et al. 2016); translate",
    ),
    Dataset(
        name="multi30k-train-de",
        address=f"{_GITHUB}/multi30k/dataset/master/data/task1/raw/train.de.gz",
        sha256="726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
        size=637_044,
        licence="none stated; for research",
        note="captions of images, German side, parallel by line (Elliott et al. 2016); translate",
    ),
    Dataset(
        name="multi30k-train-fr",
        address=f"{_GITHUB}/multi30k/dataset/master/data/task1/raw/train.fr.gz",
        sha256="622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
        size=604_242,
        licence="none stated; for research",
        note="captions of images, French side, parallel by line (Elliott et al. 2016); translate",
    ),
    Dataset(
        name="multi30k-val-en",
        address=f"{_GITHUB}/multi30k/dataset/master/data/task1/raw/val.en.gz",
        sha256="14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
        size=21_650,
        licence="none stated; for research",
        note="captions of images, English side, parallel by line (Elliott et al. 2016); translate",
    ),
    Dataset(
        name="multi30k-val-de",
        address=f"{_GITHUB}/multi30k/dataset/master/data/task1/raw/val.de.gz",
        sha256="f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
        size=24_681,
        licence="none stated; for research",
        note="captions of images, German side, parallel by line (Elliott et al. 2016); translate",
    ),
    Dataset(
        name="multi30k-val-fr",
        address=f"{_GITHUB}/multi30k/dataset/master/data/task1/raw/val.fr.gz",
        sha256="ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
        size=23_001,
        licence="none stated; for research",
        note="captions of images, French side, parallel by line (Elliott et al. 2016); translate",
    ),
    Dataset(
        name="wnut17-train",
        address=f"{_GITHUB}/leondz/emerging_entities_17/master/wnut17train.conll",
        sha256="731820e13f71af324c6b55a1575ec2ce59fbaa2a0806f8f0400b98d56cd6a7a5",
        size=493_781,
        licence="CC BY 4.0",
        note="rare entities in 3,394 posts (Derczynski et al. 2017); tag",
    ),
    Dataset(
        name="wnut17-dev",
        address=f"{_GITHUB}/leondz/emerging_entities_17/master/emerging.dev.conll",
        sha256="e053b752b8155113ca66e7db08af5f2f5f43ab993694e4774f1ec5bad42312d8",
        size=114_749,
        licence="CC BY 4.0",
        note="rare entities in 1,009 posts (Derczynski et al. 2017); tag",
    ),
    Dataset(
        name="etth1",
        address=f"{_GITHUB}/zhouhaoyi/ETDataset/main/ETT-small/ETTh1.csv",
        sha256="f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066",
        size=2_589_657,
        licence="CC BY-ND 4.0",
        note="a transformer station by the hour, 17,420 rows x 7 (Zhou et al. 2021); forecast",
    ),
    Dataset(
        name="etth2",
        address=f"{_GITHUB}/zhouhaoyi/ETDataset/main/ETT-small/ETTh2.csv",
        sha256="a3dc2c597b9218c7ce1cd55eb77b283fd459a1d09d753063f944967dd6b9218b",
        size=2_417_960,
        licence="CC BY-ND 4.0",
        note="a transformer station by the hour, 17,420 rows x 7 (Zhou et al. 2021); forecast",
    ),
    Dataset(
        name="airline-passengers",
        address=f"{_GITHUB}/jbrownlee/Datasets/master/airline-passengers.csv",
        sha256="8cb51be753a718d9be5d76d7e238cc224792754676adc21faa59e954b0201621",
        size=2_180,
        licence="none stated",
        note="passengers by the month, 144 rows (Box and Jenkins 1976); forecast",
    ),
)


def find(name: str) -> Dataset:
    """The data set of that name."""
    known = {dataset.name: dataset for dataset in DATASETS}
    if name not in known:
        raise UsageError(f"there is no data set '{name}'", hint=nearest(name, known))
    return known[name]


def fetch(dataset: Dataset, directory: str | Path, *, address: str | None = None) -> Path:
    """Download a data set (from `address`, where a mirror is nearer), check it, and only then give it its name.

    A file that is already there and right is not fetched again.
    """
    directory = Path(directory)
    path = directory / dataset.file_name
    if path.is_file() and _sha256(path) == dataset.sha256:
        return path
    address = address or dataset.address
    if urlsplit(address).scheme not in ("http", "https"):
        raise UsageError(f"'{address}' is not an address on the network", hint="it begins with http:// or https://.")
    directory.mkdir(parents=True, exist_ok=True)
    temporary = directory / f".{dataset.file_name}.{os.getpid()}.tmp"
    try:
        with temporary.open("wb") as target:
            _download(address, target, limit=dataset.size)
        seen = _sha256(temporary)
        if seen != dataset.sha256:
            raise _not_the_file(address, f"its sha256 is {seen}, not {dataset.sha256}")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _download(address: str, target: BinaryIO, *, limit: int) -> None:
    request = urllib.request.Request(address, headers={"User-Agent": "seqlab"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            size = 0
            while chunk := answer.read(_CHUNK):
                size += len(chunk)
                if size > limit:
                    raise _not_the_file(address, f"it is longer than {limit:,} bytes")
                target.write(chunk)
    except urllib.error.HTTPError as error:
        raise DataError(
            f"{address}: the server answers {error.code} {error.reason}",
            hint="the file may have moved; give the address of another copy, which is checked all the same.",
        ) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise DataError(
            f"{address}: cannot be reached: {reason}",
            hint="check the network, or fetch the file by other means and give its path. Nothing was kept.",
        ) from error


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _not_the_file(address: str, seen: str) -> DataError:
    return DataError(
        f"{address}: this is not the file that is described: {seen}",
        hint="it was changed or cut on the way, or a new version stands there. Nothing was kept.",
    )
