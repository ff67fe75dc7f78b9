"""Damaged and forged sets of every kind: data, or one clear line."""

import io
import json
import random
import struct
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from manyview.data import Folder, Packed, Unreadable, open_source, pack
from manyview.errors import UserError

HUGE = (b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x7f\xff\xff\xff", b"\0\0\0\x40")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)  # which takes most of the time


def image(seed: int, format: str = "PNG", side: int = 12) -> bytes:
    noise, file = np.random.default_rng(seed).integers(0, 256, (side, 10, 3), dtype=np.uint8), io.BytesIO()
    Image.fromarray(noise).save(file, format)
    return file.getvalue()


def mutants(whole: bytes, seed: int, head: int) -> Iterator[bytes]:
    """One of each kind: bytes changed, cut away, put in, zeroed, exchanged, repeated, and numbers made huge; mostly in
    the first `head` bytes, where everything is told."""
    draw, count = random.Random(seed), len(whole)
    for kind in range(12):
        bad, place = bytearray(whole), draw.randrange(min(head, count))
        start, stop = sorted(draw.sample(range(count), 2))
        if kind < 3:
            for _ in range(kind + 1):
                bad[draw.randrange(head)] = draw.randrange(256)
        elif kind < 6:
            del bad[(place, draw.randrange(count), count - 1 - place % 40)[kind - 3] :]
        elif kind == 6:
            bad[place:place] = bytes(draw.randrange(256) for _ in range(600))
        elif kind == 7:
            bad[: draw.choice((1, 16, 512))] = bytes(16)
        elif kind == 8:
            bad = bad[stop:] + bad[start:stop] + bad[:start]
        elif kind == 9:
            bad[start:start] = bad[start:stop]
        else:
            bad[place : place + 4 * (kind - 9)] = draw.choice(HUGE) * (kind - 9)
        yield bytes(bad)


def outcome(path: Path) -> str:
    """What a user sees: "data", or why not."""
    try:
        source = open_source(str(path))
    except UserError as error:
        said = str(error)
    else:
        said = "data"
        for number in range(len(source)):
            try:
                field = source.read(number)["image"]
                assert (len(field), field.dtype) == (source.pixels.channels, source.pixels.dtype)
            except Unreadable as error:
                said = str(error)
    assert said.isprintable(), "on one line"
    assert len(said) < 700
    return said


@pytest.mark.parametrize("format", ["JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_a_broken_image_of_a_folder(format: str, tmp_path: Path) -> None:
    for number in range(24):
        (tmp_path / f"{number}.png").write_bytes(image(number, side=12 + number % 2))
    broken, kinds = tmp_path / f"broken.{format.lower()}", Counter[bool]()
    for bad in mutants(image(0, format), len(format), 60):
        broken.write_bytes(bad)
        said = outcome(tmp_path)
        assert "more than 5%" not in said
        kinds[said == "data"] += 1
    assert kinds[False] > 2


def test_packed_sets(tmp_path: Path) -> None:
    for number in range(6):
        path = tmp_path / "set" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image(number))
    file = tmp_path / "a.safetensors"
    whole = pack(Folder(tmp_path / "set"), file, progress=False).path.read_bytes()
    size = 8 + int.from_bytes(whole[:8], "little")
    for seed in range(2):
        for bad in mutants(whole, seed, size):
            file.write_bytes(bad)
            outcome(file)
    header = json.loads(whole[8:size])
    facts = json.loads(header["__metadata__"]["manyview-pack"])
    for name in (*facts, "channels"):
        for value in (None, "a\nb\x1b[31m" + 999 * "y", -1, [["a"]], 10**400):
            header["__metadata__"]["manyview-pack"] = json.dumps({**facts, name: value})
            text = json.dumps(header).encode()
            file.write_bytes(struct.pack("<Q", len(text)) + text + whole[size:])
            said = outcome(file)
            assert said == "data" or "is not a packed set (" in said
            if said == "data":
                assert Packed(file).name.isprintable()


def forged(**bytes_at: bytes) -> bytes:
    """A header of a tar with a right checksum: `_124=…` puts bytes to this place."""
    header = bytearray(tarfile.TarInfo("a.png").tobuf(tarfile.GNU_FORMAT)[:512])
    for place, content in {**bytes_at, "_148": b" " * 8}.items():
        header[int(place[1:]) : int(place[1:]) + len(content)] = content
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


TERABYTE = b"\x80\0\0\0" + struct.pack(">Q", 1 << 40)


@pytest.mark.parametrize("kind", [b"L", b"K", b"x", b"g"])
@pytest.mark.parametrize("size", [b"77777777777\0", TERABYTE], ids=["8 GB", "1 TB"])
def test_the_header_of_a_tar_cannot_ask_for_gigabytes(kind: bytes, size: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(forged(_124=size, _156=kind) + bytes(4096))
    with pytest.raises(UserError, match=r"is not a whole tar file \(a member has a header of [\d,]+ bytes\): make or"):
        open_source(str(path))


def test_headers_of_tars(tmp_path: Path) -> None:
    """Some changes are harmless, some are told; `outcome` fails for all that is neither."""
    seen = Counter[bool]()
    draw, path = random.Random(0), tmp_path / "a.tar"
    content = image(0)
    member = content.ljust(-(-len(content) // 512) * 512, b"\0")
    good = forged(_0=b"b.png", _124=b"%011o\0" % len(content)) + member
    odd = (0, 10, 27, 128, 255, ord("7"), ord("S"), ord("x"))
    for _ in range(60):
        places = [draw.choice((draw.randrange(100), draw.randrange(124, 136), 156)) for _ in range(draw.choice((1, 3)))]
        changes = {f"_{place}": bytes([draw.choice(odd)]) for place in places}
        bad = forged(**{"_124": b"%011o\0" % len(content), **changes})
        path.write_bytes(bad + member + good + bytes(1024))
        seen[outcome(path) == "data"] += 1
    assert min(seen[True], seen[False]) > 5


def test_names_are_shown_on_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for name, content in (("a\nb\x1b[31m.png", b"broken"), ("c\u202fd é.png", image(0)), ("e.png", image(1))):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    with pytest.raises(UserError) as caught:
        open_source(str(path)).stored_size  # noqa: B018  # headers are looked at
    assert r"(the first is a\nb\x1b[31m.png: not an image of a known format)" in str(caught.value)


def columns(pa: Any) -> dict[str, Any]:
    files = [image(number, "JPEG") for number in range(4)]
    return {
        "a struct in a struct": pa.array([{"bytes": {"bytes": each}} for each in files]),
        "a list": pa.array([[each] for each in files]),
        "a list of structs": pa.array([[{"bytes": each}] for each in files]),
        "a struct of text": pa.array([{"bytes": "text"}] * 4),
        "a struct without bytes": pa.array([{"path": "a.jpg"}] * 4),
        "nothing but nulls": pa.nulls(4),
        "structs of nulls": pa.array([{"bytes": None}] * 4, pa.struct([("bytes", pa.binary())])),
        "half nulls": pa.array([*files[:2], None, None]),
        "empty": pa.array([b""] * 4),
        "text": pa.array(["text"] * 4),
        "numbers": pa.array([1, 2, 3, 4]),
        "fixed": pa.array([b"\x89PNG"] * 4, pa.binary(4)),
        "a dictionary": pa.array(files).dictionary_encode(),
        "good": pa.array(files),
    }


def test_columns_of_parquet_files(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'manyview[parquet]'")
    pq = pytest.importorskip("pyarrow.parquet")
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": ["a", "b"]}}
    metadata, found = {"huggingface": json.dumps({"info": {"features": features}})}, Counter[str]()
    for name, column in columns(pa).items():
        for told in (None, metadata):
            path = tmp_path / f"{name}-{told is None}.parquet"
            pq.write_table(pa.table({"image": column}).replace_schema_metadata(told), path)
            found[outcome(path)] += 1
    assert found["data"] == 2, "the good one"
    good = columns(pa)["good"]
    for labels in (["y" * 10**5] * 4, ["a\nb"] * 4, [[1]] * 4, [0.5] * 4, [2**63 - 1] * 4, [-5] * 4, [None, 0, 0, 0]):
        for told in (None, metadata):
            path = tmp_path / f"labels-{str(labels)[:9].encode().hex()}-{told is None}.parquet"
            pq.write_table(pa.table({"image": good, "label": labels}).replace_schema_metadata(told), path)
            outcome(path)


def test_one_broken_image_of_16_bits_does_not_decide_for_the_others(tmp_path: Path) -> None:
    deep = io.BytesIO()
    Image.fromarray(np.arange(300, dtype=np.uint16).reshape(15, 20) * 200).save(deep, "PNG")
    for number in range(24):
        (tmp_path / f"{number}.png").write_bytes(image(number, side=12 + number % 2))
    (tmp_path / "deep.png").write_bytes(deep.getvalue()[:-40])
    source = open_source(str(tmp_path))
    assert source.read(0)["image"].dtype == torch.uint8
    with pytest.raises(Unreadable, match=r"truncated|broken"):
        source.read(len(source) - 1)
    (tmp_path / "deep.png").write_bytes(deep.getvalue())
    assert open_source(str(tmp_path)).read(0)["image"].dtype == torch.uint16
