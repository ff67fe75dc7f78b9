"""The one error that is a user's mistake and not ours: the command line prints it as one line, without a traceback."""

__all__ = ["UserError"]


class UserError(Exception):
    """Says what is wrong, with the flag and its value, and the way out."""
