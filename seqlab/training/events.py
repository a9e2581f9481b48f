"""The numbers of a run as TensorBoard reads them, without its library: `tensorboard --logdir runs` shows the curves.

A file is a series of records: length, check sum of the length, content, check sum of the content. The content is an
Event in protobuf: fields by number, each with a wire type (0 varint, 1 double, 2 bytes, 5 float).
"""

import struct
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

START = 1  # of a session: TensorBoard then forgets what it has read from that step on


class EventFile:
    """Event files in a folder, one for each time that somebody writes there."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"events.out.tfevents.{time.time_ns() // 1000:016}.seqlab"

    def append(self, step: int, values: Mapping[str, object]) -> None:
        """The numbers among the values, as curves: `loss` is train/loss, and `validation` holds curves of its own."""
        groups = {"train": values} | {name: part for name, part in values.items() if isinstance(part, Mapping)}
        scalars = [
            _bytes(1, _bytes(1, f"{group}/{name}".encode()) + b"\x15" + struct.pack("<f", value))
            for group, part in groups.items()
            for name, value in part.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        ]
        self._write(step, _bytes(5, b"".join(scalars)))

    def restart(self, step: int) -> None:
        """What comes after this step will come again."""
        self._write(step + 1, _bytes(7, b"\x08" + _varint(START)))

    def _write(self, step: int, what: bytes) -> None:
        with self.path.open("ab") as file:
            if file.tell() == 0:
                file.write(_record(_event(0, _bytes(3, b"brain.Event:2"))))
            file.write(_record(_event(step, what)))


def _event(step: int, what: bytes) -> bytes:
    return b"\x09" + struct.pack("<d", time.time()) + b"\x10" + _varint(step) + what


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _varint(value >> 7)


def _record(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + _check_sum(length) + content + _check_sum(content)


def _check_sum(content: bytes) -> bytes:
    """CRC-32C, turned by 15 bits and shifted, so that the sum of a record that holds sums is not a sum again."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = _table()[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


@cache
def _table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [value >> 1 ^ 0x82F63B78 if value & 1 else value >> 1 for value in table]
    return table
