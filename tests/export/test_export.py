"""Encoders in the formats of other programs: the same features there."""

import io
import json
import os
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import timm
import torch
import torchvision
from networks import MEAN, STD, encoder, images, normalised, saved
from torch import Tensor, nn

import manyview
from manyview.cli import main
from manyview.encoders import EncoderConfig, build_encoder, load
from manyview.errors import UserError
from manyview.export import export
from manyview.export.detectron2 import renamed
from manyview.export.formats import ENDINGS, ResNet, resnet
from manyview.run.files import ENCODER

torch.set_num_threads(1)


def test_export_to_torchvision_is_the_same_network_there(tmp_path: Path) -> None:
    file = saved(tmp_path / "encoder.safetensors", encoder(32, backbone="resnet18"))
    export(file, tmp_path / "new" / "out.safetensors", "torchvision")
    network = torchvision.models.resnet18(weights=None)
    result = network.load_state_dict(safetensors.torch.load_file(tmp_path / "new" / "out.safetensors"), strict=False)
    assert result.missing_keys == ["fc.weight", "fc.bias"]
    assert result.unexpected_keys == []
    network.fc = nn.Identity()
    with torch.no_grad():
        theirs = network.double().eval()(normalised(images()).double())  # in float32 memory layouts round differently
        torch.testing.assert_close(theirs, load(file).double()(images()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("backbone", "size"), [("test_resnet", 64), ("test_vit", 160), ("test_convnext", 64)])
def test_export_to_timm_is_the_same_network_there(tmp_path: Path, backbone: str, size: int) -> None:
    file = saved(tmp_path / "encoder.safetensors", encoder(size, backbone=backbone), size)
    export(file, tmp_path / "out.safetensors", "timm")
    network = timm.create_model(backbone, num_classes=0)
    network.load_state_dict(safetensors.torch.load_file(tmp_path / "out.safetensors"), strict=True)
    with torch.no_grad():
        torch.testing.assert_close(
            network.eval()(normalised(images(size))), load(file)(images(size)), rtol=1e-4, atol=1e-5
        )


def test_export_to_safetensors_is_our_own_file(run: Path, tmp_path: Path) -> None:
    export(run, tmp_path / "out.safetensors", "safetensors")
    assert (tmp_path / "out.safetensors").read_bytes() == (run / "encoder.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("config", "size", "what", "words"),
    [
        ({"backbone": "tiny"}, 32, "tiny", "safetensors or onnx"),
        ({"backbone": "test_resnet", "stem": "small"}, 32, "test_resnet with --stem small", "safetensors or onnx"),
        ({"backbone": "test_resnet", "norm": "group"}, 32, "test_resnet with --norm group", "safetensors or onnx"),
        ({"backbone": "test_vit"}, 48, "test_vit with --image-size 48", "safetensors, onnx or hf"),
        ({"backbone": "tiny", "split": "lab"}, 32, "tiny with --split lab", "safetensors or onnx"),
        ({"backbone": "tiny", "split": "lab,depth"}, 32, "tiny with --split lab,depth", "safetensors"),
        ({"backbone": "test_convnext"}, 32, "test_convnext", "safetensors, onnx, hf or timm"),
    ],
)
def test_an_encoder_without_counterpart_names_the_formats_that_work(
    tmp_path: Path, config: dict[str, Any], size: int, what: str, words: str
) -> None:
    torch.manual_seed(0)
    made = build_encoder(EncoderConfig(**config), image_size=size)
    file = saved(tmp_path / "encoder.safetensors", made, size)
    for format in ENDINGS:
        if format in re.split(", | or ", words):
            continue
        out = tmp_path / f"out{ENDINGS[format]}"
        with pytest.raises(UserError, match=rf"--format {format} has no {what}: .* can be written as {words}$"):
            export(file, out, format)
        assert not out.exists()


@pytest.mark.parametrize(
    ("out", "format", "words"),
    [
        ("resnet.pth", "safetensors", r"must end in \.safetensors$"),
        ("resnet.onnx", "safetensors", r"must end in \.safetensors, or say --format onnx$"),
        ("resnet", "onnx", r"must end in \.onnx, or say --format hf$"),
        ("resnet.pkl", "hf", r"must name a folder, or say --format detectron2$"),
    ],
)
def test_the_name_of_an_export_is_that_of_its_format(tmp_path: Path, out: str, format: Any, words: str) -> None:
    with pytest.raises(UserError, match=rf"^--out .*{out} {words}"):
        export(tmp_path, tmp_path / out, format)


def test_an_export_that_cannot_be_written_is_a_users_error(run: Path) -> None:
    (run / "file").touch()
    with pytest.raises(UserError, match=r"--out .*out.safetensors cannot be written \(.*\): choose another place"):
        export(run, run / "file" / "out.safetensors", "safetensors")


def line_that_loads(printed: str) -> str:
    return printed.rstrip().rpartition("load it: ")[2]


def printed_by(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["export", *words]) == 0
    return capsys.readouterr().out


def close(theirs: Tensor, file: Path, size: int = 32) -> None:
    torch.testing.assert_close(theirs, load(file)(images(size)), rtol=1e-4, atol=1e-4)


def test_the_printed_line_loads_the_same_features(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name)
    import onnxruntime

    given: dict[str, Any] = {"manyview": manyview, "timm": timm, "torch": torch, "torchvision": torchvision}
    given |= {"safetensors": safetensors, "onnxruntime": onnxruntime, "images": (images().float() / 255).numpy()}
    card = load(run).card
    prepared = (images().float() / 255 - torch.tensor(card.mean).view(3, 1, 1)) / torch.tensor(card.std).view(3, 1, 1)
    for format, ending in ENDINGS.items():
        if format == "detectron2":
            continue
        out = tmp_path / f"{format}{ending}"
        printed = printed_by(capsys, str(run), "--format", format, "--out", str(out))
        assert re.match(rf"{out}: {format}, 44\.\d MB\nnetwork: resnet18, images 3×32×32, 512 features\n", printed)
        assert "normalisation: mean 0.485 0.456 0.406, std 0.229 0.224 0.225 (" in printed
        line = line_that_loads(printed)
        if format == "torchvision":
            exec(line, given)
            network = given["model"]
        else:
            network = eval(line, given)
        if format == "onnx":
            close(torch.from_numpy(network), run)
            continue
        with torch.no_grad():
            close(network.eval()(images() if format == "safetensors" else prepared), run)


# ONNX


@pytest.fixture
def onnx() -> Any:
    for name in ("onnxruntime", "onnxscript"):
        pytest.importorskip(name)
    return pytest.importorskip("onnx")


@pytest.mark.parametrize(
    ("config", "size"),
    [({"split": "lab"}, 32), ({"backbone": "test_vit"}, 48)],
)
def test_a_graph_gives_the_same_features_for_any_number_of_images(
    onnx: Any, tmp_path: Path, config: dict[str, Any], size: int
) -> None:
    import onnxruntime

    made = build_encoder(EncoderConfig(**{"backbone": "tiny", **config}), image_size=size)
    file = saved(tmp_path / "encoder.safetensors", made, size)
    out = tmp_path / "out.onnx"
    export(file, out, "onnx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["encoder.safetensors", "out.onnx"]
    session = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"])
    for few in (1, 3, 4):
        (features,) = session.run(["embedding"], {"image": (images(size)[:few].float() / 255).numpy()})
        torch.testing.assert_close(torch.from_numpy(features), load(file)(images(size)[:few]), rtol=1e-3, atol=1e-3)


def test_a_graph_says_what_it_wants_and_nothing_of_this_machine(onnx: Any, tmp_path: Path) -> None:
    file = saved(tmp_path / "encoder.safetensors", encoder())
    for name in ("a.onnx", "b.onnx"):
        exported = export(file, tmp_path / name, "onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert re.match(
        r"opset \d+, any batch size; onnxruntime's features differ by at most \de-", exported.loading.remark
    )
    model = onnx.load(tmp_path / "a.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert "image: (N, 3, 32, 32) float32 from 0 to 1, RGB; the normalisation (mean 0.49, 0.48" in model.doc_string
    facts = {each.key: json.loads(each.value) for each in model.metadata_props}
    assert (facts["image_range"], facts["mean"], facts["std"]) == ([0, 1], list(MEAN), list(STD))
    for path in (str(Path(manyview.__file__).parent), os.path.dirname(torch.__file__), str(tmp_path)):
        assert path.encode() not in (tmp_path / "a.onnx").read_bytes()


def test_a_graph_that_computes_something_else_is_not_written(
    onnx: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def run(self, _: None, given: dict[str, Any]) -> list[Any]:
            return [load(file)(torch.from_numpy(given["image"])).numpy() * 1.01]

    def unable(*_: Any, **__: Any) -> None:
        raise RuntimeError("no kernel\nfor this")

    file = saved(tmp_path / "encoder.safetensors", encoder())
    monkeypatch.setattr("onnxruntime.InferenceSession", unable)
    with pytest.raises(
        UserError, match=r"onnxruntime cannot run the graph of tiny \(no kernel for this\): nothing was"
    ):
        export(file, tmp_path / "out.onnx", "onnx")
    monkeypatch.setattr("onnxruntime.InferenceSession", Wrong)
    with pytest.raises(UserError, match=r"onnxruntime computes other features of tiny \(they differ by .*nothing was"):
        export(file, tmp_path / "out.onnx", "onnx")
    assert list(tmp_path.iterdir()) == [file]


def test_a_graph_needs_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = saved(tmp_path / "encoder.safetensors", encoder())
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UserError, match=r"--format onnx needs .*: pip install 'manyview\[onnx\]'$"):
        export(file, tmp_path / "out.onnx", "onnx")


# Hugging Face


@pytest.mark.parametrize(("backbone", "size"), [("test_resnet", 32), ("test_vit", 160), ("test_vit", 48)])
def test_timm_loads_a_folder_for_the_hub(tmp_path: Path, backbone: str, size: int) -> None:
    file = saved(tmp_path / "encoder.safetensors", encoder(size, backbone=backbone), size)
    folder = tmp_path / "new" / "folder"
    export(file, folder, "hf")
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    assert [path.name for path in folder.parent.iterdir()] == ["folder"]
    network = timm.create_model(f"local-dir:{folder}", pretrained=True, num_classes=0).eval()
    with torch.no_grad():
        close(network(normalised(images(size))), file, size)
    data: Any = timm.data
    settings = data.resolve_model_data_config(network)
    assert tuple(settings["input_size"]) == (3, size, size)
    assert (tuple(settings["mean"]), tuple(settings["std"])) == (MEAN, STD)
    assert (settings["crop_pct"], settings["interpolation"]) == (0.875, "bilinear")
    said = json.loads((folder / "config.json").read_text())
    assert (said["architecture"], said["num_classes"], said["num_features"]) == (backbone, 0, network.num_features)
    close(load(folder)(images(size)), file, size)
    assert timm.create_model(f"local-dir:{folder}", pretrained=True, num_classes=7).num_classes == 7


def test_a_model_card_tells_the_facts_of_the_run(run: Path, tmp_path: Path) -> None:
    before = export(run, tmp_path / "before", "hf")
    assert before.num_features == 512
    text = (tmp_path / "before" / "README.md").read_text()
    assert text.startswith("---\nlibrary_name: timm\npipeline_tag: image-feature-extraction\ntags:\n")
    assert "# resnet18, MoCo v2 on scenes\n" in text
    assert "- Data: scenes, 64 images\n- Training: 2 steps, 0.5 epochs, batch size 16\n" in text
    assert "## Evaluations\n\nNot evaluated.\n" in text
    assert str(tmp_path) not in text
    assert main(["evaluate", "knn", str(run), "--data", "scenes:64", "--no-random"]) == 0
    export(run, tmp_path / "after", "hf")
    evaluated = (tmp_path / "after" / "README.md").read_text()
    assert re.search(
        r"^\| kNN.* \| scenes, tested on scenes \(test split\) \| top-1 \| [\d.]+ %.* \| – \|$", evaluated, re.M
    )
    cropped = json.loads((tmp_path / "after" / "config.json").read_text())["pretrained_cfg"]["crop_pct"]
    assert cropped == 1.0  # small squares show one object from edge to edge


def test_a_model_card_of_an_unfinished_run_says_so(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / ENCODER).rename(tmp_path / ENCODER)
    try:
        capsys.readouterr()
        assert main(["export", str(run), "--format", "hf", "--out", str(tmp_path / "folder")]) == 0
    finally:
        (tmp_path / ENCODER).rename(run / ENCODER)
    assert capsys.readouterr().err.count("is not finished") == 1
    text = (tmp_path / "folder" / "README.md").read_text()
    assert "- The training is not finished: its encoder is that of the checkpoint after step 2\n" in text


def test_a_model_card_of_other_weights_claims_nothing(tmp_path: Path) -> None:
    file = saved(tmp_path / "encoder.safetensors", encoder(backbone="test_resnet"))
    export(file, tmp_path / "folder", "hf")
    text = (tmp_path / "folder" / "README.md").read_text()
    assert "# test_resnet\n" in text
    assert "- Weights: encoder.safetensors\n" in text
    assert not re.search("Method|Data:|Training", text)


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = saved(tmp_path / "encoder.safetensors", encoder(backbone="test_resnet"))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "README.md").write_text("mine")
    with pytest.raises(UserError, match=r"--out .*folder is there and not an empty folder: name a new one"):
        export(file, folder, "hf")
    assert [path.name for path in folder.iterdir()] == ["README.md"]

    def full_disk(*_: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("manyview.export.hub.model_card", full_disk)
    with pytest.raises(UserError, match=r"--out .*other cannot be written \(No space left on device\)"):
        export(file, tmp_path / "other", "hf")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["encoder.safetensors", "folder"]


# Detectron2


class Numbers(pickle.Unpickler):
    """Arrays and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        allowed = {("numpy", "ndarray"): np.ndarray, ("builtins", "bytearray"): bytearray}
        return allowed[module, name]


def test_a_pickle_for_detectron2_holds_the_arrays_under_its_names(run: Path, tmp_path: Path) -> None:
    exported = export(run, tmp_path / "resnet18.pkl", "detectron2")
    content = Numbers(io.BytesIO((tmp_path / "resnet18.pkl").read_bytes())).load()
    assert content.keys() == {"model", "__author__", "matching_heuristics"}
    assert content["matching_heuristics"] is True
    table = {"conv1.weight": "stem.conv1.weight"}
    norm = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    table |= {f"bn1.{each}": f"stem.conv1.norm.{each}" for each in norm}
    for stage in (1, 2, 3, 4):
        for block in (0, 1):
            ours, theirs = f"layer{stage}.{block}", f"res{stage + 1}.{block}"
            for layer in (1, 2):
                table[f"{ours}.conv{layer}.weight"] = f"{theirs}.conv{layer}.weight"
                table |= {f"{ours}.bn{layer}.{each}": f"{theirs}.conv{layer}.norm.{each}" for each in norm}
            if stage > 1 and block == 0:
                table[f"{ours}.downsample.0.weight"] = f"{theirs}.shortcut.weight"
                table |= {f"{ours}.downsample.1.{each}": f"{theirs}.shortcut.norm.{each}" for each in norm}
    weights = safetensors.torch.load_file(run / ENCODER)
    assert content["model"].keys() == set(table.values())
    for ours, theirs in table.items():
        array = content["model"][theirs]
        assert array.flags.writeable  # torch.from_numpy warns of others
        assert torch.equal(torch.from_numpy(array), weights[ours])
    assert "MODEL.RESNETS.DEPTH 18 " in exported.loading.line
    assert "MODEL.RESNETS.STRIDE_IN_1X1 False" in exported.loading.line
    assert 'MODEL.PIXEL_MEAN "[123.675,116.280,103.530]"' in exported.loading.line
    again = tmp_path / "again.pkl"
    export(run, again, "detectron2")
    assert again.read_bytes() == (tmp_path / "resnet18.pkl").read_bytes()


def test_every_layer_of_a_bottleneck_has_its_name() -> None:
    with torch.device("meta"):
        names = {renamed(name) for name in torchvision.models.resnet50().state_dict() if not name.startswith("fc.")}
    assert {name.partition(".")[0] for name in names} == {"stem", "res2", "res3", "res4", "res5"}
    assert {"res2.0.conv3.norm.weight", "res2.0.shortcut.weight", "res5.2.conv3.norm.running_var"} <= names
    assert not [name for name in names if re.search("bn|layer|downsample", name)]


def test_resnets_are_told_apart_by_their_names() -> None:
    assert resnet("resnet101") == ResNet(101)
    assert resnet("resnext101_32x8d") == ResNet(101, groups=32, width=8)
    assert resnet("wide_resnet50_2") == ResNet(50, width=128)
    assert [resnet(name) for name in ("resnet50d", "resnet50x2", "resnetv2_50", "seresnet50", "vit_tiny")] == [None] * 5
