"""Images in files: a look at their headers, and a tree of directories as a source."""

import os
import stat
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from manyview.counter import permutation
from manyview.data.decoding import MORE_ENDINGS, OTHER_ENDINGS, Header, decode, endings, header
from manyview.data.fieldfiles import KINECT_MM, OTHERS, Camera, decode_field, key_and_field, normals_of, open_field
from manyview.data.source import UNREADABLE_SHARE, Names, Source, Unreadable, digest, note, track
from manyview.data.storage import storage
from manyview.errors import UserError
from manyview.fields import FIELDS, IMAGE, Pixels

ABSENT = -2  # the length of a file that is not there, while -1 is that of a link that leads nowhere
_PROBE_ALL = 20_000  # sets up to this size have every header looked at, larger ones those of a sample
_PROBE_SOME = 2_000
_PROBE_TAG = 0x970BE


def is_image(path: str) -> bool:
    """Whether a relative path has an image's ending, and no hidden part ("._x.jpg" is a Mac's note about x.jpg)."""
    return path.lower().endswith(endings()) and not any(part.startswith(".") for part in path.split("/"))


def note_passed(name: str, passed: Mapping[str, int]) -> None:
    """Says how many images of kinds that are not read lie in a set, by ending."""
    for plug_in, more in MORE_ENDINGS.items():
        if count := sum(passed.get(ending, 0) for ending in more):
            way = (
                "install manyview[heif]" if plug_in == "HEIF" else "use a Pillow from 11.3 on that was built with AVIF"
            )
            note(f"{count:,} {plug_in} images of '{name}' are passed over: {way}, or convert them to .jpg or .png")
    if others := {ending: count for ending, count in sorted(passed.items()) if ending in OTHER_ENDINGS}:
        kinds = ", ".join(f"{count:,} {ending}" for ending, count in others.items())
        note(f"images of '{name}' that are not read are passed over ({kinds}): convert them to .jpg, .png or .tif")


@dataclass(frozen=True)
class Probe:
    """What the headers of a set of image files say."""

    checked: int
    size: tuple[int, int] | None  # (height, width) when every checked image has it
    median_side: int  # of the shorter sides
    unreadable: tuple[tuple[str, str], ...]  # (id, reason)


