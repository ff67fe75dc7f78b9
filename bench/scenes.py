"""`python -m bench.scenes`: how hard `scenes` is, from raw pixels over a random encoder to a supervised one."""

import argparse
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from manyview.data import Loader, Source, open_source
from manyview.encoders import Encoder, EncoderConfig, FrozenEncoder, build_encoder
from manyview.evaluate.features import Features, extract
from manyview.evaluate.knn import Knn
from manyview.train import trainable
from manyview.views import Augment, Policy

LIGHT = Policy(scale=(0.6, 1.0), jitter=0.0, grey=0.0)  # crops and flips only


def pixels(source: Source) -> Features:
    index = torch.arange(len(source))
    images = source.batch(index)["image"].flatten(1).float() / 255
    assert source.labels is not None
    return Features(images - images.mean(1, keepdim=True), source.labels, index, preprocess="raw pixels")


def frozen(encoder: Encoder) -> FrozenEncoder:
    return FrozenEncoder.of(encoder, image_size=32, mean=LIGHT.mean, std=LIGHT.std)


def supervised(train: Source, test: Source, *, epochs: int, seed: int) -> float:
    """Test accuracy of `tiny` trained with labels, after the last epoch."""
    torch.manual_seed(seed)
    encoder = build_encoder(EncoderConfig(backbone="tiny"))
    model = nn.Sequential(encoder.backbone, nn.Linear(encoder.num_features, len(train.classes)))
    augment = Augment(LIGHT, views=1, size=32, seed=seed)
    loader = Loader(train, batch_size=128, seed=seed, stop=0)
    loader.stop = epochs * loader.steps_per_epoch
    optimizer = torch.optim.SGD(trainable(model), 0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=loader.stop, pct_start=0.2)
    assert train.labels is not None
    assert test.labels is not None
    for batch in loader:
        views = augment.apply(batch.fields, augment.plan(batch.index, batch.epoch))["image"][0]
        loss = cross_entropy(model(views), train.labels[batch.index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    features = extract(frozen(encoder), test).embeddings
    with torch.no_grad():
        guesses: Tensor = model[1](features).argmax(1)
    return float((guesses == test.labels).double().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10, help="of the supervised training")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    train, test = open_source("scenes"), open_source("scenes", split="test")
    torch.manual_seed(args.seed)
    random = frozen(build_encoder(EncoderConfig(backbone="tiny")))
    table = Table("on scenes", "test accuracy", "seconds")
    measures: dict[str, Callable[[], float]] = {
        "kNN on pixels (k = 200)": lambda: Knn().score(pixels(train), pixels(test)).value,
        "kNN on pixels (k = 20)": lambda: Knn(20).score(pixels(train), pixels(test)).value,
        "kNN on a random `tiny` (k = 200)": lambda: Knn().score(extract(random, train), extract(random, test)).value,
        f"`tiny`, supervised, {args.epochs} epochs": lambda: supervised(
            train, test, epochs=args.epochs, seed=args.seed
        ),
    }
    for name, measure in measures.items():
        start = time.perf_counter()
        accuracy = measure()
        table.add_row(name, f"{accuracy:.1%}", f"{time.perf_counter() - start:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
