"""CACR, Fig. 8: accuracy against the size of the batch."""

from collections.abc import Mapping

from manyview.reproduce.families import CACR_FAMILY, CMC_REMARK, cacr_family, cacr_run
from manyview.reproduce.grid import Grid
from manyview.reproduce.job import Job
from manyview.reproduce.setting import Setting
from manyview.reproduce.verdict import Comparison

__all__ = ["BatchSize"]

SIZES = (64, 128, 256, 512, 768)
LAPTOP = (32, 64, 128, 256)


class BatchSize(Grid):
    name = "cacr-fig8"
    where = "CACR, Fig. 8"
    title = "Accuracy against the size of the batch, which is that of the negatives"
    claim = (
        "CACR (K = 4) is ahead at every size from 64 to 768; CACR (K = 1) is ahead of CL in most cases, but not at 64, "
        "where it is slightly behind."
    )
    expectation = (
        "Runs of 96,000 views are so short that small batches, which make more steps, do best for all methods."
    )
    remarks = (
        "Every run encodes 96,000 views, in the more steps the smaller its batch is, with lr 0.12 per 256 samples. The "
        "paper trains each for 200 epochs, none with batches of 32. The figure's values are not printed there. "
        f"{CMC_REMARK}"
    )
    paper_setup = "CIFAR-10, AlexNet, 200 epochs, batches of 64 to 768"
    variables = ("method", "batch")
    x = ("batch", "batch size, M")
    evenly = True

    def asked(self, setting: Setting) -> tuple[Comparison, ...]:
        asked = []
        for batch in (size for size in SIZES if size in sizes(setting)):
            one, cl = f"CACR (K = 1), {batch}", f"CL, {batch}"
            asked.append(Comparison(f"CACR (K = 4), {batch}", f"CMC (K = 4), {batch}"))
            asked.append(Comparison(one, cl) if batch > SIZES[0] else Comparison(cl, one))
        return tuple(asked)

    def runs(self, setting: Setting, seed: int) -> list[Job]:
        return [
            cacr_run(setting, {"method": method, "batch": str(batch)}, seed, CACR_FAMILY[method], batch=batch)
            for batch in sizes(setting)
            for method in cacr_family(setting)
        ]

    def label(self, row: Mapping[str, str]) -> str:
        return f"{row['method']}, {row['batch']}"

    def series(self, row: Mapping[str, str]) -> str:
        return row["method"]


def sizes(setting: Setting) -> tuple[int, ...]:
    return LAPTOP if setting.scale == "laptop" else SIZES