class ImageFiles(Source):
    """Images that are decoded when they are asked for: a broken one is found only then, so no batch is promised."""

    size = None
    layout = " in which FIELD/ stands beside image/, or KEY.FIELD.png beside KEY.jpg"

    def __init__(
        self,
        name: str,
        ids: Names,
        lengths: "np.ndarray[Any, np.dtype[np.int64]]",
        *,
        labels: Sequence[int] | None,
        others: Mapping[str, "np.ndarray[Any, np.dtype[np.int64]]"],
        camera: Camera,
    ) -> None:
        """`lengths` (n,) are those of the files in bytes, `others` those of the files of other fields, or `ABSENT`."""
        if not len(ids):
            raise UserError(f"'{name}' holds no images: files ending in {' '.join(endings())} are read, at any depth")
        import torchvision  # noqa: F401  before workers are forked, each of which would import it

        self.name = name
        self.ids = ids
        self.labels = None if labels is None else torch.tensor(labels)
        self.fingerprint = digest(ids.blob, lengths.tobytes(), *camera.mark)
        self.camera = camera
        there = {name: torch.from_numpy(others[name] != ABSENT) for name in OTHERS if name in others}
        self.files = (IMAGE, *(name for name, mask in there.items() if mask.any()))
        self.fields = self.files
        if "depth" in self.files and "normals" not in self.files:  # they are computed
            self.fields, there["normals"] = (*self.files, "normals"), there["depth"]
        self.present = {name: there[name] for name in self.fields[1:] if not there[name].all()} or None
        self._looked_into = set[str]()  # fields, of all selections
        self._other_lengths = {name: others[name].tobytes() for name in self.files[1:]}

    def __len__(self) -> int:
        return len(self.ids)

    def id(self, index: int) -> str:
        return self.ids[index]

    @abstractmethod
    def open(self, index: int, field: str = IMAGE) -> IO[bytes]:
        """The bytes of one file."""

    def read(self, index: int) -> dict[str, Tensor]:
        names = [name for name in self.selected if self._has(name, index)]
        files = dict.fromkeys(name if name in self.files else "depth" for name in names)
        found = {name: self._decoded(index, name) for name in files}
        if "normals" in names and "normals" not in found:
            found["normals"] = normals_of(found["depth"], self.camera)
        if len(names) == len(self.selected) == 1:
            return {names[0]: found[names[0]]}
        height, width = found[IMAGE].shape[-2:] if IMAGE in found else self._size(index)
        for name in files:
            self._check_size(index, name, tuple(found[name].shape[-2:]), (height, width))
        return {
            name: found[name]
            if name in found
            else torch.zeros(FIELDS[name].channels, height, width, dtype=FIELDS[name].dtype)
            for name in self.selected
        }

    def _called(self, index: int, name: str) -> str:
        return f"the {name} of {self.id(index)} in '{self.name}'"

    def _check_size(self, index: int, name: str, size: tuple[int, ...], image: tuple[int, int]) -> None:
        if size != image:
            raise UserError(
                f"{self._called(index, name)} is {size[0]} × {size[1]} pixels, its image {image[0]} × {image[1]}: "
                "resize it to the size of its image"
            )

    def select(self, names: Iterable[str]) -> Source:
        """Complains of files that cannot hold their fields now, and not in the middle of an epoch."""
        chosen = super().select(names)
        files = {name if name in self.files else "depth" for name in chosen.selected} - {IMAGE}
        for name in sorted(files - self._looked_into):
            there = [index for index in self._some if self._has(name, index)]
            unreadable = []
            for index in track(there, f"looking at the {name} of {self.name}"):
                try:
                    self._look_into(index, name)
                except Unreadable as reason:
                    unreadable.append((self.id(index), str(reason)))
            self._refuse(unreadable, len(there))
            self._looked_into.add(name)
        return chosen

    def _refuse(self, unreadable: Sequence[tuple[str, str]], count: int) -> None:
        if len(unreadable) > UNREADABLE_SHARE * count:
            raise UserError(
                f"{len(unreadable):,} of {count:,} images of '{self.name}' cannot be read, more than "
                f"{UNREADABLE_SHARE:.0%}: repair or remove them (the first is {': '.join(unreadable[0])})"
            )

    def _look_into(self, index: int, name: str) -> None:
        size, orientation, _ = self._header(index)
        if orientation != 1:  # equal sizes do not tell whether the field was turned with the image
            raise UserError(
                f"the image of {self.id(index)} in '{self.name}' is turned by its EXIF orientation, and its {name} has "
                "none: store both upright"
            )
        with self.open(index, name) as file, open_field(file, name, self._called(index, name), whole=False) as image:
            self._check_size(index, name, (image.height, image.width), size)

    def _has(self, name: str, index: int) -> bool:
        return self.present is None or name not in self.present or bool(self.present[name][index])

    def _decoded(self, index: int, name: str) -> Tensor:
        try:
            with self.open(index, name) as file:
                if name == IMAGE:
                    return decode(file, self.pixels, self.camera.value_range)
                return decode_field(file, name, self.camera, self._called(index, name))
        except OSError as error:
            raise Unreadable(str(error)) from error

    def _fingerprint_of(self, names: Sequence[str]) -> str:
        lengths = [self._other_lengths.get(name, b"") for name in names]
        camera = repr(self.camera) if {"depth", "normals"} & set(names) else ""
        return digest(super()._fingerprint_of(names).encode(), camera.encode(), *lengths)

    @cached_property
    def probe(self) -> Probe:
        """Reads headers only; raises a `UserError` when too many are broken."""
        some = self._some
        sizes, unreadable = [], []
        for index in track(some, f"looking at {self.name}"):
            try:
                sizes.append(self._size(index))
            except Unreadable as reason:
                unreadable.append((self.id(index), str(reason)))
        self._refuse(unreadable, len(some))
        median = int(np.median([min(size) for size in sizes]))
        return Probe(len(some), sizes[0] if len(set(sizes)) == 1 else None, median, tuple(unreadable))

    @property
    def _some(self) -> Sequence[int]:
        """Whose headers are looked at."""
        near = self.near
        if len(near) > _PROBE_ALL:
            near = near[permutation(len(near), _PROBE_TAG)[:_PROBE_SOME].sort().values]
        numbers: list[int] = near.tolist()
        return numbers

    @cached_property
    def pixels(self) -> Pixels:  # type: ignore[override]
        return storage(self)

    def _size(self, index: int) -> tuple[int, int]:
        return self._header(index).size

    def _header(self, index: int) -> Header:
        try:
            with self.open(index) as file:
                return header(file)
        except OSError as error:
            raise Unreadable(str(error)) from error

    @property
    @abstractmethod
    def cache_key(self) -> str:
        """Changes whenever the pixels may have; the fingerprint does not follow new content of the same length."""

    @property
    def median_side(self) -> int:
        return self.probe.median_side

    @property
    def stored_size(self) -> tuple[int, int] | None:
        return self.probe.size

    @property
    def unreadable(self) -> tuple[tuple[str, str], ...]:  # type: ignore[override]
        return self.probe.unreadable


