"""Settings and data of the run."""

import json
from pathlib import Path

import pytest
from faked import fake_run, page_of


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


def test_the_size_of_labelled_images_stands_beside_their_classes(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    assert "samples 5120 size 32×32 classes box, cone, torus images per class" in page_of(run).text
    facts = json.loads((run / "config.json").read_text())
    facts["data"]["size"] = None
    (run / "config.json").write_text(json.dumps(facts))
    assert "samples 5120 size various classes box, cone, torus images per class" in page_of(run).text


def test_unreadable_images_are_listed(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    (run / "unreadable.txt").write_text("".join(f"cat/{n}.jpg\ttruncated file\n" for n in range(250)))
    page = page_of(run)
    assert "250 images could not be read. Training used other images instead. The first 200" in page.text
    assert "cat/199.jpg truncated file" in page.text
    assert "cat/200.jpg" not in page.text
