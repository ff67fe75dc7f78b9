"""Pieces of Markdown that commands write into pages written by hand."""

import re
from collections.abc import Sequence


def fill(text: str, name: str, content: str) -> str:
    """The text with what stands between the markers of this name replaced."""
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    filled, count = re.subn(
        f"{re.escape(start)}.*?{re.escape(end)}", lambda _: f"{start}\n{content}\n{end}", text, flags=re.DOTALL
    )
    if count != 1:
        raise ValueError(f"the markers {start} … {end} are there {count} times instead of once")
    return filled


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heading, ("---",) * len(heading), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '∣') for cell in line)} |" for line in lines)
