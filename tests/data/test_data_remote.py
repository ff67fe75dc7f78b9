"""Shards on servers, as one numbered set."""

import gc
import importlib
import io
import json
import os
import random
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from PIL import Image
from serving import Server, serving
from torch import Tensor

from manyview.data import Batch, Loader, RemoteShards, Source, Subset, Unreadable, open_source, remote, transfer
from manyview.data.loader import read_ahead
from manyview.data.shardcache import ShardCache
from manyview.data.transfer import look
from manyview.errors import UserError

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")

SHARDS, IMAGES = 6, 8
SET = "a-{000..005}.tar"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One of this test; few threads instead of processes, and no long waits."""
    monkeypatch.setenv("MANYVIEW_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(remote, "processors", lambda: 0)
    monkeypatch.setattr(transfer, "PAUSE", 0.001)
    return tmp_path / "cache/shards"


def png(shard: int, number: int) -> bytes:
    file = io.BytesIO()
    noise = np.random.default_rng(shard * 100 + number).integers(0, 256, (120, 100 + number, 3), dtype=np.uint8)
    Image.fromarray(noise).save(file, "PNG")
    return file.getvalue()


def tar(path: Path, shard: int) -> Path:
    with tarfile.open(path, "w") as file:
        for number in range(IMAGES):
            data = png(shard, number)
            info = tarfile.TarInfo(f"{'ab'[number % 2]}/{number}.png")
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shards")
    for shard in range(SHARDS):
        tar(root / f"a-{shard:03d}.tar", shard)
    return root


@pytest.fixture
def server(made: Path, tmp_path: Path) -> Iterator[Server]:
    root = tmp_path / "served"
    root.mkdir()
    for path in made.iterdir():
        os.link(path, root / path.name)
    with serving(root) as running:
        yield running


def room(monkeypatch: pytest.MonkeyPatch, made: Path, shards: float) -> None:
    largest = max(path.stat().st_size for path in made.iterdir())
    monkeypatch.setenv("MANYVIEW_CACHE_SIZE", f"{shards * largest / 1e3:.3f}KB")


def used(cache: Path) -> int:
    total = 0
    for path in cache.iterdir():
        with suppress(FileNotFoundError):  # evicted or renamed meanwhile
            total += path.stat().st_size
    return total


def ids(source: Source) -> list[str]:
    return [source.id(i) for i in range(len(source))]


def corner(sample: Mapping[str, Tensor], index: int, epoch: int) -> dict[str, Tensor]:
    return {"image": sample["image"][None, :, :9, :9]}


def batches(source: Source, **options: Any) -> list[Batch]:
    return list(Loader(source, crop=corner, batch_size=5, seed=3, stop=20, **options))


def same(ones: list[Batch], others: list[Batch]) -> bool:
    return len(ones) == len(others) and all(
        (a.step, a.epoch) == (b.step, b.epoch)
        and torch.equal(a.index, b.index)
        and torch.equal(a.fields["image"], b.fields["image"])
        for a, b in zip(ones, others, strict=True)
    )


def test_a_set_that_fits_is_as_if_it_lay_here(server: Server, made: Path) -> None:
    local, far = open_source(f"{made}/{SET}"), open_source(f"{server.url}/{SET}")
    assert ids(far) == ids(local)
    assert (far.fingerprint, far.classes, far.median_side) == (local.fingerprint, local.classes, local.median_side)
    assert far.labels is not None
    assert local.labels is not None
    assert torch.equal(far.labels, local.labels)
    assert same(batches(far), batches(local))
    assert sorted(server.fetched()) == sorted(path.name for path in made.iterdir())
    server.requests.clear()
    assert ids(open_source(f"{server.url}/{SET}")) == ids(local)
    assert server.requests == [], "the second time it opens without a server"


def test_one_tar_is_as_if_it_lay_here(server: Server, made: Path) -> None:
    local, far = open_source(f"{made}/a-001.tar"), open_source(f"{server.url}/a-001.tar?token=1")
    assert (ids(far), far.fingerprint) == (ids(local), local.fingerprint)


def test_a_larger_set_is_read_in_windows(
    server: Server, made: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = open_source(f"{made}/{SET}")
    room(monkeypatch, made, 4.5)
    far = open_source(f"{server.url}/{SET}")
    assert far.order_in_words == "shuffled within 2 of 6 shards at a time"
    assert far.fingerprint != local.fingerprint, "a run on it does not go on in another order"
    limit = ShardCache.here().limit
    found = []
    server.requests.clear()
    for batch in Loader(far, crop=corner, batch_size=8, seed=3, stop=12):
        found.append(batch)
        assert used(cache) <= limit
    assert len({number // IMAGES for batch in found[:2] for number in batch.index.tolist()}) == 2
    assert 6 <= len(server.fetched()) <= 14, "each shard about once in each of the two epochs"
    for batch in found:
        for row, number in enumerate(batch.index.tolist()):
            assert torch.equal(batch.fields["image"][row], corner(local.read(number), 0, 0)["image"])


def test_workers_and_resumed_runs_read_the_same(server: Server, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room(monkeypatch, made, 4.5)
    far = open_source(f"{server.url}/{SET}")
    whole = batches(far)
    assert same(batches(far, workers=2), whole)
    assert same(batches(open_source(f"{server.url}/{SET}"), start=7), whole[7:])
    part = Subset(far, torch.arange(0, len(far), 2))
    again = batches(part, workers=1)
    assert same(batches(part), again)
    assert len({number // 4 for batch in again[:1] for number in batch.index.tolist()}) == 2


def test_processes_share_the_cache(server: Server, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "processors", lambda: 2)
    far = open_source(f"{server.url}/{SET}")
    assert len(batches(far, workers=2)) == 20
    assert sorted(server.fetched()) == sorted(path.name for path in made.iterdir()), "each once"


def test_two_commands_at_once_fetch_each_shard_once(server: Server, made: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(open_source, [f"{server.url}/{SET}"] * 2)
    assert ids(one) == ids(other)
    assert sorted(server.fetched()) == sorted(path.name for path in made.iterdir())


def test_looks_fetch_few_shards(server: Server, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manyview.data.source._LOOKED_AT", IMAGES + 1)
    room(monkeypatch, made, 4.5)
    far = open_source(f"{server.url}/{SET}")
    server.requests.clear()
    assert far.median_side == 103
    for number in far.some(1).tolist():
        far.read(number)
    assert len(set(server.fetched())) <= 2


def test_what_is_expected_is_fetched_meanwhile(
    server: Server, made: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room(monkeypatch, made, 4.5)
    far = open_source(f"{server.url}/{SET}")
    part = Subset(far, torch.arange(len(far)))
    for path in cache.glob("*.tar"):
        path.unlink()
    server.requests.clear()
    part.expect([2, 3 * IMAGES, 1])
    deadline = time.monotonic() + 20
    while len(list(cache.glob("*.tar"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sorted(server.fetched()) == ["a-000.tar", "a-003.tar"]


def test_a_cut_connection_goes_on_where_it_was(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.cut, server.cuts = 100_000, 2
    assert len(open_source(f"{server.url}/a-000.tar")) == IMAGES
    parts = [part for method, _, part in server.requests if method == "GET"]
    assert parts == ["", "bytes=100000-", "bytes=200000-"]
    assert capsys.readouterr().err.count("a-000.tar': the answer broke off; asking again in 0.001 s") == 2


def test_without_ranges_it_starts_over(server: Server, made: Path) -> None:
    server.cut, server.cuts, server.ranges = 100_000, 2, False
    local, far = open_source(f"{made}/a-000.tar"), open_source(f"{server.url}/a-000.tar")
    assert all(torch.equal(far.read(i)["image"], local.read(i)["image"]) for i in range(IMAGES))


def test_errors_that_pass_are_waited_for(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.errors = [503, 503, 429, 429]  # each look asks twice
    assert len(open_source(f"{server.url}/a-000.tar")) == IMAGES
    assert "a-000.tar': Service Unavailable (HTTP 503); asking again in 0.001 s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "errors", "reason"),
    [
        (
            "b.tar",
            [],
            r"/b.tar' cannot be read: Not Found \(HTTP 404\): check the address, and who may read it; a run keeps",
        ),
        ("a-000.tar", [403, 403], r"a-000.tar' cannot be read: Forbidden \(HTTP 403\)"),
        ("a-000.tar", [500] * 10, r"tried 5 times: Internal Server Error \(HTTP 500\)"),
        ("a-00{0,9}.tar", [], r"/a-009.tar' cannot be read: Not Found"),
        ("page.tar", [], r"/page.tar' is a web page and no tar"),
        ("text.tar", [], r"^'http.*/text.tar' is not a whole tar file \(.*\): make or fetch it again"),
        ("half.tar", [], r"^'http.*/half.tar' is not a whole tar file"),
        ("a-000.tgz", [], r"a-000.tgz' is compressed \(gzip\)"),
        ("a-{0..9999999}.tar", [], r"names more than 100,000 tars: shorten the range"),
        ("a.html", [], r"names '.*a.html', which is no .tar"),
        ("get.tar?part={0..3}", [], r"get.tar\?part=0' and '.*get.tar\?part=1', which differ behind the path alone"),
        ("b-*.tar", [], r"matches no file that the server lists"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    server: Server, cache: Path, name: str, errors: list[int], reason: str
) -> None:
    whole = (server.root / "a-000.tar").read_bytes()
    (server.root / "page.tar").write_bytes(b"\n<!DOCTYPE html><html>Sign in</html>")
    (server.root / "text.tar").write_bytes(b"no tar " * 300)
    (server.root / "half.tar").write_bytes(whole[: len(whole) // 2])
    (server.root / "a-000.tgz").write_bytes(b"\x1f\x8b" + whole)
    server.errors = errors
    with pytest.raises(UserError, match=reason) as caught:
        open_source(f"{server.url}/{name}")
    assert "\n" not in str(caught.value)
    kept = [] if not cache.exists() else [path.name for path in cache.iterdir() if not path.name.endswith(".lock")]
    assert kept == []


def test_servers_that_are_not_there(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(transfer, "TRIES", 2)
    with pytest.raises(UserError, match=r"'http://127.0.0.1:9/a.tar' cannot be read, tried 2 times: .*127.0.0.1:9"):
        open_source("http://127.0.0.1:9/a.tar")
    with pytest.raises(UserError, match=r"'http://no.such.invalid/a.tar' cannot be read, tried 2 times: .*no.such.inv"):
        open_source("http://no.such.invalid/a.tar")
    with pytest.raises(UserError, match=r"'ftq://host/a.tar' has an unknown protocol: use https://, s3://"):
        open_source("ftq://host/a.tar")
    assert capsys.readouterr().err.count("asking again") == 2


def test_a_slow_server_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "TIMEOUT", 0.05)
    monkeypatch.setattr(transfer, "TRIES", 2)
    server.slow = 0.5
    with pytest.raises(UserError, match=r"a-000.tar' cannot be read, tried 2 times: no answer within 0.05 s"):
        open_source(f"{server.url}/a-000.tar")


@pytest.mark.parametrize("tags", [True, False])
def test_a_shard_that_changes_ends_the_run(
    server: Server, made: Path, monkeypatch: pytest.MonkeyPatch, tags: bool
) -> None:
    server.tags = tags
    room(monkeypatch, made, 2.5)
    far = open_source(f"{server.url}/{SET}")
    path = server.root / "a-001.tar"
    old = path.read_bytes()
    path.unlink()
    path.write_bytes(old[:-20_000] + bytes(20_000))
    os.utime(path, (10, 10))
    reason = (
        r"/a-001.tar' has changed on its server .*: put the old file back, then a run keeps its checkpoints and goes"
    )
    with pytest.raises(UserError, match=reason):
        batches(far)
    tar(path, 9)
    again = open_source(f"{server.url}/{SET}")
    assert again.fingerprint != far.fingerprint, "a new run reads the new file"
    assert len(batches(again)) == 20


def test_an_answer_without_end_is_not_kept(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless:
        def read(self, count: int) -> bytes:
            return bytes(count)

    monkeypatch.setattr(transfer, "_opened", lambda *_: nullcontext((Endless(), 0)))
    with pytest.raises(UserError, match=r"a-000.tar' has changed on its server .* bytes or more"):
        open_source(f"{server.url}/a-000.tar")
    assert list(cache.glob("*.tar")) == []


def test_what_is_evicted_can_be_read_where_it_is_open(server: Server, cache: Path) -> None:
    far = open_source(f"{server.url}/a-000.tar")
    expected = far.read(3)["image"]
    for path in cache.iterdir():
        path.unlink()
    assert torch.equal(far.read(3)["image"], expected)
    assert len(server.fetched()) == 1


def test_what_killed_processes_leave_is_removed(server: Server, cache: Path) -> None:
    open_source(f"{server.url}/a-000.tar")
    half = cache / ".a-001.tar.0a1b2c3d"
    half.write_bytes(bytes(1000))
    open_source(f"{server.url}/a-001.tar")
    assert not half.exists()


def test_a_cache_that_is_too_small_says_so(server: Server, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room(monkeypatch, made, 1.5)
    with pytest.raises(
        UserError, match=r"has no room for two shards of 'http.*: set MANYVIEW_CACHE_SIZE to .*GB or more"
    ):
        open_source(f"{server.url}/{SET}")
    assert server.fetched() == []
    monkeypatch.setenv("MANYVIEW_CACHE_SIZE", "much")
    with pytest.raises(UserError, match=r"MANYVIEW_CACHE_SIZE=much is no size: write it like 50GB"):
        open_source(f"{server.url}/{SET}")


def test_a_disk_that_is_full_says_so(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("manyview.data.shardcache.download", full)
    with pytest.raises(UserError, match=r"cannot hold 'http.*' \(No space left on device\): set MANYVIEW_CACHE to"):
        open_source(f"{server.url}/a-000.tar")


def test_patterns_that_a_server_lists(server: Server, made: Path) -> None:
    far = open_source(f"{server.url}/a-00*.tar")
    assert ids(far) == ids(open_source(f"{made}/a-00*.tar"))


@pytest.fixture
def bucket(made: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A file system in memory as the one of s3."""
    from fsspec.implementations.memory import MemoryFileSystem

    class Bucket(MemoryFileSystem):  # type: ignore[misc]
        protocol = "s3"
        store: dict[str, Any] = {}  # noqa: RUF012
        pseudo_dirs = [""]  # noqa: RUF012

    monkeypatch.setitem(importlib.import_module("fsspec.registry")._registry, "s3", Bucket)
    files = Bucket()
    for path in made.iterdir():
        files.pipe_file(f"s3://bucket/set/{path.name}", path.read_bytes())
    return files


