"""Detectron2's .pkl, with the names that MoCo's converter (detection/convert-pretrain-to-detectron2.py) gives.

Detectron2 reads nothing else with numbers alone: its checkpointer unpickles arrays of NumPy and knows no safetensors.
"""

import copyreg
import pickle
import re
import shlex

import numpy as np

from manyview.atomic import replacing
from manyview.encoders.files import fill, plain
from manyview.export.formats import resnet
from manyview.export.job import Job, Loading
from manyview.export.statedict import torchvision_resnet


def write(job: Job) -> Loading:
    fill(torchvision_resnet(job.card.backbone), job.weights.tensors, job.weights.name, f"a {job.card.backbone}")
    model = {renamed(name): tensor.numpy() for name, tensor in plain(job.weights.tensors).items()}
    with replacing(job.out) as file:
        _Pickler(file, protocol=4).dump({"model": model, "__author__": "manyview", "matching_heuristics": True})
    return Loading(settings(job), "in these settings")


def renamed(name: str) -> str:
    """Of torchvision's layer: layer1.0.bn2.bias -> res2.0.conv2.norm.bias."""
    stage = re.match(r"layer(\d)\.", name)
    name = f"res{int(stage[1]) + 1}.{name[stage.end() :]}" if stage else f"stem.{name}"
    name = re.sub(r"\bbn(\d)\.", r"conv\1.norm.", name)
    return name.replace("downsample.0.", "shortcut.").replace("downsample.1.", "shortcut.norm.")


def settings(job: Job) -> str:
    """For the command line of detectron2. Its networks expect BGR, 0…255, and Caffe's stride unless they are told."""
    traits = resnet(job.card.backbone)
    assert traits is not None
    told = {
        "MODEL.WEIGHTS": shlex.quote(str(job.out)),
        "MODEL.RESNETS.DEPTH": traits.depth,
        "MODEL.RESNETS.NUM_GROUPS": traits.groups,
        "MODEL.RESNETS.WIDTH_PER_GROUP": traits.width,
        **({"MODEL.RESNETS.RES2_OUT_CHANNELS": 64} if traits.depth < 50 else {}),
        "MODEL.RESNETS.STRIDE_IN_1X1": False,
        "MODEL.PIXEL_MEAN": _of_bytes(job.card.mean),
        "MODEL.PIXEL_STD": _of_bytes(job.card.std),
        "INPUT.FORMAT": "RGB",
    }
    return " ".join(f"{key} {value}" for key, value in told.items())


def _of_bytes(numbers: tuple[float, ...]) -> str:
    return f'"[{",".join(f"{255 * number:.3f}" for number in numbers)}]"'


class _Pickler(pickle.Pickler):
    """Names nothing but numpy.ndarray: NumPy's own way names a private function that has moved since version 1."""

    dispatch_table = copyreg.dispatch_table.copy()
    dispatch_table[np.ndarray] = lambda array: (np.ndarray, (array.shape, array.dtype.str, bytearray(array.tobytes())))
