"""Races of the views: how many of them one core makes."""

import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from PIL import Image
from torch.nn.functional import interpolate
from torch.utils.data import default_collate

from bench.lines import VIEWS_32_KORNIA, VIEWS_32_LIGHTLY, VIEWS_224_LIGHTLY
from bench.peers import Photographs, kornia_views, lightly_views, pictures
from bench.race import Race, timed
from bench.steps import BATCH, SIZE
from manyview.data import Folder, Loader, Subset
from manyview.data.scenes import Scenes
from manyview.views import Augment, policy

RECIPE = "moco-v2"
LARGE = 224  # px
LARGE_VIEWS = 6
COCO_SIZE = (480, 640)


def races(quick: bool) -> Iterator[Race]:
    yield small(quick)
    with photographs(4 if quick else 32) as (source, origin):
        yield large(source, origin, quick)


def small(quick: bool) -> Race:
    batches = 1 if quick else 4
    made = 2 * BATCH * batches
    look = policy(RECIPE)
    index = torch.arange(BATCH)
    images = Scenes(BATCH, size=SIZE).batch(index)["image"]
    augment = Augment(look, views=2, size=SIZE, seed=0)
    epoch = itertools.count()
    as_pil, lightly, kornia = pictures(images), lightly_views(look, views=2, size=SIZE), kornia_views(look, size=SIZE)

    def ours() -> None:
        for _ in range(batches):
            augment.apply({"image": images}, augment.plan(index, next(epoch)))

    def image_by_image() -> None:
        for _ in range(batches):
            default_collate([lightly(image) for image in as_pil])

    @torch.no_grad()
    def batched() -> None:
        for _ in range(batches):
            unit = images.float().div_(255)
            for _ in range(2):
                kornia(unit)

    return Race(
        {"manyview": timed(ours), "lightly": timed(image_by_image), "kornia": timed(batched)},
        (VIEWS_32_LIGHTLY.making(made), VIEWS_32_KORNIA.making(made)),
        threads=1,
        repeats=5 if quick else 9,
        facts={"batch": BATCH, "images": "scenes"},
    )


def large(source: Subset, origin: str, quick: bool) -> Race:
    look = policy(RECIPE)
    augment = Augment(look, views=LARGE_VIEWS, size=LARGE, seed=0)
    step = itertools.count()
    folder = source.source
    assert isinstance(folder, Folder)
    paths = [str(folder.root / source.id(number)) for number in range(len(source))]
    theirs = Photographs(paths, lightly_views(look, views=LARGE_VIEWS, size=LARGE))

    def ours() -> None:
        start = next(step)
        loader = Loader(
            source, batch_size=len(source), seed=0, start=start, stop=start + 1, crop=augment.crop
        )  # one batch is one epoch
        for batch in loader:
            augment.apply(batch.fields, augment.plan(batch.index, batch.epoch), cut=batch.cut)

    def image_by_image() -> None:
        default_collate([theirs[number] for number in range(len(theirs))])

    return Race(
        {"manyview": timed(ours), "lightly": timed(image_by_image)},
        (VIEWS_224_LIGHTLY.making(LARGE_VIEWS * len(source)),),
        threads=1,
        repeats=3 if quick else 5,
        facts={"batch": len(source), "images": origin},
    )


@contextmanager
def photographs(count: int) -> Iterator[tuple[Subset, str]]:
    """So many JPEGs of COCO's size, and where they come from."""
    real = Path(os.environ.get("MANYVIEW_TEST_DATA", ""), "coco-mini", "train2017")
    if "MANYVIEW_TEST_DATA" in os.environ and real.is_dir():
        yield _first(Folder(real, labelled=False), count), "photographs of COCO 2017"
        return
    with tempfile.TemporaryDirectory() as directory:
        for number, image in enumerate(generated(count)):
            image.save(Path(directory, f"{number:03}.jpg"), quality=90)
        yield _first(Folder(directory, labelled=False), count), "generated: enlarged scenes with noise, JPEG quality 90"


def generated(count: int) -> list[Image.Image]:
    """Scenes enlarged to COCO's size, for rendering them so large takes seconds each; the noise makes their files as
    large as photographs' are, some 160 kB, and so as slow to decode."""
    height, width = COCO_SIZE
    scenes = Scenes(count, size=80).batch(torch.arange(count))["image"]
    smooth = interpolate(scenes.float(), size=(width, width), mode="bicubic")[..., :height, :]
    noise = torch.randn(smooth.shape, generator=torch.Generator().manual_seed(0))
    return pictures((smooth + 20 * noise).clamp(0, 255).byte())


def _first(folder: Folder, count: int) -> Subset:
    return Subset(folder, torch.arange(count))
