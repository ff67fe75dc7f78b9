"""Samples of one group are no negatives of each other, wherever a method finds its negatives."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from stepping import QUEUE, N, batch, make, moved, value

from manyview.config import DataConfig, RunConfig
from manyview.data.source import Arrays
from manyview.methods import find
from manyview.methods.jcl import JCL, JCLConfig
from manyview.objectives import jcl, similarity
from manyview.run import presets
from manyview.run.build import build


class Frames(Arrays):
    """Sixty images, of which every five in a row are one video."""

    name = "frames"

    def __init__(self) -> None:
        self.arrays = {"image": torch.randint(0, 256, (60, 3, 16, 16), dtype=torch.uint8)}
        self.size, self.groups = (16, 16), torch.arange(60) // 5


def test_a_jcl_step_in_groups_is_algorithm_1_without_the_keys_of_the_group() -> None:
    method, b = moved(make(JCL, JCLConfig(queue_size=QUEUE, lam_schedule="constant"))), batch(6)
    groups = torch.arange(100) // 2
    method.know_groups(groups)
    method.step(b)
    method.after_step()
    q = method.encoder(b.images[0])
    k = torch.stack([method.keys.encoder(view) for view in b.images[1:]], 1)
    terms = []
    for i in range(N):
        kept = [j for j in range(QUEUE) if (o := int(method.queue.owner[j])) < 0 or groups[o] != groups[b.index[i]]]
        assert len(kept) == QUEUE - 2
        negatives = torch.stack([method.queue.keys[j] @ q[i] for j in kept]).unsqueeze(0)
        terms.append(jcl(similarity(q[i : i + 1], k[i : i + 1]), negatives, temperature=0.2, lam=4.0))
    assert value(method.step(b)["loss"]) == pytest.approx(value(torch.stack(terms).mean()), abs=1e-10)


@pytest.mark.parametrize("name", ["cacr", "cmc", "cmc-moco", "cmc-patch", "jcl", "predictive"])
def test_a_run_tells_its_method_the_groups_of_the_data(name: str, tmp_path: Path) -> None:
    kind, source, run = find(name), Frames(), RunConfig(out=tmp_path / "run", contrast_every=0)
    config = presets.small(kind, run, DataConfig(data="frames"), source, views=2)
    method = build(kind, replace(config, optim=replace(config.optim, batch_size=8)), source).method
    told = [each.get_buffer("groups") for each in method.modules() if hasattr(each, "know_groups")]
    assert len(told) == {"jcl": 2, "cmc": 3, "cmc-moco": 3}.get(name, 1)
    assert all(groups.tolist() == [number // 5 for number in range(60)] for groups in told)
    assert not any(key.endswith("groups") for key in method.state_dict())
