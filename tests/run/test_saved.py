"""A saved configuration comes back as it was, and a damaged one is refused in one line."""

import json
import random
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from manyview.config import AnyConfig, Config, DataConfig, OptimConfig, RunConfig, plain
from manyview.encoders import EncoderConfig
from manyview.errors import UserError
from manyview.methods import described, find
from manyview.run import presets
from manyview.run.flags import file_flags
from manyview.run.saved import read_settings, saved_config


def config_of(name: str, run: Path) -> AnyConfig:
    return presets.paper(find(name), RunConfig(out=run), DataConfig(data="scenes"))


def write(run: Path, name: str, config: AnyConfig) -> dict[str, Any]:
    facts = {"method": name, "version": "0.1.0", "config": plain(config)}
    (run / "config.json").write_text(json.dumps(facts, indent=2))
    return facts


@pytest.mark.parametrize("name", described())
def test_what_was_written_is_read(name: str, tmp_path: Path) -> None:
    config = config_of(name, tmp_path)
    write(tmp_path, name, config)
    assert saved_config(tmp_path) == (find(name), config)


def test_every_kind_of_value_is_read(tmp_path: Path) -> None:
    config = replace(
        config_of("jcl", tmp_path),
        run=RunConfig(out=tmp_path, config=Path("my.toml"), compile=True, contrast_data="photos/"),
        data=DataConfig(data="scenes", subset=3, imbalance="linear"),
        encoder=EncoderConfig(split="lab,depth"),
        optim=OptimConfig(clip_grad=1.5, milestones=(), max_steps=7),
    )
    write(tmp_path, "jcl", config)
    assert saved_config(tmp_path)[1] == config


def test_a_moved_run_is_read_where_it_lies(tmp_path: Path) -> None:
    write(tmp_path, "jcl", config_of("jcl", Path("elsewhere")))
    assert saved_config(tmp_path)[1].run.out == tmp_path


def test_settings_that_had_another_name_are_read(tmp_path: Path) -> None:
    values = plain(config_of("jcl", tmp_path))
    del values["run"]["contrast_every"], values["run"]["contrast_data"], values["run"]["contrast_t_neg"]
    values["run"] |= {"watch_every": 3, "watch_data": "photos/", "watch_t_neg": 1.5}
    run = read_settings(find("jcl"), values, tmp_path).run
    assert (run.contrast_every, run.contrast_data, run.contrast_t_neg) == (3, "photos/", 1.5)
    (tmp_path / "config.json").write_text(json.dumps({"method": "jcl", "config": values}))
    assert "--contrast-every" in file_flags(tmp_path / "config.json")


def test_a_setting_newer_than_the_file_has_its_default(tmp_path: Path) -> None:
    values = plain(config_of("jcl", tmp_path))
    del values["optim"]["accumulate"], values["views"], values["method"]["keys"]
    config = read_settings(find("jcl"), values, tmp_path)
    assert (config.optim.accumulate, config.method.keys) == (1, 5)
    assert config.views == Config(None, config.run, config.data).views


@pytest.mark.parametrize(
    ("group", "name", "value", "message"),
    [
        ("optim", "lr", "fast", "lr is 'fast' instead of float"),
        ("optim", "lr", True, "lr is True instead of float"),
        ("optim", "lr", -1, "--lr -1 must be greater than 0"),
        ("optim", "lr", 10**400, "lr is 1"),
        ("optim", "batch_size", 2.5, "batch_size is 2.5 instead of int"),
        ("optim", "epochs", None, "epochs is None instead of int"),
        ("optim", "max_steps", "7", "max_steps is '7' instead of int | None"),
        ("optim", "optimizer", "sdg", "optimizer is 'sdg' instead of Literal['sgd', 'adamw', 'adam', 'lars']"),
        ("optim", "milestones", [0.5, "x"], "milestones is 'x' instead of float"),
        ("optim", "milestones", 0.5, "milestones is 0.5 instead of tuple[float, ...]"),
        ("run", "compile", 1, "compile is 1 instead of bool"),
        ("run", "config", 3, "config is 3 instead of pathlib.Path | None"),
        ("encoder", "backbone", [], "backbone is [] instead of str"),
        ("views", "colour", 1, "views holds 'colour', which manyview does not know in this version"),
    ],
)
def test_a_wrong_value_is_named(group: str, name: str, value: Any, message: str, tmp_path: Path) -> None:
    facts = write(tmp_path, "jcl", config_of("jcl", tmp_path))
    facts["config"][group][name] = value
    (tmp_path / "config.json").write_text(json.dumps(facts))
    with pytest.raises(UserError) as error:
        saved_config(tmp_path)
    assert message in str(error.value)
    assert str(tmp_path / "config.json") in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "names no method"),
        ('{"method": ["jcl"]}', "names no method"),
        ('{"method": "jlc"}', "no method 'jlc'"),
        ('{"method": "jcl"}', "config is None instead of settings by name"),
        ('{"method": "jcl", "config": {}}', "config lacks method"),
        ('{"method": "jcl", "config": {"method": {}, "run": {}}}', "run lacks out"),
        ("[" * 100_000, "cannot be read"),
        ("[1]", "is not the config.json of a run"),
    ],
)
def test_a_damaged_file_is_refused(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match=message):
        saved_config(tmp_path)


def damaged(text: str, draw: random.Random) -> Iterator[bytes]:
    """Files of a disk, an editor or a stranger: bytes changed, and values that are not what they were."""
    values: list[Any] = [None, True, -1, 0, 1e400, float("nan"), 10**400, "", "x", "\ud800", [], [[]], {}, {"lr": {}}]
    for _ in range(300):
        content, place = bytearray(text.encode()), draw.randrange(len(text))
        length = draw.choice([1, 1, 10, 1000])
        content[place : place + length] = draw.choice([b"", draw.randbytes(length)])
        yield bytes(content)
    for _ in range(300):
        facts = json.loads(text)
        holder: Any = facts
        while isinstance(inner := holder[key := draw.choice(list(holder))], dict) and inner and draw.random() < 0.8:
            holder = inner
        if draw.random() < 0.2:
            holder[draw.choice(["", "lr", "\ud800", "split"])] = holder.pop(key)
        else:
            holder[key] = draw.choice(values)
        yield json.dumps(facts).encode()


def test_nothing_but_a_users_error_comes_of_damage(tmp_path: Path) -> None:
    write(tmp_path, "cmc", config_of("cmc", tmp_path))
    text, refused = (tmp_path / "config.json").read_text(), list[str]()
    for content in damaged(text, random.Random(0)):
        (tmp_path / "config.json").write_bytes(content)
        try:
            method, config = saved_config(tmp_path)
        except UserError as error:
            refused.append(str(error))
        else:
            assert isinstance(config.method, method.Config)
            assert all(type(getattr(config, field.name)).__name__.endswith("Config") for field in fields(config))
    assert len(refused) > 300
    assert "\n" not in "".join(refused).encode().decode()  # one line each, which can be printed
