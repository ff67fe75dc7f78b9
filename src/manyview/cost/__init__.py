"""What a step of a method costs: its time and its memory, each measured in a process of its own."""

__all__: list[str] = []
