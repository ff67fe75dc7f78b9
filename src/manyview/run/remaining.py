"""How long a run still takes: its steps and its pauses, such as looks and checkpoints, are counted apart."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from itertools import takewhile

WINDOW = 60.0  # seconds of steps that tell the speed: it may change
FEWEST, WARM_UP = 5, 3  # steps that tell it at least; steps after the start that do not count


class Remaining:
    """`pauses` says after how many steps each kind of pause comes; what it takes is what the last ones took."""

    def __init__(
        self, steps: int, start: int, pauses: Mapping[str, int], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.steps, self.done, self.clock = steps, start, clock
        self.pauses, self.cost = pauses, dict[str, float]()
        self.recent, self.idle, self.last, self.warm = deque[float](), 0.0, clock(), False

    def step(self, done: int, seconds: float) -> None:
        """After `done` steps, of which the last took `seconds`. What else has passed belongs to the next pause."""
        now = self.clock()
        self.idle, self.last, self.done = self.idle + now - self.last - seconds, now, done
        self.recent.append(seconds)
        if not self.warm and len(self.recent) >= FEWEST + WARM_UP and seconds != self.recent[0]:
            together = sum(1 for _ in takewhile(lambda each: each == self.recent[0], self.recent))  # with their mean
            self.warm, self.recent = True, deque(list(self.recent)[max(WARM_UP, together) :])
        while len(self.recent) > FEWEST and sum(self.recent) - self.recent[0] > WINDOW:
            self.recent.popleft()
        if ended := [name for name, every in self.pauses.items() if done % every == 0]:
            rarest = max(ended, key=lambda name: self.pauses[name])  # what is often is known already
            known = sum(self.cost.get(name, 0.0) for name in ended if name != rarest)
            found, self.idle = max(0.0, self.idle - known), 0.0
            self.cost[rarest] = (self.cost.get(rarest, found) + found) / 2

    @property
    def seconds(self) -> float | None:
        """None before the first step."""
        if not self.recent:
            return None
        coming = {name: self.steps // every - self.done // every for name, every in self.pauses.items()}
        # A copy, for the thread that breaks the silence asks too.
        pauses = sum(cost * coming[name] for name, cost in self.cost.copy().items())
        return (self.steps - self.done) * sum(self.recent) / len(self.recent) + pauses
