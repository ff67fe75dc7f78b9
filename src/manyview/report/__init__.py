"""A run directory as one page that opens offline, on any machine."""

from pathlib import Path

from manyview.atomic import replacing
from manyview.report.facts import read_facts
from manyview.report.page import render
from manyview.report.pictures import Geometry, Neighbourhood, Pictures, Sample, SampleViews, collect

__all__ = ["Geometry", "Neighbourhood", "Pictures", "Sample", "SampleViews", "collect", "write_report"]


def write_report(run: Path, pictures: Pictures | None = None, *, missing: str | None = None) -> Path:
    """Writes `run`/report.html, whole or not at all; the same files and pictures give the same page.

    `pictures` come from `collect` where the data is at hand; otherwise `missing` says why they are not there.
    """
    page = render(read_facts(run), pictures, missing)
    path = run / "report.html"
    with replacing(path) as file:
        file.write(page.encode())
    return path
