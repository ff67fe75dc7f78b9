"""What a run is: its files on disk, its flags and presets, what it computes with, and its way from start to end."""

__all__: list[str] = []
