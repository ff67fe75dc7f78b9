"""The page as a reader and a browser meet it."""

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch

from manyview.errors import UserError
from manyview.evaluate.knn import Knn
from manyview.evaluate.linear import Linear
from manyview.report import Geometry, Neighbourhood, Pictures, Sample, SampleViews, write_report

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


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = fake_run(tmp_path_factory.mktemp("run"), steps=600)
    write_report(run, fake_pictures())
    return run


@pytest.fixture(scope="module")
def whole(whole_run: Path) -> Page:
    return Page((whole_run / "report.html").read_text(encoding="utf-8"))


def page_of(run: Path, *args: Any, **options: Any) -> Page:
    return Page(write_report(run, *args, **options).read_text(encoding="utf-8"))


def test_a_whole_run_gives_every_section(whole: Page) -> None:
    for title in [*SECTIONS, "Environment", "Next steps"]:
        assert title in whole.text
    assert "Unreadable images" not in whole.text
    assert "JCL on scenes" in whole.text
    assert "kNN top-1 on scenes: 71.4 %. Random encoder: 31.2 % ( +40.2 points )." in whole.text
    assert re.search(r"Final loss \d\.\d{2} chance: 8\.32 ", whole.text)  # log 4,097
    assert "71.4 % (69.5 % – 73.2 %)" in whole.text
    assert "Tested on scenes (test split). 10,000 training images, 2,000 test images, 10 classes." in whole.text
    assert "Preprocessing: 32×32 as stored. Settings: k 200; temperature 0.07." in whole.text
    assert "Settings: regularisation 0.0001 (trained), 0.01 (random); validation 0.2; iterations 200." in whole.text
    assert "manyview embed" in whole.text
    assert "manyview.load" in whole.text
    assert "size 32×32 classes box, cone, torus" in whole.text


def test_the_curves_are_described_in_words(whole: Page) -> None:
    labels = " ".join(attributes.get("aria-label") or "" for attributes in whole.all("svg"))
    assert "Loss: from 8.225 at step 0 to" in labels
    assert "kNN top-1 during training: from" in labels
    for name in ("Learning rate", "Images per second", "waiting for data", "similarity of positives", "λ"):
        assert name in labels


