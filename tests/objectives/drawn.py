"""Embeddings and similarities that the tests of the objectives share."""

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


def draw_views(views: int, samples: int, dim: int = 5) -> Tensor:
    """Unit embeddings (V, N, D), float64."""
    generator = torch.Generator().manual_seed(100 * views + samples)
    return normalize(torch.randn(views, samples, dim, dtype=torch.float64, generator=generator), dim=-1)
