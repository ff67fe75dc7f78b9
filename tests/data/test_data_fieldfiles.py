"""RGB-D from files: parallel trees, files beside the image, tars; what is missing, computed or wrong."""

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from manyview.cli import main
from manyview.data import Camera, Folder, Source, Tar, open_source, pack
from manyview.data.fieldfiles import key_and_field, normals_of
from manyview.encoders import load
from manyview.errors import UserError
from manyview.evaluate.features import extract
from manyview.evaluate.split import camera_of, splits
from manyview.fields import FIELDS

SIZE = (30, 40)
REAL = Path(os.environ.get("MANYVIEW_TEST_DATA", ""), "nyu-depth", "train.tar")
real = pytest.mark.skipif(
    "MANYVIEW_TEST_DATA" not in os.environ or not REAL.exists(), reason="needs MANYVIEW_TEST_DATA with nyu-depth"
)
ALL = ("image", "depth", "normals", "segmentation")


def image(number: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(number).integers(0, 256, (*SIZE, 3), dtype=np.uint8))


def depth(number: int, size: tuple[int, int] = SIZE) -> Image.Image:
    """A wall that leans to the right, with a hole."""
    values = (2000 + 10 * number + 8 * np.arange(size[1]))[None].repeat(size[0], 0).astype(np.uint16)
    values[:4, :4] = 0
    return Image.fromarray(values)


def rough() -> Image.Image:
    """Walls alone would leave a channel of their normals without any spread."""
    return Image.fromarray(np.random.default_rng(0).integers(2000, 2200, SIZE, dtype=np.uint16))


def segmentation(number: int) -> Image.Image:
    return Image.fromarray(np.full(SIZE, 40_000 + number, np.uint16))


def normals(number: int) -> Image.Image:
    return Image.fromarray(np.full((*SIZE, 3), (200, 128, 240 + number), np.uint8))


MAKE: dict[str, Callable[[int], Image.Image]] = {
    "image": image, "depth": depth, "segmentation": segmentation, "normals": normals
}  # fmt: skip


def trees(root: Path, *fields: str, count: int = 12) -> Path:
    for number in range(count):
        for field in ("image", *fields):
            path = root / field / f"kind{number % 2}" / f"{number:02d}{'.tiff' if field == 'depth' else '.png'}"
            path.parent.mkdir(parents=True, exist_ok=True)
            MAKE[field](number).save(path)
    return root


def beside(root: Path, *fields: str, count: int = 12) -> Path:
    for number in range(count):
        for field in ("image", *fields):
            path = root / f"kind{number % 2}" / f"{number:02d}{'' if field == 'image' else f'.{field}'}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            MAKE[field](number).save(path)
    return root


def tarred(root: Path) -> Path:
    with tarfile.open(root.with_suffix(".tar"), "w") as tar:
        for path in sorted(root.rglob("*.*"), reverse=True):
            tar.add(path, str(path.relative_to(root)))
    return root.with_suffix(".tar")


def numbers(source: Source, name: str, index: int) -> Any:
    return source.read(index)[name][0].numpy()


@pytest.mark.parametrize("layout", ["trees", "beside", "tar", "shards"])
def test_all_fields_of_a_sample_are_read(tmp_path: Path, layout: str) -> None:
    root = (trees if layout == "trees" else beside)(tmp_path / "rooms", "depth", "segmentation")
    spec = str(tarred(root)) if layout in ("tar", "shards") else str(root)
    source = open_source(f"{tmp_path}/*.tar" if layout == "shards" else spec)
    assert len(source) == 12, "other fields are no images of their own"
    assert set(source.fields) == set(ALL)
    assert source.classes == ("kind0", "kind1")
    whole = source.select(ALL)
    for index in range(12):
        number = int(Path(source.id(index)).name[:2])
        sample = whole.read(index)
        assert {name: (field.dtype, tuple(field.shape)) for name, field in sample.items()} == {
            name: (FIELDS[name].dtype, (FIELDS[name].channels, *SIZE)) for name in ALL
        }
        assert (sample["image"].permute(1, 2, 0).numpy() == np.asarray(image(number))).all()
        assert (sample["depth"][0].numpy() == np.asarray(depth(number))).all()
        assert (sample["segmentation"] == 40_000 + number).all()
        assert torch.equal(sample["normals"], normals_of(sample["depth"], Camera()))
    assert list(source.select(["depth"]).read(3)) == ["depth"]


