"""Sections that show images."""

from pathlib import Path

from faked import fake_pictures, fake_run, page_of


def test_neighbours_are_marked_by_more_than_colour(tmp_path: Path) -> None:
    page = page_of(fake_run(tmp_path), fake_pictures())
    assert "✓ box 0.90 ✗ cone 0.80" in page.text
    unlabelled = page_of(fake_run(tmp_path), fake_pictures(label=None))
    assert "✓" not in unlabelled.text
    assert not any(figure.get("class") in {"same", "other"} for figure in unlabelled.all("figure"))


def test_missing_data_is_said_with_its_reason(tmp_path: Path) -> None:
    run = fake_run(tmp_path)
    assert page_of(run).text.count("Not shown: the data was not available when this page was written.") == 3
    assert (
        page_of(run, missing="--data photos/ does not exist").text.count("Not shown: --data photos/ does not exist.")
        == 3
    )
