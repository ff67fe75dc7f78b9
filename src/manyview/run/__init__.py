"""A run: its files, flags, presets, checkpoints and logs, and `pretrain`, which carries it from start to end."""

__all__: list[str] = []
