"""Pictures as people have them: every mode, every way of being broken."""

import io
import struct
import sys
import zlib

import numpy as np
import pytest
from PIL import Image as Pillow

from seqlab.data.pixels import picture_values
from seqlab.data.png import png
from seqlab.errors import DataError, SeqlabWarning
from seqlab.recipe import ImageConfig

SMALL = ImageConfig(height=4, width=6)
GREY = ImageConfig(height=4, width=6, channels=1)
RED, WHITE = (200, 10, 20), (255, 255, 255)


def file(picture, kind="png", **options):
    stream = io.BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()


def refusal(content, image=SMALL):
    with pytest.raises(DataError) as caught:
        picture_values(content, "cats.tsv:3 (a.png)", image)
    return str(caught.value), caught.value.hint


def one_colour(values, channels=3):
    pixels = values.reshape(-1, channels)
    assert (pixels == pixels[0]).all()
    return tuple(pixels[0].tolist())


def test_our_png_is_what_others_read():
    pixels = np.random.default_rng(1).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    assert (np.asarray(Pillow.open(io.BytesIO(png(pixels)))) == pixels).all()
    assert (np.asarray(Pillow.open(io.BytesIO(png(pixels[..., :1])))) == pixels[..., 0]).all()


def test_rows_of_pixels_in_the_size_that_is_asked_for():
    pixels = np.random.default_rng(1).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    values = picture_values(png(pixels), "x", SMALL)
    assert values.dtype == np.uint8
    assert (values == pixels.reshape(4, 18)).all()
    assert (picture_values(pixels, "x", SMALL) == values).all()


def test_the_middle_is_kept_where_the_form_is_another():
    wide = Pillow.new("RGB", (300, 100), WHITE)
    wide.paste(RED, (50, 0, 250, 100))
    values = picture_values(file(wide), "x", SMALL).reshape(-1, 3)
    assert np.abs(values.astype(int) - RED).max() < 5


@pytest.mark.parametrize(
    ("picture", "expected"),
    [
        (Pillow.new("L", (9, 9), 77), (77, 77, 77)),
        (Pillow.new("1", (9, 9), 1), WHITE),
        (Pillow.new("RGB", (9, 9), RED).quantize(4), RED),
        (Pillow.new("RGBA", (9, 9), (*RED, 255)), RED),
        (Pillow.new("RGBA", (9, 9), (*RED, 0)), WHITE),  # what cannot be seen has no colour
        (Pillow.new("LA", (9, 9), (77, 0)), WHITE),
        (Pillow.fromarray(np.full((9, 9), 40 * 257, dtype=np.uint16)), (40, 40, 40)),
    ],
    ids=["grey", "bits", "palette", "opaque", "transparent", "grey and transparent", "16 bits"],
)
def test_every_kind_of_colour_becomes_red_green_and_blue(picture, expected):
    assert one_colour(picture_values(file(picture), "x", SMALL)) == expected
    assert len(one_colour(picture_values(file(picture), "x", GREY), 1)) == 1


def test_a_photograph_is_turned_as_its_camera_was():
    upright = Pillow.new("RGB", (40, 40), WHITE)
    upright.paste(RED, (0, 0, 40, 20))  # red above
    exif = Pillow.Exif()
    exif[0x0112] = 3  # upside down
    values = picture_values(file(upright, "png", exif=exif), "x", SMALL).reshape(4, 6, 3)
    assert np.abs(values[0, 0].astype(int) - WHITE).max() < 40  # red is now below
    assert np.abs(values[3, 0].astype(int) - RED).max() < 40


@pytest.mark.parametrize("kind", ["png", "jpeg", "gif", "bmp", "webp", "tiff"])
def test_every_format_that_is_accepted(kind):
    content = file(Pillow.new("RGB", (9, 9), RED), kind)
    assert np.abs(np.subtract(one_colour(picture_values(content, "x", SMALL)), RED)).max() < 5


def test_of_a_moving_picture_the_first_is_used():
    frames = [Pillow.new("RGB", (8, 8), RED), Pillow.new("RGB", (8, 8), WHITE)]
    content = file(frames[0], "gif", save_all=True, append_images=frames[1:])
    with pytest.warns(
        SeqlabWarning, match=r"cats.gif: 2 pictures in one file; only the first is used"
    ):
        values = picture_values(content, "cats.gif", SMALL)
    assert one_colour(values) == RED


