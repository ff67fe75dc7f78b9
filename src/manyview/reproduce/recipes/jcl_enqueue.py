"""JCL, Algorithm 1: what is enqueued, and whether that parts JCL from vanilla multi-key contrast."""

from collections.abc import Mapping

from manyview.reproduce.families import JCL_REMARK, jcl_run
from manyview.reproduce.grid import Grid
from manyview.reproduce.job import Job
from manyview.reproduce.setting import Setting
from manyview.reproduce.verdict import Comparison

__all__ = ["Enqueued"]

VANILLA = "vanilla"
CHANGES: dict[str, dict[str, str]] = {"mean": {}, "first": {"--enqueue": "first"}}


class Enqueued(Grid):
    name = "jcl-enqueue"
    where = "JCL, Algorithm 1"
    title = "Mean keys in JCL's queue, or one key of each sample, with and without the covariance"
    claim = (
        "Algorithm 1 enqueues the mean of a sample's keys, without another way being tried: taken here as a claim that "
        "this does better than one of them. JCL beats vanilla (response, R2.2)."
    )
    expectation = (
        "Mean keys are shorter than 1, and so weaker negatives: with one key JCL comes up to vanilla, which enqueues "
        "one, whatever λ is."
    )
    remarks = (
        f"{JCL_REMARK} M′ = 5, τ = 0.2. The paper does not try this. It was asked after "
        "`jcl-epochs` had shown vanilla ahead of JCL, and one seed of `jcl-fig2b` that λ = 0 does not mend that."
    )
    paper_setup = "ImageNet-100, ResNet-18, 100 epochs"
    variables = ("enqueued", "lam")
    comparisons = (
        Comparison("mean key, λ = 4", "one key, λ = 4"),
        Comparison("mean key, λ = 0", "one key, λ = 0"),
        Comparison("mean key, λ = 4", VANILLA),
        Comparison("one key, λ = 4", VANILLA),
    )

    def runs(self, setting: Setting, seed: int) -> list[Job]:
        jobs: list[Job] = [
            jcl_run(setting, {"enqueued": what, "lam": f"{lam:g}"}, seed, lam=lam, changes=changes)
            for lam in (4.0, 0.0)
            for what, changes in CHANGES.items()
        ]
        return [*jobs, jcl_run(setting, {"enqueued": VANILLA, "lam": ""}, seed, method="vanilla")]

    def label(self, row: Mapping[str, str]) -> str:
        if row["enqueued"] == VANILLA:
            return VANILLA
        return f"{'mean' if row['enqueued'] == 'mean' else 'one'} key, λ = {row['lam']}"
