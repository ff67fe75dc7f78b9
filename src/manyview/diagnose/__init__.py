"""Is a run well? Findings with advice, and the numbers of embeddings that they use."""

__all__: list[str] = []
