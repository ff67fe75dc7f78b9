"""ONNX: the whole encoder as one graph, which is checked against onnxruntime before it is written."""

import json
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor, nn

from manyview import counter
from manyview.atomic import replacing
from manyview.encoders import FrozenEncoder
from manyview.errors import UserError
from manyview.export.job import Job, Loading
from manyview.fields import IMAGE

TOLERANCE = 1e-4  # of the largest feature
LARGEST = 2**31  # bytes in one file, which is Protobuf's limit


def write(job: Job) -> Loading:
    """An .onnx file: `image` (N, C, S, S), float32 from 0 to 1, to `embedding` (N, F), for any N."""
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401  # torch asks for it much later
    except ImportError as error:
        raise UserError(
            f"--format onnx needs onnx, onnxscript and onnxruntime ({error.name} is missing): "
            "pip install 'manyview[onnx]'"
        ) from error
    card, encoder, name = job.card, job.encoder, job.card.backbone
    if sum(tensor.nbytes for tensor in encoder.state_dict().values()) >= LARGEST:
        raise UserError(f"--format onnx cannot hold {name}, whose weights take more than 2 GiB: export it as timm")
    side, channels = card.image_size, card.in_channels
    pixels = torch.arange(5 * channels * side * side)
    images = counter.uniform(0, pixels).view(5, channels, side, side)
    ours = encoder(images)  # before the export, as some networks keep what they computed once
    try:
        program = torch.onnx.export(
            _Graph(encoder),
            (images[:2],),  # of one image the exporter would make a fixed batch size
            input_names=[IMAGE],
            output_names=["embedding"],
            dynamic_shapes={IMAGE: {0: torch.export.Dim("batch")}},
            dynamo=True,
            verbose=False,
        )
        assert program is not None
        model = program.model_proto
    except torch.onnx.OnnxExporterError as error:
        reason = shorten(str(error.__cause__ or error), 160)
        raise UserError(
            f"--format onnx: torch cannot write {name} as a graph ({reason}): take another format"
        ) from error
    _forget_the_machine(model)
    mean, std = (", ".join(f"{number:g}" for number in numbers) for numbers in (card.mean, card.std))
    colours = ", RGB" if channels == 3 else ""
    model.graph.name, model.producer_name = name, "manyview"
    model.doc_string = (
        f"{name}. {IMAGE}: (N, {channels}, {side}, {side}) float32 from 0 to 1{colours}; the normalisation (mean "
        f"{mean}, std {std}) is inside. embedding: (N, {encoder.num_features}) float32."
    )
    facts = {"backbone": name, "image_size": side, "image_range": [0, 1], "mean": card.mean, "std": card.std}
    onnx.helper.set_model_props(model, {key: json.dumps(value) for key, value in facts.items()})
    content = model.SerializeToString(deterministic=True)
    try:
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        theirs = torch.from_numpy(session.run(None, {IMAGE: images.numpy()})[0])
    except Exception as error:  # it has a kind for every way to fail, and they share no other base
        raise UserError(
            f"--format onnx: onnxruntime cannot run the graph of {name} ({shorten(str(error), 160)}): nothing was "
            "written, take another format"
        ) from error
    difference = float((theirs - ours).abs().max())
    if not difference <= TOLERANCE * float(ours.abs().max()):  # nor NaN
        raise UserError(
            f"--format onnx: onnxruntime computes other features of {name} (they differ by {difference:.2g}, the "
            f"largest is {float(ours.abs().max()):.2g}): nothing was written, take another format"
        )
    with replacing(job.out) as file:
        file.write(content)
    opset = max(each.version for each in model.opset_import if each.domain == "")
    return Loading(
        f'onnxruntime.InferenceSession({str(job.out)!r}).run(None, {{"{IMAGE}": images}})[0]',
        "inside, images are float32 0…1",
        f"opset {opset}, any batch size; onnxruntime's features differ by at most {difference:.1g}",
    )


class _Graph(nn.Module):
    """The encoder without its checks of the images."""

    def __init__(self, encoder: FrozenEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.eval()

    def forward(self, image: Tensor) -> Tensor:
        return self.encoder.of_values({IMAGE: image})


def _forget_the_machine(model: Any) -> None:
    """The exporter notes for every node the lines of Python that it came from, with the paths of this machine."""
    graph = model.graph
    for each in (model, graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        del each.metadata_props[:]
    for function in model.functions:
        for each in (function, *function.node, *function.value_info):
            del each.metadata_props[:]
