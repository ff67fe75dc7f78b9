"""The diagnosis: what is well and what is not, with the way out."""

from manyview.report.diagnosis import Finding, diagnose
from manyview.report.facts import Facts
from manyview.report.markup import Markup, join, tag

__all__ = ["diagnosis", "listed"]


def diagnosis(facts: Facts) -> Markup:
    return listed(diagnose(facts), "There is nothing to judge yet.")


def listed(findings: list[Finding], nothing: str) -> Markup:
    """The findings with what they rest on, or `nothing`."""
    if not findings:
        return tag("p", nothing, class_="soft")
    text = "Judged by simple rules from the numbers of a run alone; what is meant to be so may stay so."
    return join(tag("p", text, class_="note"), tag("ul", *map(_item, findings), class_="findings"))


def _item(finding: Finding) -> Markup:
    advice = tag("span", finding.advice, class_="advice") if finding.advice else Markup()
    words = tag("div", tag("span", finding.text), advice)
    return tag("li", tag("b", finding.level), tag("strong", finding.about), words, class_=finding.level)
