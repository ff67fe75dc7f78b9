"""The configuration of a run, read back from its files. A file may be edited, damaged or of another version."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from reprlib import repr as short
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from manyview import bounds
from manyview.config import AnyConfig, Config
from manyview.errors import UserError, naming
from manyview.methods import find
from manyview.methods.base import Method
from manyview.run.files import CONFIG, RENAMED, read_config


def saved_config(run: Path) -> tuple[type[Method], AnyConfig]:
    """Method and configuration of a run directory."""
    facts = read_config(run)
    if not isinstance(name := facts.get("method"), str):
        raise UserError(f"{run / CONFIG} names no method: restore it from a backup")
    with naming(str(run / CONFIG)):
        method = find(name)
    config = read_settings(method, facts.get("config"), run / CONFIG)
    return method, replace(config, run=replace(config.run, out=run))  # the directory may have been moved


def read_settings(method: type[Method], values: Any, path: Path) -> AnyConfig:
    """The configuration in plain JSON `values` of the file `path`. A setting that is newer than the file has its
    default."""
    try:
        config: AnyConfig = _dataclass(Config, {**get_type_hints(Config), "method": method.Config}, values, "config")
        bounds.check(config)
    except UserError as error:
        raise UserError(f"{path} cannot be used: {error}; restore it from a backup") from error
    return config


def _dataclass(kind: type[Any], hints: Mapping[str, Any], values: Any, name: str) -> Any:
    if not isinstance(values, dict):
        raise UserError(f"{name} is {short(values)} instead of settings by name")
    values = {RENAMED.get(key, key): value for key, value in values.items()}
    if unknown := values.keys() - hints.keys():
        raise UserError(f"{name} holds {short(min(unknown))}, which manyview does not know in this version")
    found = {}
    for field in fields(kind):
        if field.name in values:
            found[field.name] = _typed(hints[field.name], values[field.name], field.name)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise UserError(f"{name} lacks {field.name}")
    return kind(**found)


def _typed(kind: Any, value: Any, name: str) -> Any:
    """What the plain JSON `value` is as a `kind`."""
    origin, args = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(kind, type):
        return _dataclass(kind, get_type_hints(kind), value, name)
    if kind is float and type(value) in (int, float):
        with suppress(OverflowError):
            return float(value)
    if kind in (bool, int, str, NoneType) and type(value) is kind:
        return value
    if kind is Path and type(value) is str:
        return Path(value)
    if origin is Literal and any(type(value) is type(each) and value == each for each in args):
        return value
    if origin in (Union, UnionType):
        for each in args:
            with suppress(UserError):
                return _typed(each, value, name)
    if origin is tuple and type(value) is list:
        kinds = args[:1] * len(value) if args[1:] == (...,) else args
        if len(kinds) == len(value):
            return tuple(_typed(each, part, name) for each, part in zip(kinds, value, strict=True))
    expected = kind.__name__ if isinstance(kind, type) and not args else str(kind).replace("typing.", "")
    raise UserError(f"{name} is {short(value)} instead of {expected}")
