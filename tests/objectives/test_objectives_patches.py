"""The contrast of whole images with patches against a naive float64 loop, and closed forms."""

import math
from collections.abc import Sequence

import pytest
import torch
from drawn import draw_views
from torch import Tensor
from torch.nn.functional import normalize

from manyview.objectives import info_nce, patch_contrast, similarity

TAU = 0.2


def drawn(n: int = 4, d: int = 5, h: int = 2, w: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    local = torch.randn(n, d, h, w, dtype=torch.float64, generator=generator)
    return normalize(torch.randn(n, d, dtype=torch.float64, generator=generator)), normalize(local, dim=1)


def naive(global_features: Tensor, local_features: Tensor, owner: Sequence[int] = range(4)) -> Tensor:
    n, _, h, w = local_features.shape
    places = [(y, x) for y in range(h) for x in range(w)]

    def score(i: int, j: int, place: tuple[int, int]) -> float:
        return math.exp(float(global_features[i] @ local_features[j, :, place[0], place[1]]) / TAU)

    losses = []
    for i in range(n):
        rest = sum(score(i, j, place) for j in range(n) if owner[j] != owner[i] for place in places)
        terms = [-math.log(score(i, i, place) / (score(i, i, place) + rest)) for place in places]
        losses.append(sum(terms) / len(terms))
    return torch.tensor(losses, dtype=torch.float64)


def test_it_equals_the_loop() -> None:
    features, patches = drawn()
    got = patch_contrast(features, patches, temperature=TAU, reduction="none")
    assert (got - naive(features, patches)).abs().max() < 1e-10
    assert float(patch_contrast(features, patches, temperature=TAU)) == pytest.approx(float(got.mean()))


def test_patches_of_one_owner_are_never_each_others_negatives() -> None:
    features, patches = drawn()
    owner = [3, 1, 3, 0]
    got = patch_contrast(features, patches, temperature=TAU, owner=torch.tensor(owner), reduction="none")
    assert (got - naive(features, patches, owner)).abs().max() < 1e-10
    part = patch_contrast(
        features[1:3],
        patches[1:3],
        temperature=TAU,
        pool=patches,
        offset=1,
        owner=torch.tensor(owner),
        reduction="none",
    )
    assert torch.allclose(part, got[1:3], atol=1e-12)


def test_gradients_pass_gradcheck() -> None:
    features, patches = (x.requires_grad_() for x in drawn(n=3, d=3))
    assert torch.autograd.gradcheck(lambda g, p: patch_contrast(g, p, temperature=TAU), (features, patches))


def test_equal_patches_cost_log_of_the_number_of_choices() -> None:
    features, patches = torch.ones(4, 1), torch.ones(4, 1, 2, 3)
    assert float(patch_contrast(features, patches, temperature=TAU)) == pytest.approx(math.log(1 + 3 * 6), abs=1e-6)


def test_a_map_of_one_position_is_the_plain_contrast_of_two_views() -> None:
    a, b = draw_views(2, 6)
    scores = similarity(a, b)
    positives = scores.diagonal().unsqueeze(1).clone()
    expected = info_nce(positives, scores.fill_diagonal_(-torch.inf), temperature=TAU)
    assert torch.allclose(patch_contrast(a, b[:, :, None, None], temperature=TAU), expected, atol=1e-12)


def test_the_order_of_positions_does_not_matter() -> None:
    features, patches = drawn()
    turned = patch_contrast(features, patches.flip(2).transpose(2, 3), temperature=TAU)
    assert torch.allclose(patch_contrast(features, patches, temperature=TAU), turned, atol=1e-12)


def test_a_single_sample_has_nothing_to_contrast() -> None:
    features, patches = (x[:1].requires_grad_() for x in drawn())
    loss = patch_contrast(features, patches, temperature=TAU)
    loss.backward()
    assert float(loss.detach()) == 0
    assert features.grad is not None
    assert (features.grad == 0).all()


def test_parts_with_the_pool_of_all_give_the_whole() -> None:
    features, patches = drawn()
    parts = [
        patch_contrast(features[s], patches[s], temperature=TAU, pool=patches, offset=s.start, reduction="none")
        for s in (slice(0, 1), slice(1, 4))
    ]
    assert torch.allclose(torch.cat(parts), patch_contrast(features, patches, temperature=TAU, reduction="none"))
