"""The list of images of a run that cannot be read."""

from collections.abc import Iterable
from pathlib import Path

from manyview import distributed
from manyview.data import Source, check_unreadable


class UnreadableList:
    """The list beside a run of images that cannot be read; too many of them end the run."""

    def __init__(self, source: Source, path: Path) -> None:
        self.source, self.path = source, path
        self.listed = set(path.read_text(encoding="utf-8").splitlines()) if path.exists() else set[str]()
        self.add(source.unreadable)

    def add(self, images: Iterable[tuple[str, str]]) -> None:
        """(id, reason) of what some rank could not read; all ranks are told the same."""
        fresh = {f"{name}\t{' '.join(reason.split())}": None for name, reason in images}.keys() - self.listed
        if fresh:
            self.listed.update(fresh)
            if distributed.rank() == 0:
                with open(self.path, "a", encoding="utf-8") as file:
                    file.writelines(f"{line}\n" for line in sorted(fresh))
            check_unreadable(len(self.listed), len(self.source), self.path)
