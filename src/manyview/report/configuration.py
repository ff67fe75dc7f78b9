"""Settings, data and environment of the run, and the commands that come next."""

import shlex
from collections.abc import Mapping
from typing import Any

from manyview.data.subsets import counts_in_words
from manyview.diagnose.facts import Facts
from manyview.diagnose.words import spelled
from manyview.encoders.backbones import OWN
from manyview.evaluate.records import number
from manyview.report.html import Markup, join, note, table, tag

_MOST_CLASSES = 12
_MOST_UNREADABLE = 200


def configuration(facts: Facts) -> Markup:
    if not facts.config:
        return tag("p", "config.json holds no configuration.", class_="soft")
    groups = [
        table(name.capitalize(), [], [[key.replace("_", "-"), spelled(value)] for key, value in group.items()])
        for name, group in facts.config.items()
    ]
    groups.append(table("Training data", [], _data_rows(facts.data)))
    return tag("div", *groups, class_="groups")


def _data_rows(data: Mapping[str, Any]) -> list[list[str]]:
    size, classes, counts = data.get("size"), data.get("classes"), data.get("class_counts")
    names = list(map(str, classes)) if isinstance(classes, list) else []
    more = f" and {len(names) - _MOST_CLASSES} more" if len(names) > _MOST_CLASSES else ""
    sizes = [int(each) for each in map(number, counts) if each is not None] if isinstance(counts, list) else []
    missing = data.get("missing")
    lacking = [f"{name} of {spelled(n)}" for name, n in missing.items()] if isinstance(missing, dict) else []
    return [
        ["name", spelled(data.get("name"))],
        ["samples", spelled(data.get("samples"))],
        *([["samples without", ", ".join(lacking)]] if lacking else []),
        ["size", "×".join(map(str, size)) if isinstance(size, list) else "various"],
        ["classes", ", ".join(names[:_MOST_CLASSES]) + more or "–"],
        ["images per class", counts_in_words(sizes) or "–"],
        ["fingerprint", spelled(data.get("fingerprint"))],
    ]


def unreadable(facts: Facts) -> Markup:
    count = len(facts.unreadable)
    text = f"{count:,} image{'s' * (count > 1)} could not be read. Training used other images instead."
    if count > _MOST_UNREADABLE:
        text += f" The first {_MOST_UNREADABLE} are listed here; unreadable.txt lists all."
    rows = [[name, reason] for name, reason in facts.unreadable[:_MOST_UNREADABLE]]
    return join(note(text), table("Unreadable images", ["Image", "Reason"], rows))


def environment(facts: Facts) -> Markup:
    if not facts.environment:
        return tag("p", "config.json does not describe the environment.", class_="soft")
    rows = [["manyview", facts.version], *([str(key), spelled(value)] for key, value in facts.environment.items())]
    return tag("div", table("Software and hardware of the run", [], rows), class_="groups")


def commands(facts: Facts) -> Markup:
    run = shlex.quote(str(facts.path))
    shell = [
        facts.evaluation,
        *[facts.command("evaluate linear")] * facts.labelled,
        f"{facts.command('embed')} --out features.npz",
        f"manyview export {run} --format {_format(facts)} --out exported.safetensors",
    ]
    python = [
        "import manyview",
        f"encoder = manyview.load({str(facts.path)!r})  # frozen; normalisation inside",
        "features = encoder(images)  # (N, 3, H, W), uint8 or [0, 1]",
    ]
    return join(
        tag("h3", "On the command line"),
        tag("pre", tag("code", "\n".join(shell)), tabindex="0"),
        tag("h3", "In Python"),
        tag("pre", tag("code", "\n".join(python)), tabindex="0"),
    )


def _format(facts: Facts) -> str:
    """timm's names of the weights, where timm has the same network."""
    backbone, stem, norm = (facts.setting("encoder", name) for name in ("backbone", "stem", "norm"))
    return "timm" if (stem, norm) == ("standard", "batch") and backbone not in OWN else "safetensors"
