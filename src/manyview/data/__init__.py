"""Where samples come from: `open_source` turns what a user writes after --data into a `Source`."""

from pathlib import Path

from manyview.data.fieldfiles import KINECT_MM, Camera
from manyview.data.folder import Folder, ImageFiles
from manyview.data.hub import fetched, is_on_hub
from manyview.data.known import KNOWN, open_known
from manyview.data.loader import Batch, Loader
from manyview.data.packed import Packed, SizesDifferError, cache_path, pack, pack_once, pixel_bytes
from manyview.data.parquet import Parquet, is_parquet, open_parquet, parquet_in
from manyview.data.patterns import is_pattern, is_tar, matching, tars_in, tars_matching
from manyview.data.remote import RemoteShards, open_remote
from manyview.data.source import NoTestSplit, Source, Subset, Unreadable, check_unreadable, holdout, note
from manyview.data.splits import test_files, training_files
from manyview.data.subsets import fewer, imbalanced
from manyview.data.tar import Shards, Tar
from manyview.data.transfer import is_remote
from manyview.errors import UserError
from manyview.registry import entry_points

__all__ = [
    "Batch",
    "Camera",
    "Folder",
    "Loader",
    "NoTestSplit",
    "Packed",
    "Parquet",
    "RemoteShards",
    "Shards",
    "Source",
    "Subset",
    "Tar",
    "Unreadable",
    "absent",
    "check_unreadable",
    "fewer",
    "from_files",
    "holdout",
    "imbalanced",
    "open_source",
    "pack",
]

SPLITS = ("train", "test", "pretrain")
_SCENES_TRAIN, _SCENES_TEST = 10_000, 2_000
_SMALL_SIDE = 96  # sets of images up to this size are packed as they are opened,
_SMALL_BYTES = 2 << 30  # unless they would take more than this


def open_source(spec: str, *, split: str = "train", labelled: bool = True, camera: Camera = KINECT_MM) -> Source:
    """The images that `spec` names.

    scenes, scenes:N                                   the procedural set, with N images for training
    cifar10:ROOT cifar100:ROOT stl10:ROOT              as torchvision keeps them under ROOT
    imagenet:ROOT imagenet100:ROOT                     ROOT/train and ROOT/val
    a directory, a .tar of images, a .safetensors      (the last made by `pack`); ./scenes is a directory
    a directory of .tar files, a/train-*.tar, a/train-{000..099}.tar           the shards of one set
    a .parquet, a directory of them or of data/train-*.parquet, a/train-*.parquet        images in a column of rows
    hf:OWNER/NAME, hf:OWNER/NAME/FOLDER@REVISION       the parquet files or tars of a set on the Hugging Face hub
    s3://bucket/{000..099}.tar, https://host/train-{000..099}.tar              on a server, by fsspec

    A directory with image/ and depth/, segmentation/ or normals/, or files KEY.jpg with KEY.depth.png and so on, has
    these fields too. Normals are computed from depth where there are none. `camera` took the images: it says what depth
    means, how many channels they have and which values are black and white.

    Another package adds NAME, and NAME:… after it, by a function that turns the whole of `spec` into a `Source`, which
    it registers as the entry point NAME in the group manyview.sources.

    `split` is "train", "test", or "pretrain": all images that may be learnt from, labelled or not (STL-10 has more of
    them than "train"; elsewhere it is the same). Small images of one size are packed once into $MANYVIEW_CACHE
    (~/.cache/manyview) and read from there. It also keeps the shards of servers, up to $MANYVIEW_CACHE_SIZE (50GB).
    """
    if split not in SPLITS:
        raise ValueError(f"split {split!r} is not one of {SPLITS}")
    source = _opened(spec, split, labelled, camera)
    channels = source.pixels.channels
    if channels != camera.channels:
        raise UserError(
            f"'{spec}' has images of {channels} {'channel' if channels == 1 else 'channels'}, not {camera.channels}: "
            f"name other data, or train with --channels {channels}"
        )
    return source


def from_files(source: Source) -> bool:
    """Whether images are decoded as a `Camera` says."""
    return isinstance(source.origin if isinstance(source, Packed) and source.origin else source, ImageFiles)


def _opened(spec: str, split: str, labelled: bool, camera: Camera) -> Source:
    name, colon, rest = spec.partition(":")
    if name == "scenes":
        return _scenes(spec, rest if colon else None, split, labelled)
    if name in entry_points("manyview.sources"):
        return _registered(name, spec, split, labelled)
    if name in KNOWN:
        if not rest:
            raise UserError(f"'{spec}' does not say where the set lies: use {name}:DIRECTORY")
        source = open_known(name, rest, split=split, labelled=labelled, camera=camera)
    elif is_on_hub(spec):
        source = _open_hub(spec, split, labelled, camera)
    else:
        source = _open_path(spec, split, labelled, camera)
    return _packed_if_small(source, labelled) if isinstance(source, ImageFiles) else source


