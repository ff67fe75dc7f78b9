"""What ends a command in one line, without a traceback: a user's mistake, or a signal."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_LONGEST = 300  # characters of what a file or a library says


class UserError(Exception):
    """Says what is wrong, with the flag and its value, and the way out: one line for each mistake."""


def refuse(problems: Iterable[str]) -> None:
    """Raises a UserError with all of them, each once, if there are any."""
    if lines := list(dict.fromkeys(problems)):
        raise UserError("\n".join(lines))


def meant(word: str, known: Iterable[str]) -> str:
    """The question after the one of the known words that is most like it, if any is."""
    close = get_close_matches(word, list(known), 1)
    return f" (did you mean {close[0]}?)" if close else ""


def printable(text: str) -> str:
    """With the escapes of control characters: a name in an archive may hold line breaks and orders to a terminal."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(said: object) -> str:
    """What a library says, or what a file holds, as a part of a message: on one line, and not too long."""
    words = printable(" ".join(str(said).split()))
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]} …"


def complaints(*checks: Callable[[], object]) -> list[str]:
    """The lines of the UserErrors that the checks raise. All are called, so that a user sees all mistakes at once."""
    found: list[str] = []
    for check in checks:
        try:
            check()
        except UserError as error:
            found += str(error).splitlines()
    return found


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
