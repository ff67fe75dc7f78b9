"""Images of every kind: their bits, their channels, their range of values, and kinds that are not read."""

import hashlib
import io
import struct
import sys
import tarfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image, features

from manyview.data import Camera, Folder, Tar, Unreadable, open_source, pack
from manyview.data import decoding as decoding_module
from manyview.data.decoding import decode, header
from manyview.errors import UserError
from manyview.fields import Pixels
from manyview.pixels import Numbers


def numbers(*shape: int, dtype: str = "uint16", seed: int = 0) -> Numbers:
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True)


def tiff(values: Numbers, **how: object) -> io.BytesIO:
    file = io.BytesIO()
    tifffile.imwrite(file, values, **{"photometric": "minisblack", **how})
    return file


def png(values: Numbers) -> io.BytesIO:
    """(H, W, S) of 16 bits, which Pillow cannot write."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, count = values.shape
    head = struct.pack(">IIBBBBB", width, height, 16, {1: 0, 2: 4, 3: 2, 4: 6}[count], 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    chunks = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return io.BytesIO(b"\x89PNG\r\n\x1a\n" + chunks)


def pillow(values: Numbers, format: str = "PNG", **options: object) -> io.BytesIO:
    file = io.BytesIO()
    Image.fromarray(values).save(file, format, **options)
    return file


def hwc(image: torch.Tensor) -> Numbers:
    found: Numbers = image.permute(1, 2, 0).numpy()
    assert found.flags.c_contiguous, "channels last"
    return found


def saved(root: Path, *files: io.BytesIO, ending: str = "tif") -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for number, file in enumerate(files):
        (root / f"{number}.{ending}").write_bytes(file.getvalue())
    return root


STORED: dict[str, Callable[[Numbers], io.BytesIO]] = {
    "interleaved": lambda x: tiff(x, planarconfig="contig"),
    "planar": lambda x: tiff(x.transpose(2, 0, 1), planarconfig="separate"),
    "pages": lambda x: tiff(x.transpose(2, 0, 1)),
    "big-endian": lambda x: tiff(x, planarconfig="contig", byteorder=">"),
    "deflated": lambda x: tiff(x, planarconfig="contig", compression="deflate"),
    "tiled": lambda x: tiff(x, planarconfig="contig", tile=(16, 16)),
    "bigtiff": lambda x: tiff(x, planarconfig="contig", bigtiff=True),
}


@pytest.mark.parametrize("layout", STORED)
@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize("channels", [2, 3, 4, 5, 12])
def test_tiffs_of_many_channels_keep_every_value(
    layout: str, dtype: str, channels: int, caplog: pytest.LogCaptureFixture
) -> None:
    values = numbers(9, 14, channels, dtype=dtype)
    found = hwc(decode(STORED[layout](values), Pixels(channels, dtype == "uint16")))
    assert found.dtype == values.dtype
    assert (found == values).all()
    assert header(STORED[layout](values)) == ((9, 14), 1, dtype == "uint16")
    assert caplog.records == [], "nothing is said of a file that is read"


@pytest.mark.parametrize("how", [{}, {"compression": "deflate", "predictor": True}, {"tile": (16, 16)}])
@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_colours_of_16_bits_need_no_tifffile(
    how: dict[str, object], byteorder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = numbers(18, 20, 4)
    three = tiff(values[..., :3], photometric="rgb", byteorder=byteorder, **how)
    four = tiff(values, photometric="rgb", extrasamples=["unassalpha"], byteorder=byteorder, **how)
    monkeypatch.setitem(sys.modules, "tifffile", None)
    assert (hwc(decode(three, Pixels(3, deep=True))) == values[..., :3]).all()
    assert (hwc(decode(four, Pixels(4, deep=True))) == values).all()


@pytest.mark.parametrize("count", [1, 3, 4])
def test_pngs_of_16_bits_keep_every_value(count: int) -> None:
    values = numbers(6, 7, count)
    assert (hwc(decode(png(values), Pixels(count, deep=True))) == values).all()


@pytest.mark.parametrize("file", [tiff, lambda x: pillow(x, "TIFF"), pillow, lambda x: pillow(x, "PPM")])
def test_grey_of_16_bits_is_itself_for_one_channel_and_repeated_for_three(
    file: Callable[[Numbers], io.BytesIO],
) -> None:
    grey = numbers(5, 6)
    assert (hwc(decode(file(grey), Pixels(1, deep=True)))[..., 0] == grey).all()
    assert (hwc(decode(file(grey), Pixels(3, deep=True))) == grey[..., None]).all()
    assert (hwc(decode(file(grey))) == np.rint(grey[..., None] / 257)).all()


def test_what_is_brightest_depends_on_the_kind_of_numbers() -> None:
    deep = Pixels(1, deep=True)
    assert decode(pillow(np.array([[0, 1, 255]], np.uint8)), deep).flatten().tolist() == [0, 257, 65_535]
    assert decode(tiff(np.array([[0, 0.25, 1]], np.float32)), deep).flatten().tolist() == [0, 16_384, 65_535]
    assert decode(tiff(np.array([[0, 0.25, 1]], np.float64)), deep).flatten().tolist() == [0, 16_384, 65_535]
    assert decode(tiff(np.array([[np.nan, 1]], np.float32)), deep).flatten().tolist() == [0, 65_535]
    assert decode(tiff(np.array([[0, 65_535]], np.uint32)), deep).flatten().tolist() == [0, 65_535]
    for rows, dtype in (([0, 2], "f4"), ([-1, 1], "f4"), ([-1, 5], "i2"), ([0, 65_536], "u4")):
        with pytest.raises(Unreadable, match=r"from -?\d to \d+, not from 0 to \d+: say .* --value-range LOW HIGH"):
            decode(tiff(np.array([rows], dtype)), deep)


@pytest.mark.parametrize(
    ("values", "low_high"),
    [
        (np.array([[100, 200, 300, 50, 999]], np.uint16), (100, 300)),
        (np.array([[-500, 0, 500, -900, 900]], np.int16), (-500, 500)),
        (np.array([[-1, 0, 1, -9, 9]], np.float32), (-1, 1)),
        (np.array([[-1, 0, 1, -9, 9]], np.float64), (-1, 1)),
        (np.array([[0, 2**31, 2**32 - 1, 0, 2**32 - 1]], np.uint32), (0, 2**32)),
        (np.array([[10, 20, 30, 0, 255]], np.uint8), (10, 30)),
    ],
)
def test_a_range_of_values_says_what_is_black_and_white(values: Numbers, low_high: tuple[float, float]) -> None:
    assert decode(tiff(values), Pixels(1, deep=True), low_high).flatten().tolist() == [0, 32_768, 65_535, 0, 65_535]


def test_luma_and_white_paper_are_those_of_8_bits() -> None:
    colours, opacity = numbers(4, 5, 3, dtype="uint8"), numbers(4, 5, 1, dtype="uint8", seed=1)
    luma = hwc(decode(pillow(colours), Pixels(1)))[..., 0]
    assert np.abs(luma - np.array(Image.fromarray(colours).convert("L")).astype(int)).max() <= 1
    see_through = np.concatenate([colours, opacity], 2)
    shown = hwc(decode(pillow(see_through)))
    deep = see_through.astype(np.uint16) * 257
    for file in (png(deep), tiff(deep, photometric="rgb", extrasamples=["unassalpha"])):
        found = hwc(decode(file, Pixels(3, deep=True))) / 257
        assert np.abs(found - shown).max() <= 1
    assert (hwc(decode(pillow(see_through), Pixels(4))) == see_through).all(), "four channels are what was asked for"


@pytest.mark.parametrize(
    ("file", "channels", "message"),
    [
        (lambda: tiff(numbers(4, 5, 5), planarconfig="contig"), 3, "it has 5 channels, not 3: use --channels 5"),
        (lambda: tiff(numbers(4, 5, 5), planarconfig="contig"), 1, "it has 5 channels, not 1: use --channels 5"),
        (lambda: pillow(numbers(4, 5, 3, dtype="uint8")), 5, "it has 3 channels, not 5: use --channels 3"),
        (lambda: pillow(numbers(4, 5, dtype="uint8")), 4, "it has 1 channel, not 4: use --channels 1"),
        (lambda: tiff(np.zeros((3, 8, 9), np.uint8)), 4, "it has 1 channel, not 4: use --channels 1"),
        (lambda: tiff(np.zeros((4, 5), np.complex64)), 1, "no brightness"),
        (lambda: tiff(np.zeros((4, 8, 9), np.uint8), volumetric=True, tile=(4, 16, 16)), 2, "it is a volume"),
    ],
)
def test_what_does_not_fit_names_the_flag(file: Callable[[], io.BytesIO], channels: int, message: str) -> None:
    with pytest.raises(Unreadable, match=message):
        decode(file(), Pixels(channels))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_deep_images_are_turned_upright(orientation: int) -> None:
    values = numbers(6, 9, 5)
    for channels, part in ((5, values), (3, values[..., :3])):
        eight = [(part[..., c] >> 8).astype(np.uint8) for c in range(3)]
        exif = Image.Exif()
        exif[0x0112] = orientation
        expected = decode(pillow(np.stack(eight, 2), exif=exif))
        tags = [(274, "H", 1, orientation, False)]
        found = tiff(part, planarconfig="contig", extratags=tags)
        turned = decode(found, Pixels(channels, deep=True))
        assert turned.shape[1:] == expected.shape[1:] == header(found).size
        assert ((turned[:3].int() >> 8) == expected).all()


def test_the_pages_of_a_tiff_are_channels_where_there_are_as_many(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = numbers(4, 20, 30, dtype="uint8")
    root = saved(tmp_path / "pages", tiff(pages), tiff(pages))
    first = Folder(root).read(0)["image"]
    assert (first == torch.from_numpy(pages[0])).all(), "otherwise the first is the image"
    said = capsys.readouterr().err
    assert "several pages, such as" in said
    assert "--channels 4 takes 4 pages of one channel each as channels" in said
    assert (Folder(root, camera=Camera(channels=4)).read(0)["image"] == torch.from_numpy(pages)).all()
    assert (decode(tiff(pages[:3])) == torch.from_numpy(pages[:3])).all()
    pyramid = io.BytesIO()  # the smaller copies of an image are no channels
    with tifffile.TiffWriter(pyramid) as file:
        for step in (1, 2, 4):
            file.write(pages[0, ::step, ::step])
    assert (decode(pyramid) == torch.from_numpy(pages[0])).all()
    assert capsys.readouterr().err == ""


def test_a_set_has_16_bits_where_one_of_its_images_has_more_than_8(tmp_path: Path) -> None:
    deep, flat = numbers(8, 9), numbers(8, 9, dtype="uint8")
    source = Folder(saved(tmp_path / "mixed", pillow(deep), pillow(flat), ending="png"))
    assert source.pixels == Pixels(3, deep=True)
    assert [source.read(number)["image"].dtype for number in range(2)] == [torch.uint16] * 2
    assert (source.read(1)["image"][0].numpy() == flat.astype(int) * 257).all()
    assert Folder(saved(tmp_path / "flat", pillow(flat), ending="png")).pixels == Pixels()
    ranged = Folder(tmp_path / "flat", camera=Camera(value_range=(0, 100)))
    assert ranged.pixels == Pixels(3, deep=True)
    assert ranged.fingerprint != Folder(tmp_path / "flat").fingerprint


def test_twelve_bits_in_sixteen_are_spoken_of_and_not_black_in_silence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = saved(tmp_path / "twelve", *(tiff(numbers(30, 40, seed=seed) >> 4) for seed in range(3)))
    Folder(root).read(0)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "has 6.2% of full brightness: say which values are black and white, such as --value-range 0 4095" in said
    assert Folder(root, camera=Camera(value_range=(0, 4095))).read(0)["image"].int().max() > 60_000
    Folder(root, camera=Camera(value_range=(0, 60_000))).read(0)
    assert "--value-range 0 60000 may be too wide" in capsys.readouterr().err
    Folder(saved(tmp_path / "sixteen", tiff(numbers(30, 40)))).read(0)
    assert capsys.readouterr().err == ""


def test_a_set_that_does_not_fit_is_told_as_it_is_opened(tmp_path: Path) -> None:
    five = saved(tmp_path / "five", *[tiff(numbers(8, 9, 5), planarconfig="contig")] * 4)
    with pytest.raises(UserError, match=r"0.tif|1.tif|2.tif|3.tif") as caught:
        open_source(str(five))
    assert "it has 5 channels, not 3: use --channels 5" in str(caught.value)
    with pytest.raises(UserError, match="it has 5 channels, not 4: use --channels 5"):
        open_source(str(five), camera=Camera(channels=4))
    heights = saved(tmp_path / "heights", *[tiff(np.array([[200, 900], [3, 4]], np.float32))] * 2)
    with pytest.raises(UserError, match=r"from 3 to 900, not from 0 to 1: say .* --value-range LOW HIGH"):
        open_source(str(heights))
    with pytest.raises(UserError, match="--value-range 5 5: black, the first, must be less than white"):
        Camera(value_range=(5, 5))
    with pytest.raises(UserError, match="has images of 3 channels, not 5: name other data, or train with --channels 3"):
        open_source("scenes:20", camera=Camera(channels=5))


def test_deep_sets_are_packed_as_they_are(tmp_path: Path) -> None:
    values = [numbers(12, 10, 5, seed=seed) for seed in range(6)]
    root = saved(tmp_path / "set", *(tiff(each, planarconfig="contig") for each in values))
    camera = Camera(channels=5)
    packed = open_source(str(root), camera=camera)  # small, so that it is packed
    assert packed.size == (12, 10)
    for number, each in enumerate(values):
        assert (packed.read(number)["image"].permute(1, 2, 0).numpy() == each).all()
    again = pack(Folder(root, camera=camera), tmp_path / "a.safetensors", image_size=5, progress=False)
    assert again.pixels == Pixels(5, deep=True)
    means = again.read(0)["image"].double().mean((1, 2)) - torch.from_numpy(values[0][1:11].astype(float)).mean((0, 1))
    assert means.abs().max() < 3000
    with pytest.raises(UserError, match="has images of 5 channels, not 3"):
        open_source(str(tmp_path / "a.safetensors"))


def test_rgb_of_8_bits_has_the_bytes_of_earlier_versions(tmp_path: Path) -> None:
    for number in range(12):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number}.{('ppm', 'bmp')[number // 2 % 2]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(numbers(24, 30, 3, dtype="uint8", seed=number)).save(path)
    folder = Folder(tmp_path / "photos", name="photos")
    assert folder.fingerprint == "c6ef319efc153888"
    pack(folder, tmp_path / "p.safetensors", progress=False)
    assert (
        hashlib.sha256((tmp_path / "p.safetensors").read_bytes()).hexdigest()
        == "20d81731d325e9ea9628b468ed574628a80f3ead2c458b324aa687c8f6880da4"
    )


def test_images_of_other_kinds_are_counted_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = saved(tmp_path / "a", pillow(numbers(8, 9, dtype="uint8")), ending="png")
    for name in ("1.JP2", "2.jp2", "3.svg", "4.nef", "notes.txt", ".hidden.svg"):
        (root / name).write_bytes(b"something")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.add(root, "a")
    for kind, path in ((Folder, root), (Tar, tmp_path / "a.tar")):
        assert len(kind(path)) == 1
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "are passed over (2 .jp2, 1 .nef, 1 .svg): convert them to .jpg, .png or .tif" in said


def test_heif_without_its_plug_in_is_counted_and_names_the_extra(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = saved(tmp_path / "a", pillow(numbers(8, 9, dtype="uint8")), ending="png")
    (root / "1.heic").write_bytes(b"something")
    (root / "2.AVIF").write_bytes(b"something")
    monkeypatch.setattr(decoding_module, "plug_ins", lambda: ())
    decoding_module.endings.cache_clear()
    try:
        assert len(Folder(root)) == 1
    finally:
        decoding_module.endings.cache_clear()
    said = capsys.readouterr().err
    assert "1 HEIF images of" in said
    assert "install manyview[heif], or convert them" in said
    assert "1 AVIF images of" in said


def test_heif_is_read_by_its_plug_in(tmp_path: Path) -> None:
    heif = pytest.importorskip("pillow_heif")
    y, x = np.mgrid[0:32, 0:48]
    values = np.stack([x * 5, y * 7, 255 - x * 5], 2).astype(np.uint8)
    (tmp_path / "a").mkdir()
    heif.from_pillow(Image.fromarray(values)).save(tmp_path / "a" / "1.heic", quality=95)
    source = Folder(tmp_path / "a")
    assert source.probe.size == (32, 48)
    assert np.abs(hwc(source.read(0)["image"]).astype(int) - values).mean() < 4
    data = (tmp_path / "a" / "1.heic").read_bytes()
    for end in (30, len(data) // 2):
        with pytest.raises(Unreadable):
            decode(io.BytesIO(data[:end]))


@pytest.mark.skipif(not features.check("avif"), reason="Pillow was built without AVIF")
def test_avif_is_read(tmp_path: Path) -> None:
    y, x = np.mgrid[0:32, 0:48]
    values = np.stack([x * 5, y * 7, 255 - x * 5], 2).astype(np.uint8)
    source = Folder(saved(tmp_path / "a", pillow(values, "AVIF", quality=95), ending="avif"))
    assert np.abs(hwc(source.read(0)["image"]).astype(int) - values).mean() < 4


def test_without_tifffile_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tifffile", None)
    file = pillow(numbers(4, 5, dtype="uint8"), "TIFF")
    assert decode(file).shape == (3, 4, 5), "what Pillow reads needs no other"
    with pytest.raises(Unreadable, match=r"pip install 'manyview\[tiff\]'"):
        decode(_FIVE, Pixels(5))


_FIVE = tiff(numbers(4, 5, 5), planarconfig="contig")
WHOLE: dict[str, Callable[[], io.BytesIO]] = {
    "16-bit tiff": lambda: tiff(numbers(12, 14, 5), planarconfig="contig"),
    "deflated tiff": lambda: tiff(numbers(12, 14, 5), planarconfig="separate", compression="deflate", rowsperstrip=3),
    "tiff of pages": lambda: tiff(numbers(5, 12, 14)),
    "16-bit rgb tiff": lambda: tiff(numbers(12, 14, 3), photometric="rgb", compression="deflate"),
    "8-bit tiff": lambda: tiff(numbers(12, 14, 3, dtype="uint8"), photometric="rgb"),
    "float tiff": lambda: tiff(np.random.default_rng(0).random((12, 14), dtype=np.float32)),
    "16-bit png": lambda: png(numbers(12, 14, 3)),
    "grey png": lambda: pillow(numbers(12, 14)),
    "jpeg": lambda: pillow(numbers(16, 24, 3, dtype="uint8"), "JPEG"),
}


@pytest.mark.parametrize("kind", WHOLE)
def test_damaged_files_give_pixels_or_are_unreadable_and_nothing_else(kind: str) -> None:
    whole, draws = WHOLE[kind]().getvalue(), np.random.default_rng(1)
    reasons, began = list[str](), time.monotonic()
    for trial in range(60):
        broken = bytearray(whole)
        if trial % 4 == 0:
            del broken[int(draws.integers(len(broken))) :]
        start = 400 if trial % 2 else len(broken)  # headers more often than pixels
        for _ in range(int(draws.integers(1, 4))):
            place = int(draws.integers(max(1, min(len(broken), start))))
            broken[place : place + 2] = draws.bytes(2)
        for pixels in (Pixels(), Pixels(5, deep=True), Pixels(1, deep=True)):
            file = io.BytesIO(bytes(broken))
            try:
                image = decode(file, pixels)
                assert image.shape[0] == pixels.channels
                assert image.dtype == pixels.dtype
            except Unreadable as reason:
                reasons.append(str(reason))
            try:
                header(file)
            except Unreadable:
                continue
    assert reasons
    assert all(reason and "\n" not in reason for reason in reasons)
    assert time.monotonic() - began < 60


def test_a_tiff_that_says_it_is_huge_is_unreadable_before_it_is_unpacked() -> None:
    for side, channels in ((20_000, 5), (9_000, 200)):
        file = tiff(np.zeros((1, 1, channels), np.uint16), planarconfig="contig")
        file.seek(0)
        with tifffile.TiffFile(file, mode="r+b") as opened:
            for tag in ("ImageWidth", "ImageLength"):
                opened.pages.first.tags[tag].overwrite(side)
        with pytest.raises(Unreadable, match=r"decompression bomb|far too large"):
            decode(file, Pixels(channels, deep=True))
