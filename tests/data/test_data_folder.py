"""Decoding whatever lies in a folder, and listing it the same way every time."""

import io
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from manyview.data import Folder, Subset, Unreadable, decoding
from manyview.data import folder as folder_module
from manyview.data.decoding import decode
from manyview.errors import UserError

Pixels = np.ndarray


def pixels(height: int = 12, width: int = 20, seed: int = 0) -> Pixels:
    """Smooth colours, so that JPEG keeps them."""
    y, x = np.mgrid[0:height, 0:width]
    shift = 30 * seed
    return np.stack([x * 200 // width + shift, y * 200 // height, 255 - x * 200 // width], axis=2).astype(np.uint8)


def encoded(image: Image.Image, format: str = "PNG", **options: object) -> io.BytesIO:
    file = io.BytesIO()
    image.save(file, format, **options)
    file.seek(0)
    return file


def hwc(tensor: torch.Tensor) -> Pixels:
    assert tensor.dtype == torch.uint8
    assert tensor.shape[0] == 3
    return tensor.permute(1, 2, 0).numpy()


def save(path: Path, size: tuple[int, int] = (20, 12), colour: int = 100) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (colour, 50, 200)).save(path)
    return path


@pytest.mark.parametrize("format", ["PNG", "BMP", "TIFF", "PPM"])
def test_lossless_formats_give_the_stored_pixels(format: str) -> None:
    assert (hwc(decode(encoded(Image.fromarray(pixels()), format))) == pixels()).all()


@pytest.mark.parametrize("format", ["JPEG", "WEBP", "GIF"])
def test_lossy_formats_give_nearly_the_stored_pixels(format: str) -> None:
    found = hwc(decode(encoded(Image.fromarray(pixels()), format)))
    assert np.abs(found.astype(int) - pixels()).mean() < 12


def test_grey_and_bilevel_images_become_three_equal_channels() -> None:
    grey = pixels()[..., 0]
    assert (hwc(decode(encoded(Image.fromarray(grey)))) == grey[..., None]).all()
    black_and_white = (grey > 100).astype(np.uint8) * 255
    found = hwc(decode(encoded(Image.fromarray(black_and_white).convert("1"))))
    assert (found == black_and_white[..., None]).all()


def test_cmyk_is_converted_and_not_inverted() -> None:
    ink = Image.new("CMYK", (8, 8), (0, 255, 255, 0))  # magenta and yellow make red
    red, green, blue = hwc(decode(encoded(ink, "JPEG", quality=95)))[4, 4]
    assert red > 240
    assert max(green, blue) < 15


@pytest.mark.parametrize("options", [{"subsampling": 0}, {"subsampling": 2}, {"progressive": True}, {"quality": 30}])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_jpegs_have_the_same_pixels_with_and_without_torchvisions_decoder(
    monkeypatch: pytest.MonkeyPatch, mode: str, options: dict[str, object]
) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (61, 83, 3), dtype=np.uint8)
    file = encoded(Image.fromarray(noise).convert(mode), "JPEG", **options)
    if decoding._jpeg(file) is None:
        pytest.skip("torchvision was built without a JPEG decoder")
    fast = hwc(decode(file))
    assert fast.flags.c_contiguous, "channels last"
    assert (fast == np.array(Image.open(file).convert("RGB"))).all()
    monkeypatch.setattr(decoding, "_jpeg", lambda file: None)
    file.seek(0)
    assert (fast == hwc(decode(file))).all()


def test_palette_images_take_the_colours_of_their_palette() -> None:
    image = Image.fromarray(pixels()).quantize(8)
    assert (hwc(decode(encoded(image))) == np.array(image.convert("RGB"))).all()


@pytest.mark.parametrize("format", ["PNG", "TIFF", "PPM"])
def test_sixteen_bit_greys_are_scaled_and_not_clipped(format: str) -> None:
    grey = np.linspace(0, 65535, 256).round().astype(np.uint16).reshape(16, 16)
    found = hwc(decode(encoded(Image.fromarray(grey), format)))
    assert (found[..., 0] == np.arange(256).reshape(16, 16)).all()
    assert (found == found[..., :1]).all()


def test_big_endian_sixteen_bit_greys_are_read_as_such() -> None:
    image = Image.new("I;16B", (4, 4), 257 * 10)
    assert (hwc(decode(encoded(image, "TIFF"))) == 10).all()


@pytest.mark.parametrize("mode", ["F", "I"])
def test_pixels_without_a_known_range_are_unreadable(mode: str) -> None:
    with pytest.raises(Unreadable, match="convert it to 8 or 16 bits"):
        decode(encoded(Image.new(mode, (4, 4), 70_000), "TIFF"))


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparent_pixels_show_white_paper_and_not_their_hidden_colour(mode: str) -> None:
    image = Image.new(mode, (4, 4), (10, 20, 30, 0) if mode == "RGBA" else (10, 0))
    assert (hwc(decode(encoded(image))) == 255).all()
    image.putalpha(255)
    assert hwc(decode(encoded(image)))[0, 0, 0] == 10


