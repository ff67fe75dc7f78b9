"""Which samples a step takes, whatever the start, the workers and the ranks."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

from manyview.data import Batch, Folder, Loader, Unreadable
from manyview.data.loader import read_ahead
from manyview.data.source import Arrays, Source
from manyview.errors import UserError


class Numbers(Arrays):
    """Image i is filled with i."""

    def __init__(self, count: int) -> None:
        self.name, self.fingerprint, self.size = "numbers", "", (2, 2)
        self.images = torch.arange(count, dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 2, 2).contiguous()
        self.arrays = {"image": self.images}


class Uneven(Source):
    """Image i is filled with i and has a size of its own; some cannot be read."""

    name, fingerprint, size = "uneven", "", None

    def __init__(self, count: int, broken: tuple[int, ...] = ()) -> None:
        self.count, self.broken = count, broken

    def __len__(self) -> int:
        return self.count

    def id(self, index: int) -> str:
        return f"image {index}"

    def read(self, index: int) -> dict[str, Tensor]:
        if index in self.broken:
            raise Unreadable(f"reason {index}")
        return {"image": torch.full((3, 2 + index % 3, 4), index, dtype=torch.uint8)}


def crop(sample: Mapping[str, Tensor], index: int, epoch: int) -> dict[str, Tensor]:
    """Two views of one pixel: the content, and what the crop was told."""
    told = torch.tensor([index, epoch, torch.get_num_threads()], dtype=torch.uint8)
    return {"image": torch.stack([sample["image"][:, :1, :1], told[:, None, None]])}


def batches(source: Source, **options: int) -> list[Batch]:
    defaults = {"batch_size": 4, "seed": 1, "stop": 12}
    return list(Loader(source, crop=crop, **(defaults | options)))


def same(ones: list[Batch], others: list[Batch]) -> bool:
    return len(ones) == len(others) and all(
        (a.step, a.epoch, a.unreadable, a.reasons) == (b.step, b.epoch, b.unreadable, b.reasons)
        and torch.equal(a.index, b.index)
        and torch.equal(a.fields["image"], b.fields["image"])
        for a, b in zip(ones, others, strict=True)
    )


SOURCES = pytest.mark.parametrize(
    "source", [Numbers(18), Uneven(18), Uneven(18, broken=(3, 4, 17))], ids=lambda s: s.name
)


@SOURCES
def test_images_belong_to_their_index(source: Source) -> None:
    for batch in batches(source):
        images = batch.fields["image"]
        assert batch.cut == (images.ndim == 5)
        content = images[:, 0, 0, 0, 0] if batch.cut else images[:, 0, 0, 0]
        assert content.tolist() == batch.index.tolist()
        assert batch.fields["image"].dtype == torch.uint8


@SOURCES
def test_an_epoch_visits_distinct_samples_and_drops_the_incomplete_batch(source: Source) -> None:
    loader = Loader(source, crop=crop, batch_size=4, seed=1, stop=12)
    assert loader.steps_per_epoch == 4
    assert len(loader) == 12
    found = list(loader)
    assert [batch.step for batch in found] == list(range(12))
    assert [batch.epoch for batch in found] == [0] * 4 + [1] * 4 + [2] * 4
    if not getattr(source, "broken", ()):
        for epoch in range(3):
            seen = torch.cat([batch.index for batch in found if batch.epoch == epoch]).tolist()
            assert len(set(seen)) == len(seen) == 16


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    order = [torch.cat([b.index for b in batches(Numbers(200), seed=seed, batch_size=50)]) for seed in (1, 1, 2)]
    assert torch.equal(order[0], order[1])
    assert not torch.equal(order[0], order[2])
    epochs = order[0].view(3, 200)
    assert all(not torch.equal(a, b) for a, b in pairwise(epochs))
    assert all(epoch.sort().values.tolist() == list(range(200)) for epoch in epochs)


@SOURCES
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("start", [0, 3, 4, 11])
def test_any_start_and_any_workers_give_the_rest_of_the_same_batches(source: Source, workers: int, start: int) -> None:
    assert same(batches(source, workers=workers, start=start), batches(source)[start:])


def test_a_loader_can_be_iterated_again() -> None:
    loader = Loader(Numbers(18), batch_size=4, seed=1, stop=5)
    assert same(list(loader), list(loader))


@SOURCES
def test_the_slices_of_the_ranks_make_the_batch_of_one(source: Source) -> None:
    whole, first, second = batches(source), batches(source, rank=0, world=2), batches(source, rank=1, world=2)
    for one, a, b in zip(whole, first, second, strict=True):
        assert torch.equal(one.index, torch.cat([a.index, b.index]))
        assert torch.equal(one.fields["image"], torch.cat([a.fields["image"], b.fields["image"]]))


def test_the_crop_is_told_index_and_epoch_and_has_one_thread() -> None:
    for batch in batches(Uneven(18), workers=1, start=6):
        assert batch.fields["image"].shape == (4, 2, 3, 1, 1)
        told = batch.fields["image"][:, 1, :, 0, 0].long()
        assert torch.equal(told[:, 0], batch.index)
        assert told[:, 1:].tolist() == [[batch.epoch, 1]] * 4


def test_unreadable_samples_are_replaced_by_the_next_readable_and_reported() -> None:
    readable, broken = batches(Uneven(18)), batches(Uneven(18, broken=(3, 4, 17)))
    for before, after in zip(readable, broken, strict=True):
        wanted = before.index.tolist()
        assert after.index.tolist() == [{3: 5, 4: 5, 17: 0}.get(i, i) for i in wanted]
        passed = {i: None for w in wanted for i in {3: (3, 4), 4: (4,), 17: (17,)}.get(w, ())}
        assert after.unreadable == tuple(passed)
        assert after.reasons == tuple(f"reason {i}" for i in passed)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("count", [10, 100])
def test_when_nothing_can_be_read_any_more_the_message_is_one_line(workers: int, count: int) -> None:
    with pytest.raises(
        UserError, match=rf"^{min(count, 64)} images of 'uneven' in a row cannot be read, from image"
    ) as caught:
        batches(Uneven(count, broken=tuple(range(count))), workers=workers)
    assert "\n" not in str(caught.value)
    assert not multiprocessing.active_children()  # although the traceback is still held


def test_a_batch_larger_than_the_set_is_an_error() -> None:
    with pytest.raises(
        UserError, match=r"^--batch-size 19 .* the 18 samples of 'numbers': use --batch-size 18 or less$"
    ):
        Loader(Numbers(18), batch_size=19, seed=0, stop=1)


def test_a_batch_that_the_ranks_cannot_share_is_an_error() -> None:
    with pytest.raises(UserError, match="--batch-size 9 cannot be shared evenly by 4 processes: use --batch-size 8"):
        Loader(Numbers(18), batch_size=9, seed=0, stop=1, world=4)


def test_images_of_several_sizes_need_a_crop() -> None:
    with pytest.raises(ValueError, match="a crop is needed"):
        Loader(Uneven(4), batch_size=2, seed=0, stop=1)


def test_the_main_process_keeps_its_threads_and_its_random_state() -> None:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    batches(Numbers(18), workers=1)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


def _own_process(key: int) -> int:
    time.sleep(0.05)
    return os.getpid()


def test_workers_outlive_the_signals_that_are_meant_for_the_main_process() -> None:
    values = read_ahead(_own_process, range(20), workers=1)
    worker = next(values)
    assert worker != os.getpid()
    os.kill(worker, signal.SIGINT)
    if sys.platform == "linux":  # sent by a child, as by a batch system: not by the parent itself
        subprocess.run([sys.executable, "-c", f"import os, signal; os.kill({worker}, signal.SIGTERM)"], check=True)
    assert set(values) == {worker}


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_workers_end_when_the_loop_is_left() -> None:
    values = read_ahead(_own_process, range(1000), workers=1)
    worker = next(values)
    del values
    deadline = time.monotonic() + 20
    while _is_alive(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _is_alive(worker)


def test_a_folder_of_photographs_goes_through_the_workers(tmp_path: Path) -> None:
    for i in range(20):
        Image.new("RGB", (10 + i, 12), (i, 0, 0)).save(tmp_path / f"{i:02d}.png")
    (tmp_path / "07.png").write_bytes(b"broken")
    source = Folder(tmp_path)
    here, there = batches(source, stop=5), batches(source, stop=5, workers=2)
    assert same(here, there)
    assert [i for batch in here for i in batch.unreadable] == [7]
    assert here[0].fields["image"][:, 0, 0, 0, 0].tolist() == here[0].index.tolist()