def test_normals_are_computed_from_depth_unless_there_are_some(tmp_path: Path) -> None:
    computed = open_source(str(trees(tmp_path / "a", "depth"))).select(["normals"])
    values = FIELDS["normals"].values(computed.read(0)["normals"])
    x, y, z = values[:, 8:-8, 8:-8].flatten(1).mean(1).tolist()
    assert x > 0.1, "depth grows to the right, so the wall leans to the right"
    assert abs(y) < 0.1
    assert z > 0.5
    assert values[:, 0, 0].isnan().all(), "no normal where there is no depth"
    given = open_source(str(trees(tmp_path / "b", "depth", "normals"))).select(["normals"])
    assert given.read(5)["normals"][:, 0, 0].tolist() == [200, 128, 250]  # number 10
    none = open_source(str(trees(tmp_path / "c", "segmentation")))
    assert none.fields == ("image", "segmentation")


def test_scale_and_intrinsics_of_the_camera_count(tmp_path: Path) -> None:
    root = trees(tmp_path / "rooms", "depth")
    finer = Folder(root, camera=Camera(0.0002)).select(["depth", "normals"])
    plain = Folder(root).select(["depth", "normals"])
    expected = np.rint(np.asarray(depth(4)) / 5).astype(np.uint16)
    assert (numbers(finer, "depth", 2) == expected).all()
    coarse = Folder(root, camera=Camera(0.1)).select(["depth"])
    assert not numbers(coarse, "depth", 2).any(), "farther than 65 m is unknown"
    other = Folder(root, camera=Camera(intrinsics="30,30,20,15")).select(["depth", "normals"])
    assert torch.equal(other.read(2)["depth"], plain.read(2)["depth"])
    assert not torch.equal(other.read(2)["normals"], plain.read(2)["normals"])
    assert len({each.fingerprint for each in (finer, plain, coarse, other)}) == 4
    assert Folder(root, camera=Camera(0.1)).fingerprint == Folder(root).fingerprint, "for images it does not matter"
    with pytest.raises(UserError, match="--intrinsics 1,2,3 are not four numbers: use fx,fy,cx,cy in pixels"):
        Camera(intrinsics="1,2,3")


@pytest.mark.parametrize("layout", [trees, beside])
def test_what_some_samples_lack_is_a_missing_view(tmp_path: Path, layout: Callable[..., Path]) -> None:
    root = layout(tmp_path / "rooms", "depth", "segmentation")
    (next(root.rglob("depth/kind1/03.*")) if layout is trees else root / "kind1" / "03.depth.png").unlink()
    source = open_source(str(root)).select(ALL)
    lacking = next(i for i in range(12) if "03" in source.id(i))
    assert source.present is not None
    assert set(source.present) == {"depth", "normals"}
    assert (~source.present["depth"]).nonzero().flatten().tolist() == [lacking]
    sample = source.read(lacking)
    assert not sample["depth"].any()
    assert not sample["normals"].any()
    assert sample["segmentation"].any()
    packed = pack(source, tmp_path / "rooms.safetensors", progress=False)
    assert packed.selected == ALL
    assert packed.present is not None
    assert torch.equal(packed.present["normals"], source.present["normals"])
    for index in range(12):
        assert all(torch.equal(packed.read(index)[name], field) for name, field in source.read(index).items())


def replaced(root: Path, field: str, picture: Image.Image, ending: str = ".png") -> None:
    for old in (root / field).rglob("05.*"):
        old.unlink()
    picture.save(root / field / "kind1" / f"05{ending}")


