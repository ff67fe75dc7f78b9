"""Online evaluation: kNN accuracy during training."""

from collections.abc import Sequence

from manyview.data.source import Source
from manyview.encoders import Encoder, FrozenEncoder
from manyview.evaluate.features import extract
from manyview.evaluate.knn import Knn, class_scores
from manyview.evaluate.score import share_right

__all__ = ["knn_accuracy"]


def knn_accuracy(
    encoder: Encoder,
    source: Source,
    test_source: Source,
    *,
    image_size: int,
    mean: Sequence[float],
    std: Sequence[float],
    protocol: Knn = Knn(),
    batch_size: int = 256,
    workers: int = 0,
) -> float:
    """Top-1 of kNN on a frozen copy: modes and statistics of `encoder` are not touched."""
    frozen = FrozenEncoder.of(encoder, image_size=image_size, mean=mean, std=std)
    train, test = (extract(frozen, each, batch_size=batch_size, workers=workers) for each in (source, test_source))
    return share_right(class_scores(train, test, protocol), test.labels)