def absent(spec: str) -> bool:
    """Whether `spec` is a path where nothing is: then `open_source` fails at once, else it may take a while."""
    named = ":" in spec or spec == "scenes" or spec in entry_points("manyview.sources") or is_pattern(spec)
    return not named and not (spec and Path(spec).expanduser().exists())


def _scenes(spec: str, samples: str | None, split: str, labelled: bool) -> Source:
    from manyview.data.scenes import Scenes

    if samples is not None and not (samples.isascii() and samples.isdigit() and int(samples) > 0):
        raise UserError(
            f"'{spec}' does not say how many images: use scenes, or scenes:N with a whole number N, as scenes:20000"
        )
    count = _SCENES_TEST if split == "test" else int(samples or _SCENES_TRAIN)
    source = Scenes(count, split="test" if split == "test" else "train")
    return pack_once(source, cache_path(source, source.fingerprint), labelled=labelled)


def _registered(name: str, spec: str, split: str, labelled: bool) -> Source:
    """What the function of another package makes of `spec`."""
    if split == "test":
        raise NoTestSplit(f"'{spec}' has no test split: name other images with --test-data")
    source: Source = entry_points("manyview.sources")[name].load()(spec)
    if not labelled:
        source.labels, source.classes = None, ()
    return source


def _open_hub(spec: str, split: str, labelled: bool, camera: Camera) -> Source:
    name, files = fetched(spec)
    if all(map(is_parquet, files)):
        return open_parquet(name, files, split=split, labelled=labelled, camera=camera)
    part = test_files(name, files)[0] if split == "test" else training_files(name, files)
    return Shards(name, part, labelled=labelled, camera=camera)


def _open_path(spec: str, split: str, labelled: bool, camera: Camera) -> Source:
    if is_remote(spec):
        if split == "test":
            raise NoTestSplit(f"'{spec}' has no test split: name other images with --test-data")
        return open_remote(spec, labelled=labelled, camera=camera)
    path = Path(spec).expanduser()
    exists = bool(spec) and path.exists()  # an empty word, as an unset variable leaves, is not the directory we are in
    if not exists and not is_pattern(spec):
        sets = ", ".join(
            [
                "scenes",
                "scenes:N",
                *(f"{name}:ROOT" for name in KNOWN),
                "hf:OWNER/NAME",
                *entry_points("manyview.sources"),
            ]
        )
        raise UserError(
            f"'{spec}' does not exist and is not a known set: "
            f"give a directory, a .tar, a .parquet, a pattern of either, a packed .safetensors, or one of {sets}"
        )
    if is_parquet(spec) and not (exists and path.is_dir()):
        files = {path.name: path} if exists else matching(spec, is_parquet, ".parquet")
        return open_parquet(spec, files, split=split, labelled=labelled, camera=camera)
    if exists and path.is_dir() and (files := parquet_in(path)):
        return open_parquet(f"{spec.rstrip('/')}/", files, split=split, labelled=labelled, camera=camera)
    if split == "test":
        raise NoTestSplit(f"'{spec}' has no test split: name other images with --test-data")
    if not exists:
        return Shards(spec, tars_matching(spec), labelled=labelled, camera=camera)
    if path.is_dir():
        tars = tars_in(path)
        if tars:
            return Shards(f"{spec.rstrip('/')}/", tars, labelled=labelled, camera=camera)
        return Folder(path, labelled=labelled, camera=camera)
    if path.suffix.lower() == ".safetensors":
        return Packed(path, labelled=labelled)
    if is_tar(path):
        return Tar(path, labelled=labelled, camera=camera)
    raise UserError(
        f"'{spec}' is a file of another kind: give a directory, a .tar of images, a .parquet or a packed .safetensors"
    )


def _packed_if_small(source: ImageFiles, labelled: bool) -> Source:
    if source.shards is not None:  # not all at hand
        return source
    path = cache_path(source, source.cache_key)
    if path.exists():
        return pack_once(source, path, labelled=labelled)
    size = source.probe.size
    if size is None or max(size) > _SMALL_SIDE or len(source) * pixel_bytes(source) * size[0] * size[1] > _SMALL_BYTES:
        return source
    try:
        return pack_once(source, path, labelled=labelled)
    except SizesDifferError as reason:  # the sample of headers that was looked at had one size
        note(f"not packed: {reason}")
        return source
