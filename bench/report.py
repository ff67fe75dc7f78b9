"""docs/PERFORMANCE.md from the files of results: everything between its markers is written here, the rest by hand."""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from bench.curves import AXES, HOW, KINDS
from bench.lines import GROUPS
from bench.profiles import PREFIX
from bench.race import MEMORY_HOW
from manyview.reproduce.markdown import fill, table

PAGE = "PERFORMANCE.md"
NOTHING = "*Not measured yet: run `make bench`.*"
COLOURS = dict(zip((*KINDS, "cacr"), ("tab:blue", "tab:orange", "tab:red", "tab:green"), strict=True))

Record = dict[str, Any]


def write(results: Path, *, template: Path, pages: Path, quick: bool) -> None:
    """Fills the template's markers and writes the page and its plots to `pages`."""
    records = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(results.glob("*.json"))}
    pages.mkdir(parents=True, exist_ok=True)
    curves = [records[f"curves-{axis.name}"] for axis in AXES if f"curves-{axis.name}" in records]
    for record in curves:
        plot(record, pages / f"{record['name']}.svg")
    lines = [records[line.name] for group in GROUPS.values() for line in group if line.name in records]
    parts = {
        "races": race_table(lines),
        "memory": memory_table(lines),
        "machine": machine_text([*lines, *curves]),
        "curves": curve_text(curves),
        "profiles": profile_text([record for name, record in records.items() if name.startswith(PREFIX)]),
    }
    text = template.read_text(encoding="utf-8")
    for name, content in parts.items():
        text = fill(text, f"bench:{name}", content)
    if quick:
        text = f"**A try-out: the sizes are smaller than stated and the figures mean nothing.**\n\n{text}"
    (pages / PAGE).write_text(text, encoding="utf-8")


def race_table(lines: list[Record]) -> str:
    if not lines:
        return NOTHING
    rows = [
        (
            f"{record['what']}",
            record["against"],
            *rates(record),
            f"**{times(record['median'])}** ({times(record['least'])} – {times(record['most'])})",
            bar(record),
            met(record["met"]),
        )
        for record in lines
    ]
    return table(("what", "against", "ours", "theirs", "ratio (least – most)", "bar", "met"), rows)


def times(ratio: float) -> str:
    return f"{ratio:.0f}×" if ratio >= 100 else f"{ratio:.1f}×" if ratio >= 10 else f"{ratio:.2f}×"


def rates(record: Record) -> tuple[str, str]:
    if "rates" in record:
        found = record["rates"]
        return f"{found['ours']:,.0f} {record['unit']}", f"{found['theirs']:,.0f} {record['unit']}"
    seconds = record["seconds"]
    return duration(middle(seconds["ours"])), duration(middle(seconds["theirs"]))


def middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def bar(record: Record) -> str:
    if record["bar"] is None:
        return "–"
    return f"{'≤' if record['bar_is'] == 'most' else '≥'} {record['bar']:g}×"


def met(verdict: bool | None) -> str:
    return {None: "–", True: "yes", False: "**no**"}[verdict]


def memory_table(lines: list[Record]) -> str:
    measured = [record for record in lines if "memory" in record]
    if not measured:
        return NOTHING
    rows = [
        (
            record["what"],
            record["against"],
            size(record["memory"]["ours"]),
            size(record["memory"]["theirs"]),
            f"**{record['memory']['share']:.2%}**",
            f"≤ {record['memory']['bar']:.0%}",
            met(record["memory"]["met"]),
        )
        for record in measured
    ]
    found = table(("what", "against", "ours", "theirs", "share", "bar", "met"), rows)
    return f"{found}\n\nPeak memory: {MEMORY_HOW}."


def size(count: float) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def machine_text(records: list[Record]) -> str:
    """One sentence for all results that were made alike, and one more for each that was not."""
    if not records:
        return NOTHING
    sentences: dict[str, None] = {}
    for record in records:
        versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
        where = f"{record['date']}, {record['cpu']}, {record['cores']} cores, {record['platform']}"
        sentences[f"{where}, OMP_WAIT_POLICY={record['omp_wait_policy']}; {versions}."] = None
    origins = {record["images"] for record in records if record["name"] == "views-224-lightly"}
    return "\n".join([*sentences, *(f"The JPEGs: {origin}." for origin in origins)])


