"""Methods, protocols and sources by name, ours and those of other packages, without importing any of them."""

import ast
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from manyview.errors import UserError, meant

T = TypeVar("T")
Group = Literal["manyview.methods", "manyview.protocols", "manyview.sources"]


@dataclass(frozen=True)
class Entry:
    """An object of another package, known by name and loaded on demand."""

    package: str
    summary: str  # the package in one line, in its own words
    points: tuple[metadata.EntryPoint, ...]  # more than one where packages claim the same name

    def load(self) -> Any:
        first, *others = self.points
        if others:
            values = ", ".join(point.value for point in self.points)
            raise UserError(f"{first.name!r} is registered in {first.group} more than once ({values}): remove one")
        try:
            return first.load()
        except Exception as error:  # anything may go wrong in somebody else's module
            raise UserError(
                f"the package {self.package} registers {first.name!r} in {first.group}, but {first.value} fails "
                f"to load ({type(error).__name__}: {error}): mend or remove the package"
            ) from error


@cache
def entry_points(group: Group) -> Mapping[str, Entry]:
    """The entries that installed packages register in this group, by name. Nothing of theirs is imported yet."""
    found: dict[str, Entry] = {}
    for point in sorted(metadata.entry_points(group=group), key=lambda each: (each.name, each.value)):
        known = found[point.name].points if point.name in found else ()
        package = point.dist.name if point.dist is not None else point.module
        summary = (point.dist.metadata["Summary"] if point.dist is not None else None) or f"of the package {package}"
        found[point.name] = Entry(package, summary, (*known, point))
    return found


class Declared(NamedTuple):
    """A class that a file of ours declares."""

    name: str
    description: str
    module: str
    kind: str


class Registry(Generic[T]):
    """The classes that assign `name` in the files of one room, and those that other packages register.

    The files are read, not imported. A class is described by its docstring, or by that of its `Config` where it has
    one. A name of ours cannot be taken by another package. `base` is the class of the room that all of them extend.
    """

    def __init__(self, package: str, folder: str, group: Group, base: str) -> None:
        self.package, self.folder, self.group, self.base = package, Path(folder), group, base
        self._own: dict[str, Declared] | None = None

    def described(self) -> dict[str, str]:
        """Every name with a description: ours, then those of other packages. Nothing is imported."""
        own, others = self.own(), entry_points(self.group)
        return {name: each.description for name, each in own.items()} | {
            name: entry.summary for name, entry in others.items() if name not in own
        }

    def find(self, name: str) -> type[T]:
        """The class of that name: only its own module is imported."""
        noun = self.group.removeprefix("manyview.").removesuffix("s")
        if (ours := self.own().get(name)) is not None:
            kind = getattr(importlib.import_module(ours.module), ours.kind)
        elif name in entry_points(self.group):
            kind = entry_points(self.group)[name].load()
        else:
            known = self.described()
            raise UserError(f"no {noun} {name!r}: choose one of {', '.join(known)}{meant(name, known)}")
        module, _, base = self.base.partition(".")
        parent = getattr(importlib.import_module(f"{self.package}.{module}"), base)
        if not (isinstance(kind, type) and issubclass(kind, parent) and getattr(kind, "name", None) == name):
            raise UserError(
                f"{kind!r} is registered as the {noun} {name!r}, but is no `{base}` of that name: mend or remove its "
                "package"
            )
        return kind

    def own(self) -> dict[str, Declared]:
        if self._own is None:
            listed = (each for path in self.folder.glob("*.py") for each in self._declared(path))
            self._own = {each.name: each for each in sorted(listed)}
        return self._own

    def _declared(self, path: Path) -> Iterator[Declared]:
        classes = {n.name: n for n in ast.parse(path.read_text("utf-8")).body if isinstance(n, ast.ClassDef)}
        for kind, node in classes.items():
            said = {ast.unparse(each.targets[0]): each.value for each in node.body if isinstance(each, ast.Assign)}
            if "name" in said:
                described = classes[ast.unparse(said["Config"])] if "Config" in said else node
                line = (ast.get_docstring(described) or "").partition("\n\n")[0]
                yield Declared(ast.literal_eval(said["name"]), line, f"{self.package}.{path.stem}", kind)
