"""Two encoders side by side: the numbers against loops, and the page that shows them."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyview import counter
from manyview.data.source import Arrays
from manyview.encoders import Card, EncoderConfig, FrozenEncoder, build_encoder, load, save_backbone
from manyview.errors import UserError
from manyview.report import Versus, beside, write_report
from manyview.report.versus import agreement, common_share, compare

SIZE = 8


class Tinted(Arrays):
    """Noisy images whose colour is their class."""

    name, size, fingerprint, classes = "tinted", (SIZE, SIZE), "0", ("red", "green", "blue")

    def __init__(self, count: int = 40, *, labelled: bool = True) -> None:
        kinds = torch.arange(count) % 3
        noise = counter.uniform(1, torch.arange(count * 3 * SIZE**2)).view(count, 3, SIZE, SIZE)
        self.images = (255 * (0.4 * F.one_hot(kinds, 3)[..., None, None] + 0.6 * noise)).byte()
        self.arrays = {"image": self.images}
        self.labels = kinds if labelled else None


class Colours(nn.Module):
    """Mean colour: what the classes differ in."""

    num_features = 3

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))  # an encoder is where its parameters are

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x.mean((2, 3))


class Corners(Colours):
    """A corner's colour: mostly noise."""

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x[:, :, 0, 0]


def frozen(network: nn.Module, size: int = SIZE) -> FrozenEncoder:
    return FrozenEncoder(network, Card("tiny", "standard", "batch", size, (0.5,) * 3, (0.25,) * 3))


def page(tmp_path: Path, versus: Versus | None) -> str:
    (tmp_path / "config.json").write_text('{"method": "jcl"}')
    return write_report(tmp_path, versus=versus).read_text(encoding="utf-8")


def test_numbers_are_those_of_a_loop() -> None:
    first, second = (torch.stack([torch.randperm(9)[:4] for _ in range(9)]) for _ in range(2))
    labels = torch.arange(9) % 3
    common = [len(set(a) & set(b)) / 4 for a, b in zip(first.tolist(), second.tolist(), strict=True)]
    assert common_share(first, second) == pytest.approx(sum(common) / 9)
    found = agreement(labels, first, second)
    for share, rows in ((found.first, first), (found.second, second)):
        assert share == pytest.approx(sum(labels[j] == labels[i] for i in range(9) for j in rows[i]) / 36)
    assert found.interval[0] <= found.first - found.second <= found.interval[1]


def test_the_encoder_that_sees_what_labels_name_is_named(tmp_path: Path) -> None:
    found = compare(Tinted(), frozen(Corners()), frozen(Colours()), ("corners", "colours"), pool=30)
    assert found.agreement is not None
    assert found.agreement.second > 0.9 > found.agreement.first
    assert found.agreement.interval[1] < 0
    assert (found.pool, found.neighbours, found.by_chance) == (30, 5, 5 / 29)
    assert 0 < found.common < 0.6
    assert {pair[0].query.label for pair in found.pairs[:3]} == {"red", "green", "blue"}
    for first, second in found.pairs:
        assert first.query.name == second.query.name
        assert first.query.name not in {sample.name for sample in first.neighbours}
        assert len(first.neighbours) == len(second.neighbours) == 5
    text = page(tmp_path, found)
    assert "colours is better by" in text
    assert "Two encoders" in text
    assert "http://" not in text.replace("http://www.w3.org/", "")
    assert "https://" not in text


def test_the_same_encoder_twice_agrees_with_itself(tmp_path: Path) -> None:
    found = compare(Tinted(), frozen(Colours()), frozen(Colours()), ("one", "other"), queries=2)
    assert found.agreement is not None
    assert (found.common, found.agreement.interval) == (1.0, (0.0, 0.0))
    text = page(tmp_path, found)
    assert "There is no clear difference between the two" in text
    assert text.count(" both</figcaption>") == 2 * 2 * 5  # every neighbour of two queries, by either encoder


def test_encoders_of_different_sizes_are_compared_on_the_same_images() -> None:
    found = compare(Tinted(), frozen(Colours()), frozen(Colours(), size=24), ("small", "large"))
    assert found.common > 0.9  # the mean colour hardly depends on the size
    assert found.pool == 40


def test_without_labels_nobody_is_said_to_be_better(tmp_path: Path) -> None:
    found = compare(Tinted(labelled=False), frozen(Colours()), frozen(Corners()), ("a", "b"))
    assert found.agreement is None
    assert "neither encoder can be called better" in page(tmp_path, found)


def test_one_image_has_no_neighbours() -> None:
    with pytest.raises(UserError, match="--against needs two readable images, and tinted has 1"):
        compare(Tinted(1), frozen(Colours()), frozen(Corners()), ("a", "b"))


def test_a_page_without_another_encoder_has_no_such_section(tmp_path: Path) -> None:
    assert "Two encoders" not in page(tmp_path, None)


def finished_run(path: Path, *, fingerprint: str = "0", size: int = 16) -> Path:
    path.mkdir()
    facts = {"method": "jcl", "data": {"name": "tinted", "fingerprint": fingerprint}}
    (path / "config.json").write_text(json.dumps(facts))
    encoder = build_encoder(EncoderConfig(backbone="tiny"), image_size=size)
    save_backbone(path / "encoder.safetensors", encoder, image_size=size, mean=(0.5,) * 3, std=(0.25,) * 3)
    return path


def test_runs_are_called_by_method_data_and_place(tmp_path: Path) -> None:
    run, other = finished_run(tmp_path / "a"), finished_run(tmp_path / "b", size=24)
    found = beside(run, load(run), str(other), Tinted())
    assert found.names == (f"jcl on tinted ({run})", f"jcl on tinted ({other})")
    assert found.remark == ""
    elsewhere = beside(run, load(run), str(finished_run(tmp_path / "c", fingerprint="1")), Tinted())
    assert "The second was trained on other data" in elsewhere.remark
    file = beside(run, load(run), str(other / "encoder.safetensors"), Tinted())
    assert file.names[1] == str(other / "encoder.safetensors")
    assert "The training data of the second encoder is not known" in file.remark
    assert file.common == found.common


def test_what_cannot_be_compared_is_said_in_words(tmp_path: Path) -> None:
    run, empty = finished_run(tmp_path / "a"), tmp_path / "empty"
    empty.mkdir()
    for against, words in (
        (tmp_path / "none", "--against: .*none does not exist"),
        (empty, "--against: .*holds no encoder.safetensors and no checkpoint"),
        (run / "config.json", "--against: "),
        (run, "is the encoder of .* itself: name another run"),
        (run / "encoder.safetensors", "itself: name another run"),
    ):
        with pytest.raises(UserError, match=words):
            beside(run, load(run), str(against), Tinted())
    with pytest.raises(UserError, match=r"holds no encoder.safetensors and no checkpoint"):
        beside(empty, load(empty), str(run), Tinted())
