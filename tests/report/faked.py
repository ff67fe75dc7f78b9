"""Run directories and pictures that are made up, and a strict reader of pages."""

import json
import math
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import torch

from manyview.evaluate.knn import Knn
from manyview.evaluate.linear import Linear
from manyview.report import Pictures, write_report
from manyview.report.pictures import Geometry, Neighbourhood, Sample, SampleViews

SECTIONS = [
    "Diagnosis",
    "Training",
    "Evaluation",
    "Sample views",
    "Similarity of positives",
    "Nearest neighbours",
    "Configuration",
]


def fake_run(run: Path, *, steps: int = 0, method: str = "jcl", name: str = "scenes", finished: bool = True) -> Path:
    """A run directory as a pre-training leaves it, evaluated; without steps by default, as plots take time."""
    run.mkdir(parents=True, exist_ok=True)
    config = {
        "run": {
            "out": "runs/jcl",
            "preset": "small",
            "config": None,
            "seed": 0,
            "device": "auto",
            "checkpoint_every": 1000,
        },
        "data": {"data": name, "unlabelled": False, "workers": 0},
        "views": {"augment": "cifar", "image_size": 32},
        "encoder": {"backbone": "tiny", "stem": "small", "norm": "batch", "bn_splits": 4, "head": "mlp", "dim": 128},
        "optim": {
            "batch_size": 256,
            "epochs": 30,
            "max_steps": None,
            "lr": 0.06,
            "milestones": [0.6, 0.8],
            "clip_grad": None,
        },
        "method": {"temperature": 0.2, "queue_size": 4096, "momentum": 0.99, "keys": 5, "lam": 4.0, "mask_own": False},
    }
    facts = {
        "method": method,
        "version": "0.1.0",
        "preset": "small",
        "config": config,
        "data": {
            "name": name,
            "samples": 5120,
            "size": [32, 32],
            "fingerprint": "9f2c51ab",
            "classes": ["box", "cone", "torus"],
            "class_counts": [20, 100, 5000],
        },
        "environment": {
            "python": "3.11.9",
            "torch": "2.9.0",
            "timm": "1.0.30",
            "platform": "Linux",
            "threads": 2,
            "device": "cpu",
        },
    }
    (run / "config.json").write_text(json.dumps(facts))
    (run / "metrics.jsonl").write_text("".join(json.dumps(fake_step(step, steps)) + "\n" for step in range(steps)))
    evaluations = [fake_evaluation("knn", "random", 0.312), fake_evaluation("knn", "trained", 0.714)]
    evaluations += [fake_evaluation("linear", "trained", 0.783), fake_evaluation("linear", "random", 0.405)]
    (run / "evaluations.json").write_text(json.dumps(evaluations))
    if finished:
        (run / "encoder.safetensors").write_bytes(b"")
    return run


def fake_step(step: int, steps: int) -> dict[str, float]:
    """Curves with the shapes of real ones; the noise is a fixed irrational sequence."""
    progress, noise = step / steps, (step * 0.6180339887) % 1 - 0.5
    row = {
        "step": step,
        "epoch": (step + 1) / 20,
        "loss": 5.9 + 2.45 * math.exp(-5 * progress) + 0.25 * noise,
        "positive": 0.92 - 0.3 * math.exp(-6 * progress) + 0.02 * noise,
        "lam": 4 * (step + 1) / steps,
        "lr": 0.03 * (1 + math.cos(math.pi * progress)),
        "images_per_s": 900 + 120 * noise - (400 if step == 0 else 0),
        "wait": 0.02 + 0.015 * noise,
    }
    return {**row, "knn": 0.33 + 0.4 * (1 - math.exp(-4 * progress))} if step % 100 == 99 else row


def fake_evaluation(protocol: str, encoder: str, top1: float, **settings: Any) -> dict[str, Any]:
    top5 = 1 - (1 - top1) / 3
    chosen = {} if protocol == "knn" else {"regularisation": 1e-4 if encoder == "trained" else 1e-2}
    return {
        "protocol": protocol,
        "settings": {**(Knn() if protocol == "knn" else Linear()).settings, **settings},
        "encoder": encoder,
        "data": "scenes",
        "test_data": "scenes (test split)",
        "metrics": {
            "top-1": {"value": top1, "interval": [top1 - 0.019, top1 + 0.018]},
            "top-5": {"value": top5, "interval": [top5 - 0.01, top5 + 0.01]},
        },
        "headline": "top-1",
        "facts": {"train_samples": 10000, "test_samples": 2000, "classes": 10, **chosen},
        "preprocess": "32×32 as stored",
        "seconds": 4.2,
    }


def probe_layers(run: Path, *, keep: bool) -> None:
    """Adds the evaluations of three layers, the last without its random counterpart; `keep` leaves the others."""
    file = run / "evaluations.json"
    records = json.loads(file.read_text()) if keep else []
    for layer, trained, random in (("conv1", 0.3, 0.2), ("conv5", 0.6, 0.1), ("<fc7>", 0.5, None)):
        records.append({**fake_evaluation("linear", "trained", trained), "layer": layer})
        if random is not None:
            records.append({**fake_evaluation("linear", "random", random), "layer": layer})
    file.write_text(json.dumps(records))


def fake_pictures(label: str | None = "box", name: str = "a.jpg") -> Pictures:
    image = torch.arange(3 * 8 * 8).view(3, 8, 8).byte()
    sample, other = Sample(name, image, label), Sample("b.jpg", image, None if label is None else "cone")
    geometry = Geometry(torch.linspace(0.6, 0.9, 8), torch.linspace(-0.1, 0.5, 28), 1.0, 0.3, -2.5, 31.0, 0.7)
    return Pictures(
        "scenes",
        (SampleViews(sample, (image,) * 6),),
        {"trained": geometry, "random": geometry},
        (Neighbourhood(sample, (sample, other), (0.9, 0.8)),),
        1000,
    )


class Page(HTMLParser):
    """Reads a page strictly: every tag must be closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in {"meta", "link", "img", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute of <{tag}> is given twice"
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).replace("\u202f", " ").split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for found, attributes in self.elements if found == tag]


def page_of(run: Path, *args: Any, **options: Any) -> Page:
    return Page(write_report(run, *args, **options).read_text(encoding="utf-8"))
