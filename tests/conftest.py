"""Two cores must hold the tests and what they start: one thread each. No test touches the user's cache."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from running import SMALL_RUN

from manyview.cli import main

torch.set_num_threads(1)

LONGEST = ("test_pretrain", "test_ranks", "test_cli_evaluate", "test_reproduce_runs", "test_methods_ranks")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take minutes come first: one that starts last keeps a single core busy at the end."""
    order = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Packed sets made by the tests live and die with them; subprocesses inherit the place."""
    before = os.environ.get("MANYVIEW_CACHE")
    cache = tmp_path_factory.mktemp("cache")
    os.environ["MANYVIEW_CACHE"] = str(cache)
    yield cache
    if before is None:
        del os.environ["MANYVIEW_CACHE"]
    else:
        os.environ["MANYVIEW_CACHE"] = before


@pytest.fixture(scope="session", autouse=True)
def plain_memory() -> Iterator[None]:
    """Commands that tests run in their own process leave its memory as it is: what a test finds must not depend on
    which others ran before it. For the whole session, as fixtures of a module run commands before those of a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("manyview.cli.keep_freed_memory", lambda: None)
        yield


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Also after a command that was given --threads, which are those of the process."""
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a small run. Each file of tests has its own."""
    out = tmp_path_factory.mktemp("cli") / "run"
    flags = ["--backbone", "resnet18", "--stem", "standard", *SMALL_RUN]
    assert main(["pretrain", "moco-v2", "--data", "scenes:64", "--out", str(out), *flags]) == 0
    return out


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Real images (cifar10/*.tar, coco-mini/), named by MANYVIEW_TEST_DATA; without them their tests are skipped."""
    path = os.environ.get("MANYVIEW_TEST_DATA", "")
    if not path or not Path(path).is_dir():
        pytest.skip("MANYVIEW_TEST_DATA names no directory of real images")
    return Path(path)
