"""Comparisons that take hours: each finished run adds a line to a file of results, so that they may be stopped, go on
later and gain seeds."""
