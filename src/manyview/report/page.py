"""The page as a whole: its head, its sections and their order."""

from manyview.report.document import document
from manyview.report.facts import Facts
from manyview.report.pictures import Pictures
from manyview.report.sections.configuration import configuration, environment, unreadable
from manyview.report.sections.diagnosis import diagnosis
from manyview.report.sections.evaluation import evaluation
from manyview.report.sections.going_on import going_on
from manyview.report.sections.header import header, title
from manyview.report.sections.neighbours import neighbours
from manyview.report.sections.similarity import similarity
from manyview.report.sections.training import training
from manyview.report.sections.versus import versus as two_encoders
from manyview.report.sections.views import views
from manyview.report.versus import Versus

__all__ = ["render"]


def render(facts: Facts, pictures: Pictures | None, missing: str | None = None, versus: Versus | None = None) -> str:
    """The whole page. `missing` says why there are no pictures; `versus` compares the encoder with another one."""
    if missing is None:
        missing = "the data was not at hand when this page was written" if facts.finished else "the run is not finished"
    sections = [
        ("diagnosis", "Diagnosis", diagnosis(facts)),
        ("training", "Training", training(facts)),
        ("evaluation", "Evaluation", evaluation(facts)),
        ("views", "Sample views", views(pictures, missing)),
        ("similarity", "Similarity of positives", similarity(pictures, missing)),
        ("neighbours", "Nearest neighbours", neighbours(pictures, missing)),
    ]
    if versus is not None:
        sections.append(("versus", "Two encoders", two_encoders(versus)))
    sections.append(("configuration", "Configuration", configuration(facts)))
    if facts.unreadable:
        sections.append(("unreadable", "Unreadable images", unreadable(facts)))
    sections += [("environment", "Environment", environment(facts)), ("next", "How to go on", going_on(facts))]
    return document(
        title(facts),
        lambda links: header(facts, links),
        sections,
        f"Written by manyview {facts.version} from the files of the run; it needs no network.",
    )
