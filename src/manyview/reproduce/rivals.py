"""Which two runs of a recipe are looked at side by side."""

from collections.abc import Callable, Mapping, Sequence

from manyview.reproduce.job import Job, Row
from manyview.reproduce.verdict import Comparison, paired

__all__ = ["of_one_seed", "widest"]

Name = Callable[[Row], str]
"""What a job is called among those that are compared, by its keys."""


def of_one_seed(done: Sequence[Job], first: str, second: str, name: Name) -> tuple[Job, Job] | None:
    """The first two jobs with these names that have their seed in common; trials are none of them."""
    jobs: dict[tuple[str, str], Job] = {}
    for job in done:
        if not job.table:
            jobs.setdefault((name(dict(job.keys)), job.keys["seed"]), job)
    for (named, seed), job in jobs.items():
        if named == first and (second, seed) in jobs:
            return job, jobs[second, seed]
    return None


def widest(
    done: Sequence[Job], comparisons: Sequence[Comparison], values: Mapping[str, Mapping[int, float]], name: Name
) -> tuple[Job, Job] | None:
    """Of the set-ups that are compared the two that differ most here, as far as both are jobs. `values` are by set-up
    and seed."""
    apart: list[tuple[float, tuple[Job, Job]]] = []
    for each in comparisons:
        difference = paired(values.get(each.first, {}), values.get(each.second, {}))
        jobs = of_one_seed(done, each.first, each.second, name)
        if difference is not None and jobs is not None:
            apart.append((abs(difference.mean), jobs))
    return max(apart, key=lambda pair: pair[0])[1] if apart else None
