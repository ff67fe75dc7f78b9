"""The page as a reader and a browser meet it."""

import json
import re
from pathlib import Path

import pytest
from faked import SECTIONS, Page, fake_evaluation, fake_pictures, fake_run, fake_step, page_of

from manyview.errors import UserError
from manyview.report import write_report


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = fake_run(tmp_path_factory.mktemp("run"), steps=600)
    write_report(run, fake_pictures())
    return run


@pytest.fixture(scope="module")
def whole(whole_run: Path) -> Page:
    return Page((whole_run / "report.html").read_text(encoding="utf-8"))


def test_a_whole_run_gives_every_section(whole: Page) -> None:
    for title in [*SECTIONS, "Environment", "Next steps"]:
        assert title in whole.text
    assert "Unreadable images" not in whole.text
    assert "JCL on scenes" in whole.text
    assert (
        "Yes. kNN classifier on scenes: top-1 71.4 % [69.5, 73.2], random weights 31.2 % [29.3, 33.0]: +40.2 points "
        "[+37.6, +42.8]. Linear probe on cached features on scenes: top-1 78.3 %" in whole.text
    )
    answers = [whole.text.index(words) for words in ("Better than random weights?", "Better than raw pixels?")]
    assert max(answers) < min(whole.text.index(title) for title in SECTIONS)  # the first thing on the page
    assert re.search(r"Final loss \d\.\d{2} chance: 8\.32 ", whole.text)  # log 4,097
    assert "71.4 % (69.5 % – 73.2 %)" in whole.text
    assert "Tested on scenes (test split). 10,000 training images, 2,000 test images, 10 classes." in whole.text
    assert "Preprocessing: 32×32 as stored. Settings: k 200; temperature 0.07." in whole.text
    assert "Settings: regularisation 0.0001 (trained), 0.01 (random); validation 0.2; iterations 200." in whole.text
    assert "manyview embed" in whole.text
    assert "manyview.load" in whole.text
    assert "size 32×32 classes box, cone, torus" in whole.text


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


def test_a_run_without_a_step_has_a_page(tmp_path: Path) -> None:
    run = fake_run(tmp_path, finished=False)
    (run / "metrics.jsonl").unlink()
    (run / "evaluations.json").unlink()
    assert "No step has been recorded yet." in page_of(run).text


def test_values_that_are_no_numbers_do_not_stop_the_page(tmp_path: Path) -> None:
    run = fake_run(tmp_path, steps=5)
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"step": 5, "loss": NaN, "lr": null, "positive": "high", "wait": true}\n[1]\n7\n\n')
    (run / "evaluations.json").write_text('[{"protocol": "knn"}, 3, {"top1": 0.5, "top1_interval": [null, 1]}]')
    assert "JCL on scenes" in page_of(run).text


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
