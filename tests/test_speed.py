"""The hand-written fast parts against the plain way: only a gross loss of speed is noticed here, `make bench` measures.

CPU time of one thread, the best of several turns: other processes on the machine hardly touch it. In a process of their
own, as malloc takes even large matrices from what earlier tests have freed, and then those tests decide what a form
costs that needs many of them; and of more than 32 MiB, so that a process without such leavings maps each one anew.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize
from torchvision.transforms import v2

from manyview.encoders import EncoderConfig, Momentum, build_encoder
from manyview.objectives import cacr, jcl, similarity
from manyview.views import Augment, policy

Work = Callable[[], object]


def cpu_seconds(work: Work) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def times_faster(ours: Work, plain: Work, *, enough: float, turns: int = 5) -> float:
    """The ratio of the best times so far; ends as soon as it is `enough`, and tries longer before it is not."""
    ours(), plain()
    ratio, fast, slow = 0.0, float("inf"), float("inf")
    for turn in range(4 * turns):
        fast, slow = min(fast, cpu_seconds(ours)), min(slow, cpu_seconds(plain))
        ratio = slow / fast
        if turn + 1 >= turns and ratio >= enough:
            break
    return ratio


def settle() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def apart() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=settle) as executor:
        yield executor


def jcl_over_the_covariance_form(enough: float) -> float:
    n, m, d, k, tau, lam = 160, 5, 128, 65_536, 0.2, 4.0
    query = normalize(torch.randn(n, d), dim=-1).requires_grad_()
    keys, queue = normalize(torch.randn(n, m, d), dim=-1), normalize(torch.randn(k, d), dim=-1)

    def ours() -> None:
        jcl(similarity(query, keys), similarity(query, queue), temperature=tau, lam=lam).backward()

    def covariance() -> None:
        mean = keys.mean(1)
        centred = keys - mean.unsqueeze(1)
        sigma = torch.bmm(centred.mT, centred) / m
        near = (query * mean).sum(1, keepdim=True) / tau
        spread = torch.einsum("nd,nde,ne->n", query, sigma, query).unsqueeze(1) * lam / (2 * tau**2)
        logits = torch.cat([near + spread, query @ queue.clone().T / tau], 1)
        (cross_entropy(logits, torch.zeros(n, dtype=torch.long)) + spread.mean()).backward()

    return times_faster(ours, covariance, enough=enough)


def cacr_over_its_algorithm_as_printed(enough: float) -> float:
    n, m, d, k, t_pos, t_neg = 160, 4, 128, 65_536, 1.0, 2.0
    query = normalize(torch.randn(n, d), dim=-1).requires_grad_()
    keys, queue = normalize(torch.randn(m, n, d), dim=-1), normalize(torch.randn(k, d), dim=-1)

    def ours() -> None:
        cacr(similarity(query, keys.transpose(0, 1)), similarity(query, queue), t_pos=t_pos, t_neg=t_neg).backward()

    def printed() -> None:
        near = (query - keys).norm(dim=-1).pow(2).transpose(1, 0)
        with torch.no_grad():
            pull = torch.softmax(near.mul(t_pos), dim=1)
        far = 2 - 2 * torch.mm(query, queue.T)
        push = torch.softmax(far.mul(-t_neg), dim=1)
        ((near * pull).sum(1).mean() + (far.mul(-1.0) * push).sum(1).mean()).backward()

    return times_faster(ours, printed, enough=enough)


def the_momentum_update_over_a_loop(enough: float) -> float:
    encoder = build_encoder(EncoderConfig(backbone="resnet50"))
    keys, copy = Momentum(encoder, 0.999), Momentum(encoder, 0.999).encoder

    def loop() -> None:
        for key, query in zip(copy.parameters(), encoder.parameters(), strict=True):
            key.data = key.data * 0.999 + query.data * (1 - 0.999)

    return times_faster(lambda: keys.update(encoder), loop, enough=enough)


def views_of_a_batch_over_those_of_one_image_after_the_other(enough: float) -> float:
    n, size = 128, 32
    look = policy("moco-v2")
    augment = Augment(look, views=2, size=size, seed=0)
    images, index = torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8), torch.arange(n)
    one = v2.Compose(
        [
            v2.RandomResizedCrop(size, scale=look.scale, antialias=True),
            v2.RandomApply([v2.ColorJitter(look.brightness, look.contrast, look.saturation, look.hue)], p=look.jitter),
            v2.RandomGrayscale(p=look.grey),
            v2.RandomApply([v2.GaussianBlur(13, look.sigma)], p=look.blur),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(look.mean, look.std),
        ]
    )

    def image_by_image() -> None:
        torch.stack([one(image) for _ in range(2) for image in images])

    return times_faster(
        lambda: augment.apply({"image": images}, augment.plan(index, 0))["image"], image_by_image, enough=enough
    )


@pytest.mark.parametrize(
    ("ratio", "enough"),
    [
        (jcl_over_the_covariance_form, 1.2),
        (cacr_over_its_algorithm_as_printed, 1.2),
        (the_momentum_update_over_a_loop, 1.5),
        (views_of_a_batch_over_those_of_one_image_after_the_other, 5.0),
    ],
)
def test_ours_is_faster(apart: ProcessPoolExecutor, ratio: Callable[[float], float], enough: float) -> None:
    assert apart.submit(ratio, enough).result() >= enough
