"""Embeddings and similarities that the tests of the objectives share, and the memory that a call takes."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize

from manyview.objectives import similarity


def embeddings(n: int = 6, m: int = 5, k: int = 11, d: int = 7) -> tuple[Tensor, Tensor, Tensor]:
    """Unit queries (N, D), keys near them (N, M, D) and negatives (K, D), float64."""
    generator = torch.Generator().manual_seed(n * m * k * d)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    q = normalize(draw(n, d), dim=-1)
    return q, normalize(q[:, None] + 0.7 * draw(n, m, d), dim=-1), normalize(draw(k, d), dim=-1)


def matrices() -> tuple[Tensor, Tensor]:
    q, keys, negatives = embeddings()
    return similarity(q, keys), similarity(q, negatives)


def allocated(function: Callable[[], object]) -> int:
    """Bytes that the operators of a call allocate in all."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        function()
    return sum(max(0, event.self_cpu_memory_usage) for event in profile.events())


def peak_memory(function: Callable[[], object]) -> int:
    """Most bytes that a call holds at once."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        function()
    with tempfile.TemporaryDirectory() as directory:
        trace = Path(directory) / "trace.json"
        profile.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    changes = sorted((event for event in events if event["name"] == "[memory]"), key=lambda event: event["ts"])
    held = peak = 0
    for change in changes:
        held += change["args"]["Bytes"]
        peak = max(peak, held)
    return peak


def draw_views(views: int, samples: int, dim: int = 5) -> Tensor:
    """Unit embeddings (V, N, D), float64."""
    generator = torch.Generator().manual_seed(100 * views + samples)
    return normalize(torch.randn(views, samples, dim, dtype=torch.float64, generator=generator), dim=-1)
