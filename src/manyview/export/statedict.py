"""State dicts as .safetensors: our own file, and those with the names of timm and of torchvision."""

import torch
from torch import nn

from manyview.encoders.files import fill, write
from manyview.export.job import Job, Loading

OUTSIDE = "apply it to the images"


def of_manyview(job: Job) -> Loading:
    write(job.out, job.weights.tensors, job.card)
    return Loading(f"manyview.load({str(job.out)!r})", "inside, images are uint8 or 0…1")


def of_timm(job: Job) -> Loading:
    import timm

    name = job.card.backbone
    with torch.random.fork_rng(devices=[]):
        _write(job, timm.create_model(name, pretrained=False, num_classes=0), "timm")
    return Loading(f"timm.create_model({name!r}, num_classes=0, checkpoint_path={str(job.out)!r})", OUTSIDE)


def of_torchvision(job: Job) -> Loading:
    name, file = job.card.backbone, repr(str(job.out))
    _write(job, torchvision_resnet(name), "torchvision")
    return Loading(
        f"model = torchvision.models.{name}(); model.fc = torch.nn.Identity(); "
        f"model.load_state_dict(safetensors.torch.load_file({file}))",
        OUTSIDE,
    )


def torchvision_resnet(name: str) -> nn.Module:
    """Without its classifier."""
    import torchvision

    with torch.random.fork_rng(devices=[]):
        network: nn.Module = torchvision.models.get_model(name, weights=None)
    network.fc = nn.Identity()
    return network


def _write(job: Job, counterpart: nn.Module, library: str) -> None:
    fill(counterpart, job.weights.tensors, job.weights.name, f"{library}'s {job.card.backbone}")
    write(job.out, job.weights.tensors, None)