def test_a_transparent_palette_entry_shows_white_paper() -> None:
    image = Image.new("P", (4, 4), 1)
    image.putpalette([0, 0, 0, 200, 0, 0])
    assert (hwc(decode(encoded(image, transparency=1))) == 255).all()
    assert (hwc(decode(encoded(image))) == (200, 0, 0)).all()


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_photographs_are_turned_upright(tmp_path: Path, format: str, orientation: int) -> None:
    # What the camera stores is the upright picture under the inverse of the turn that `orientation` asks for.
    store: dict[int, Callable[[Pixels], Pixels]] = {
        1: lambda a: a,
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.transpose(1, 0, 2),
        6: lambda a: np.rot90(a, 1),
        7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
        8: lambda a: np.rot90(a, -1),
    }
    stored = Image.fromarray(np.ascontiguousarray(store[orientation](pixels())))
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = encoded(stored, format, exif=exif)
    found = hwc(decode(file))
    assert found.shape == (12, 20, 3)
    assert np.abs(found.astype(int) - pixels()).mean() < 12
    (tmp_path / "a.jpg").write_bytes(file.getvalue())
    assert Folder(tmp_path).probe.size == (12, 20)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_broken_metadata_around_good_pixels_does_no_harm() -> None:
    file = encoded(Image.fromarray(pixels()), "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff\x01\x12")
    assert decode(file).shape == (3, 12, 20)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "PPM"])
def test_truncated_files_are_unreadable(format: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    whole = encoded(Image.fromarray(noise), format).getvalue()
    for share in (0.0, 0.05, 0.5, 0.9):
        with pytest.raises(Unreadable) as caught:
            decode(io.BytesIO(whole[: int(len(whole) * share)]))
        assert str(caught.value)
        assert "\n" not in str(caught.value)


def test_arbitrary_bytes_are_unreadable_and_nothing_else() -> None:
    whole = bytearray(encoded(Image.fromarray(pixels()), "PNG").getvalue())
    draws, refused = np.random.default_rng(0), 0
    for start in range(8, len(whole), 7):
        broken = whole.copy()
        broken[start : start + 4] = draws.bytes(4)
        try:
            decode(io.BytesIO(bytes(broken)))
        except Unreadable:
            refused += 1
    assert refused > 0


def test_a_decompression_bomb_is_unreadable_before_it_is_unpacked() -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    for side in (11_000, 60_000):
        header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
        with pytest.raises(Unreadable, match=r"bomb|exceeds limit"):
            decode(io.BytesIO(b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 1000))))


def test_labels_are_the_first_level_of_directories(tmp_path: Path) -> None:
    save(tmp_path / "dog/b.png")
    save(tmp_path / "cat/young/c.JPG")
    save(tmp_path / "cat/a.png")
    source = Folder(tmp_path)
    assert [source.id(i) for i in range(len(source))] == ["cat/a.png", "cat/young/c.JPG", "dog/b.png"]
    assert source.classes == ("cat", "dog")
    assert source.labels is not None
    assert source.labels.tolist() == [0, 0, 1]
    assert source.labels.dtype == torch.int64
    unlabelled = Folder(tmp_path, labelled=False)
    assert unlabelled.labels is None
    assert unlabelled.classes == ()
    assert unlabelled.fingerprint == source.fingerprint


def test_images_at_the_top_level_have_no_labels(tmp_path: Path) -> None:
    save(tmp_path / "a.png")
    assert Folder(tmp_path).labels is None


def test_a_few_loose_images_make_the_set_unlabelled_and_a_line_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path / "cat/a.png")
    save(tmp_path / "preview.png")
    source = Folder(tmp_path)
    assert (len(source), source.labels, source.classes) == (2, None, ())
    assert "counts as unlabelled: 1 of its 2 images lie outside any class directory" in capsys.readouterr().err


def test_hidden_and_other_files_are_passed_over(tmp_path: Path) -> None:
    save(tmp_path / "a.png")
    save(tmp_path / ".hidden.png")
    save(tmp_path / ".thumbnails/b.png")
    save(tmp_path / "._a.png")
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / "directory.jpg").mkdir()
    os.mkfifo(tmp_path / "pipe.jpg")
    assert [Folder(tmp_path).id(i) for i in range(len(Folder(tmp_path)))] == ["a.png"]


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    save(tmp_path / "real/a.png")
    (tmp_path / "set").mkdir()
    (tmp_path / "set/cat").symlink_to(tmp_path / "real")
    (tmp_path / "real/loop").symlink_to(tmp_path / "set")
    source = Folder(tmp_path / "set")
    assert [source.id(i) for i in range(len(source))] == ["cat/a.png"]


