"""Durations as people write and read them."""

import re

from manyview.errors import UserError

UNITS = {"h": 3600, "m": 60, "s": 1}


def seconds(text: str) -> float:
    """Of 30m, 2h, 1h30m or 90s."""
    parts = re.findall(r"([\d.]+)([hms])", text)
    total = (
        sum(float(number) * UNITS[unit] for number, unit in parts) if re.fullmatch(r"(\d+(\.\d+)?[hms])+", text) else 0
    )
    if not total:
        raise UserError(f"--time {text} is no time: write it like 30m, 2h, 1h30m or 90s")
    return total


def in_words(duration: float) -> str:
    """Rounded as people say it."""
    if duration < 100:
        return f"{duration:.0f} s"
    if duration < 5400:
        return f"{duration / 60:.0f} min"
    return f"{duration / 3600:.1f} h" if duration < 172_800 else f"{duration / 86_400:.1f} days"


def on_a_clock(duration: float) -> str:
    """Minutes and seconds of what is counted down, and hours where there are any."""
    minutes, left = divmod(round(duration), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"
