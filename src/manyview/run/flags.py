"""From flags and config files to the configuration and the data of a run."""

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

from manyview import bounds, distributed
from manyview.arguments import NEEDED, asked_for_help, explain, needs, read
from manyview.config import AnyConfig, Config, DataConfig, RunConfig
from manyview.data import Camera, Source, fewer, from_files, imbalanced, open_source
from manyview.data.hub import is_on_hub, pinned
from manyview.data.missing import Incomplete
from manyview.data.scenes import Scenes
from manyview.encoders import Weights
from manyview.errors import UserError, naming, refuse
from manyview.fields import IMAGE
from manyview.methods.base import Method
from manyview.run import presets
from manyview.run.adaptation import adapted, given_weights
from manyview.run.auto import Machine, automatic, usual
from manyview.run.choices import Choices
from manyview.run.files import RENAMED
from manyview.run.normalisation import measured

MOST_USED = (
    *("data", "out", "epochs", "time", "batch_size", "image_size", "backbone", "init", "preset", "workers"),
    *("threads", "dry_run"),
)


@dataclass(frozen=True)
class Early:
    """The flags on which the defaults of all others depend."""

    config: Path | None = None
    preset: str = "auto"


class Parsed(NamedTuple):
    """What the flags of a run stand for."""

    config: AnyConfig
    source: Source
    weights: Weights | None
    """What the encoder starts from, if not from random weights."""
    reasons: Mapping[str, str]
    """Why the settings that follow the images and the machine have their values, by name."""


def open_training(method: type[Method], config: AnyConfig) -> Source:
    """The training data of a run."""
    data, encoder = config.data, method.encoder_config(config.method, config.encoder)
    fields = encoder.fields
    if data.channels != 3 and encoder.split is not None and IMAGE in fields:
        raise UserError(f"--channels {data.channels}: views {encoder.split} are those of RGB images: use --channels 3")
    # The first may pack the images into a file that the others only map.
    with distributed.first_on_each_machine(), naming("--data"):
        source = open_source(data.data, split="pretrain", labelled=not data.unlabelled, camera=Camera.of(data))
        if data.value_range is not None and not from_files(source):
            low, high = data.value_range
            raise UserError(f"--value-range {low:g} {high:g} is for image files, not for '{data.data}': leave it out")
        source = source.select(fields)
    if data.subset is not None:
        source = fewer(source, data.subset, seed=config.run.seed)
    if data.imbalance != "none":
        source = imbalanced(source, data.imbalance, ratio=data.imbalance_ratio, seed=config.run.seed)
    return Incomplete(source, data.missing, seed=config.run.seed) if data.missing else source


