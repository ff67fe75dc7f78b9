"""The time that is left is right after a minute, whatever else than steps happens in a run."""

from collections.abc import Callable, Mapping

import pytest

from manyview.run.remaining import Remaining


class Run:
    """A clock, and a run that it times: each step, looks before it is told and checkpoints after."""

    def __init__(self, steps: int, start: int, step: Callable[[int], float], looks: Mapping[int, float]) -> None:
        self.now, self.steps, self.start, self.step, self.looks = 0.0, steps, start, step, looks

    def told(self, *, saves: int = 50, save: float = 0.0, burst: int = 1) -> dict[float, float]:
        """What was said to be left at each time. On a GPU the steps are told in bursts."""
        pauses = {"checkpoint": saves, **{f"look every {every}": every for every in self.looks}}
        left, said, waiting = Remaining(self.steps, self.start, pauses, lambda: self.now), {}, list[int]()
        for done in range(self.start + 1, self.steps + 1):
            self.now += self.step(done)
            waiting.append(done)
            if done % burst and done % saves and done != self.steps:
                continue
            mean = sum(map(self.step, waiting)) / len(waiting)
            for each in waiting:
                if each == done:
                    self.now += sum(cost for every, cost in self.looks.items() if done % every == 0)
                left.step(each, mean)
            waiting.clear()
            assert left.seconds is not None
            said[self.now] = left.seconds
            self.now += save * (done % saves == 0)
        return said


def worst(said: dict[float, float], end: float, after: float = 60.0) -> float:
    """The greatest error after a minute, where more than ten seconds are left."""
    return max(abs(left / (end - at) - 1) for at, left in said.items() if at > after and end - at > 10)


@pytest.mark.parametrize("burst", [1, 10])
@pytest.mark.parametrize(
    ("step", "looks", "save"),
    [
        (lambda done: 0.5, {}, 0.0),
        (lambda done: 10.0 if done <= 3 else 0.5, {}, 0.0),  # warm-up
        (lambda done: 0.5, {100: 15.0}, 0.0),  # looks that take a fifth of the time
        (lambda done: 0.5, {100: 10.0, 400: 10.0}, 3.0),
        (lambda done: 0.4 + 0.2 * (done % 2), {50: 2.0}, 1.0),
        (lambda done: 20.0 if done <= 2 else 4.0, {500: 60.0}, 5.0),
    ],
)
def test_it_is_right_within_a_tenth_after_a_minute(
    step: Callable[[int], float], looks: Mapping[int, float], save: float, burst: int
) -> None:
    run = Run(4000, 0, step, looks)
    said = run.told(save=save, burst=burst)
    assert worst(said, run.now, after=60 if burst == 1 else 120) < 0.1


def test_a_resumed_run_is_not_frightened_by_a_look_that_is_due_at_once() -> None:
    run = Run(4000, 1996, lambda done: 0.5, {1000: 30.0})
    said = run.told(save=1.0)
    assert worst(said, run.now) < 0.1


def test_it_follows_a_machine_that_becomes_slower() -> None:
    run = Run(4000, 0, lambda done: 0.5 if done <= 1000 else 1.0, {})
    said = run.told()
    assert worst(said, run.now, after=500 + 2 * 60) < 0.1


def test_nothing_is_said_before_the_first_step() -> None:
    assert Remaining(10, 0, {}).seconds is None
