"""Which files of a set are for training and which for tests, by their names, as the Hugging Face hub gives them."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath

from manyview.data.source import NoTestSplit, note_once
from manyview.errors import UserError

TRAIN, TEST, VALIDATION = "train", "test", "validation"
_WORDS = {"train": TRAIN, "training": TRAIN, "test": TEST, "testing": TEST} | dict.fromkeys(
    ("validation", "valid", "val", "dev"), VALIDATION
)
_ONE_OF = re.compile(r"^(.*)-(\d+)-of-(\d+)")


def split_of(name: str) -> str | None:
    """What data/train-00000-of-00003.parquet and default/test/0000.parquet say of themselves."""
    for part in reversed(PurePosixPath(name).with_suffix("").parts):
        for word in re.split(r"[^a-z]+", part.lower()):
            if word in _WORDS:
                return _WORDS[word]
    return None


def training_files(name: str, files: Mapping[str, Path]) -> dict[str, Path]:
    """Those of the training split; all of them where their names tell no splits apart."""
    parts = _by_split(files)
    if len(parts) == 1:
        return dict(files)
    if TRAIN not in parts and None not in parts:
        raise UserError(
            f"'{name}' has files for {' and '.join(sorted(map(str, parts)))} and none for training: "
            "name the ones to learn from by a pattern in quotes, as 'DIR/validation-*.parquet'"
        )
    if TRAIN in parts and None in parts:
        others = parts[None]
        note_once(
            f"{len(others):,} of the {len(files):,} files of '{name}' are of no known split and are passed over, "
            f"the first is {min(others)}"
        )
    return parts.get(TRAIN) or parts[None]


def test_files(name: str, files: Mapping[str, Path]) -> list[dict[str, Path]]:
    """Those of the test split and of the validation split, as far as there are any, with the better one first."""
    parts = _by_split(files)
    tests = [parts[split] for split in (TEST, VALIDATION) if split in parts]
    if len(parts) == 1 or not tests:
        raise NoTestSplit(f"'{name}' has no test split: name other images with --test-data")
    return tests


def _by_split(files: Mapping[str, Path]) -> dict[str | None, dict[str, Path]]:
    parts: dict[str | None, dict[str, Path]] = {}
    for name, path in files.items():
        parts.setdefault(split_of(name), {})[name] = path
    return parts


def check_whole(name: str, files: Collection[str]) -> None:
    """Complains when train-00001-of-00003 and its like are not all there."""
    found: dict[tuple[str, int], set[int]] = {}
    for file in files:
        if match := _ONE_OF.match(file):
            found.setdefault((match[1], int(match[3])), set()).add(int(match[2]))
    for (start, count), numbers in found.items():
        if len(numbers) < count:
            first = next(number for number in range(count) if number not in numbers)
            raise UserError(
                f"'{name}' lacks {count - len(numbers):,} of the {count:,} files of {start}, the first is "
                f"{start}-{first:05d}-of-{count:05d}: fetch them, or name those that are there by a pattern in quotes"
            )
