"""The shape of the room: frames are abstract, methods are final and each in one short file."""

import importlib
import inspect
import pkgutil
from dataclasses import is_dataclass

import pytest

from manyview import methods
from manyview.methods import described, find
from manyview.methods.base import Method


def classes() -> list[type]:
    found = []
    for info in pkgutil.iter_modules(methods.__path__):
        module = importlib.import_module(f"{methods.__name__}.{info.name}")
        found += [
            each for each in vars(module).values() if inspect.isclass(each) and each.__module__ == module.__name__
        ]
    return found


def is_concrete(kind: type) -> bool:
    """What is used by itself: a method with a name, the configuration of one, a network, a record."""
    if issubclass(kind, Method):
        return "name" in vars(kind)
    configs = {find(name).Config for name in described()}
    return kind in configs if is_dataclass(kind) else True


def test_no_concrete_class_inherits_from_a_concrete_one() -> None:
    found = classes()
    assert len(found) > 60
    for kind in found:
        parents = [base for base in kind.__mro__[1:] if base in found]
        assert [base.__name__ for base in parents if is_concrete(base)] == [], kind


def test_a_method_is_marked_final_and_a_frame_is_not() -> None:
    for kind in classes():
        if issubclass(kind, Method):
            assert getattr(kind, "__final__", False) == is_concrete(kind), kind


@pytest.mark.parametrize("name", described())
def test_a_method_is_one_short_file_that_is_called_as_it_is(name: str) -> None:
    kind = find(name)
    assert kind.__module__ == f"manyview.methods.{name.replace('-', '_')}"
    assert len(inspect.getsource(inspect.getmodule(kind) or kind).splitlines()) <= 60
