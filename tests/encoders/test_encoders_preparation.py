"""What else than tensors an encoder takes, prepared as an evaluation prepares it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from manyview.data import Folder
from manyview.encoders import EncoderConfig, FrozenEncoder, build_encoder
from manyview.evaluate.features import extract


def encoder(channels: int = 3, split: str | None = None) -> FrozenEncoder:
    torch.manual_seed(0)
    plain = build_encoder(EncoderConfig(backbone="tiny", split=split), image_size=32, in_channels=channels)
    return FrozenEncoder.of(plain, image_size=32, mean=[0.4] * channels, std=[0.2] * channels)


def pixels(height: int, width: int, *channels: int, dtype: str = "uint8") -> np.ndarray:
    return np.random.default_rng(height).integers(0, np.iinfo(dtype).max, (height, width, *channels), dtype=dtype)


def test_pil_images_have_the_features_that_an_evaluation_gives_their_files(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels(70, 100, 3)).save(tmp_path / "0.png")
    Image.fromarray(pixels(90, 60, 3)).save(tmp_path / "1.jpg", exif=exif)
    Image.fromarray(pixels(40, 50)).save(tmp_path / "2.png")
    network = encoder()
    expected = extract(network, Folder(tmp_path)).embeddings
    images = [Image.open(tmp_path / name) for name in ("0.png", "1.jpg", "2.png")]
    found = network(images)
    assert found.shape == (3, network.num_features)
    assert torch.allclose(found, expected, atol=1e-6)
    assert torch.allclose(network(images[1]), expected[1:2], atol=1e-6)
    assert torch.allclose(network(tuple(images[:2])), expected[:2], atol=1e-6)


def test_arrays_are_images_with_their_channels_last() -> None:
    network, array = encoder(), pixels(32, 32, 3)
    expected = network(torch.from_numpy(array).permute(2, 0, 1)[None])
    assert torch.equal(network(array), expected)
    assert torch.equal(network([array, array]), expected.expand(2, -1)) or torch.allclose(
        network([array, array]), expected.expand(2, -1), atol=1e-6
    )
    deep = array.astype(np.uint16) * 257
    assert torch.allclose(network(deep), expected, atol=1e-5)
    five = pixels(32, 32, 5, dtype="uint16")
    assert encoder(5)(five).shape == (1, 256)
    assert encoder(1)(five[..., 0]).shape == encoder(1)(array).shape == (1, 256)
    assert encoder(3, "lab")(Image.fromarray(array)).shape == (1, 512)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ("photo.jpg", "str"),
        (["photo.jpg"], "str"),
        (pixels(8, 8, 3) / 255, "float64"),
        (pixels(4, 8, 8, 3), "uint8"),
        (5, "int"),
    ],
)
def test_anything_else_is_refused_in_one_line_that_says_what_is_taken(given: object, kind: str) -> None:
    with pytest.raises(TypeError, match=r"tensors \(N, C, H, W\), PIL images, arrays .*, or a list") as caught:
        encoder()(given)
    assert kind in str(caught.value)
    assert "\n" not in str(caught.value)


def test_images_of_other_channels_are_refused() -> None:
    with pytest.raises(ValueError, match="takes images of 5 channels, not of 3"):
        encoder(5)(Image.fromarray(pixels(40, 40, 3)))
    with pytest.raises(ValueError, match="no image is given"):
        encoder()([])
