"""A run directory as one page that opens offline, on any machine."""

from pathlib import Path

from manyview.atomic import replacing
from manyview.diagnose.facts import Facts, read_facts
from manyview.diagnose.rules import ruled
from manyview.report import gallery
from manyview.report.configuration import commands, configuration, environment, unreadable
from manyview.report.evaluation import evaluation
from manyview.report.html import document
from manyview.report.pictures import Pictures, collect
from manyview.report.summary import finding_list, header, title
from manyview.report.training import training
from manyview.report.versus import Versus, beside, neighbours_of_two
from manyview.run.files import PAGE

__all__ = ["Pictures", "Versus", "beside", "collect", "write_report"]


def write_report(
    run: Path, pictures: Pictures | None = None, *, missing: str | None = None, versus: Versus | None = None
) -> Path:
    """Writes `run`/report.html, all or nothing; the same files and pictures give the same page.

    `pictures` come from `collect` where the data is available; otherwise `missing` says why they are not there.
    `versus` comes from `compare` or `beside`.
    """
    path = run / PAGE
    with replacing(path) as file:
        file.write(_page(read_facts(run), pictures, missing, versus).encode(errors="backslashreplace"))
    return path


def _page(facts: Facts, pictures: Pictures | None, missing: str | None, versus: Versus | None) -> str:
    """Its sections and their order."""
    if missing is None and pictures is not None:
        missing = "a single view has nothing to be compared with" if pictures.pool else "no encoder has been saved yet"
    missing = missing or "the data was not available when this page was written"
    sections = [
        ("diagnosis", "Diagnosis", finding_list(ruled(facts), "There is nothing to judge yet.")),
        ("training", "Training", training(facts)),
        ("evaluation", "Evaluation", evaluation(facts)),
        ("views", "Sample views", gallery.views(pictures, missing)),
        ("similarity", "Similarity of positives", gallery.similarity(pictures, missing)),
        ("neighbours", "Nearest neighbours", gallery.neighbours(pictures, missing)),
    ]
    if versus is not None:
        sections.append(("versus", "Two encoders", neighbours_of_two(versus)))
    sections.append(("configuration", "Configuration", configuration(facts)))
    if facts.unreadable:
        sections.append(("unreadable", "Unreadable images", unreadable(facts)))
    sections += [("environment", "Environment", environment(facts)), ("next", "Next steps", commands(facts))]
    return document(
        title(facts),
        lambda links: header(facts, links),
        sections,
        f"Written by manyview {facts.version} from the files of the run. The page needs no network.",
    )
