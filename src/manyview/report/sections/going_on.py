"""Commands for what comes next."""

import shlex

from manyview.encoders.backbones import OWN
from manyview.report.facts import Facts
from manyview.report.markup import Markup, join, tag
from manyview.report.words import command

__all__ = ["going_on"]


def going_on(facts: Facts) -> Markup:
    run = shlex.quote(str(facts.path))
    shell = "\n".join(
        [
            command(facts, "evaluate knn"),
            command(facts, "evaluate linear"),
            f"{command(facts, 'embed')} --out features.npz",
            f"manyview export {run} --format {_format(facts)} --out exported.safetensors",
        ]
    )
    python = "\n".join(
        [
            "import manyview",
            f"encoder = manyview.load({str(facts.path)!r})  # frozen; normalisation inside",
            "features = encoder(images)  # (N, 3, H, W), uint8 or [0, 1]",
        ]
    )
    return join(
        tag("h3", "On the command line"),
        tag("pre", tag("code", shell), tabindex="0"),
        tag("h3", "In Python"),
        tag("pre", tag("code", python), tabindex="0"),
    )


def _format(facts: Facts) -> str:
    """timm's names of the weights, where timm has the same network."""
    backbone, stem, norm = (facts.setting("encoder", name) for name in ("backbone", "stem", "norm"))
    return "timm" if (stem, norm) == ("standard", "batch") and backbone not in OWN else "safetensors"
