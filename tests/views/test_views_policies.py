"""The papers' numbers."""

from dataclasses import replace

import pytest

from manyview.errors import UserError
from manyview.views import POLICIES, policy


def test_the_names_that_a_user_can_choose() -> None:
    assert list(POLICIES) == ["moco-v1", "moco-v2", "simclr", "cmc", "cifar", "cifar100", "stl10"]


@pytest.mark.parametrize(
    ("name", "scale", "jitter", "strengths", "grey_first", "blur"),
    [
        ("moco-v1", (0.2, 1.0), 1.0, (0.4, 0.4, 0.4, 0.4), True, 0.0),
        ("moco-v2", (0.2, 1.0), 0.8, (0.4, 0.4, 0.4, 0.1), False, 0.5),
        ("simclr", (0.08, 1.0), 0.8, (0.8, 0.8, 0.8, 0.2), False, 0.5),
        ("cifar", (0.2, 1.0), 1.0, (0.4, 0.4, 0.4, 0.4), False, 0.0),
        ("cifar100", (0.2, 1.0), 1.0, (0.4, 0.4, 0.4, 0.4), False, 0.0),
        ("stl10", (0.08, 1.0), 1.0, (0.4, 0.4, 0.4, 0.4), False, 0.0),
    ],
)
def test_a_recipe_holds_the_numbers_of_its_paper(
    name: str,
    scale: tuple[float, float],
    jitter: float,
    strengths: tuple[float, float, float, float],
    grey_first: bool,
    blur: float,
) -> None:
    chosen = policy(name)
    assert (chosen.scale, chosen.jitter) == (scale, jitter)
    assert (chosen.brightness, chosen.contrast, chosen.saturation, chosen.hue) == strengths
    assert (chosen.grey, chosen.grey_first, chosen.flip) == (0.2, grey_first, 0.5)
    assert (chosen.blur, chosen.sigma, chosen.solarise) == (blur, (0.1, 2.0), 0.0)


@pytest.mark.parametrize(
    ("name", "mean", "std"),
    [
        ("moco-v2", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ("cifar", (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
        ("cifar100", (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
        ("stl10", (0.4409, 0.4279, 0.3868), (0.2683, 0.2610, 0.2687)),
    ],
)
def test_a_recipe_normalises_as_its_data_set_does(
    name: str, mean: tuple[float, float, float], std: tuple[float, float, float]
) -> None:
    assert (policy(name).mean, policy(name).std) == (mean, std)


def test_an_unknown_name_says_which_flag_and_which_choices() -> None:
    with pytest.raises(UserError, match=r"--augment moco-v9 .*moco-v1, moco-v2, simclr, cmc, cifar, cifar100, stl10"):
        policy("moco-v9")


def test_the_smallest_crop_can_be_chosen() -> None:
    assert policy("moco-v2", min_crop=0.5) == replace(policy("moco-v2"), scale=(0.5, 1.0))
    with pytest.raises(UserError, match=r"--min-crop 0.0 must lie above 0 and be at most 1"):
        policy("moco-v2", min_crop=0.0)