@pytest.mark.parametrize("pattern", [SET, "a-*.tar"])
def test_other_protocols(bucket: Any, made: Path, monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    local = open_source(f"{made}/{SET}")
    room(monkeypatch, made, 4.5)
    far = open_source(f"s3://bucket/set/{pattern}")
    assert ids(far) == ids(local)
    assert far.window == 2
    for batch in batches(far):
        for row, number in enumerate(batch.index.tolist()):
            assert torch.equal(batch.fields["image"][row], corner(local.read(number), 0, 0)["image"])
    bucket.rm("s3://bucket/set/a-003.tar")
    with pytest.raises(UserError, match=r"'s3://bucket/set/a-003.tar' cannot be read: it does not exist"):
        open_source(f"s3://bucket/set/{SET}")


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        UserError, match=r"'s3://bucket/a.tar' needs another package \(.*s3fs.*\): pip install 'manyview\["
    ):
        open_source("s3://bucket/a.tar")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(
        UserError, match=r"'https://host/a.tar' needs another package \(.*fsspec.*\): pip install 'manyv"
    ):
        open_source("https://host/a.tar")


def test_a_connection_to_s3_that_fails_is_tried_again(
    bucket: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = type("ConnectionError", (Exception,), {"__module__": "botocore.exceptions"})
    closed = type("EndpointConnectionError", (lost,), {"__module__": "botocore.exceptions"})
    no_login = type("NoCredentialsError", (Exception,), {"__module__": "botocore.exceptions"})
    info, errors = type(bucket).info, [closed("no route"), closed("no route")]

    def failing(files: Any, *words: Any, **how: Any) -> Any:
        if errors:
            raise errors.pop()
        return info(files, *words, **how)

    monkeypatch.setattr(type(bucket), "info", failing)
    assert look("s3://bucket/set/a-000.tar").size > 0
    assert capsys.readouterr().err.count("no route; asking again") == 2
    errors.append(no_login("no login"))
    with pytest.raises(UserError, match="cannot be read: no login: check the address, and who may read it"):
        look("s3://bucket/set/a-000.tar")


def outcome(url: str) -> str:
    """What a user sees: how many images, or why not."""
    try:
        source = open_source(url)
    except UserError as error:
        return str(error)
    for number in range(len(source)):
        with suppress(Unreadable):
            source.read(number)
    return f"{len(source)} images"


def test_mutated_tars_are_data_or_an_error(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # which takes most of the time
    small = io.BytesIO()
    with tarfile.open(fileobj=small, mode="w") as file:
        for number in range(3):
            info = tarfile.TarInfo(f"{number}.png")
            info.size = 300
            file.addfile(info, io.BytesIO(png(0, 0)[:300]))
    whole, draw, outcomes = small.getvalue(), random.Random(0), []
    for number in range(200):
        bad = bytearray(whole)
        for _ in range(draw.choice((1, 8))):
            bad[draw.choice((draw.randrange(512), draw.randrange(4096)))] = draw.randrange(256)
        path = server.root / f"m-{number}.tar"
        path.write_bytes(bad[: draw.choice((len(bad), draw.randrange(len(bad))))])
        outcomes.append(outcome(f"{server.url}/{path.name}"))
    assert all("\n" not in each for each in outcomes)
    assert 10 < sum(each.endswith("images") for each in outcomes) < 190


def test_a_shard_is_known_by_its_state(server: Server) -> None:
    shard = look(f"{server.url}/a-000.tar")
    assert shard.size == (server.root / "a-000.tar").stat().st_size
    assert shard.modified.startswith('"')
    server.tags = False
    assert look(shard.url).modified.endswith("GMT")
    assert isinstance(open_source(shard.url), RemoteShards)


def test_a_forked_process_leaves_the_connections_alone(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(transfer, "TIMEOUT", 3.0)
    url = f"{server.url}/a-000.tar"
    expected = look(url)
    assert list(read_ahead(look_and_tidy, [url], 1)) == [expected]
    assert look(url) == expected
    assert capsys.readouterr().err == "", "it did not wait"


def look_and_tidy(url: str) -> transfer.RemoteShard:
    found = look(url)
    gc.collect()
    return found


def test_small_images_are_packed(server: Server, cache: Path) -> None:
    with tarfile.open(server.root / "small.tar", "w") as file:
        for number in range(3):
            picture = io.BytesIO()
            Image.new("RGB", (8, 8), (number, 0, 0)).save(picture, "PNG")
            info = tarfile.TarInfo(f"{number}.png")
            info.size = picture.tell()
            picture.seek(0)
            file.addfile(info, picture)
    assert open_source(f"{server.url}/small.tar").size == (8, 8)
    server.requests.clear()
    again = open_source(f"{server.url}/small.tar")
    assert again.batch(torch.tensor([2]))["image"][0, 0, 0, 0] == 2
    assert server.requests == []


@pytest.mark.parametrize("state", [["a"], 7, None])
def test_a_forged_index_is_made_again(server: Server, state: object) -> None:
    source = open_source(f"{server.url}/a-000.tar")
    shard = look(f"{server.url}/a-000.tar")
    tensors = safetensors.numpy.load_file(shard.kept_at)
    mark = json.dumps([2, shard.size, state, "0"])
    shard.kept_at.write_bytes(safetensors.numpy.save(tensors, {"manyview-tar-index": mark}))
    assert ids(open_source(f"{server.url}/a-000.tar")) == ids(source)
    shard.kept_at.write_bytes(b"")
    assert ids(open_source(f"{server.url}/a-000.tar")) == ids(source)