class TestWhatIsNoPicture:
    def test_a_jpeg_that_was_cut_short(self):
        noisy = Pillow.fromarray(
            np.random.default_rng(1).integers(0, 256, (64, 64, 3), dtype=np.uint8)
        )
        content = file(noisy, "jpeg")
        said, hint = refusal(content[: len(content) // 2])
        assert said.startswith(
            "cats.tsv:3 (a.png): this cannot be read as a picture: image file is truncated"
        )
        assert "image.bad to 'skip'" in hint

    def test_one_pixel(self):
        assert refusal(png(np.zeros((1, 1, 3), dtype=np.uint8)))[0].endswith(
            ": 1 x 1 pixels, where 2 x 2 are needed"
        )

    @pytest.mark.parametrize("side", [9_000, 20_000, 100_000])
    def test_a_header_that_declares_too_many_pixels_is_refused(self, side):
        chunk = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
        header = struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
        content = (
            b"\x89PNG\r\n\x1a\n" + header + struct.pack(">I", 9) + b"IDAT" + zlib.compress(b"0")
        )
        said, hint = refusal(content)
        assert said.endswith(", more than 64,000,000 in all; it was not decoded")
        assert "make the picture smaller" in hint

    @pytest.mark.parametrize("kind", ["eps", "pdf", "ppm", "ico", "tga"])
    def test_a_format_that_is_not_accepted(self, kind, monkeypatch):
        """EPS above all: Pillow would hand it to Ghostscript, whatever the file is called."""
        content = file(Pillow.new("RGB", (9, 9), RED), kind)
        monkeypatch.setattr("subprocess.Popen", pytest.fail)
        said, hint = refusal(content)
        accepted = "PNG, JPEG, GIF, BMP, WEBP, TIFF"
        assert said.endswith(
            f": this cannot be read as a picture: it is none of {accepted}, or its header is damaged"
        )
        assert "convert it to PNG or JPEG" in hint

    @pytest.mark.parametrize("content", [b"", b"hello", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0"])
    def test_something_else(self, content):
        assert "this cannot be read as a picture" in refusal(content)[0]


class TestArrays:
    def test_pixels_from_nought_to_one(self):
        values = picture_values(np.full((4, 6), 0.2), "x", GREY)
        assert one_colour(values, 1) == (51,)

    def test_another_size_and_other_colours(self):
        assert one_colour(picture_values(np.full((9, 9, 1), 80, dtype=np.uint8), "x", SMALL)) == (
            80,
            80,
            80,
        )

    @pytest.mark.parametrize(
        ("array", "said"),
        [
            (np.zeros((2, 3, 4, 5)), "an array of shape (2, 3, 4, 5) where pixels (height, width)"),
            (np.zeros((4, 6, 2)), "an array of shape (4, 6, 2) where pixels"),
            (np.full((4, 6), 7.5), "pixels from 7.5 to 7.5 of dtype float64"),
            (np.full((4, 6), np.nan), "pixels from nan to nan"),
            (np.full((4, 6), -1), "pixels from -1 to -1 of dtype int64"),
        ],
    )
    def test_what_is_none(self, array, said):
        assert said in refusal(array)[0]


class TestFeatures:
    @pytest.mark.parametrize("shape", [(5,), (1, 5), (3, 5), (2, 3, 5)])
    def test_one_vector_or_one_for_each_place(self, shape):
        stream = io.BytesIO()
        array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        np.save(stream, array)
        assert (picture_values(stream.getvalue(), "x", None) == array.reshape(-1, 5)).all()

    def test_a_picture_where_features_are_needed(self):
        said, hint = refusal(png(np.zeros((4, 4, 3), dtype=np.uint8)), None)
        assert "this cannot be read as NumPy writes it" in said
        assert "for pictures, the recipe needs [image]" in hint


def test_without_pillow_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    said, hint = refusal(png(np.zeros((4, 4, 3), dtype=np.uint8)))
    assert said == "reading pictures needs the package Pillow, which is not installed"
    assert hint == 'pip install "seqlab[images]"'
    same = np.zeros((4, 6, 3), dtype=np.uint8)
    assert (
        picture_values(same, "x", SMALL) == 0
    ).all()  # for what has its size already nobody needs it
