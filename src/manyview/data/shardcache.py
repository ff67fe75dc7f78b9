"""Shards of sets on servers, kept on this machine: as many as fit into a limit, the last expected ones."""

import os
import queue
import re
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from manyview.atomic import locked, replacing
from manyview.data.source import cache_directory, digest
from manyview.data.tarindex import Shard, find_images, keep, load
from manyview.data.transfer import RemoteShard, download, name_of
from manyview.errors import UserError

SIZE, DEFAULT_SIZE = "MANYVIEW_CACHE_SIZE", "50GB"
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_OPEN = 64  # descriptors kept by a process
_THREADS = 2  # of each process that fetch what is expected
_WAIT = 0.1  # seconds, for other processes to finish what they fetch


def limit() -> int:
    """In bytes."""
    text = os.environ.get(SIZE) or DEFAULT_SIZE
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT]B)", text.upper(), re.ASCII)
    if found is None:
        raise UserError(f"{SIZE}={text} is no size: write it like 50GB or 500MB")
    return int(float(found[1]) * _UNITS[found[2]])


@dataclass(frozen=True)
class ShardCache:
    """All processes of a machine share it. What is evicted while it is read stays readable where it is open."""

    limit: int
    directory: Path

    @classmethod
    def here(cls) -> "ShardCache":
        return cls(limit(), cache_directory() / "shards")

    def place(self, shard: RemoteShard) -> Path:
        return self.directory / f"{digest(repr(shard).encode())}-{name_of(shard.url)[-40:]}"

    def read(self, shard: RemoteShard, offset: int, length: int) -> bytes:
        place = self.place(shard)
        if (found := _opened.get(place)) is None:
            found = _Open(self._descriptor(shard))
            for other, each in list(_opened.items()):
                if each.evicted or len(_opened) >= _OPEN:  # or its bytes would stay on the disk
                    _opened.pop(other, None)
            _opened[place] = found
        return found.read(offset, length)

    def fetch(self, shard: RemoteShard, *, wait: bool = True) -> None:
        """Sees to it that it is there, and its index; without `wait` not where another process fetches it just now.
        What is no tar is not kept."""
        place = self.place(shard)
        try:
            with locked(place, wait=wait) as mine, ExitStack() as stack:
                if not mine or (place.exists() and load(shard) is not None):
                    return
                file = None
                while file is None:
                    with locked(self.directory / "room"):  # or several processes would take the same
                        if self._make_room(shard.size):
                            file = stack.enter_context(replacing(place))
                            file.truncate(shard.size)  # so that it counts from now on
                    time.sleep(0 if file else _WAIT)
                download(shard, file)
                file.flush()
                if load(shard) is None:
                    keep(shard, find_images(Shard.of(Path(file.name)), called=shard.url))
        except OSError as error:
            raise UserError(
                f"{self.directory} cannot hold '{shard.url}' ({error.strerror}): set MANYVIEW_CACHE to a directory "
                f"with room for {self.limit / 1e9:g} GB, or {SIZE} to less"
            ) from error

    def expect(self, shard: RemoteShard) -> None:
        """Fetches it in the background, and evicts it after those that were expected before."""
        ahead = _ahead.get(os.getpid())
        if ahead is None:
            ahead = _ahead[os.getpid()] = _Ahead()
        try:
            os.utime(self.place(shard))
            ahead.asked.discard(shard)
        except FileNotFoundError:
            ahead.ask(self, shard)

    def has(self, shard: RemoteShard) -> bool:
        return self.place(shard).exists()

    def _descriptor(self, shard: RemoteShard) -> int:
        place = self.place(shard)
        while True:
            with suppress(FileNotFoundError):  # or evicted as soon as it was fetched
                return os.open(place, os.O_RDONLY)
            self.fetch(shard)

    def _make_room(self, size: int) -> bool:
        """Evicts the shards that were expected longest ago, and what killed processes left. False: others are fetching
        so much that it must wait."""
        shards, used = [], 0
        for entry in os.scandir(self.directory):
            with suppress(FileNotFoundError):
                if entry.name.endswith(".lock"):
                    continue
                if entry.name.startswith("."):  # half a file, of which the lock of the whole one tells whether it grows
                    with locked(self.directory / entry.name[1:].rpartition(".")[0], wait=False) as abandoned:
                        if abandoned:
                            os.unlink(entry)
                            continue
                else:
                    shards.append((entry.stat().st_mtime_ns, entry.stat().st_size, entry.path))
                used += entry.stat().st_size
        for _, length, path in sorted(shards):
            if used + size <= self.limit:
                break
            with suppress(FileNotFoundError):
                os.unlink(path)
            used -= length
        return used + size <= self.limit


class _Open:
    """Closed when nobody holds it any more: never under the hands of a thread that reads while others open shards."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._descriptor, length, offset)

    @property
    def evicted(self) -> bool:
        return os.fstat(self._descriptor).st_nlink == 0

    def __del__(self) -> None:
        os.close(self._descriptor)


class _Ahead:
    """Threads that fetch. What fails is left to whoever needs it, and will tell why."""

    def __init__(self) -> None:
        self.asked = set[RemoteShard]()
        self._queue = queue.SimpleQueue[tuple[ShardCache, RemoteShard]]()
        for _ in range(_THREADS):
            threading.Thread(target=self._fetch, daemon=True).start()

    def ask(self, cache: ShardCache, shard: RemoteShard) -> None:
        if shard not in self.asked:
            self.asked.add(shard)
            self._queue.put((cache, shard))

    def _fetch(self) -> None:
        while True:
            cache, shard = self._queue.get()
            with suppress(UserError):
                cache.fetch(shard, wait=False)


# Of the process and not of a source, so that the bounds hold for all of them and they can be pickled.
_opened: dict[Path, _Open] = {}
_ahead: dict[int, _Ahead] = {}  # by process: threads do not outlive a fork
