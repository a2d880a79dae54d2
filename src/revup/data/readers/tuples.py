"""Format "tuples": SSDVAE's and HAQAE's text form, `pred subj obj mod <TUP> pred …` a line, `_NULL_` for missing slots.

Frames may be in a parallel file: one frame per event on each line, `__NOFRAME__` where there is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from revup.data.events import Document, Event, default_document_id
from revup.data.readers import Options, Record, line_records
from revup.errors import InputError
from revup.io.files import display_name, lines

SEPARATOR, MISSING, NO_FRAME = "<TUP>", "_NULL_", "__NOFRAME__"


def records(path: str, options: Options) -> Iterator[Record]:
    """Yield one record a line: its text and, with a file of frames, that of the frames."""
    if options.frames is None:
        for record in line_records(path, options):
            yield record if isinstance(record.data, InputError) else record._replace(data=(record.data, None))
    elif options.frames == path:
        raise InputError("the events and their frames can't be one file", display_name(path))
    else:
        yield from _side_by_side(path, options.frames)


def _side_by_side(path: str, frames_path: str) -> Iterator[Record]:
    name, frames_name = display_name(path), display_name(frames_path)
    for left, right in zip_longest(lines(path), lines(frames_path)):
        number = (left or right)[0]
        text, frames = (side[1] if side else None for side in (left, right))
        if isinstance(text, InputError) or isinstance(frames, InputError):
            yield Record(name, number, text if isinstance(text, InputError) else frames)
        elif text is None or frames is None:
            (short, long) = (name, frames_name) if text is None else (frames_name, name)
            message = f"{short} ends before this line: the two files need the same number of lines"
            yield Record(name, number, InputError(message, long, number))
            return
        elif text.strip() or frames.strip():
            yield Record(name, number, (text, frames))


def parse(record: Record, options: Options) -> Iterator[Document]:
    """Yield the document of a line."""
    text, frames = record.data
    events = events_of(text, record.path, record.line)
    if frames is not None:
        named = [frame for frame in frames.split() if frame != SEPARATOR]
        if len(named) != len(events):
            message = f"{len(events)} events, but {len(named)} frames in {display_name(options.frames or '')}"
            raise InputError(message, record.path, record.line)
        for event, frame in zip(events, named, strict=True):
            event.frame = None if frame == NO_FRAME else frame
    yield Document(default_document_id(record.path, record.line), events)


def events_of(text: str, path: str = "", line: int = 0, field: str = "events") -> list[Event]:
    """Parse the events of `pred subj obj mod <TUP> pred …`; a separator at the end is allowed.

    Args:
        text: The text.
        path, line, field: The place that errors name.
    """
    pieces = [piece.split() for piece in text.split(SEPARATOR)]
    if not pieces[-1]:
        pieces.pop()
    events = []
    for index, slots in enumerate(pieces):
        if len(slots) != 4:
            message = f"expected four words, 'pred subj obj mod', found {len(slots)}"
            raise InputError(
                message + (f": {' '.join(slots)[:60]!r}" if slots else ""), path, line, f"{field}[{index}]"
            )
        pred, subj, obj, mod = (None if slot == MISSING else slot for slot in slots)
        if pred is None:
            raise InputError(f"expected the predicate, found {MISSING}", path, line, f"{field}[{index}]")
        events.append(Event(pred, subj, obj, mod))
    return events
