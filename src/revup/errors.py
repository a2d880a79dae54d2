"""Errors a user can mend: each prints as one line, without a traceback."""


class RevupError(Exception):
    """Something in the input, the options or the surroundings is wrong, and the message says what."""


class InputError(RevupError):
    """A piece of input is wrong: which file, which line, which field, what was found, what would be right."""

    def __init__(self, message: str, path: str = "", line: int = 0, field: str = "") -> None:
        self.message, self.path, self.line, self.field = message, path, line, field
        place = [str(path)] if path else []
        place += [f"line {line}"] if line else []
        place += [field] if field else []
        super().__init__(_on_one_line(": ".join([*place, message])))

    def __reduce__(
        self,
    ) -> tuple[type, tuple[str, str, int, str]]:  # so that it crosses process boundaries whole
        return type(self), (self.message, self.path, self.line, self.field)


def _on_one_line(text: str, longest: int = 1000) -> str:
    """A message may quote its input, and input may hold anything."""
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    return text if len(text) <= longest else text[:longest] + "…"


def missing_extra(extra: str, what: str) -> RevupError:
    """The error for a part of revup whose libraries are not installed."""
    return RevupError(f"{what} needs the extra '{extra}': pip install 'revup[{extra}]'")