def parse_run(
    method: type[Method],
    words: list[str],
    *,
    prog: str = "",
    opening: Callable[[type[Method], AnyConfig], Source] = open_training,
    checks: Callable[[AnyConfig], list[str]] = lambda config: [],
    others: Sequence[str] = (),
) -> Parsed:
    """Flags over config file over preset. What is wrong is told at once as far as it is known without the data, which
    may take a while to open. `prog` is the command that takes the flags, where it is not `pretrain`, and `checks` and
    `others` are its own checks and flags; `opening` gives the images that presets follow."""
    prog = prog or f"manyview pretrain {method.name}"
    if (file := read(Early, words, prog=prog, shares=True).value.config) is not None:
        words = [*file_flags(file), *words]
    asked = read(Early, words, prog=prog, shares=True).value.preset
    blank = RunConfig(out=NEEDED), DataConfig(data=NEEDED)
    kind = Config[method.Config]  # type: ignore[name-defined]
    if asked_for_help(words):
        default, whose = described(method, asked, *blank)
        print(explain(kind, default, prog=prog, about=f"{method.Config.__doc__} {whose}", first=MOST_USED))
        raise SystemExit(0)
    paper = presets.paper(method, *blank)
    found = read(kind, words, paper, prog=prog, others=others)
    broken = bounds.problems(found.value)
    config: AnyConfig = bounds.mended(found.value, paper, broken)
    example = f"{prog} --data scenes{f' --out runs/{method.name}' if 'pretrain' in prog else ''}"
    from manyview.run.conflicts import conflicts  # which imports timm

    given, views = found.given, method.view_count(config.method)
    refuse(
        [
            *found.problems,
            *broken.values(),
            *needs(found.missing, prog, example),
            *conflicts(method, config, given, lambda: opening(method, config)),
            *(checks(config) if "out" in given else []),
        ]
    )
    if settled := commits(config):
        words = [*words, *settled]
        config = read(kind, words, paper, prog=prog).value
    machine = Machine.here(config.run.device)
    weights = given_weights(config, given, paper.encoder.backbone if asked == "paper" else usual(machine))
    source = opening(method, config)
    card = None if weights is None else weights.card
    reasons: Mapping[str, str] = {}
    if asked == "auto":
        default, reasons = automatic(method, config, given, source, machine, card)
    else:
        default = presets.named(asked, method, *blank, source, views=views)
        if card is not None:
            full = read(kind, words, default, prog=prog).value
            default, reasons = adapted(Choices(full, config, given), card, source, views)
    config = presets.at_equal_cost(method, read(kind, words, default, prog=prog).value)
    if weights is not None:  # with the tag of timm's default weights, which may change
        config = replace(config, encoder=replace(config.encoder, init=weights.name))
    return Parsed(measured(config, source), source, weights, reasons)


def commits(config: AnyConfig) -> list[str]:
    """Flags that name sets of the hub by their commit, which the run is to keep: branches move on. All ranks have the
    answer that rank 0 got."""
    words = []
    for flag, data in (("--data", config.data.data), ("--contrast-data", config.run.contrast_data)):
        if data is not None and is_on_hub(data):
            with naming(flag):
                words += [flag, *distributed.everyone([pinned(data)] if distributed.rank() == 0 else [])]
    return words


def described(method: type[Method], asked: str, run: RunConfig, data: DataConfig) -> tuple[AnyConfig, str]:
    """The defaults that --help shows, and a sentence that says which preset they belong to. No data is opened: defaults
    that depend on the images are those for `scenes`."""
    scenes = Scenes()
    if asked not in get_args(presets.Preset):
        default, _ = automatic(method, presets.paper(method, run, data), set(), scenes, Machine.here("cpu"))
        shown = f"`scenes`, {len(scenes):,} images of {scenes.median_side} px"
        return default, f"Defaults follow the images and the machine; shown are those for {shown}."
    preset: presets.Preset = asked  # type: ignore[assignment]
    whose = f"Defaults are those of --preset {preset}"
    if preset in ("small", "paper-cifar"):
        whose += f" for {len(scenes):,} images of {scenes.median_side} px, such as `scenes`; some depend on the images"
    views = method.view_count(method.Config())
    return presets.named(preset, method, run, data, scenes, views=views), f"{whose}."


def file_flags(path: Path) -> list[str]:
    """The flags that a TOML or JSON file of settings stands for. The settings may be in groups."""
    try:
        text = path.expanduser().read_text(encoding="utf-8")
        values = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except FileNotFoundError as error:
        raise UserError(f"--config {path} does not exist: name a TOML or JSON file of flags") from error
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"--config {path} cannot be read ({error}): it must be a TOML file, or a JSON file with the ending .json"
        ) from error
    if not isinstance(values, dict):
        raise UserError(f"--config {path} holds no table of flags: write lines such as lr = 0.03")
    return flags(values.get("config", values))  # a run's config.json keeps its settings under "config"


def flags(values: dict[str, Any]) -> list[str]:
    words: list[str] = []
    for key, value in values.items():
        name = RENAMED.get(key, key).replace("_", "-")
        if isinstance(value, dict):
            words += flags(value)
        elif isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        else:
            words += [f"--{name}", *(str(each) for each in (value if isinstance(value, list) else [value]))]
    return words
