"""What ends a command in one line, without a traceback: a user's mistake, or a signal."""

__all__ = ["Stopped", "UserError"]


class UserError(Exception):
    """Says what is wrong, with the flag and its value, and the way out."""


class Stopped(Exception):
    """A signal ended the run early, after a whole step and with everything saved."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number
