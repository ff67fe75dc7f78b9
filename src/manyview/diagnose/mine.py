"""Mutual information of two views by MINE, a small network that is trained to estimate it."""

import math

import torch
from torch import Tensor, nn

from manyview import counter

_TAG = 0x6D696E65  # "mine": keeps these draws apart from everybody else's
_SHIFTS = 32  # of the samples held out, for the marginals of the last estimate


def estimate_mutual_information(
    x: Tensor,
    y: Tensor,
    *,
    seed: int,
    steps: int = 2000,
    batch_size: int = 256,
    hidden: int = 128,
    lr: float = 1e-3,
    decay: float = 0.99,
    held_out: float = 0.25,
) -> float:
    r"""The mutual information of `x` (N, …) and `y` (N, …) in nats, by MINE (Belghazi et al. 2018):

    $$I(x;y)\ge\max_T\;\mathrm{mean}_{p(x,y)}T(x,y)-\log\mathrm{mean}_{p(x)p(y)}e^{T(x,y)}$$

    The critic T is an MLP with two layers of `hidden` units. The gradient of the logarithm divides by a moving average
    (`decay`) of the mean of $e^T$: that of a small batch would bias it. What is returned is the bound on the share
    `held_out` of the samples, which the critic never saw: memorised pairs are no information.
    """
    if len(x) != len(y):
        raise ValueError(f"x and y are pairs, not {len(x)} and {len(y)} samples")
    kept = round((1 - held_out) * len(x))
    if not 2 <= kept <= len(x) - 2:
        raise ValueError(f"of {len(x)} samples, held_out {held_out} leaves too few to learn from or to judge by")
    order = counter.permutation(len(x), seed, _TAG).to(x.device)
    x, y = (_standardised(each[order].flatten(1).float(), kept) for each in (x, y))
    critic = _critic(x.shape[1] + y.shape[1], hidden, seed).to(x.device)
    optimizer = torch.optim.Adam(critic.parameters(), lr=lr)
    draws = torch.arange(2 * batch_size).view(2, -1)
    log_average: Tensor | None = None
    for step in range(steps):
        # x and y of one draw follow the joint distribution, those of two independent draws the marginals.
        one, other = (counter.bits(seed, _TAG, step, draws) % kept).to(x.device)
        log_mean = _log_mean_exp(critic(torch.cat([x[one], y[other]], 1)))
        now = log_mean.detach()
        if log_average is None:
            log_average = now
        log_average = torch.logaddexp(log_average + math.log(decay), now + math.log1p(-decay))
        # The gradient of e^(log mean - log average) is that of mean e^T over its average.
        loss = (log_mean - log_average).exp() - critic(torch.cat([x[one], y[one]], 1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return _bound(critic, x[kept:], y[kept:])


@torch.no_grad()
def _bound(critic: nn.Module, x: Tensor, y: Tensor) -> float:
    """The marginals are each x with the y of others, which shifts of the (shuffled) samples pair."""
    shifts = range(1, min(len(x), _SHIFTS + 1))
    marginals = torch.cat([critic(torch.cat([x, y.roll(shift, 0)], 1)) for shift in shifts])
    return float(critic(torch.cat([x, y], 1)).mean() - _log_mean_exp(marginals))


def _critic(inputs: int, hidden: int, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):  # a diagnostic leaves the run's random state alone
        torch.default_generator.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1)
        )


def _log_mean_exp(values: Tensor) -> Tensor:
    return values.flatten().logsumexp(0) - math.log(values.numel())


def _standardised(x: Tensor, kept: int) -> Tensor:
    """Information does not depend on the scale, training does. A constant dimension stays at 0."""
    spread = x[:kept].std(0)
    return (x - x[:kept].mean(0)) / spread.where(spread > 0, 1.0)
