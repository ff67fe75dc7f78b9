"""Two encoders side by side: the nearest neighbours that each finds for the same images."""

from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from manyview.data.source import Source, Subset
from manyview.diagnose.facts import Facts, read_facts
from manyview.diagnose.words import percent, points, signed
from manyview.encoders import FrozenEncoder, load
from manyview.errors import UserError, naming
from manyview.evaluate.features import extract
from manyview.evaluate.score import bootstrap
from manyview.report.gallery import neighbour, query, row
from manyview.report.html import Markup, join, note, table, tag
from manyview.report.pictures import Neighbourhood, nearest_others, neighbourhood, one_of_each_class, shuffled
from manyview.run.files import CONFIG, ENCODER, read_config


@dataclass(frozen=True)
class Agreement:
    """Share of the neighbours with the query's label, by encoder, and the 95 % interval of the difference."""

    first: float
    second: float
    interval: tuple[float, float]  # of first − second, over the queries


@dataclass(frozen=True)
class Versus:
    """What `compare` found; whatever stands in pairs is the first encoder's, then the second's."""

    names: tuple[str, str]
    pairs: tuple[tuple[Neighbourhood, Neighbourhood], ...]
    pool: int  # images; each is a query among the others
    neighbours: int  # of each query
    common: float  # share of its neighbours that the other encoder finds too
    agreement: Agreement | None  # None without labels
    remark: str = ""  # where the encoders were trained on different data

    @property
    def by_chance(self) -> float:
        """`common` of two unrelated encoders."""
        return self.neighbours / (self.pool - 1)


def beside(run: Path, here: FrozenEncoder, against: str, source: Source) -> Versus:
    """The encoder `here` of a run beside that of another run, of a file or of timm, on images of `source`, the data of
    the first."""
    other = Path(against).expanduser()
    if other.resolve() in (run.resolve(), (run / ENCODER).resolve()):
        raise UserError(f"--against {against} is the encoder of {run} itself: name another run")
    with naming("--against"):
        there = load(against)
    first, second = read_facts(run), read_facts(other) if _is_run(other) else None
    remark = ""
    if second is None:
        remark = "The training data of the second encoder is not known."
    elif first.data.get("fingerprint") != second.data.get("fingerprint"):
        remark = "The images are from the training data of the first encoder. The second was trained on other data."
    names = _name(first), against if second is None else _name(second)
    return replace(compare(source, here, there, names), remark=remark)


def _is_run(path: Path) -> bool:
    """A folder of another program may have a file of this name too."""
    return (path / CONFIG).is_file() and "method" in read_config(path)


def _name(facts: Facts) -> str:
    return f"{facts.method} on {facts.data.get('name', 'unknown data')} ({facts.path})"


def compare(
    source: Source,
    first: FrozenEncoder,
    second: FrozenEncoder,
    names: tuple[str, str],
    *,
    queries: int = 8,
    neighbours: int = 5,
    pool: int = 1000,
    seed: int = 0,
) -> Versus:
    """Neighbours among `pool` images of the source, of which `queries` are shown.

    The encoders may differ in everything: each gets the images in its own size.
    """
    part = Subset(source, shuffled(source, seed)[:pool])
    features = [extract(encoder, part, batch_size=64) for encoder in (first, second)]
    numbers = part.indices[features[0].index].tolist()
    if len(numbers) < 2:
        raise UserError(f"--against needs two readable images, and {source.name} has {len(numbers)}: use other --data")
    labels = features[0].labels
    near = [nearest_others(each.embeddings, neighbours) for each in features]
    rows = [each for _, each in near]
    shown = one_of_each_class(labels, queries)
    found = [[neighbourhood(source, numbers, row, *each) for row in shown] for each in near]
    return Versus(
        names,
        tuple(zip(*found, strict=True)),
        len(numbers),
        rows[0].shape[1],
        common_share(*rows),
        None if source.labels is None else agreement(labels, *rows),
    )


def common_share(first: Tensor, second: Tensor) -> float:
    """Neighbours (N, k) by two encoders -> the mean share that is in both, in whatever order."""
    return float((first[:, :, None] == second[:, None, :]).any(2).double().mean())


def agreement(labels: Tensor, first: Tensor, second: Tensor) -> Agreement:
    shares = [(labels[rows] == labels[:, None]).double().mean(1) for rows in (first, second)]  # (N,) each
    (interval,) = bootstrap((shares[0] - shares[1])[:, None])
    return Agreement(float(shares[0].mean()), float(shares[1].mean()), interval)


def neighbours_of_two(found: Versus) -> Markup:
    """The section of the page: the first encoder's neighbours beside the second's."""
    text = (
        f"Both encoders searched for the {found.neighbours} nearest neighbours of each of {found.pool:,} images. They "
        f"agree on {percent(found.common)} of them (chance: {percent(found.by_chance)}); these are marked “both”. The "
        "first encoder is on the left, or above on narrow screens."
    )
    if found.agreement is None:
        text += " There are no labels, so neither encoder can be called better."
    head = tag("div", tag("span"), *(tag("h3", name) for name in found.names), class_="versus")
    return join(
        note(f"{text} {found.remark}".strip()),
        Markup() if found.agreement is None else _agreement(found.names, found.agreement),
        head,
        *(_pair(*pair) for pair in found.pairs),
    )


def _agreement(names: tuple[str, str], found: Agreement) -> Markup:
    rows = [[name, percent(share)] for name, share in zip(names, (found.first, found.second), strict=True)]
    low, high = found.interval
    better = names[0] if found.first >= found.second else names[1]
    between = signed(f"95\u202f% interval of the difference: {100 * low:+.1f} to {100 * high:+.1f} points")
    if low <= 0 <= high:
        verdict = f"There is no clear difference between the two ({between})."
    else:
        difference = points(abs(found.first - found.second)).removeprefix("+")
        verdict = f"{better} is better by {difference} ({between})."
    caption = "Neighbours with the query's label"
    return join(table(caption, ["Encoder", "Share"], rows), tag("p", verdict))


def _pair(first: Neighbourhood, second: Neighbourhood) -> Markup:
    both = {sample.name for sample in first.neighbours} & {sample.name for sample in second.neighbours}
    return tag("div", row([query(first.query)]), _row(first, both), _row(second, both), class_="versus neighbours")


def _row(hood: Neighbourhood, both: set[str]) -> Markup:
    found = zip(hood.neighbours, hood.similarities, strict=True)
    return row([neighbour(hood.query, each, value, "both" if each.name in both else "") for each, value in found])
