"""One room for each section of the page: from what the run directory says to HTML."""

__all__: list[str] = []
