"""The papers' augmentation pipelines as plain numbers: what `Augment` draws from."""

from dataclasses import dataclass, replace

from manyview.errors import UserError

Channels = tuple[float, ...]

_IMAGENET_MEAN: Channels = (0.485, 0.456, 0.406)
_IMAGENET_STD: Channels = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Policy:
    """The parameters of one pipeline, in the order in which its operations run (greyscale first if `grey_first`).

    A factor is uniform in [max(0, 1 − strength), 1 + strength]; the hue turns by up to ±`hue` of the colour circle.
    """

    scale: tuple[float, float] = (0.2, 1.0)  # share of the image's area that a crop covers
    ratio: tuple[float, float] = (3 / 4, 4 / 3)  # width over height of a crop, uniform on a logarithmic scale
    flip: float = 0.5  # probability, as are `jitter`, `grey`, `blur` and `solarise`
    jitter: float = 1.0
    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.4
    grey: float = 0.2
    grey_first: bool = False
    blur: float = 0.0
    sigma: tuple[float, float] = (0.1, 2.0)  # of the blur, in pixels of the view
    solarise: float = 0.0
    threshold: float = 128 / 255  # solarise inverts what is at least as bright
    rand_operations: int = 0  # of RandAugment, at the end
    rand_magnitude: int = 9
    mean: Channels = _IMAGENET_MEAN
    std: Channels = _IMAGENET_STD


RAND = "+ra"
POLICIES: dict[str, Policy] = {
    "moco-v1": Policy(grey_first=True),
    "moco-v2": Policy(jitter=0.8, hue=0.1, blur=0.5),
    "simclr": Policy(scale=(0.08, 1.0), jitter=0.8, brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2, blur=0.5),
    "cmc": Policy(jitter=0.0, grey=0.0),
    # The next three are Algorithm 1 of the CACR paper.
    "cifar": Policy(mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010)),
    "cifar100": Policy(mean=(0.5071, 0.4867, 0.4408), std=(0.2675, 0.2565, 0.2761)),
    "stl10": Policy(scale=(0.08, 1.0), mean=(0.4409, 0.4279, 0.3868), std=(0.2683, 0.2610, 0.2687)),
}


RGB_ALONE = ("saturation", "hue", "greyscale")  # operations


def for_channels(policy: Policy, channels: int) -> Policy:
    """The policy for images that are not RGB: without what only colours have; views stay in [0, 1]."""
    if policy.rand_operations:
        raise UserError(f"--augment …{RAND} needs RGB images, and --channels is {channels}: leave {RAND} out")
    return replace(policy, saturation=0.0, hue=0.0, grey=0.0, mean=(0.0,) * channels, std=(1.0,) * channels)


def policy(name: str, *, min_crop: float | None = None, normalise: bool = True) -> Policy:
    """The policy that `--augment` names, with its smallest crops changed if asked; without `normalise` views stay in
    [0, 1]. With "+ra" behind its name two operations of RandAugment follow."""
    base = name.removesuffix(RAND)
    if base not in POLICIES:
        raise UserError(
            f"--augment {name} is not known: choose one of {', '.join(POLICIES)}, perhaps with {RAND} behind"
        )
    named = replace(POLICIES[base], rand_operations=2) if name.endswith(RAND) else POLICIES[base]
    if not normalise:
        named = replace(named, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    if min_crop is None:
        return named
    if not 0 < min_crop <= named.scale[1]:
        raise UserError(f"--min-crop {min_crop} must lie above 0 and be at most {named.scale[1]:g}, the largest crop")
    return replace(named, scale=(min_crop, named.scale[1]))