def test_a_dangling_link_is_an_unreadable_image(tmp_path: Path) -> None:
    (tmp_path / "a.png").symlink_to(tmp_path / "gone.png")
    with pytest.raises(Unreadable, match="No such file"):
        Folder(tmp_path).read(0)


def test_file_names_that_are_not_utf8_can_be_read_and_printed(tmp_path: Path) -> None:
    try:
        os.rename(save(tmp_path / "a.png"), os.fsencode(tmp_path) + b"/caf\xe9.png")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    source = Folder(tmp_path)
    assert source.id(0) == "caf\\xe9.png"
    assert source.read(0)["image"].shape == (3, 12, 20)


def test_the_fingerprint_follows_the_listing(tmp_path: Path) -> None:
    save(tmp_path / "a.png")
    before = Folder(tmp_path)
    assert Folder(tmp_path).fingerprint == before.fingerprint
    save(tmp_path / "b.png")
    assert Folder(tmp_path).fingerprint != before.fingerprint
    (tmp_path / "b.png").unlink()
    assert Folder(tmp_path).fingerprint == before.fingerprint
    save(tmp_path / "a.png", size=(90, 90))
    assert Folder(tmp_path).fingerprint != before.fingerprint


def test_the_cache_key_notices_new_content_of_the_same_length(tmp_path: Path) -> None:
    path = save(tmp_path / "a.bmp", colour=1)
    before = Folder(tmp_path)
    save(path, colour=2)
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    after = Folder(tmp_path)
    assert after.fingerprint == before.fingerprint
    assert after.cache_key != before.cache_key


def test_the_probe_finds_a_common_size_without_decoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(3):
        save(tmp_path / f"{i}.png")
    monkeypatch.setattr(Image.Image, "load", lambda _: pytest.fail("decoded"))
    probe = Folder(tmp_path).probe
    assert (probe.checked, probe.size, probe.median_side, probe.unreadable) == (3, (12, 20), 12, ())


def test_photographs_of_one_size_are_described_by_it_though_they_are_decoded_one_by_one(tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        for number in range(2):
            Image.fromarray(pixels(120, 200, number)).save(tmp_path / label / f"{number}.png")
    folder = Folder(tmp_path)
    assert folder.size is None
    assert folder.describe()["size"] == Subset(folder, torch.tensor([1, 3])).describe()["size"] == [120, 200]
    Image.fromarray(pixels(120, 201)).save(tmp_path / "dog" / "odd.png")
    assert Folder(tmp_path).describe()["size"] is None


def test_the_probe_notices_one_odd_image(tmp_path: Path) -> None:
    for i in range(3):
        save(tmp_path / f"{i}.png")
    save(tmp_path / "odd.png", size=(20, 13))
    source = Folder(tmp_path)
    assert source.probe.size is None
    assert source.median_side == 12


def test_large_sets_are_probed_by_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "_PROBE_ALL", 5)
    monkeypatch.setattr(folder_module, "_PROBE_SOME", 4)
    for i in range(6):
        save(tmp_path / f"{i}.png")
    assert Folder(tmp_path).probe.checked == 4


def test_a_few_broken_headers_are_counted_and_listed(tmp_path: Path) -> None:
    for i in range(20):
        save(tmp_path / f"{i}.png")
    (tmp_path / "broken.png").write_bytes(b"no image")
    source = Folder(tmp_path)
    assert source.unreadable == (("broken.png", "not an image of a known format"),)
    assert source.probe.size == (12, 20)


def test_many_broken_headers_are_an_error(tmp_path: Path) -> None:
    for i in range(18):
        save(tmp_path / f"{i}.png")
    (tmp_path / "a.png").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"^1 of 19 images of '.*' cannot be read, more than 5%: repair or remove them"):
        _ = Folder(tmp_path).probe


def test_an_empty_folder_says_which_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(UserError, match=r"holds no images: files ending in \.jpg .* are read"):
        Folder(tmp_path)


def test_missing_classes_are_named(tmp_path: Path) -> None:
    save(tmp_path / "cat/a.png")
    with pytest.raises(UserError, match=r"lacks 2 of 3 classes .*: add dog emu"):
        Folder(tmp_path, classes=["cat", "emu", "dog"])


def test_photographs_decode_to_what_pillow_shows(real_data: Path) -> None:
    source = Folder(real_data / "coco-mini/train2017")
    for i in range(5):
        with Image.open(real_data / "coco-mini/train2017" / source.id(i)) as image:
            assert (hwc(source.read(i)["image"]) == np.array(image.convert("RGB"))).all()
