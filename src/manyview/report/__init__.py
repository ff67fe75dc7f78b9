"""A run directory as one page that opens offline, on any machine."""

from pathlib import Path

from manyview.atomic import replacing
from manyview.diagnose.facts import read_facts
from manyview.report.page import render
from manyview.report.pictures import Pictures, collect
from manyview.report.versus import Versus, beside
from manyview.run.files import PAGE

__all__ = ["Pictures", "Versus", "beside", "collect", "write_report"]


def write_report(
    run: Path, pictures: Pictures | None = None, *, missing: str | None = None, versus: Versus | None = None
) -> Path:
    """Writes `run`/report.html, all or nothing; the same files and pictures give the same page.

    `pictures` come from `collect` where the data is available; otherwise `missing` says why they are not there.
    `versus` comes from `compare` or `beside`.
    """
    page = render(read_facts(run), pictures, missing, versus)
    path = run / PAGE
    with replacing(path) as file:
        file.write(page.encode())
    return path
