"""The loss of guessing, as the methods tell it, against that of encoders that have learnt nothing."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from stepping import QUEUE, N, batch, make, value

from manyview.methods import described, find

QUEUED: dict[str, Any] = {"queue_size": QUEUE, "queue_start": "empty"}
BANKED: dict[str, Any] = {"draw": 9, "bank_momentum": 0.0}
CONFIGS: dict[str, list[dict[str, Any]]] = {
    **{name: [{}, {"views": 3}] for name in ("cl", "cmc-aug", "simclr")},
    "hn-cl": [{}, {"views": 3}],
    "mv-infonce": [{}, {"same_view": False}],
    "pvc": [{}, {"mean": "arithmetic"}],
    **{name: [QUEUED] for name in ("jcl", "moco-v1", "moco-v2", "vanilla")},
    "hn-cl-moco": [QUEUED, {**QUEUED, "with_intra_batch": False, "views": 3}],
    "cmc": [BANKED, {**BANKED, "views": "rgb,yuv.Y", "graph": "core"}],
    **{name: [BANKED] for name in ("pirl", "cmc-pirl")},
    **{name: [QUEUED] for name in ("cmc-moco", "cmc-moco-pirl")},
}
SILENT = {"au-cl", "au-cl-moco", "cacr", "cacr-moco", "cmc-patch", "mv-dhel", "predictive"}


def loss_of(name: str, config: Any, noise: float) -> float:
    """In a step that follows those that fill queue or banks and change no weight; all images are one, up to noise."""
    kind, image = find(name), batch(1, step=-1).images[0, 0]
    method = make(kind, config)
    steps = (100 if hasattr(config, "draw") else QUEUE) // N  # a bank is left with no entry that was drawn
    with torch.no_grad():
        for step in range(steps + 1):
            b = batch(kind.view_count(config), step % steps)
            loss = method.step(replace(b, views={"image": image + noise * b.images}, step=step, steps=steps + 1))[
                "loss"
            ]
            method.after_step()
    return value(loss)


@pytest.mark.parametrize(("name", "flags"), [(name, flags) for name, each in CONFIGS.items() for flags in each])
def test_an_encoder_that_learnt_nothing_loses_by_chance(name: str, flags: dict[str, Any]) -> None:
    config = find(name).Config(**flags)
    chance = find(name).chance(config, N)
    assert chance is not None
    # Equal images cannot be told apart by any encoder, and an untrained one hardly tells apart what differs little.
    assert loss_of(name, config, noise=0.0) == pytest.approx(chance.loss, rel=1e-3)
    assert loss_of(name, config, noise=0.02) == pytest.approx(chance.loss, rel=0.1)


def test_who_has_no_such_level_says_nothing() -> None:
    assert SILENT | set(CONFIGS) == set(described())
    assert all(find(name).chance(find(name).Config(), N) is None for name in SILENT)
    nce = find("cmc").Config(contrast="nce")
    assert find("cmc").chance(nce, N) is None
