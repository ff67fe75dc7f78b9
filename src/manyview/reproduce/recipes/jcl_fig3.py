"""JCL, Fig. 3: how similar the features of an image's views are, and how much they vary."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from manyview.reproduce.families import JCL_REMARK, jcl_run
from manyview.reproduce.job import Job, Row
from manyview.reproduce.plots import figure, histograms
from manyview.reproduce.recipe import Found, Recipe, Table
from manyview.reproduce.rivals import of_one_seed
from manyview.reproduce.setting import Setting
from manyview.reproduce.spread import Spread, samples, two_sample
from manyview.reproduce.store import Store
from manyview.reproduce.verdict import DECIDED, paired

__all__ = ["Distributions"]

NAMES = {"jcl": "JCL", "moco-v2": "MoCo v2"}
QUANTITIES = {
    "similarity": ("(a) similarity", "mean cosine of the views of an image"),
    "variance": ("(b) variance", "mean variance of a feature over the views of an image"),
}


class Distributions(Recipe):
    name = "jcl-fig3"
    where = "JCL, Fig. 3"
    title = "Similarity and variance of the features of 32 views of an image, JCL over MoCo v2"
    claim = (
        "With JCL many more images have views of similar features than with MoCo v2, and the features vary much less."
    )
    expectation = "The same, as the loss of JCL punishes the variance of the positive similarities."
    remarks = (
        f"{JCL_REMARK} M′ = 9, λ = 4, τ = 0.2 (App. E), features before the head, of unit length; 32 views each of "
        "2,048 test images on a laptop, of 32,768 training images at the paper's scale, which does not say of which. "
        "For unit features the variance is 1 less the similarity, over their number: (b) is (a) in a mirror. D is "
        "Kolmogorov and Smirnov's statistic, P the share of pairs of images in which JCL's value is the larger one; "
        "both compare images, within a seed, by their bins. Thin lines in the figure are the seeds, areas all of them "
        "together."
    )
    paper_setup = "ImageNet-100, ResNet-18, 100 epochs; 32,768 images"

    def columns(self, table: str = "") -> tuple[str, ...]:
        return ("method", "seed", "steps", "quantity", "low", "step", "count", "seconds")

    def jobs(self, setting: Setting, store: Store) -> list[Job]:
        laptop = setting.scale == "laptop"
        images = 32 if setting.quick else 2048 if laptop else 32_768
        look = Spread(images, views=8 if setting.quick else 32, training=not laptop)  # the test images are too few
        return [
            jcl_run(setting, {"method": method}, seed, method=method, keys=9, looks=(look,))
            for seed in setting.seeds
            for method in NAMES
        ]

    def tables(self, found: Found) -> list[Table]:
        rows = []
        for seed in found.setting.seeds:
            for quantity, (title, _) in QUANTITIES.items():
                ours, theirs = (samples(self.rows_of(found, method, quantity, seed)) for method in NAMES)
                if len(ours) and len(theirs):
                    d, larger = two_sample(ours, theirs)
                    means = (f"{float(values.mean()):.4g}" for values in (ours, theirs))
                    rows.append((str(seed), title, *means, f"{d:.3f}", f"{larger:.3f}"))
        header = ("seed", "", "JCL, mean", "MoCo v2, mean", "D", "P(JCL larger)")
        return [Table("JCL beside MoCo v2, over images", header, tuple(rows))]

    def draw(self, found: Found) -> Figure:
        made, panels = figure(2)
        for axes, (quantity, (title, words)) in zip(panels, QUANTITIES.items(), strict=True):
            counts: dict[str, list[tuple[float, float]]] = {}
            outlines: dict[str, list[list[tuple[float, float]]]] = {}
            step = 0.0
            for method, name in NAMES.items():
                rows = self.rows_of(found, method, quantity)
                step = float(rows[0]["step"]) if rows else step
                counts[name] = merged(rows)
                by_seed = [self.rows_of(found, method, quantity, seed) for seed in found.setting.seeds]
                outlines[name] = [merged(each) for each in by_seed if each]
            histograms(axes, counts, step=step, x=words, title=title, outlines=outlines)
        return made

    def shown_seeds(self, found: Found) -> str:
        return "seeds " + ", ".join(map(str, found.setting.seeds))

    def verdict(self, found: Found) -> str:
        means: dict[str, dict[int, float]] = {method: {} for method in NAMES}
        for seed in found.setting.seeds:
            for method in NAMES:
                values = samples(self.rows_of(found, method, "similarity", seed))
                if len(values):
                    means[method][seed] = 100 * float(values.mean())
        difference = paired(means["jcl"], means["moco-v2"])
        if difference is None:
            return "Not decided here: one of the two was not run."
        verdict = DECIDED | {True: "Its direction shows here"}
        apart = [float(row[4]) for row in self.tables(found)[0].rows if row[1] == QUANTITIES["similarity"][0]]
        return (
            f"{verdict[difference.supports('above')]}: the mean similarity of JCL less that of MoCo v2 is {difference} "
            f"hundredths over {difference.seeds} seed{'s' * (difference.seeds > 1)}, and D, which is 0 where the two "
            f"are alike and 1 where they are apart, {min(apart):.3f} to {max(apart):.3f} within a seed. Whether that "
            "is much is left to the eye; the paper prints no figures."
        )

    def rivals(self, found: Found, done: Sequence[Job]) -> tuple[Job, Job] | None:
        return of_one_seed(done, "jcl", "moco-v2", lambda keys: keys["method"])

    def rows_of(self, found: Found, method: str, quantity: str, seed: int | None = None) -> list[Row]:
        asked = {"method": method, "quantity": quantity} | ({} if seed is None else {"seed": str(seed)})
        return [row for row in found[""] if row.items() >= asked.items()]


def merged(rows: list[Row]) -> list[tuple[float, float]]:
    """The counts of these rows together, by the low edges of their bins."""
    total: dict[float, float] = {}
    for row in rows:
        total[float(row["low"])] = total.get(float(row["low"]), 0) + float(row["count"])
    return sorted(total.items())
