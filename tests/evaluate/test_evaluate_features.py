"""Features of a whole source: which samples, prepared how, by an encoder that nothing may change."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torchvision.transforms.v2 import functional as TF

from manyview import counter
from manyview.data.source import Arrays, Source, Unreadable
from manyview.encoders import Card, EncoderConfig, FrozenEncoder, build_backbone, build_encoder
from manyview.encoders.preparation import Preparation
from manyview.errors import UserError
from manyview.evaluate import features as features_module
from manyview.evaluate.features import extract, extract_all, probe_features
from manyview.evaluate.knn import Knn, knn_accuracy

torch.set_num_threads(1)
MEAN, STD = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)


class Memory(Arrays):
    """Random images of one size; with labels, the colour tells the class."""

    def __init__(self, count: int, side: int = 8, classes: int = 0, seed: int = 0) -> None:
        self.name, self.size, self.fingerprint = "memory", (side, side), f"memory-{seed}"
        noise = counter.uniform(seed, torch.arange(count * 3 * side * side)).view(count, 3, side, side)
        if classes:
            self.labels = torch.arange(count) % classes
            self.classes = tuple(f"class {number}" for number in range(classes))
            noise = 0.4 * noise + 0.6 * torch.eye(3)[self.labels % 3].view(-1, 3, 1, 1)
        self.images = (noise * 255).to(torch.uint8)
        self.arrays = {"image": self.images}


class Mixed(Source):
    """Images of several sizes, some of them broken."""

    size = None

    def __init__(self, sizes: list[tuple[int, int]], broken: set[int]) -> None:
        self.name, self.fingerprint = "mixed", "mixed"
        self.labels, self.classes = torch.arange(len(sizes)) % 2, ("cat", "dög")
        self.broken = broken
        self.images = [
            (counter.uniform(7, number, torch.arange(3 * height * width)) * 255).to(torch.uint8).view(3, height, width)
            for number, (height, width) in enumerate(sizes)
        ]

    def __len__(self) -> int:
        return len(self.images)

    def id(self, index: int) -> str:
        return f"{self.classes[index % 2]}/{index}.png"

    def read(self, index: int) -> dict[str, Tensor]:
        if index in self.broken:
            raise Unreadable("broken on purpose")
        return {"image": self.images[index]}


class Flat(nn.Module):
    """Pixels as features; counts its batches in a buffer if asked to."""

    seen: Tensor

    def __init__(self, size: int, counts: bool = False) -> None:
        super().__init__()
        self.num_features = 3 * size * size
        self.counts = counts
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.counts:
            self.seen += 1
        return self.scale * x.flatten(1)


def frozen(backbone: nn.Module, size: int) -> FrozenEncoder:
    return FrozenEncoder(backbone, Card("tiny", "standard", "batch", size, MEAN, STD))


def pixels(size: int) -> FrozenEncoder:
    return frozen(Flat(size), size)


def test_features_come_in_the_order_of_the_source_whatever_the_batches() -> None:
    source = Memory(23, classes=3)
    for batch_size in (1, 7, 256):
        features = extract(pixels(8), source, batch_size=batch_size)
        torch.testing.assert_close(features.embeddings, source.images.flatten(1) / 255)
        assert features.embeddings.dtype == torch.float32
        assert source.labels is not None
        assert torch.equal(features.labels, source.labels)
        assert features.index.tolist() == list(range(23))
        assert features.preprocess == "8×8 as stored"


def test_unreadable_images_are_left_out_and_counted() -> None:
    source = Mixed([(8, 8)] * 7, broken={0, 3, 6})
    features = extract(pixels(8), source, batch_size=3)
    assert features.unreadable == (0, 3, 6)
    assert features.index.tolist() == [1, 2, 4, 5]
    assert features.labels.tolist() == [1, 0, 0, 1]
    torch.testing.assert_close(features.embeddings[2], source.images[4].flatten() / 255)


def test_worker_processes_give_the_same_features() -> None:
    source = Mixed([(20, 30), (8, 8), (9, 40), (31, 8), (16, 16)], broken={2})
    here, there = (extract(pixels(8), source, batch_size=2, workers=workers) for workers in (0, 2))
    assert torch.equal(here.embeddings, there.embeddings)
    assert here.unreadable == there.unreadable == (2,)


def test_an_empty_batch_names_the_flag() -> None:
    with pytest.raises(UserError, match="--images-per-pass 256"):
        extract(pixels(8), Memory(3), batch_size=0)


def test_nothing_readable_is_an_error() -> None:
    with pytest.raises(UserError, match="not one of the 2 images of mixed can be read"):
        extract(pixels(8), Mixed([(8, 8)] * 2, broken={0, 1}))


def test_features_that_are_not_finite_are_an_error() -> None:
    class Broken(Flat):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) / 0

    with pytest.raises(UserError, match="not finite"):
        extract(frozen(Broken(8), 8), Memory(3))


def test_photographs_are_resized_by_their_shorter_side_and_cropped_in_the_middle() -> None:
    source = Mixed([(300, 400), (500, 260), (224, 224)], broken=set())
    prepare = Preparation(source.size, 224)
    assert str(prepare) == "shorter side resized to 256, centre crop 224×224 (224×224 as stored)"
    for image in source.images[:2]:
        expected = TF.center_crop(TF.resize(image, [256], antialias=True), [224, 224])
        assert torch.equal(prepare({"image": image[None]})["image"][0], expected)
    assert torch.equal(prepare({"image": source.images[2][None]})["image"][0], source.images[2])


def test_small_images_of_one_other_size_are_resized_whole() -> None:
    prepare = Preparation((96, 96), 64)
    assert str(prepare) == "resized from 96×96 to 64×64"
    image = Memory(2, side=96).images
    assert torch.equal(prepare({"image": image})["image"], TF.resize(image, [64, 64], antialias=True))
    assert str(Preparation((480, 640), 224)) == "shorter side resized to 256, centre crop 224×224"


def test_a_thin_strip_is_not_enlarged_beyond_reason() -> None:
    strip = torch.zeros(1, 3, 1, 1_000_000, dtype=torch.uint8)
    assert Preparation(None, 224)({"image": strip})["image"].shape == (1, 3, 224, 224)


def test_training_mode_is_refused() -> None:
    encoder = pixels(8)
    encoder.backbone.train()
    with pytest.raises(RuntimeError, match="training mode"):
        extract(encoder, Memory(3))


def test_an_encoder_that_changes_itself_is_caught() -> None:
    with pytest.raises(RuntimeError, match="changed while it was evaluated"):
        extract(frozen(Flat(8, counts=True), 8), Memory(3))


def test_a_look_during_training_leaves_modes_and_statistics_alone() -> None:
    torch.manual_seed(0)
    encoder = build_encoder(EncoderConfig(backbone="tiny")).train()
    encoder.head.eval()  # a part that its owner has frozen
    modes = [module.training for module in encoder.modules()]
    state = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    train, test = Memory(60, side=16, classes=3, seed=1), Memory(30, side=16, classes=3, seed=2)
    copy = FrozenEncoder.of(encoder, image_size=16, mean=MEAN, std=STD)
    assert (
        knn_accuracy(copy, train, test, protocol=Knn(5))
        == Knn(5).score(extract(copy, train), extract(copy, test)).value
        > 0.9
    )
    assert [module.training for module in encoder.modules()] == modes
    assert all(torch.equal(tensor, state[name]) for name, tensor in encoder.state_dict().items())
    assert all(parameter.requires_grad for parameter in encoder.parameters())


def alexnet() -> FrozenEncoder:
    torch.manual_seed(0)
    backbone = build_backbone("alexnet-half-small", image_size=16)
    return FrozenEncoder(backbone, Card("alexnet-half-small", "standard", "batch", 16, MEAN, STD))


@pytest.mark.parametrize("in_memory", [2**30, 0])
def test_one_pass_gives_all_layers(in_memory: int, monkeypatch: pytest.MonkeyPatch, private_cache: Path) -> None:
    monkeypatch.setattr(features_module, "IN_MEMORY", in_memory)
    encoder, source = alexnet(), Mixed([(16, 16)] * 7, broken={0, 3})
    passes: list[int] = []
    encoder.backbone.register_forward_hook(lambda module, inputs, output: passes.append(len(output)))
    before = set(private_cache.iterdir())
    (found,) = extract_all([encoder], source, ["conv2", "fc7", "conv1"], batch_size=3)
    assert passes == [2, 2, 1]
    assert list(found) == ["conv2", "fc7", "conv1"]
    images = torch.stack([source.images[number] for number in (1, 2, 4, 5, 6)])
    maps = encoder.layers(images, ["conv1", "conv2"])
    for name, features in found.items():
        expected = encoder(images) if name == "fc7" else probe_features(maps[name])
        torch.testing.assert_close(features.embeddings, expected)
        assert (features.index.tolist(), features.unreadable) == ([1, 2, 4, 5, 6], (0, 3))
        assert features.labels.tolist() == [1, 0, 0, 1, 0]
    assert set(private_cache.iterdir()) == before  # files without a name


def test_a_disk_without_room_is_a_users_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, rows: object) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(features_module, "IN_MEMORY", 0)
    monkeypatch.setattr("manyview.evaluate.features.tempfile.TemporaryFile", lambda dir: Full())
    with pytest.raises(UserError, match=r"\(No space left on device\): set MANYVIEW_CACHE .* or ask for fewer"):
        extract_all([alexnet()], Memory(3, side=16), ["conv1"])


@pytest.mark.parametrize(
    ("channels", "side", "grid"),
    [
        (96, 27, 10),  # AlexNet's layers behind their poolings, on the grids of CMC's code
        (256, 13, 6),
        (384, 13, 5),
        (256, 6, 6),
        (192, 15, 7),  # both halves of Table 10
        (2048, 7, 2),
        (10_000, 3, 1),
        (16, 5, 5),  # nothing is enlarged
    ],
)
def test_maps_become_about_nine_thousand_features(channels: int, side: int, grid: int) -> None:
    maps = torch.rand(2, channels, side, side)
    found = probe_features(maps)
    assert found.shape == (2, channels * grid**2)
    edges = [(i * side // grid, -(-(i + 1) * side // grid)) for i in range(grid)]
    loop = [[maps[:, :, a:b, c:d].amax((2, 3)) for c, d in edges] for a, b in edges]
    assert torch.equal(found, torch.stack([torch.stack(row, -1) for row in loop], -2).flatten(1))


@pytest.mark.parametrize(("name", "size"), [("alexnet-small", 64), ("alexnet-half", 224)])
def test_conv5_is_probed_as_pool5_leaves_it(name: str, size: int) -> None:
    backbone = build_backbone(name, image_size=size).eval()
    encoder = FrozenEncoder(backbone, Card(name, "standard", "batch", size, MEAN, STD))
    found = encoder.layers(torch.rand(1, 3, size, size), ["conv5", "pool5"])
    both = [torch.cat([found[layer]] * (2 if name == "alexnet-half" else 1), 1) for layer in ("conv5", "pool5")]
    assert torch.equal(probe_features(both[0]), both[1].flatten(1))


def test_tokens_are_averaged_and_vectors_copied() -> None:
    tokens, vectors = torch.rand(2, 5, 7), torch.rand(2, 7)
    assert torch.equal(probe_features(tokens), tokens.mean(1))
    found = probe_features(vectors)
    assert torch.equal(found, vectors)
    assert found.data_ptr() != vectors.data_ptr()


def test_an_encoder_of_other_channels_says_so() -> None:
    encoder = FrozenEncoder(build_backbone("tiny", in_channels=1), Card("tiny", "standard", "batch", 8, (0,), (1,)))
    with pytest.raises(UserError, match="takes 1 channels, not the 3 of memory's images"):
        extract(encoder, Memory(3))


def test_features_know_the_groups_of_their_samples() -> None:
    source = Mixed([(8, 8)] * 5, broken={1})
    source.groups = torch.tensor([7, 7, 8, 8, 9])
    groups = extract(pixels(8), source).groups
    assert groups is not None
    assert groups.tolist() == [7, 8, 8, 9]
    assert extract(pixels(8), Memory(3)).groups is None


@pytest.mark.parametrize("shape", [(40, 60), (60, 40), (96, 96), (3, 500)])
def test_depth_is_picked_and_not_mixed(shape: tuple[int, int]) -> None:
    depth = torch.randint(0, 65536, (2, 1, *shape)).to(torch.uint16)
    for stored in (shape, None):
        found = Preparation(stored, 32)({"depth": depth})["depth"]
        assert found.dtype == torch.uint16
        assert found.shape == (2, 1, 32, 32)
        assert set(found.flatten().tolist()) <= set(depth.flatten().tolist())


@pytest.mark.parametrize("in_memory", [True, False])
def test_several_encoders_in_one_pass_have_the_features_that_each_has_alone(
    in_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may take images of other sizes; some images are broken, and all are read once."""
    if not in_memory:
        monkeypatch.setattr(features_module, "IN_MEMORY", 0)
    encoders = [pixels(size) for size in (8, 12, 8)]
    source, reads = Mixed([(9, 14), (30, 20), (8, 8), (16, 40), (12, 12)], broken={1}), list[int]()
    read = source.read

    def counting(index: int) -> dict[str, Tensor]:
        reads.append(index)
        return read(index)

    monkeypatch.setattr(source, "read", counting)
    together = extract_all(encoders, source, batch_size=2)
    assert sorted(reads) == list(range(5))
    for encoder, found in zip(encoders, together, strict=True):
        alone = extract(encoder, source, batch_size=3)
        assert torch.equal(found[""].embeddings, alone.embeddings)
        assert found[""].index.tolist() == alone.index.tolist() == [0, 2, 3, 4]
        assert found[""].preprocess == alone.preprocess
    assert together[0][""].embeddings.shape != together[1][""].embeddings.shape
