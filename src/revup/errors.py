"""Errors that a user can correct: each is shown as one line, without a traceback."""

import errno
from collections.abc import Iterable
from difflib import get_close_matches
from signal import Signals

DEVICE_ERRORS = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EROFS))  # of a disk, not a path


class RevupError(Exception):
    """The input, the options or the environment are wrong; the message says what and what would be right."""


class InputError(RevupError):
    """A piece of input is wrong.

    Args:
        message: What was found and what would be right.
        path: The file.
        line: The line in it, from 1 on; 0 where lines do not matter.
        field: The field of that line.
    """

    def __init__(self, message: str, path: str = "", line: int = 0, field: str = "") -> None:
        self.message, self.path, self.line, self.field = message, path, line, field
        place = [str(path)] if path else []
        place += [f"line {line}"] if line else []
        place += [field] if field else []
        super().__init__(_on_one_line(": ".join([*place, message])))

    def __reduce__(self) -> tuple[type, tuple[str, str, int, str]]:  # so that it can cross process boundaries
        return type(self), (self.message, self.path, self.line, self.field)


class OutputExistsError(InputError):
    """An output exists and the caller did not ask to replace it; the command line adds how to ask.

    Attributes:
        resumable: Whether the work that made it can be continued.
    """

    resumable = False


class UnfinishedError(RevupError):
    """Work stopped for a reason outside its input (a full disk, a killed worker); the same call resumes it."""


class RevupWarning(UserWarning):
    """Something that a user should know and that stops nothing; the command line shows it as a note."""


class Interrupted(KeyboardInterrupt):
    """A signal stopped the work.

    Args:
        signal: The number of the signal.
        resume: The command that continues the work, where it was saved.
    """

    def __init__(self, signal: int, resume: str = "") -> None:
        self.signal, self.resume = signal, resume
        super().__init__(f"stopped by {Signals(signal).name}" + (f"; resume with: {resume}" if resume else ""))

    @property
    def status(self) -> int:
        """The exit status of a command that the signal stopped: 130 after Ctrl-C."""
        return 128 + self.signal


def _on_one_line(text: str, longest: int = 1000) -> str:
    """Escape line breaks and control characters: a message may quote its input, which may hold anything."""
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    return text if len(text) <= longest else text[:longest] + "…"


def reason(error: Exception) -> str:
    """Return why a library could not read something, in words a user can take; "" where it only has Python's own.

    Args:
        error: What the library raised.
    """
    if isinstance(error, KeyError):
        return f"{str(error.args[0])[:60]!r} is missing" if error.args else ""
    if isinstance(error, EOFError):
        return "it ends too early"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, (AttributeError, TypeError, IndexError, AssertionError, RecursionError)):
        return ""
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else text[:200] + "…"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` for a name that is close to a known one, else nothing.

    Args:
        name: What was given.
        known: What would be right.
    """
    near = closest(name, known)
    return f"; did you mean {near}?" if near else ""


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that a name was probably meant to be; None where none is close.

    Args:
        name: What was given.
        known: What would be right.
    """
    return next(iter(get_close_matches(name, list(known), n=1, cutoff=0.7)), None)


def missing_extra(extra: str, what: str) -> RevupError:
    """Return the error for a part of revup whose libraries are not installed.

    Args:
        extra: The optional dependency group to install.
        what: The part that needs it.
    """
    return RevupError(f"{what} needs the extra '{extra}': pip install 'revup[{extra}]'")


def named_type(value: object) -> str:
    """Return the type of a value for a message: an int, a list, None.

    Args:
        value: What was given.
    """
    if value is None:
        return "None"
    kind = type(value).__name__
    return f"{'an' if kind[:1].lower() in 'aeio' else 'a'} {kind}"
