"""`python -m bench`: how much faster the hand-written parts are than the plain way, as ratios with their spread."""

import statistics
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.functional import normalize
from torchvision.transforms import v2

from manyview.encoders import EncoderConfig, Momentum, build_encoder
from manyview.objectives import jcl, similarity
from manyview.views import Augment, recipe

REPEATS = 7
Work = Callable[[], object]


def race(ours: Work, theirs: Work) -> list[float]:
    """How many times longer the other side takes, once per repeat, after a warm-up of both."""
    ours(), theirs()
    ratios = []
    for _ in range(REPEATS):
        times = []
        for side in (ours, theirs):
            start = time.perf_counter()
            side()
            times.append(time.perf_counter() - start)
        ratios.append(times[1] / times[0])
    return ratios


def objective() -> tuple[Work, Work]:
    n, m, d, k, tau, lam = 256, 5, 128, 65_536, 0.2, 4.0
    q = normalize(torch.randn(n, d), dim=1).requires_grad_()
    keys, queue = normalize(torch.randn(n, m, d), dim=2), normalize(torch.randn(k, d), dim=1)

    def ours() -> None:
        jcl(similarity(q, keys), similarity(q, queue), temperature=tau, lam=lam).backward()

    def covariance() -> None:
        """The algorithm box as printed: a D×D covariance per sample, logits joined, cross-entropy on top."""
        mean = keys.mean(1)
        centred = keys - mean.unsqueeze(1)
        sigma = torch.einsum("nmd,nme->nde", centred, centred) / m
        near = (q * mean).sum(1, keepdim=True) / tau
        spread = torch.einsum("nd,nde,ne->n", q, sigma, q).unsqueeze(1) * lam / (2 * tau**2)
        logits = torch.cat([near + spread, q @ queue.clone().T / tau], 1)
        (torch.logsumexp(logits, 1) - near.squeeze(1)).mean().backward()

    return ours, covariance


def momentum() -> tuple[Work, Work]:
    encoder = build_encoder(EncoderConfig(backbone="resnet50"))
    keys = Momentum(encoder, 0.999)
    pairs = list(zip(keys.encoder.parameters(), encoder.parameters(), strict=True))

    def loop() -> None:
        for key, query in pairs:
            key.data = key.data * 0.999 + query.data * (1 - 0.999)

    return lambda: keys.update(encoder), loop


def views() -> tuple[Work, Work]:
    n, size = 256, 32
    images = torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8)
    augment = Augment(recipe("moco-v2"), views=2, size=size, seed=0)
    index = torch.arange(n)
    one_by_one = v2.Compose(
        [
            v2.RandomResizedCrop(size, scale=(0.2, 1.0), antialias=True),
            v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8),
            v2.RandomGrayscale(p=0.2),
            v2.RandomApply([v2.GaussianBlur(13, (0.1, 2.0))], p=0.5),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(augment.recipe.mean, augment.recipe.std),
        ]
    )

    def theirs() -> Tensor:
        return torch.stack([one_by_one(image) for _ in range(2) for image in images])

    return lambda: augment.apply(images, augment.plan(index, 0)), theirs


RACES = {
    "jcl, forward and backward, N=256, D=128, M′=5, K=65,536": (objective, "the covariance form"),
    "momentum update, ResNet-50": (momentum, "a loop over the parameters"),
    "two moco-v2 views of 256 images of 32 px": (views, "torchvision's transforms, image by image"),
}


def main() -> None:
    torch.manual_seed(0)
    table = Table("what", "against", "times faster (least – most)")
    for name, (make, other) in RACES.items():
        ratios = race(*make())
        spread = f"{statistics.median(ratios):.1f} ({min(ratios):.1f} – {max(ratios):.1f})"
        table.add_row(name, other, spread)
    console = Console()
    console.print(table)
    console.print(f"median of {REPEATS} alternating repeats, {torch.get_num_threads()} threads")


if __name__ == "__main__":
    main()