@pytest.mark.parametrize(
    ("field", "picture", "ending", "complaint"),
    [
        ("depth", depth(0, (15, 20)), ".png", "the depth of kind1/05.png in .* is 15 × 20 pixels, its image 30 × 40"),
        ("segmentation", segmentation(1).resize((8, 6)), ".png", "segmentation of kind1/05.png in .* is 6 × 8 pixel"),
        ("depth", image(0), ".png", r"depth of kind1/05.png in .* is a colour image \(RGB\): depth has one channel"),
        ("depth", image(0).convert("P"), ".png", r"is a colour image \(P\): depth has one channel"),
        ("segmentation", image(0), ".png", r"is a colour image \(RGB\): segmentation has one channel"),
        ("depth", Image.fromarray(np.ones(SIZE, np.float32)), ".tiff", "holds floating-point numbers: write whole"),
        ("normals", image(0).convert("L"), ".png", "has no colours: normals are stored as RGB"),
        ("segmentation", Image.fromarray(np.full(SIZE, 70_000, np.int32)), ".tiff", "has class 70000: at most 65,535"),
    ],
)
def test_wrong_files_are_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, picture: Image.Image, ending: str, complaint: str
) -> None:
    root = trees(tmp_path / "rooms", "depth", "segmentation", "normals")
    replaced(root, field, picture, ending)
    if "class" not in complaint:  # which no header tells
        with pytest.raises(UserError, match=complaint):
            Folder(root).select(ALL)
        assert Folder(root).select(["image"]).read(0), "who does not ask for it is not bothered"
    monkeypatch.setattr(Folder, "_look_into", lambda *_: None)  # as where there are too many to look at all
    source = Folder(root).select(ALL)
    with pytest.raises(UserError, match=complaint) as caught:
        [source.read(index) for index in range(12)]
    assert "\n" not in str(caught.value)


def test_an_image_that_its_exif_turns_is_refused_beside_depth(tmp_path: Path) -> None:
    root = trees(tmp_path / "rooms", "image", "depth")
    victim = sorted((root / "image").rglob("*.png"))[0]
    turn = Image.Exif()
    turn[0x0112] = 3  # by 180°, which no size shows
    with Image.open(victim) as plain:
        plain.save(victim.with_suffix(".jpg"), exif=turn)
    victim.unlink()
    source = open_source(str(root))
    assert source.select(["image"]).read(0)["image"].shape == (3, *SIZE)
    with pytest.raises(UserError, match="EXIF orientation, and its depth has none: store both upright"):
        source.select(["image", "depth"])


def started(capsys: pytest.CaptureFixture[str], root: Path, out: Path, *flags: str, views: str = "lab,depth") -> str:
    """What a run of one step says. One that is refused says it in one line, and leaves nothing behind."""
    method = ["cmc", "--views", views, "--draw", "5"] if views else ["jcl", "--queue-size", "4"]
    small = ["--image-size", "16", "--backbone", "tiny", "--batch-size", "4", "--max-steps", "1", "--contrast-every"]
    code = main(["pretrain", *method, "--data", str(root), "--out", str(out), *small, "0", *flags])
    said = capsys.readouterr()
    assert code in (0, 2)
    if code == 2:
        assert said.err.rstrip().splitlines()[-1].startswith("manyview: ")
        assert not out.exists()
    return said.err if code else " ".join(said.out.split())


def test_one_wrong_file_of_many_is_told_before_the_run_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manyview.run.normalisation.MEASURED", 1)  # as where there are too many to read them all
    root = trees(tmp_path / "rooms", "depth")
    replaced(root, "depth", depth(0, (15, 20)))
    assert "depth of kind1/05.png" in started(capsys, root, tmp_path / "run")
    assert "step 1/1" in started(capsys, root, tmp_path / "other", views="")


def test_how_many_samples_lack_a_view_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = trees(tmp_path / "rooms", "depth", "segmentation")
    replaced(root, "depth", rough(), ".tiff")
    for number in ("03", "07"):
        next((root / "depth").rglob(f"{number}.*")).unlink()
    said = started(capsys, root, tmp_path / "run", views="lab,depth,normals,segmentation")
    assert "missing depth of 2, normals of 2 of 12 samples" in said
    assert json.loads((tmp_path / "run" / "config.json").read_text())["data"]["missing"] == {"depth": 2, "normals": 2}
    assert "depth of 2, normals of 2" in (tmp_path / "run" / "report.html").read_text()
    assert "missing" not in started(capsys, root, tmp_path / "jcl", views=""), "a method of images lacks nothing"
    assert main(["pack", "--data", str(root), "--out", str(tmp_path / "packed.safetensors")]) == 0
    assert "missing: depth of 2, normals of 2 of 12 samples" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("layout", ["trees", "beside", "tar"])
