"""The top of the page: what the run is, its results in a sentence and in figures, and the list of findings."""

import shlex

from manyview.diagnose.facts import Comparison, Facts
from manyview.diagnose.finding import Finding
from manyview.diagnose.verdict import verdict, whole
from manyview.diagnose.words import duration, measured, percent
from manyview.evaluate.records import number
from manyview.methods import described, find
from manyview.report.evaluation import not_evaluated
from manyview.report.html import Markup, join, note, tag

_MOST_RESULTS = 3


def title(facts: Facts) -> str:
    method = find(facts.method).title if facts.method in described() else facts.method
    return f"{method} on {facts.data.get('name', 'unknown data')}"


def header(facts: Facts, links: Markup) -> Markup:
    samples, size = number(facts.data.get("samples")), facts.setting("views", "image_size")
    line = [
        str(facts.setting("encoder", "backbone") or ""),
        f"{size} px" if size else "",
        f"{samples:,.0f} images" if samples is not None else "",
        f"batch size {facts.setting('optim', 'batch_size')}" if facts.setting("optim", "batch_size") else "",
        f"preset {facts.preset}",
        f"seed {facts.setting('run', 'seed')}",
    ]
    unfinished = Markup()
    if not facts.finished:
        steps = f"{len(facts.metrics):,} steps so far" if facts.metrics else "no step so far"
        command = tag("code", f"manyview resume {shlex.quote(str(facts.path))}")
        unfinished = tag("p", f"This run is not finished ({steps}). To continue it: ", command, class_="warning")
    return tag(
        "header",
        tag("h1", title(facts)),
        tag("p", " · ".join(part for part in line if part), class_="soft"),
        _verdict(facts),
        unfinished,
        tag("div", *_figures(facts), class_="figures"),
        links,
    )


def _verdict(facts: Facts) -> Markup:
    """The answers to the main question; before there is any, what is missing."""
    answers = verdict(facts)
    return _list(answers) if answers else tag("p", *not_evaluated(facts), class_="verdict")


def _figures(facts: Facts) -> list[Markup]:
    figures = [_headline(comparison) for comparison in whole(facts)[:_MOST_RESULTS]]
    during = facts.series("knn")
    if not figures and during[1]:
        figures.append(_figure("kNN during training", percent(during[1][-1]), f"at step {during[0][-1]:,.0f}"))
    if facts.final_loss is not None:
        # The first step says little where negatives start at random: they are easily told from positives.
        chance = facts.chance and f"chance: {facts.chance.loss:.2f}"
        first = f"first step: {facts.series('loss')[1][0]:.2f}"
        figures.append(_figure("Final loss", f"{facts.final_loss:.2f}", chance or first))
    if facts.seconds:
        rates = facts.series("images_per_s")[1]
        batch = number(facts.setting("optim", "batch_size")) or 0.0
        waits = facts.series("wait")[1]
        wait = f"{percent(sum(waits) / len(waits))} of the time waiting for data" if waits else ""
        figures.append(_figure("Images per second", f"{len(rates) * batch / facts.seconds:,.0f}", wait))
        epochs = facts.series("epoch")[1]
        passes = f" · {epochs[-1]:,.1f} epochs" if epochs else ""
        figures.append(_figure("Training time", duration(facts.seconds), f"{len(facts.metrics):,} steps{passes}"))
    return figures


def _headline(comparison: Comparison) -> Markup:
    trained, random = comparison.metric("trained"), comparison.metric("random")
    assert trained is not None
    against = "random encoder not evaluated" if random is None else f"random encoder: {measured(random)}"
    label, metric = comparison.shared.label, comparison.headline
    name = metric if metric.startswith(label) else f"{label} {metric}"  # recognised, and not recognise recognised
    return _figure(name, measured(trained), against)


def _figure(name: str, value: str, below: str) -> Markup:
    return tag("div", tag("span", name), tag("b", value), tag("span", below), class_="figure")


def finding_list(findings: list[Finding], nothing: str) -> Markup:
    """The findings with advice; `nothing` stands where there are none."""
    if not findings:
        return tag("p", nothing, class_="soft")
    text = "These are rules of thumb. A warning may be what you intended."
    return join(note(text), _list(findings))


def _list(findings: list[Finding]) -> Markup:
    return tag("ul", *map(_finding, findings), class_="findings")


def _finding(finding: Finding) -> Markup:
    advice = tag("span", f"→ {finding.advice}", class_="advice") if finding.advice else Markup()
    words = tag("div", tag("span", finding.text), advice)
    return tag("li", tag("b", finding.level), tag("strong", finding.about), words, class_=finding.level)
