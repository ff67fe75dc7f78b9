"""Plots: well-formed, the same each time, and readable without eyes."""

import math
import re
from concurrent.futures import ThreadPoolExecutor
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from manyview.evaluate.result import Metric
from manyview.report.plots import layer_plot, line_plot, similarity_plot, smooth

STEPS = list(range(50))
LOSS = [8 - 0.1 * step for step in STEPS]


def description(svg: str) -> str:
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.get("role") == "img"
    return root.get("aria-label") or ""


def ids(svg: str) -> list[str]:
    return re.findall(r'\bid="([^"]+)"', svg)


def test_a_line_is_described() -> None:
    svg = line_plot("loss", STEPS, LOSS, title="Loss <τ>", smoothed=True, reference=("chance", 9.0))
    assert description(svg) == (
        "Loss <τ>: from 8 at step 0 to 3.1 at step 49; lowest 3.1, highest 8. Dashed line: chance."
    )


def test_the_same_input_gives_the_same_text() -> None:
    assert line_plot("loss", STEPS, LOSS, title="Loss") == line_plot("loss", STEPS, LOSS, title="Loss")


def test_plots_can_share_a_page() -> None:
    first, second = ids(line_plot("a", STEPS, LOSS, title="Loss")), ids(line_plot("b", STEPS, LOSS, title="Loss"))
    assert first
    assert len(set(first + second)) == len(first) + len(second)


def test_threads_draw_what_one_thread_draws() -> None:
    def draw(number: int) -> str:
        return line_plot(f"plot{number}", STEPS, [number + value for value in LOSS], title=f"Loss {number}")

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(draw, range(4))) == [draw(number) for number in range(4)]


def test_ink_follows_the_page() -> None:
    svg = line_plot("loss", STEPS, LOSS, title="Loss")
    assert "currentColor" in svg
    assert "#101112" not in svg


@pytest.mark.parametrize("values", [[], [1.0], [math.nan, math.inf], [0.0, 0.0], [-1.0, 1e6]])
def test_odd_values_are_drawn_too(values: list[float]) -> None:
    assert description(line_plot("x", list(range(len(values))), values, title="x", smoothed=True, log_if_wide=True))


def test_a_wide_range_is_drawn_on_a_logarithmic_axis() -> None:
    values = [10.0 ** (-step / 10) for step in STEPS]
    logarithmic, linear = (line_plot("x", STEPS, values, title="x", log_if_wide=log) for log in (True, False))
    assert "Logarithmic axis." in description(logarithmic)
    assert "Logarithmic axis." not in description(linear)


def test_one_loss_against_a_random_queue_does_not_squeeze_the_others() -> None:
    values = [0.01, *[4.0 - step / 1000 for step in range(200)]]
    assert "Logarithmic" not in description(line_plot("x", range(201), values, title="x", log_if_wide=True))


def test_a_long_line_is_thinned() -> None:
    steps = list(range(100_000))
    svg = line_plot("x", steps, [math.sin(step) for step in steps], title="x", smoothed=True)
    assert len(svg) < 150_000


def test_titles_are_not_formulas() -> None:
    assert "$\\nonsense" in line_plot("x", STEPS, LOSS, title="$\\nonsense")


def test_similarities_of_two_encoders_are_described() -> None:
    same, different = torch.tensor([0.8, 0.9, 1.0]), torch.tensor([0.1, 0.2, 0.3])
    words = description(similarity_plot("s", {"trained": (same, different), "random": (different, different)}))
    assert "trained encoder, separation 1.000: same image 0.90, different images 0.20" in words
    assert "random encoder, separation 0.500" in words


def test_smoothing_is_a_mean_over_what_is_there() -> None:
    values = np.array([1.0, 2.0, 6.0, 3.0])
    assert smooth(values, 1).tolist() == values.tolist()
    assert smooth(values, 3).tolist() == pytest.approx([1.5, 3.0, 11 / 3, 4.5])
    assert smooth(np.ones(9), 4).tolist() == pytest.approx([1.0] * 9)


def test_layers_are_described_encoder_by_encoder() -> None:
    shares: dict[str, list[float | None]] = {"trained": [0.2, None, 0.456], "random": [0.1, 0.12, 0.09]}
    found = {name: [None if each is None else Metric(each) for each in values] for name, values in shares.items()}
    svg = layer_plot("layers", ["conv1", "$x_1$", "fc7"], found, title="Top-1 by layer")
    assert description(svg) == (
        "Top-1 by layer. trained encoder: conv1 20.0 %, fc7 45.6 %; "
        "random encoder: conv1 10.0 %, $x_1$ 12.0 %, fc7 9.0 %."
    )
    assert svg == layer_plot("layers", ["conv1", "$x_1$", "fc7"], found, title="Top-1 by layer")


def test_many_long_names_of_layers_are_turned() -> None:
    short, long = (
        layer_plot("layers", [f"{name}{n}" for n in range(5)], {"trained": [Metric(0.5)] * 5}, title="Top-1")
        for name in ("conv", "features.blocks.")
    )
    assert "rotate(-30" in long
    assert "rotate(-30" not in short


def test_a_single_layer_is_drawn() -> None:
    assert "conv1 50.0 %" in description(layer_plot("layers", ["conv1"], {"trained": [Metric(0.5)]}, title="Top-1"))


def test_a_metric_that_is_no_share_is_drawn_as_it_is() -> None:
    svg = layer_plot("layers", ["conv1", "fc7"], {"trained": [Metric(2.5, unit=""), Metric(3, unit="")]}, title="AP")
    assert "conv1 2.500, fc7 3.000" in description(svg)
    assert "%" not in "".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg))
