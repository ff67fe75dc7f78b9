"""Problems of a run: findings with advice, and the numbers of embeddings that they use."""

__all__: list[str] = []
