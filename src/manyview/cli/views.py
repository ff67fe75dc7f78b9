"""`manyview views`: draw what a method trains on."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

import tyro

from manyview import bounds
from manyview.bounds import Positive
from manyview.cli.shared import console
from manyview.errors import UserError

__all__ = ["run"]


@dataclass(frozen=True)
class Args:
    """Draw the views of the first epoch of a run: `views --data DATA`.

    All flags of `pretrain` are taken (`manyview pretrain METHOD --help`): --data, --preset, --config, --augment,
    --min-crop, --image-size, --seed, and those of the method, such as --views or --keys. Views with networks of their
    own, such as those of cmc, are shown in false colours.
    """

    method: str = "jcl"
    """The method."""
    out: Path = Path("views.png")
    """The picture to write."""
    samples: Annotated[int, Positive] = 6
    """How many samples."""


def run(words: list[str]) -> None:
    args, flags = tyro.cli(Args, prog="manyview views", args=words, return_unknown_args=True)
    bounds.check(args)
    from manyview import counter
    from manyview.methods import find
    from manyview.report.pictures import readable
    from manyview.run.build import build_augment
    from manyview.run.flags import parse_run
    from manyview.views import gallery

    method = find(args.method)
    config, source = parse_run(method, [*flags, "--out", str(args.out)], prog=f"manyview views --method {method.name}")
    augment = build_augment(method, config)
    shown = dict(islice(readable(source, counter.permutation(len(source), config.run.seed)), args.samples))
    images, ids = list(shown.values()), [source.id(number) for number in shown]
    split = method.encoder_config(config.method, config.encoder).split
    try:
        gallery(images, augment, args.out, index=list(shown), names=ids, split=split)
    except OSError as error:
        raise UserError(f"--out {args.out} cannot be written ({error.strerror}): choose another place") from error
    view, area = config.views, augment.policy.scale[0]
    what = f"views of {view.image_size} px, augmentation {view.augment}, crops from {area:.0%} of the area"
    console.print(f"{args.out}: {what} (--preset {config.run.preset})", soft_wrap=True)
