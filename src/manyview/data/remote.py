"""Images in tars on servers, of which a bounded cache keeps those that are needed now and next."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import TypeVar

import torch

from manyview.data.fieldfiles import KINECT_MM, Camera
from manyview.data.loader import processors, read_ahead
from manyview.data.shardcache import SIZE, ShardCache
from manyview.data.source import digest, note, track
from manyview.data.tar import TarImages
from manyview.data.tarindex import Index, kept_state, load
from manyview.data.transfer import RemoteShard, client, look, urls_matching
from manyview.errors import UserError

_CONNECTIONS = 4  # of each process

Key = TypeVar("Key")
Value = TypeVar("Value")


class RemoteShards(TarImages):
    """Tars on servers.

    Every tar is fetched once to make its index, which is kept for good. Where all tars fit into the cache, they end up
    there, and the set is as if it lay on this machine. Otherwise it is read in windows of as many shards as fit into
    half of the cache, while the other half takes the next ones.
    """

    def __init__(
        self, name: str, urls: Mapping[str, str], *, labelled: bool = True, camera: Camera = KINECT_MM
    ) -> None:
        """`urls` are the names of the tars and their addresses."""
        urls = dict(sorted(urls.items()))
        self._cache = ShardCache.here()
        self._tars, found = _indexed(list(urls.values()), self._cache, name)
        super().__init__(name, urls, found, labelled=labelled, camera=camera)
        self.window = _window(self._tars, self._cache.limit, name)
        if self.window < len(self._tars):
            counts = torch.tensor([len(index) for index in found])
            self.shards = torch.arange(len(counts)).repeat_interleave(counts)
            states = [str(self.window), *(shard.modified for shard in self._tars)]
            self.fingerprint = digest(self.fingerprint.encode(), *(state.encode() for state in states))

    def expect(self, numbers: Sequence[int]) -> None:
        if self.shards is not None:
            for shard in dict.fromkeys(self.shards[list(numbers)].tolist()):
                self._cache.expect(self._tars[shard])

    def _bytes(self, shard: int, offset: int, length: int) -> bytes:
        return self._cache.read(self._tars[shard], offset, length)

    @property
    def cache_key(self) -> str:
        return digest(self.fingerprint.encode(), *(shard.modified.encode() for shard in self._tars))


def open_remote(spec: str, *, labelled: bool, camera: Camera) -> RemoteShards:
    client(spec)
    (urls,) = read_ahead(urls_matching, [spec], 1 if "*" in spec else 0)
    return RemoteShards(spec, urls, labelled=labelled, camera=camera)


def _window(shards: Sequence[RemoteShard], limit: int, name: str) -> int:
    """How many shards are shuffled together: all, or as many of the largest as fit twice."""
    if sum(shard.size for shard in shards) <= limit:
        return len(shards)
    largest = max(shards, key=lambda shard: shard.size)
    if limit < 2 * largest.size:
        raise UserError(
            f"the cache of {limit / 1e9:g} GB has no room for two shards of '{name}' ('{largest.url}' has "
            f"{largest.size / 1e9:g} GB): set {SIZE} to {2 * largest.size / 1e9:.3g}GB or more"
        )
    return limit // (2 * largest.size)


def _indexed(urls: Sequence[str], cache: ShardCache, name: str) -> tuple[list[RemoteShard], list[Index]]:
    """The shards as they are, and their indexes. Servers are not asked where everything is at hand."""
    found: dict[RemoteShard, Index] = {}
    for url in urls:
        state = kept_state(RemoteShard(url, 0, "").kept_at)
        if state is not None and (index := load(shard := RemoteShard(url, *state))) is not None:
            found[shard] = index
    shards = list(found)
    if len(found) == len(urls) and sum(shard.size for shard in shards) <= cache.limit and all(map(cache.has, shards)):
        return shards, list(found.values())
    shards = list(_each(look, urls[:1]))  # alone, so that a server that is not there is told of once
    shards += track(_each(look, urls[1:]), f"asking for {name}", len(urls) - 1)
    _window(shards, cache.limit, name)  # before much is fetched in vain
    missing = [shard for shard in shards if shard not in found]
    if missing:
        size = sum(shard.size for shard in missing) / 1e9
        note(f"fetching {len(missing):,} of the {len(urls):,} shards of '{name}' once to index them ({size:.3g} GB)")
    made = track(_each(partial(_index, cache), missing), f"fetching and indexing {name}", len(missing))
    found |= zip(missing, made, strict=True)
    return shards, [found[shard] for shard in shards]


def _index(cache: ShardCache, shard: RemoteShard) -> Index:
    cache.fetch(shard)
    index = load(shard)
    if index is None:
        raise UserError(f"'{shard.url}' changes on its server just now: start again when all shards are written")
    return index


def _each(function: Callable[[Key], Value], keys: Sequence[Key]) -> Iterable[Value]:
    """In order, by processes that end, as the threads of a client do not like forks; each has several connections."""
    some = [keys[start : start + _CONNECTIONS] for start in range(0, len(keys), _CONNECTIONS)]
    return chain.from_iterable(read_ahead(partial(_at_once, function), some, min(8, processors(), len(some))))


def _at_once(function: Callable[[Key], Value], keys: Sequence[Key]) -> list[Value]:
    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        return list(pool.map(function, keys))
