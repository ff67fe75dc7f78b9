"""What ends a command in one line, without a traceback: a user's mistake, or a signal."""

from collections.abc import Iterator
from contextlib import contextmanager


class UserError(Exception):
    """Says what is wrong, with the flag and its value, and the way out."""


@contextmanager
def naming(flag: str) -> Iterator[None]:
    """Puts the flag in front of a UserError from within, which knows the value but not where it came from."""
    try:
        yield
    except UserError as error:
        raise type(error)(str(error) if str(error).startswith("--") else f"{flag}: {error}") from error


class Stopped(Exception):
    """A signal ended the run early, after a whole step and with everything saved."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number
