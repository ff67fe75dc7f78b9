"""Raw pixels as a baseline."""

import pytest
import torch

from manyview.encoders import Card, EncoderConfig, FrozenEncoder, build_encoder
from manyview.evaluate.pixels import pixels_for


@pytest.mark.parametrize(("size", "side"), [(96, 16), (224, 16), (8, 8)])
def test_pixels_are_the_averaged_image_that_the_encoder_sees(size: int, side: int) -> None:
    network = build_encoder(EncoderConfig(backbone="tiny")).backbone
    mean, std = (0.2, 0.3, 0.4), (0.5, 0.25, 0.125)
    pixels = pixels_for(FrozenEncoder(network, Card("tiny", "small", "batch", size, mean, std)))
    image = torch.rand(2, 3, size, size)
    found = pixels(image)
    assert found.shape == (2, pixels.num_features) == (2, 3 * side * side)
    cell = size // side
    averaged = image.view(2, 3, side, cell, side, cell).mean((3, 5))
    normal = (averaged - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    torch.testing.assert_close(found, normal.flatten(1))
