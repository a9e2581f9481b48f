"""Write pixels as PNG (ISO/IEC 15948) without a library: views and pages embed small pictures."""

import struct
import zlib

import numpy as np
from jaxtyping import UInt8


def png(
    pixels: UInt8[np.ndarray, "H W *C"], palette: UInt8[np.ndarray, "256 3"] | None = None
) -> bytes:
    """Return the file of a picture in grey or in colour; with a palette, `pixels` are indices into it."""
    height, width = pixels.shape[:2]
    colour_type = 0 if pixels[0, 0].size == 1 else 2
    if palette is not None:
        colour_type = 3
    header = struct.pack(">IIBBBBB", width, height, 8, colour_type, 0, 0, 0)
    rows = np.pad(pixels.reshape(height, -1), ((0, 0), (1, 0)))  # each row begins with filter 0
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b"")]
    if palette is not None:
        chunks.insert(1, (b"PLTE", palette.tobytes()))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, content) for name, content in chunks)


def _chunk(name: bytes, content: bytes) -> bytes:
    length = struct.pack(">I", len(content))
    checksum = struct.pack(">I", zlib.crc32(name + content))
    return length + name + content + checksum
