"""What the peers are given to run: lightly's parts wired as in its MoCo example, and kornia's batched augmentations."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

from bench.steps import ENCODER, OPTIM
from manyview.cost.steps import MOMENTUM, QUEUE, TEMPERATURE
from manyview.encoders import build_encoder
from manyview.views import Policy

try:
    import kornia.augmentation as kornia
    from lightly.loss import NTXentLoss
    from lightly.models.modules import MoCoProjectionHead
    from lightly.models.utils import deactivate_requires_grad, update_momentum
    from lightly.transforms import MoCoV2Transform
    from lightly.transforms.multi_view_transform import MultiViewTransform
except ImportError as missing:
    raise SystemExit(f"the peers are not installed ({missing}): run `make bench`") from None


def lightly_views(policy: Policy, *, views: int, size: int) -> Any:
    """lightly's own transform for two views; more of them are more of the same, in its own container."""
    two = MoCoV2Transform(
        input_size=size,
        cj_prob=policy.jitter,
        cj_bright=policy.brightness,
        cj_contrast=policy.contrast,
        cj_sat=policy.saturation,
        cj_hue=policy.hue,
        min_scale=policy.scale[0],
        random_gray_scale=policy.grey,
        gaussian_blur=policy.blur,
        sigmas=policy.sigma,
        hf_prob=policy.flip,
        normalize={"mean": list(policy.mean), "std": list(policy.std)},
    )
    return two if views == 2 else MultiViewTransform([two.transforms[0]] * views)


def kornia_views(policy: Policy, *, size: int) -> Any:
    """One view of every image of a batch (N, 3, H, W) in [0, 1]. ColorJitter is kornia's with torchvision's formulas;
    the kernel covers 3σ of the widest blur, as ours does."""
    width = 2 * round(3 * policy.sigma[1]) + 1
    return kornia.AugmentationSequential(
        kornia.RandomResizedCrop((size, size), scale=policy.scale, ratio=policy.ratio, align_corners=False),
        kornia.RandomHorizontalFlip(p=policy.flip),
        kornia.ColorJitter(policy.brightness, policy.contrast, policy.saturation, policy.hue, p=policy.jitter),
        kornia.RandomGrayscale(p=policy.grey),
        kornia.RandomGaussianBlur((width, width), policy.sigma, p=policy.blur),
        kornia.Normalize(mean=torch.tensor(policy.mean), std=torch.tensor(policy.std)),
        data_keys=["input"],
    )


def pictures(images: Tensor) -> list[Image.Image]:
    """uint8 (N, 3, H, W) as the PIL images that lightly's pipelines start from."""
    return [Image.fromarray(image) for image in images.permute(0, 2, 3, 1).contiguous().numpy()]


class Photographs(Dataset[Any]):
    """Files as torchvision's folders read them: Pillow, RGB, then the transform."""

    def __init__(self, paths: Sequence[str], transform: Any) -> None:
        self.paths, self.transform = paths, transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        with open(self.paths[index], "rb") as file:
            return self.transform(Image.open(file).convert("RGB"))


class _Small(Dataset[Any]):
    """Images kept as one array, each made a PIL image when it is asked for, as torchvision's CIFAR-10 does it."""

    def __init__(self, images: Tensor, transform: Any) -> None:
        self.data = images.permute(0, 2, 3, 1).contiguous().numpy()
        self.transform = transform

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        return self.transform(Image.fromarray(self.data[index])), 0


def lightly_loader(images: Tensor, transform: Any, *, batch: int, batches: int) -> DataLoader[Any]:
    """Two workers that live as long as the loader; one pass over it has so many batches."""
    data = _Small(images, transform)
    return DataLoader(
        data,
        batch_size=batch,
        sampler=RandomSampler(data, num_samples=batch * batches),
        drop_last=True,
        num_workers=2,
        persistent_workers=True,
    )


class LightlyMoCo(nn.Module):
    """The model of lightly's MoCo example around our backbone, and its step."""

    def __init__(self, *, channels_last: bool) -> None:
        super().__init__()
        self.layout = torch.channels_last if channels_last else torch.contiguous_format
        encoder = build_encoder(ENCODER)
        self.backbone = encoder.backbone
        self.projection_head = MoCoProjectionHead(encoder.num_features, encoder.num_features, encoder.dim)
        self.backbone_momentum = copy.deepcopy(self.backbone)
        self.projection_head_momentum = copy.deepcopy(self.projection_head)
        deactivate_requires_grad(self.backbone_momentum)
        deactivate_requires_grad(self.projection_head_momentum)
        self.criterion = NTXentLoss(temperature=TEMPERATURE, memory_bank_size=(QUEUE, encoder.dim))
        self.to(memory_format=self.layout)
        self.optimizer = torch.optim.SGD(
            [parameter for parameter in self.parameters() if parameter.requires_grad],
            lr=OPTIM.lr,
            momentum=OPTIM.sgd_momentum,
            weight_decay=OPTIM.weight_decay,
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.projection_head(self.backbone(x).flatten(start_dim=1))  # type: ignore[no-any-return]

    def forward_momentum(self, x: Tensor) -> Tensor:
        key = self.projection_head_momentum(self.backbone_momentum(x).flatten(start_dim=1))
        return key.detach()  # type: ignore[no-any-return]

    def step(self, views: Sequence[Tensor]) -> float:
        """The first view is the query, each other one a key; several keys mean as many losses, of which the mean."""
        update_momentum(self.backbone, self.backbone_momentum, m=MOMENTUM)
        update_momentum(self.projection_head, self.projection_head_momentum, m=MOMENTUM)
        views = [view.to(memory_format=self.layout) for view in views]
        query = self(views[0])
        keys = [self.forward_momentum(view) for view in views[1:]]
        loss = torch.stack([self.criterion(query, key) for key in keys]).mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(loss.detach())
