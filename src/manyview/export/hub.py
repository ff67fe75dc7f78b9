"""A folder for the Hugging Face hub that timm loads: configuration, weights, and a model card of the run's facts."""

import secrets
import shutil
from pathlib import Path
from typing import Any

import timm
import torch

import manyview
from manyview.diagnose.facts import Comparison, Facts, read_facts
from manyview.encoders import Card
from manyview.encoders.backbones import own_size, takes_any_size
from manyview.encoders.files import fill
from manyview.encoders.preparation import Preparation
from manyview.errors import UserError
from manyview.evaluate.records import number
from manyview.export.job import Job, Loading
from manyview.methods import described, find
from manyview.run.files import CONFIG, read_config


def write(job: Job) -> Loading:
    out, card = job.out, job.card
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"--out {out} is there and not an empty folder: name a new one")
    facts = _facts(job.source)
    as_timm_builds_it = takes_any_size(card.backbone) or card.image_size == own_size(card.backbone)
    asked: dict[str, Any] = {} if as_timm_builds_it else {"img_size": card.image_size}
    with torch.random.fork_rng(devices=[]):
        network: Any = timm.create_model(card.backbone, pretrained=False, num_classes=0, **asked)
    fill(network, job.weights.tensors, job.weights.name, f"timm's {card.backbone}")
    network.pretrained_cfg = _settings(network.pretrained_cfg, card, facts)
    aside = out.with_name(f".{out.name}.{secrets.token_hex(4)}")
    try:
        timm.models.save_for_hf(network, str(aside), model_args=asked, safe_serialization=True)
        (aside / "README.md").write_text(model_card(job, facts), encoding="utf-8", errors="backslashreplace")
        shutil.copymode(aside / "README.md", aside / "model.safetensors")  # which is for its owner alone otherwise
        aside.rename(out)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    upload = f'huggingface_hub.upload_folder(repo_id="OWNER/NAME", folder_path={str(out)!r})'
    return Loading(
        f"timm.create_model({f'local-dir:{out}'!r}, pretrained=True)",
        "in config.json, for timm.data.create_transform",
        f'to share it: {upload}, then timm.create_model("hf-hub:OWNER/NAME", pretrained=True)',
    )


def _facts(source: Path) -> Facts | None:
    """None where the weights are not those of a run."""
    return read_facts(source) if (source / CONFIG).is_file() and "method" in read_config(source) else None


def _settings(of_timm: dict[str, Any], card: Card, facts: Facts | None) -> dict[str, Any]:
    """timm's description of the network, with our images. What it says of timm's own weights is left out."""
    size = None if facts is None else facts.data.get("size")
    stored = (size[0], size[1]) if isinstance(size, list) and [type(side) for side in size] == [int, int] else None
    kept = ("architecture", "fixed_input_size", "pool_size", "first_conv", "classifier")
    return {
        **{key: of_timm[key] for key in kept if key in of_timm},
        "input_size": (3, card.image_size, card.image_size),
        "interpolation": "bilinear",
        "crop_pct": 1.0 if Preparation(stored, card.image_size).whole else 0.875,  # as evaluations prepare images
        "crop_mode": "center",
        "mean": card.mean,
        "std": card.std,
        "num_classes": 0,
    }


def model_card(job: Job, facts: Facts | None) -> str:
    """README.md: what is known of the weights, and nothing else."""
    card, encoder, remark = job.card, job.encoder, job.weights.remark
    parameters = sum(each.numel() for each in encoder.parameters())
    mean, std = (", ".join(f"{value:.4g}" for value in values) for values in (card.mean, card.std))
    known = [
        f"Network: {card.backbone} of timm without a classifier, {parameters:,} parameters, "
        f"{encoder.num_features:,} features",
        f"Images: {card.image_size}×{card.image_size}, mean {mean}, std {std}",
        *([f"Weights: {_public(job.weights.name)}"] if facts is None else _training(facts)),
        *([f"The training is not finished: {remark.rpartition(': ')[2]}"] if remark else []),
        f"Exported by manyview {manyview.__version__}",
    ]
    rows = [] if facts is None else [row for each in facts.comparisons if (row := _row(each))]
    head = ["Evaluation | Data | Metric | Result [95 %] | Random weights", "--- | --- | --- | --- | ---"]
    return _CARD.format(
        title=card.backbone if facts is None else f"{card.backbone}, {_method(facts)} on {_data(facts)}",
        facts="\n".join(f"- {each}" for each in known),
        evaluations="\n".join(f"| {row} |" for row in [*head, *rows]) if rows else "Not evaluated.",
    )


_CARD = """---
library_name: timm
pipeline_tag: image-feature-extraction
tags:
- timm
- image-feature-extraction
- self-supervised-learning
- manyview
---
# {title}

{facts}

## Evaluations

{evaluations}

## Use

```python
import timm

model = timm.create_model("hf-hub:OWNER/NAME", pretrained=True).eval()
transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))
features = model(transform(image).unsqueeze(0))
```
"""


def _training(facts: Facts) -> list[str]:
    samples, epochs = number(facts.data.get("samples")), facts.series("epoch")[1]
    length = [f"{len(facts.metrics):,} steps", f"{epochs[-1]:,.1f} epochs"] if epochs else ["no step"]
    start = facts.setting("encoder", "init")
    return [
        f"Method: {_method(facts)} (`{facts.method}`), without labels",
        f"Data: {_data(facts)}" + ("" if samples is None else f", {samples:,.0f} images"),
        f"Training: {', '.join(length)}, batch size {facts.setting('optim', 'batch_size')}"
        + (f", started from {_public(str(start))}" if start else ""),
    ]


def _method(facts: Facts) -> str:
    return find(facts.method).title if facts.method in described() else facts.method


def _data(facts: Facts) -> str:
    return _public(str(facts.data.get("name", "?")))


def _row(comparison: Comparison) -> str | None:
    trained, random = comparison.metric("trained"), comparison.metric("random")
    if trained is None:
        return None
    data = f"{_public(comparison.shared.data)}, tested on {_public(comparison.shared.test_data)}"
    part = f", {comparison.layer}" if comparison.layer else ""
    return f"{comparison.title}{part} | {data} | {comparison.headline} | {trained} | {random or '–'}"


def _public(name: str) -> str:
    """A path without the directories of this machine."""
    path, split, _ = name.partition(" (test split)")
    return Path(path).name + split if "/" in path else name
