"""Keys of events that were probably mistyped. Unknown keys are kept and never an error, so this is said as a note."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping

from revup.data.events import EVENT_KEYS, Document
from revup.errors import InputError, RevupWarning, closest

MOST = 100  # different unknown keys of a file that are looked at
_MEANT = {**{key: key for key in sorted(EVENT_KEYS)}, "subject": "subj", "object": "obj", "modifier": "mod"}


class UnknownKeys:
    """Unknown keys of a file's events that are close to a known one which the event lacks.

    Attributes:
        notes: Key → what to say of it, with the place where it was found first.
    """

    def __init__(self) -> None:
        self.notes: dict[str, str] = {}
        self._seen: set[str] = set()

    def add(self, document: Document, path: str = "", line: int = 0) -> list[str]:
        """Look at a document of the file, and return the notes that it adds.

        Args:
            document: The document.
            path, line: Its place.
        """
        found = []
        for index, event in enumerate(document.events):
            for key in event.extra or ():
                if key in self._seen or len(self._seen) >= MOST:
                    continue
                self._seen.add(key)
                near = closest(key.lower(), _MEANT)
                if near is not None and getattr(event, _MEANT[near]) is None:
                    problem = f"unknown key '{key[:60]}'; did you mean '{_MEANT[near]}'?"
                    self.notes[key] = str(InputError(problem, path, line, f"events[{index}]"))
                    found.append(self.notes[key])
        return found

    def warn(self, document: Document, path: str = "", line: int = 0) -> None:
        """Look at a document, and warn of what is new."""
        warn_of(self.add(document, path, line))


def warn_of(notes: Iterable[str]) -> None:
    """Warn Python callers of notes; the command line shows them on standard error."""
    for note in notes:
        warnings.warn(note, RevupWarning, stacklevel=3)


def once_each(found: Iterable[tuple[object, Mapping[str, str]]]) -> Iterator[str]:
    """Yield notes that came of parts of files, each once a file and key.

    Args:
        found: Of every part, in order: its file, and key → note.
    """
    seen: set[tuple[object, str]] = set()
    for file, notes in found:
        for key, note in notes.items():
            if (file, key) not in seen:
                seen.add((file, key))
                yield note
