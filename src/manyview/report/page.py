"""The page of a run: its sections and their order."""

from manyview.diagnose.facts import Facts
from manyview.diagnose.rules import judge
from manyview.report import gallery
from manyview.report.configuration import commands, configuration, environment, unreadable
from manyview.report.evaluation import evaluation
from manyview.report.html import document
from manyview.report.pictures import Pictures
from manyview.report.summary import finding_list, header, title
from manyview.report.training import training
from manyview.report.versus import Versus, neighbours_of_two


def render(facts: Facts, pictures: Pictures | None, missing: str | None = None, versus: Versus | None = None) -> str:
    """The whole page. `missing` says why there are no pictures; `versus` compares the encoder with another one."""
    if missing is None:
        missing = (
            "the data was not available when this page was written" if facts.finished else "the run is not finished"
        )
    sections = [
        ("diagnosis", "Diagnosis", finding_list(judge(facts), "There is nothing to judge yet.")),
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
