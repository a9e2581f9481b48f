"""A fuzzer for each parser: `python -m tests.fuzz NAME [options of libFuzzer]`; without a name, the names.

It learns which bytes lead to which lines of Seqlab, beginning with the corpus and a good file, and puts what it finds
worth keeping into tests/corpus/NAME, from where the ordinary tests read it. `-runs=20000` ends after so many inputs.
"""

import sys
import tempfile
import warnings
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["seqlab"]):
    from tests.parsers import NAMES, parsers


def main() -> None:
    if len(sys.argv) < 2:
        print(*NAMES)
        return
    name = sys.argv.pop(1)
    corpus = Path(__file__).with_name("corpus") / name
    corpus.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        parser = parsers(Path(folder))[name]
        seeds = Path(folder) / "seeds"
        seeds.mkdir()
        (seeds / "good").write_bytes(parser.good)
        path = Path(folder) / f"found{parser.suffix}"

        def read(content: bytes) -> None:
            path.write_bytes(content)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                parser.refuses(path)

        atheris.Setup(
            [*sys.argv, "-timeout=5", "-rss_limit_mb=2048", str(corpus), str(seeds)], read
        )
        atheris.Fuzz()


if __name__ == "__main__":
    main()