def test_files_that_belong_to_no_image_are_told(
    tmp_path: Path, layout: str, capsys: pytest.CaptureFixture[str]
) -> None:
    root = (trees if layout == "trees" else beside)(tmp_path / "rooms", "depth")
    old = next(path for path in root.rglob("05*") if "depth" in str(path))
    old.rename(old.with_name(old.name.replace("05", "Room05")))
    source = open_source(str(tarred(root) if layout == "tar" else root)).select(["image", "depth"])
    assert source.missing == {"depth": 1}
    err = capsys.readouterr().err
    assert "1 of the 12 depth files belong to no image and are passed over, the first is that of kind1/Room05" in err


def test_depth_of_which_nothing_is_known_says_which_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = trees(tmp_path / "rooms", "depth")
    said = started(capsys, root, tmp_path / "run", "--depth-scale", "1")
    assert "has the view depth: leave it out of --views, or correct --depth-scale" in said
    for value in ("0", "-1", "nan", "inf"):
        assert f"--depth-scale {value} must be" in started(capsys, root, tmp_path / "run", "--depth-scale", value)
    assert "--intrinsics a,b are not four numbers" in started(capsys, root, tmp_path / "run", "--intrinsics", "a,b")
    for scale in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(UserError, match=f"--depth-scale {scale:g} must be a finite number greater than 0"):
            Camera(scale)


def test_what_is_evaluated_or_embedded_is_measured_as_in_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, run = trees(tmp_path / "rooms", "depth"), tmp_path / "run"
    replaced(root, "depth", rough(), ".tiff")
    started(capsys, root, run, "--depth-scale", "0.0005", "--intrinsics", "30,30,20,15", views="lab,depth,normals")
    source = Folder(root, camera=Camera(0.0005, "30,30,20,15"))
    expected = extract(load(run), source).embeddings

    def embedded(name: str | Path, *flags: str) -> torch.Tensor:
        out = tmp_path / "features.npz"
        assert main(["embed", str(name), "--data", str(root), "--out", str(out), *flags]) == 0
        return torch.from_numpy(np.load(out)["embeddings"])

    assert torch.equal(embedded(run), expected)
    file = run / "encoder.safetensors"
    camera = ["--depth-scale", "0.0005", "--intrinsics", "30,30,20,15"]
    assert not torch.equal(embedded(file), expected), "a file of weights knows of no camera"
    assert torch.equal(embedded(file, *camera), expected)

    tested = splits(str(root), str(trees(tmp_path / "other", "depth", count=8)), camera=camera_of(run)).test
    finer = Folder(tmp_path / "other", camera=Camera(0.0005)).select(["depth"])
    assert torch.equal(tested.select(["depth"]).read(5)["depth"], finer.read(5)["depth"])
    config = json.loads((run / "config.json").read_text())
    config["config"]["data"]["depth_scale"] = "metres"
    (run / "config.json").write_text(json.dumps(config))
    capsys.readouterr()
    assert main(["evaluate", "knn", str(run), "--data", str(root)]) == 2
    assert "config.json does not say how depth was measured: restore it from a backup" in capsys.readouterr().err


def test_a_palette_holds_numbers_of_classes(tmp_path: Path) -> None:
    root = trees(tmp_path / "rooms", "segmentation")
    indices = Image.fromarray(np.arange(1200, dtype=np.uint8).reshape(SIZE) % 40, "P")
    indices.putpalette(list(range(120)))
    replaced(root, "segmentation", indices)
    source = Folder(root).select(["segmentation"])
    found = next(source.read(i) for i in range(12) if "05" in source.id(i))["segmentation"]
    assert (found[0].numpy() == np.arange(1200, dtype=np.uint8).reshape(SIZE) % 40).all()


def test_a_tree_that_is_asked_for_and_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = trees(tmp_path / "rooms", "segmentation")
    words = ["pretrain", "cmc", "--data", str(root), "--views", "lab,depth", "--out", str(tmp_path / "run")]
    assert main(words) == 2
    err = capsys.readouterr().err.splitlines()
    assert err[-1].endswith(
        "has no depth, only image, segmentation: take --views of those (of an encoder that has others too, --view), or "
        "other --data in which FIELD/ stands beside image/, or KEY.FIELD.png beside KEY.jpg"
    )
    assert not (tmp_path / "run").exists()