def curve_text(curves: list[Record]) -> str:
    if not curves:
        return NOTHING
    parts = [HOW]
    for record in curves:
        fixed = ", ".join(f"{SYMBOLS[name]}={value:,}" for name, value in record["fixed"].items())
        parts.append(f"![Time and peak memory of a step against {record['label']} ({fixed})]({record['name']}.svg)")
        if "fits" in record:
            parts.append(slope_text(record))
        if record["axis"] == "positives":
            parts.append(positives_text(record))
    return "\n\n".join(parts)


SYMBOLS = {"keys": "M′", "queue": "K", "batch": "N"}


def slope_text(record: Record) -> str:
    forward = record["forward_pass"]["seconds"]
    rows = [
        (kind, duration(found["seconds_per_key"]), f"{found['seconds_per_key'] / forward:.2f}")
        for kind, found in record["fits"].items()
    ]
    heading = ("method", "one more key costs (fitted line)", "in forward passes")
    batch = record["fixed"]["batch"]
    return f"A forward pass of the {batch} keys alone takes {duration(forward)}.\n\n{table(heading, rows)}"


def positives_text(record: Record) -> str:
    """The counterpart of CACR's Table 14: a step encodes K + 1 views of each sample."""
    rows = [
        (
            f"{entry['positives']}",
            f"{duration(entry['seconds'])} ({duration(entry['least'])} – {duration(entry['most'])})",
            duration(entry["seconds"] / (1 + entry["positives"])),
        )
        for entry in record["curves"]["cacr"]
    ]
    return table(("K", "a step of cacr (least – most)", "for each of its K + 1 views"), rows)


def profile_text(profiles: list[Record]) -> str:
    if not profiles:
        return "*None taken: `python -m bench profile LINE` adds one.*"
    parts = []
    for record in profiles:
        parts.append(f"<details><summary>{record['name']}: {record['what']}, against {record['against']}</summary>")
        for name, side in record["sides"].items():
            total = side["seconds"]
            rows = [
                (f"`{row['operator']}`", duration(row["seconds"]), f"{row['seconds'] / total:.1%}", f"{row['calls']:,}")
                for row in side["operators"]
            ]
            rows.append(
                ("outside PyTorch's operators", duration(side["outside"]), f"{side['outside'] / total:.1%}", "")
            )
            heading = ("operator", "time in itself", "share", "calls")
            parts.append(f"**{name}**, {duration(total)} under the profiler:\n\n{table(heading, rows)}")
        parts.append("</details>")
    return "\n\n".join(parts)


def plot(record: Record, path: Path) -> None:
    """Time and memory side by side, a curve for each kind of step."""
    # Fixed ids and no date: the same results give the same file.
    with mpl.rc_context({"svg.hashsalt": record["name"], "svg.fonttype": "none"}):
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        time, memory = figure.subplots(1, 2)
        for kind, curve in record["curves"].items():
            values = [entry[record["axis"]] for entry in curve]
            style = {"color": COLOURS[kind], "marker": "o", "markersize": 4, "label": kind}
            time.plot(values, [entry["seconds"] for entry in curve], **style)
            spread = [[entry[end] for entry in curve] for end in ("least", "most")]
            time.fill_between(values, *spread, color=COLOURS[kind], alpha=0.15, linewidth=0)
            memory.plot(values, [entry["step_bytes"] / 2**20 for entry in curve], **style)
        for axes, label in ((time, "seconds per step"), (memory, "peak memory of a step, MiB")):
            axes.set(xlabel=record["label"], ylabel=label)
            if record["axis"] in ("queue", "batch"):
                axes.set_xscale("log", base=2)
                axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1024:g}k" if value >= 1024 else f"{value:g}")
            axes.set_ylim(bottom=0)
            axes.grid(alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
        figure.legend(
            *time.get_legend_handles_labels(), loc="outside upper center", ncols=len(record["curves"]), frameon=False
        )
        figure.savefig(path, metadata={"Date": None})