_File = tuple[bytes, int, int]  # path, length, time of change
_NO_FILE: _File = (b"", ABSENT, 0)


class Folder(ImageFiles):
    """Every image below a directory, labelled by the first level of directories.

    Other fields lie in parallel trees, image/a/1.jpg with depth/a/1.png and segmentation/a/1.png, or beside the image,
    as a/1.depth.png.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        name: str | None = None,
        labelled: bool = True,
        classes: Sequence[str] | None = None,
        camera: Camera = KINECT_MM,
    ) -> None:
        """`classes` limits the tree to these directories, all of which must be there."""
        self.root = Path(root)
        name = name or f"{str(root).rstrip('/')}/"
        if not self.root.is_dir():
            raise UserError(f"'{self.root}' is not a directory: check the path")
        tops = None if classes is None else sorted(classes)
        missing = [top for top in tops or () if not (self.root / top).is_dir()]
        if missing:
            raise UserError(
                f"'{name}' lacks {len(missing)} of {len(tops or ())} classes in {self.root}: add {' '.join(missing)}"
            )
        if tops is None and any((self.root / field).is_dir() for field in OTHERS) and (self.root / IMAGE).is_dir():
            self.root, found, rows = self.root / IMAGE, *_parallel(self.root)
        else:
            passed = Counter[str]()
            found, rows = _beside(_find(self.root, tops, passed))
            note_passed(name, passed)
        paths = [path for path, _, _ in found]
        labels, self.classes = label(paths, tops, name) if labelled else (None, ())
        lengths = np.array([length for _, length, _ in found])
        super().__init__(
            name,
            Names.of(paths),
            lengths,
            labels=labels,
            others={field: np.array([length for _, length, _ in each]) for field, each in rows.items()},
            camera=camera,
        )
        self._paths = {field: Names.of(path for path, _, _ in each) for field, each in rows.items()}
        self._modified = np.array([modified for each in (found, *rows.values()) for _, _, modified in each]).tobytes()

    def open(self, index: int, field: str = IMAGE) -> IO[bytes]:
        path = self.ids.raw(index) if field == IMAGE else self._paths[field].raw(index)
        return open(self.root / os.fsdecode(path), "rb")

    @property
    def cache_key(self) -> str:
        return digest(self.fingerprint.encode(), os.fsencode(self.root.resolve()), self._modified)


def label(paths: Sequence[bytes], classes: Sequence[str] | None, name: str) -> tuple[list[int] | None, tuple[str, ...]]:
    """Numbers and names of the first directories, or (None, ()) where there are none."""
    tops = [path.partition(b"/")[0] if b"/" in path else None for path in paths]
    loose = tops.count(None)
    if loose:
        if loose < len(tops):
            note(
                f"'{name}' counts as unlabelled: {loose:,} of its {len(tops):,} images lie outside any class directory"
            )
        return None, ()
    names = sorted({top for top in tops if top is not None}) if classes is None else [os.fsencode(c) for c in classes]
    number = {top: i for i, top in enumerate(names)}
    return [number[top] for top in tops if top is not None], tuple(n.decode("utf-8", "backslashreplace") for n in names)


def _find(root: Path, tops: Sequence[str] | None, passed: Counter[str] | None = None) -> list[_File]:
    """(path below root, length, time of change) of every image, sorted by path; `passed` counts the other endings."""
    return sorted(track(_images(root, tops, passed), f"listing {root}"))


def _parallel(root: Path) -> tuple[list[_File], dict[str, list[_File]]]:
    """The images below image/, and for each field the file with the same name below its own tree, or `_NO_FILE`. Paths
    are relative to image/."""
    images = _find(root / IMAGE, None)
    stems, rows = [os.path.splitext(path)[0] for path, _, _ in images], {}
    for field in OTHERS:
        if (root / field).is_dir():
            its = {os.path.splitext(file[0])[0]: file for file in _find(root / field, None)}
            note_orphans(field, its, stems)
            each = [its.get(stem, _NO_FILE) for stem in stems]
            rows[field] = [(f"../{field}/".encode() + path, length, when) for path, length, when in each]
    return images, rows


def _beside(files: list[_File]) -> tuple[list[_File], dict[str, list[_File]]]:
    """The images among the files, and for each field the file that stands beside an image, or `_NO_FILE`."""
    found: dict[str, dict[str, _File]] = {field: {} for field in OTHERS}
    images, keys = [], []
    for file in files:
        key, field = key_and_field(os.fsdecode(file[0]))
        if field == IMAGE:
            images.append(file)
            keys.append(key)
        else:
            found[field][key] = file
    for field, its in found.items():
        note_orphans(field, its, keys)
    return images, {field: [its.get(key, _NO_FILE) for key in keys] for field, its in found.items() if its}


def note_orphans(field: str, found: Collection[str | bytes], images: Iterable[str | bytes]) -> None:
    """Says which files of a field have no image; both are names without endings."""
    orphans = sorted(set(found).difference(images)) if found else []  # millions of images mostly have no other files
    if orphans:
        note(
            f"{len(orphans):,} of the {len(found):,} {field} files belong to no image and are passed over, the first "
            f"is that of {os.fsdecode(orphans[0])}: names agree up to the ending, also in upper and lower case"
        )


def first_image(root: Path) -> str | None:
    """The path below root of any image."""
    return next((os.fsdecode(path) for path, _, _ in _images(root, None)), None)


def _images(root: Path, tops: Sequence[str] | None, passed: Counter[str] | None = None) -> Iterator[_File]:
    starts = [(os.fspath(root), "")] if tops is None else [(os.fspath(root / top), f"{top}/") for top in tops]
    try:
        for directory, prefix in starts:
            yield from _visit(directory, prefix, frozenset(), Counter() if passed is None else passed)
    except OSError as error:
        raise UserError(f"'{error.filename}' cannot be listed ({error.strerror}): check its permissions") from error


def _visit(directory: str, prefix: str, above: frozenset[tuple[int, int]], passed: Counter[str]) -> Iterator[_File]:
    here = os.stat(directory)
    if (here.st_dev, here.st_ino) in above:  # a link that leads back up
        return
    above |= {(here.st_dev, here.st_ino)}
    with os.scandir(directory) as entries:
        for entry in entries:
            path = f"{prefix}{entry.name}"
            if entry.is_dir():
                if not entry.name.startswith("."):
                    yield from _visit(entry.path, f"{path}/", above, passed)
            elif is_image(entry.name):
                try:
                    facts = entry.stat()
                except FileNotFoundError:  # a dangling link is a broken image, to be counted as one
                    yield os.fsencode(path), -1, 0
                else:
                    if stat.S_ISREG(facts.st_mode):
                        yield os.fsencode(path), facts.st_size, facts.st_mtime_ns
            elif not entry.name.startswith("."):
                passed[os.path.splitext(entry.name)[1].lower()] += 1