def measured_run(run: Path, every: int) -> Path:
    """40 steps, contrast in each last one of `every`."""
    fake_run(run, steps=40)
    facts = json.loads((run / "config.json").read_text())
    facts["contrast"] = {"data": "<scenes> (test split)", "samples": 512, "views": 5, "t_pos": 1.0, "t_neg": 2.0}
    (run / "config.json").write_text(json.dumps(facts))
    values = {
        "entropy": 5.0, "max_entropy": math.log(255), "alignment": 0.4, "uniformity": -2.5,
        "nearest_weight": 0.03, "effective_positives": 3.8, "effective_negatives": 150.0,
    }  # fmt: skip
    rows = [{**fake_step(step, 40), **(values if step % every == every - 1 else {})} for step in range(40)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run


@pytest.mark.parametrize("every", [1, 10, 40])
def test_contrast_is_drawn_with_what_it_cannot_exceed(tmp_path: Path, every: int) -> None:
    page = page_of(measured_run(tmp_path, every))
    labels = [attributes.get("aria-label") or "" for attributes in page.all("svg")]
    entropy = next(label for label in labels if label.startswith("Conditional entropy of the negative weights"))
    assert f"from 5 at step {every - 1} to 5 at step 39" in entropy
    assert entropy.endswith("Dashed line: maximum, log 255 = 5.54.")
    assert any(label.startswith("Weight of the nearest negative: from 3.0%") for label in labels)
    assert any(label.startswith("Effective number of negatives") and "line: all 255." in label for label in labels)
    assert any(label.startswith("Effective number of positives") and "line: all 4." in label for label in labels)
    titles = [label.partition(":")[0].partition(" (")[0] for label in labels]
    assert titles[0] == "Loss"
    assert len(titles) == len(set(titles))
    assert titles.index("Uniformity") - titles.index("Conditional entropy of the negative weights") == 5
    assert "max_entropy" not in " ".join(titles)
    assert "Measured on 512 images of <scenes> (test split), always with the same 5 views of each" in page.text
    assert "All methods use t⁺ = 1 and t⁻ = 2" in page.text


def test_a_run_without_measurements_has_no_word_of_contrast(whole: Page) -> None:
    assert "Contrast" not in whole.text


def test_contrast_of_an_unknown_set_is_drawn_too(tmp_path: Path) -> None:
    run = measured_run(tmp_path, every=10)
    facts = json.loads((run / "config.json").read_text())
    del facts["contrast"]
    (run / "config.json").write_text(json.dumps(facts))
    page = page_of(run)
    assert "Measured on" not in page.text
    assert "The entropy is at its maximum when" in page.text


def test_what_a_method_measures_only_now_and_then_is_drawn(tmp_path: Path) -> None:
    run = fake_run(tmp_path, steps=40)
    rows = [{**fake_step(step, 40), **({"rare": step / 2} if step % 20 == 19 else {})} for step in range(40)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    labels = [attributes.get("aria-label") or "" for attributes in page_of(run).all("svg")]
    assert any(label.startswith("rare: from 9.5 at step 19 to 19.5 at step 39") for label in labels)


def test_the_diagnosis_names_level_numbers_and_way_out(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    rows = [{**fake_step(step, 40), "wait": 0.5, "variance": 0.01, "effective_rank": 1.5} for step in range(40)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = page_of(run)
    assert (
        "problem Embeddings The encoder has collapsed: all images have nearly the same embedding. Variance 0.01"
        in page.text
    )
    assert (
        "problem Data loading Training waited for data 50.0 % of the time. → Use more reader processes (--workers 2)"
        in page.text
    )
    assert "good Queue The queue holds 4,096" not in page.text  # it is most of the 5,120 images
    assert [item.get("class") for item in page.all("li")][:2] == ["problem", "problem"]


def test_the_page_asks_the_network_for_nothing(whole_run: Path, whole: Page) -> None:
    targets = [
        value or ""
        for _, attributes in whole.elements
        for key, value in attributes.items()
        if key in {"src", "href", "xlink:href", "srcset", "action", "data", "poster"}
    ]
    assert targets
    assert all(target.startswith(("data:", "#")) for target in targets)
    assert not {"script", "iframe", "object", "embed", "base"} & {tag for tag, _ in whole.elements}
    text = (whole_run / "report.html").read_text(encoding="utf-8")
    assert "@import" not in text
    assert set(re.findall(r"url\(([^)]*)\)", text)) <= {f"#{attributes.get('id')}" for _, attributes in whole.elements}
    assert any("default-src 'none'" in (meta.get("content") or "") for meta in whole.all("meta"))


def test_ids_are_unique_and_every_reference_has_its_target(whole: Page) -> None:
    ids = [attributes["id"] for _, attributes in whole.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    references = [attributes.get("href") or attributes.get("xlink:href") for _, attributes in whole.elements]
    assert {reference[1:] for reference in references if reference and reference.startswith("#")} <= set(ids)


def test_pictures_have_texts_and_tables_have_headers(whole: Page) -> None:
    assert len(whole.all("img")) == 1 + 6 + 3
    assert all(image.get("alt") for image in whole.all("img"))
    assert all(plot.get("role") == "img" and plot.get("aria-label") for plot in whole.all("svg"))
    assert len(whole.all("caption")) == len(whole.all("table"))
    assert all(header.get("scope") in {"row", "col"} for header in whole.all("th"))
    assert whole.all("html")[0]["lang"] == "en"


def test_neighbours_are_marked_by_more_than_colour(tmp_path: Path) -> None:
    page = page_of(fake_run(tmp_path), fake_pictures())
    assert "✓ box 0.90 ✗ cone 0.80" in page.text
    unlabelled = page_of(fake_run(tmp_path), fake_pictures(label=None))
    assert "✓" not in unlabelled.text
    assert not any(figure.get("class") in {"same", "other"} for figure in unlabelled.all("figure"))


def test_names_from_files_stay_text(tmp_path: Path) -> None:
    evil = "<script>alert('1')</script>\"><img src=x onerror=alert(1)>"
    run = fake_run(tmp_path, method=evil, name=evil)
    (run / "unreadable.txt").write_text(f"{evil}\t{evil}\n")
    rows = [{**fake_step(step, 10), evil: 1.0, "$\\frac": 2.0} for step in range(10)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    evaluation = fake_evaluation("knn", "trained", 0.5)
    (run / "evaluations.json").write_text(json.dumps([{**evaluation, "test_data": evil, "settings": {evil: evil}}]))
    page = page_of(run, fake_pictures(label=evil, name=evil), missing=evil)
    assert not page.all("script")
    assert all((image.get("src") or "").startswith("data:image/") for image in page.all("img"))
    assert not any(key.startswith("on") for _, attributes in page.elements for key in attributes)
    assert evil in page.text


def test_the_same_run_gives_the_same_bytes(whole_run: Path) -> None:
    before = (whole_run / "report.html").read_bytes()
    assert write_report(whole_run, fake_pictures()).read_bytes() == before


def test_only_the_page_is_left_behind(tmp_path: Path) -> None:
    before = {path.name for path in fake_run(tmp_path).iterdir()}
    assert write_report(tmp_path) == tmp_path / "report.html"
    assert {path.name for path in tmp_path.iterdir()} == before | {"report.html"}


def test_a_failed_write_keeps_the_old_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = write_report(fake_run(tmp_path)).read_bytes()
    (tmp_path / "unreadable.txt").write_text("a.jpg\ttruncated\n")

    def fail(*args: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("manyview.atomic.os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_report(tmp_path)
    assert (tmp_path / "report.html").read_bytes() == old
    assert not list(tmp_path.glob(".report*"))


def test_an_unfinished_run_says_what_is_missing(tmp_path: Path) -> None:
    run = fake_run(tmp_path, steps=10, finished=False)
    (run / "evaluations.json").unlink()
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("\n".join(lines[:7]) + "\n" + lines[7][:25])
    page = page_of(run)
    assert "This run is not finished (7 steps so far). To continue it: manyview resume" in page.text
    assert "Not evaluated yet" in page.text
    assert page.text.count("Not shown: the run is not finished.") == 3
    assert all(title in page.text for title in SECTIONS)


def test_a_run_without_a_step_has_a_page(tmp_path: Path) -> None:
    run = fake_run(tmp_path, finished=False)
    (run / "metrics.jsonl").unlink()
    (run / "evaluations.json").unlink()
    assert "No step has been recorded yet." in page_of(run).text


def test_missing_data_is_said_with_its_reason(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    assert page_of(run).text.count("Not shown: the data was not available when this page was written.") == 3
    assert (
        page_of(run, missing="--data photos/ does not exist").text.count("Not shown: --data photos/ does not exist.")
        == 3
    )


def test_values_that_are_no_numbers_do_not_stop_the_page(tmp_path: Path) -> None:
    run = fake_run(tmp_path, steps=5)
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"step": 5, "loss": NaN, "lr": null, "positive": "high", "wait": true}\n[1]\n7\n\n')
    (run / "evaluations.json").write_text('[{"protocol": "knn"}, 3, {"top1": 0.5, "top1_interval": [null, 1]}]')
    assert "JCL on scenes" in page_of(run).text


@pytest.mark.parametrize(
    ("method", "flags", "words"),
    [
        ("jcl", {}, "chance, log 4,097 = 8.32"),
        ("jcl", {"queue_size": "many"}, None),
        ("jcl", {"queue_size": -1}, None),
        ("simclr", {}, "chance, log 511 = 6.24"),
        ("mv-infonce", {"views": 4}, "chance, log 341 = 5.83"),
        ("cmc", {"draw": 99}, "chance, 2 · log 100 = 9.21"),
        ("cmc", {"views": "infrared"}, None),
        ("hn-cl", {"tau_plus": 2.0}, None),
        ("cacr", {}, None),
        ("unheard-of", {}, None),
    ],
)
def test_the_chance_level_is_drawn_where_the_method_has_one(
    tmp_path: Path, method: str, flags: dict[str, Any], words: str | None
) -> None:
    run = fake_run(tmp_path, method=method)
    facts = json.loads((run / "config.json").read_text())
    facts["config"]["method"] |= flags
    (run / "config.json").write_text(json.dumps(facts))
    (run / "metrics.jsonl").write_text('{"step": 0, "loss": 7.5}\n')
    page = write_report(run).read_text(encoding="utf-8")
    assert ("chance, " in page) == (words is not None)
    assert words is None or words in page


@pytest.mark.parametrize(
    ("counts", "words"),
    [([20, 100, 5000], "20, 100, 5,000"), (list(range(5, 105)), "5 to 104 in 100 classes"), (None, "–"), ("?", "–")],
)
def test_class_counts_take_one_line(tmp_path: Path, counts: object, words: str) -> None:
    run = fake_run(tmp_path)
    facts = json.loads((run / "config.json").read_text())
    facts["data"]["class_counts"] = counts
    (run / "config.json").write_text(json.dumps(facts))
    assert f"images per class {words} fingerprint" in page_of(run).text


def test_the_newest_evaluation_counts(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    older, newer = fake_evaluation("knn", "trained", 0.111), fake_evaluation("knn", "trained", 0.999)
    (run / "evaluations.json").write_text(json.dumps([older, newer]))
    page = page_of(run)
    assert "99.9 %" in page.text
    assert "11.1 %" not in page.text
    assert "The random encoder was not evaluated." in page.text


def test_unreadable_images_are_listed(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    (run / "unreadable.txt").write_text("".join(f"cat/{n}.jpg\ttruncated file\n" for n in range(250)))
    page = page_of(run)
    assert "250 images could not be read. Training used other images instead. The first 200" in page.text
    assert "cat/199.jpg truncated file" in page.text
    assert "cat/200.jpg" not in page.text


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "is not a run directory"),
        ("{", r"config\.json cannot be read"),
        ("[]", r"is not the config\.json of a run"),
    ],
)
def test_what_is_no_run_directory_is_refused(tmp_path: Path, content: str | None, complaint: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match=complaint):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_a_long_run_does_not_make_a_heavy_page(tmp_path: Path) -> None:
    run = fake_run(tmp_path, steps=20_000)
    assert write_report(run).stat().st_size < 500_000


def test_single_views_have_a_table_of_their_own(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    probe_layers(run, keep=True)
    file = run / "evaluations.json"
    views = [
        {**fake_evaluation("linear", "trained", top1), "views": name} for name, top1 in (("L", 0.3), ("depth", 0.6))
    ]
    file.write_text(json.dumps([*json.loads(file.read_text()), *views]))
    page = page_of(run)
    assert "Linear probe on cached features · scenes · by view" in page.text
    assert "View Trained view L 30.0 %" in page.text
    assert sum("Top-1 by layer" in (attributes.get("aria-label") or "") for attributes in page.all("svg")) == 1


def test_layers_have_a_plot_and_a_table_beside_the_figures_of_the_features(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    probe_layers(run, keep=True)
    page = page_of(run)
    assert "Linear top-1 78.3 % random encoder: 40.5 %" in page.text  # the features', not a layer's
    assert page.text.count("Linear probe on cached features · scenes") == 2
    assert "Linear probe on cached features · scenes · by layer" in page.text
    assert "Layer Trained Random conv1 30.0 % (28.1 % – 31.8 %) 20.0 %" in page.text
    assert "<fc7> 50.0 % (48.1 % – 51.8 %) –" in page.text
    labels = [attributes.get("aria-label") or "" for attributes in page.all("svg")]
    words = "Top-1 by layer. trained encoder: conv1 30.0 %, conv5 60.0 %, <fc7> 50.0 %; random encoder: conv1 20.0 %, "
    assert any(label.startswith(words) for label in labels)


def test_a_run_of_which_only_layers_were_evaluated_says_which(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    probe_layers(run, keep=False)
    text = page_of(run).text
    assert (
        "Linear probe on cached features top-1 on scenes, <fc7>: 50.0 %. The random encoder was not evaluated" in text
    )
    assert "Not evaluated yet" not in text


def test_other_settings_are_not_set_beside_each_other(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    evaluations = [
        fake_evaluation("knn", "trained", 0.999, k=20),
        fake_evaluation("knn", "random", 0.312),
        fake_evaluation("knn", "trained", 0.714),
    ]
    (run / "evaluations.json").write_text(json.dumps(evaluations))
    text = page_of(run).text
    assert "kNN top-1 on scenes: 71.4 %. Random encoder: 31.2 % ( +40.2 points )." in text
    assert "k nearest neighbours (k 20) · scenes" in text
    assert "68.7 points" not in text  # 99.9 % with k = 20 less 31.2 % with k = 200


def test_any_metric_has_its_place(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    metrics = {"mIoU": {"value": 0.5}, "AP": {"value": 12.25, "interval": [12, 12.5], "unit": ""}}
    entry = {**fake_evaluation("knn", "trained", 0.5), "protocol": "segment", "metrics": metrics, "headline": "AP"}
    entries = [{**entry, "settings": {"lr": 0.1}}, {**entry, "settings": {"lr": 0.1}, "encoder": "random"}]
    entries[1] = {**entries[1], "metrics": {**metrics, "AP": {"value": 2.0, "unit": ""}}}
    (run / "evaluations.json").write_text(json.dumps(entries))
    text = page_of(run).text
    assert "segment (lr 0.1) AP on scenes: 12.250. Random encoder: 2.000 ( +10.250 )." in text
    assert "Encoder MIoU AP trained 50.0 % 12.250 (12.000 – 12.500) random 50.0 % 2.000" in text
