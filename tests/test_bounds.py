"""Bounds stand beside the fields, and one call checks a whole configuration."""

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, get_args, get_type_hints

import pytest

from manyview import bounds
from manyview.bounds import AtLeastOne, NotNegative, Positive, PositiveShare, Seed, Several, Share, ShareBelowOne
from manyview.config import DataConfig, OptimConfig, RunConfig, ViewConfig
from manyview.encoders import EncoderConfig
from manyview.errors import UserError
from manyview.methods import described, find


@dataclass(frozen=True)
class Inner:
    size: Annotated[int | None, Positive] = None
    shares: Annotated[tuple[float, ...], Share] = (0.5,)


@dataclass(frozen=True)
class Outer:
    learning_rate: Annotated[float, Positive] = 0.1
    free: float = -5.0
    name: Annotated[str, "not a bound"] = "any"
    both: Annotated[int, NotNegative, Several] = 2
    inner: Inner = field(default_factory=Inner)


@dataclass(frozen=True)
class Inherited(Outer):
    own: Annotated[float, Share] = 0.0


def test_what_is_within_its_bounds_passes() -> None:
    bounds.check(Outer())
    bounds.check(Inherited(inner=Inner(3, (0.0, 1.0)), own=1.0))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (Outer(learning_rate=0.0), "--learning-rate 0 must be greater than 0"),
        (Outer(learning_rate=math.nan), "--learning-rate nan must be a finite number"),
        (Outer(free=math.inf), "--free inf must be a finite number"),
        (Outer(free=math.nan), "--free nan must be a finite number"),
        (Outer(both=-1), "--both -1 must not be negative"),
        (Outer(both=1), "--both 1 leaves a query without a positive: use 2 or more"),
        (Outer(inner=Inner(size=0)), "--size 0 must be greater than 0"),
        (Outer(inner=Inner(shares=(0.5, 1.5))), "--shares 1.5 must lie between 0 and 1"),
        (Inherited(learning_rate=-0.25), "--learning-rate -0.25 must be greater than 0"),
        (Inherited(own=-1e-9), "--own -1e-09 must lie between 0 and 1"),
    ],
)
def test_the_error_names_flag_value_and_range(config: Outer, message: str) -> None:
    with pytest.raises(UserError) as error:
        bounds.check(config)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("bound", "inside", "outside"),
    [
        (Positive, (1e-300, 5), (0, -1)),
        (NotNegative, (0, 1), (-1e-9,)),
        (AtLeastOne, (1, 10**400), (0.999, 0)),
        (Share, (0, 0.5, 1), (-0.1, 1.1)),
        (PositiveShare, (1e-9, 1), (0, 1.1)),
        (ShareBelowOne, (0, 0.99), (1, -0.1)),
        (Several, (2, 5), (1, 0)),
        (Seed, (0, 2**63 - 1), (-1, 2**63)),
    ],
)
def test_edges(bound: bounds.Bound, inside: tuple[float, ...], outside: tuple[float, ...]) -> None:
    assert all(map(bound.holds, inside))
    assert not any(map(bound.holds, outside))
    assert not bound.holds(math.nan)


UNBOUNDED = {"margin"}  # any number makes sense


def groups() -> list[type[object]]:
    return [RunConfig, DataConfig, ViewConfig, EncoderConfig, OptimConfig, *(find(name).Config for name in described())]


@pytest.mark.parametrize("group", groups(), ids=lambda group: group.__name__)
def test_every_number_of_a_configuration_has_its_bounds(group: type[object]) -> None:
    plain, full = get_type_hints(group), get_type_hints(group, include_extras=True)
    numbers = [name for name, kind in plain.items() if {int, float} & {kind, *get_args(kind)}]
    assert [name for name in numbers if not hasattr(full[name], "__metadata__") and name not in UNBOUNDED] == []


def test_all_that_is_out_of_bounds_is_told_at_once_and_can_be_set_aside() -> None:
    config = Outer(learning_rate=-1.0, inner=Inner(size=0, shares=(2.0, 3.0)))
    with pytest.raises(UserError) as error:
        bounds.check(config)
    assert [line.split()[0] for line in str(error.value).splitlines()] == ["--learning-rate", "--size", "--shares"]
    mended = bounds.mended(config, Outer(), bounds.problems(config))
    assert mended == Outer()
    assert bounds.mended(replace(config, free=7.0), Outer(), bounds.problems(config)) == Outer(free=7.0)
