"""`manyview views`: a picture of the views that a method trains on."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

from manyview import bounds
from manyview.arguments import asked_for_help, explain, flags_of, read
from manyview.atomic import out_file, replacing
from manyview.bounds import Positive
from manyview.cli.shared import console, missing_from, use_threads


@dataclass(frozen=True)
class Views:
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

    def draw(self, flags: list[str], problems: list[str]) -> None:
        from manyview.data.source import readable
        from manyview.methods import find
        from manyview.run.announce import left_out
        from manyview.run.build import build_augment
        from manyview.run.flags import parse_run
        from manyview.views import picture, png

        method = find(self.method)
        config, source, *_ = parse_run(
            method,
            [*flags, "--out", str(self.out)],
            prog=f"manyview views --method {method.name}",
            checks=lambda _: problems,
            others=[flag.name for flag in flags_of(Views)],
        )
        use_threads(config.run.threads)
        augment = build_augment(method, config)
        order = source.some(config.run.seed).tolist()
        shown = dict(islice(readable(source, order), self.samples))
        images, ids = list(shown.values()), [source.id(number) for number in shown]
        split = method.encoder_config(config.method, config.encoder).split
        with out_file(self.out), replacing(self.out) as file:
            file.write(png(picture(images, augment, index=list(shown), names=ids, split=split)))
        view, area = config.views, augment.policy.scale[0]
        what = f"views of {view.image_size} px, augmentation {view.augment}, crops from {area:.0%} of the area"
        what += left_out(config)
        console.print(f"{self.out}: {what} (--preset {config.run.preset}){missing_from(source)}", soft_wrap=True)


def run(words: list[str]) -> None:
    """Flags that are not its own are those of `pretrain`."""
    if asked_for_help(words):
        print(explain(Views, prog="manyview views --data DATA", about=Views.__doc__ or ""))
        raise SystemExit(0)
    found = read(Views, words, prog="manyview views", shares=True)
    views: Views = found.value
    views.draw(list(found.left), [*found.problems, *bounds.problems(views).values()])
