"""FLIP's secondary structure task and CB513 as files for `seqlab train tag`: amino acids, a tab, their states.

python experiments/proteins.py secondary_structure.zip CB513_HHblits.csv.gz OUT

Residues whose state is not known are labelled `_`, and are neither learnt nor scored. A protein of CB513 that is in
FLIP's training part as well is left out of the latter.
"""

import csv
import gzip
import sys
import zipfile
from pathlib import Path


def fasta(archive: zipfile.ZipFile, name: str) -> dict[str, str]:
    """Return the sequences of a FASTA file by their titles."""
    inside = next(each for each in archive.namelist() if each.endswith(name))
    entries = archive.read(inside).decode().split(">")[1:]
    return {title: "".join(rows) for title, *rows in (entry.splitlines() for entry in entries)}


def main(flip: str, cb513: str, out: Path) -> None:
    with gzip.open(cb513, "rt") as file:
        rows = list(csv.reader(file, skipinitialspace=True))[1:]
    other = [
        (row[0].split(), row[1].split(), [float(cell) > 0 for cell in row[4].split()])
        for row in rows
    ]
    parts: dict[str, list[str]] = {
        "train": [],
        "valid": [],
        "test": [],
        "cb513": [_line(*each) for each in other],
    }
    known = {"".join(acids) for acids, _, _ in other}
    with zipfile.ZipFile(flip) as archive:
        names = ("sequences.fasta", "mask.fasta", "sampled.fasta")
        sequences, masks, states = (fasta(archive, name) for name in names)
    sequences, masks = (
        {title.split()[0]: row for title, row in table.items()} for table in (sequences, masks)
    )
    for title, labels in states.items():
        acids, mask = sequences[title.split()[0]], masks[title.split()[0]]
        part = "test" if "SET=test" in title else "valid" if "VALIDATION=True" in title else "train"
        if part != "train" or acids not in known:
            parts[part].append(_line(acids, labels, [each == "1" for each in mask]))
    out.mkdir(parents=True, exist_ok=True)
    for part, lines in parts.items():
        (out / f"{part}.tsv").write_text("".join(lines))
        print(f"{part}.tsv: {len(lines):,} proteins")


def _line(acids: str | list[str], labels: str | list[str], seen: list[bool]) -> str:
    return f"{' '.join(acids)}\t{' '.join(s if on else '_' for s, on in zip(labels, seen, strict=True))}\n"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
