"""How long the runs of a recipe are, at either scale."""

from dataclasses import dataclass

from manyview.reproduce.setting import QUICK_STEPS, Setting

__all__ = ["Budget", "budget"]

# Seconds for one view of 32 px with `tiny` on two quiet cores: with a gradient, and as a key without one. From runs of
# moco-v2 (580 images/s) and of jcl with five keys (285 images/s).
WITH_GRADIENT, AS_KEY = 1.28e-3, 0.45e-3
EVALUATIONS = 45.0  # of one run, kNN and linear, on 60,000 images


@dataclass(frozen=True)
class Budget:
    words: tuple[str, ...]
    """Flags of the run."""
    steps: str
    """As it stands in the results."""
    count: int
    """Optimizer steps, for the paper's scale in units of its epochs."""

    def seconds(self, samples: int, *, trained: int, keys: int = 0) -> float:
        """Expected for steps of so many samples, each with so many views that are trained on and so many keys."""
        return self.count * samples * (trained * WITH_GRADIENT + keys * AS_KEY) + EVALUATIONS


def budget(setting: Setting, *, steps: int, epochs: int, share: float = 1.0) -> Budget:
    """`steps` on a laptop, the paper's `epochs` at its scale, or what the user asks for; of the last, `share` is for
    runs that are meant to be shorter than others."""
    asked = setting.steps or (QUICK_STEPS if setting.quick else None)
    if asked is None and setting.scale == "paper":
        return Budget(("--epochs", str(epochs)), f"{epochs} epochs", epochs)
    count = steps if asked is None else max(1, round(share * asked))
    return Budget(("--max-steps", str(count)), str(count), count)