def test_a_broken_depth_is_an_unreadable_sample(tmp_path: Path) -> None:
    root = trees(tmp_path / "rooms", "depth", count=24)  # so that one is not too many
    broken = next((root / "depth").rglob("05.*"))
    broken.write_bytes(broken.read_bytes()[:50])
    listed = {}
    source = Folder(root).select(["image", "depth"])
    for index in range(24):
        try:
            source.read(index)
        except Exception as error:
            listed[source.id(index)] = str(error)
    assert list(listed) == ["kind1/05.png"]
    assert listed["kind1/05.png"].startswith("its depth cannot be read (")


def test_broken_depth_in_many_samples_ends_a_run_before_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = trees(tmp_path / "rooms", "depth")
    for path in (root / "depth").rglob("*"):
        if path.is_file() and path.stem < "06":
            path.write_text("no image")
    said = started(capsys, root, tmp_path / "run")
    assert "6 of 12 images of " in said
    assert "(the first is kind0/00.png: its depth cannot be read (not an image of a known format))" in said


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a/0001.jpg", ("a/0001", "image")),
        ("a/0001.depth.png", ("a/0001", "depth")),
        ("a.b/0001.Segmentation.TIFF", ("a.b/0001", "segmentation")),
        ("depth.png", ("depth", "image")),
        ("a/x.y.depth.png", ("a/x", "image")),
    ],
)
def test_a_name_tells_the_field(path: str, expected: tuple[str, str]) -> None:
    assert key_and_field(path) == expected


def test_a_directory_of_classes_may_have_the_names_of_fields(tmp_path: Path) -> None:
    for name in ("depth", "normals"):
        (tmp_path / name).mkdir()
        image(1).save(tmp_path / name / "1.png")
    assert Folder(tmp_path).classes == ("depth", "normals")


def run(words: list[str], kill_at: Path | None = None) -> None:
    """As a user does it; with a path, killed as soon as that is there."""
    process = subprocess.Popen(
        [sys.executable, "-m", "manyview", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if kill_at is None:
        out, _ = process.communicate()
        assert process.returncode == 0, out.decode()
        return
    while not kill_at.exists():
        assert process.poll() is None
    process.kill()
    process.wait()


@pytest.mark.slow
def test_a_run_on_trees_is_killed_and_resumed_to_the_same_bytes(tmp_path: Path) -> None:
    root = trees(tmp_path / "rooms", "depth", "segmentation", count=40)
    next((root / "depth").rglob("07.*")).unlink()
    flags = ["--data", str(root), "--views", "lab,depth,normals", "--image-size", "16", "--batch-size", "8", "--draw"]
    flags += ["20", "--backbone", "tiny", "--max-steps", "6", "--checkpoint-every", "2", "--contrast-every", "0"]
    run(["pretrain", "cmc", *flags, "--out", str(tmp_path / "whole")])
    killed = tmp_path / "killed"
    run(["pretrain", "cmc", *flags, "--out", str(killed)], kill_at=killed / "checkpoints" / "step-00000002.pt")
    run(["resume", str(killed)])
    assert (killed / "encoder.safetensors").read_bytes() == (tmp_path / "whole" / "encoder.safetensors").read_bytes()


@real
def test_real_frames_have_depth_segmentation_and_normals() -> None:
    source = Tar(REAL)
    assert len(source) == 795
    assert set(source.fields) == set(ALL)
    assert source.present is None
    sample = source.select(ALL).read(0)
    depth = FIELDS["depth"].values(sample["depth"])
    assert 0.4 < depth.nanmedian() < 8
    assert int(sample["segmentation"].long().max()) < 40
    normals = FIELDS["normals"].values(sample["normals"])
    known = ~normals.isnan().any(0)
    assert known.float().mean() > 0.9
    assert (normals[:, known].norm(dim=0) - 1).abs().max() < 0.02
    assert (normals[2, known] > -0.02).float().mean() > 0.95, "what is seen faces the camera"


def test_the_picture_of_views_shows_every_field(tmp_path: Path) -> None:
    root, out = trees(tmp_path / "rooms", "depth", "segmentation"), tmp_path / "views.png"
    words = [
        "views",
        "--method",
        "cmc",
        "--data",
        str(root),
        "--views",
        "lab,depth,normals,segmentation",
        "--draw",
        "5",
    ]
    assert main([*words, "--draw", "5", "--samples", "2", "--out", str(out)]) == 0
    with Image.open(io.BytesIO(out.read_bytes())) as picture:
        pixels = np.asarray(picture)
    assert pixels.std() > 0
