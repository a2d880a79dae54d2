"""`revup apply`: put the decisions of a review into the reviewed file, and change nothing else."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import cast

from revup.auditing.edit import set_frames
from revup.data.decisions import Decision, latest, read_decisions
from revup.data.events import default_document_id, document_from_json, json_from_line
from revup.errors import InputError
from revup.io.digests import content_digest
from revup.io.files import LONGEST_LINE, display_name, open_binary, open_output

BOM = b"\xef\xbb\xbf"


def apply(
    file: str | Path, decisions: str | Path, out: str | Path, force: bool = False, skip_bad: bool = False
) -> dict[str, int]:
    """Write a file of documents with the frames that a reviewer decided on.

    Only the value of `frame` changes, and only of events that were decided on; where an event has no such key, it is
    added. Every other byte stays, of a .gz those that it unpacks to.

    Args:
        file: The reviewed documents in JSON Lines; ".gz" is decompressed, "-" is standard input.
        decisions: The decisions of `revup review`.
        out: The file to write; ".gz" is compressed, "-" is standard output.
        force: Replace a file that exists.
        skip_bad: Copy lines that are no documents as they are, instead of refusing them.

    Returns:
        Figures: `documents`, `decisions` (events that were decided on or skipped), and of these `changed`, `unchanged`
        and `skipped`; `bad_lines`.

    Raises:
        InputError: It is not the file that was reviewed, or a line of it or of the decisions is wrong.
    """
    chosen = latest(read_decisions(decisions))
    expected = _one_digest(chosen, display_name(decisions))
    if expected is not None and str(file) != "-":
        expected = _checked(file, expected)
    figures = {"documents": 0, "decisions": len(chosen), "changed": 0, "unchanged": 0, "skipped": 0, "bad_lines": 0}
    corrections = _Corrections(chosen, figures)
    digest = hashlib.sha256()
    with open_output(out, force) as text, TemporaryFile() as held:
        stream = held if str(out) == "-" else text.buffer  # standard output gets all or nothing, too
        for number, raw, problem in _raw_lines(file):
            digest.update(raw)
            stream.write(_corrected(raw, problem, corrections, display_name(file), number, skip_bad))
        if expected is not None and digest.hexdigest() != expected:  # what was read now is what counts
            raise _other_file(file, digest.hexdigest(), expected)
        corrections.check_complete(display_name(decisions))
        if stream is held:
            held.seek(0)
            shutil.copyfileobj(held, text.buffer)
    return figures


class _Corrections:
    """The decisions by document, and which of them were carried out."""

    def __init__(self, chosen: Mapping[tuple[str, int], Decision], figures: dict[str, int]) -> None:
        self.figures = figures
        self.documents: dict[str, dict[int, Decision]] = {}
        for (identity, event), decision in chosen.items():
            self.documents.setdefault(identity, {})[event] = decision
        self.by_line: dict[str, list[str]] = {}  # ids as documents without one get them: file and line
        for identity in self.documents:
            self.by_line.setdefault(identity.rpartition(":")[2], []).append(identity)
        self.found: dict[str, int] = {}  # id → line

    def of(self, identity: str | None, path: str, line: int) -> dict[int, Decision]:
        """The decisions about the document on a line."""
        if identity is None:
            identity = default_document_id(path, line)
            if identity not in self.documents:  # the file may have had another name when it was reviewed
                alike = self.by_line.get(str(line), [])
                identity = alike[0] if len(alike) == 1 else identity
        if identity not in self.documents:
            return {}
        if identity in self.found:
            twice = f"two documents have the id {identity!r}, the first on line {self.found[identity]}"
            raise InputError(f"{twice}: the decisions don't say which they are about", path, line, "id")
        self.found[identity] = line
        return self.documents[identity]

    def check_complete(self, name: str) -> None:
        """Refuse decisions about documents that are not in the file."""
        for identity in self.documents:
            if identity not in self.found:
                raise InputError(f"decides on the document {identity!r}, which the file does not have", name)


def _corrected(
    raw: bytes, problem: InputError | None, corrections: _Corrections, path: str, line: int, skip_bad: bool
) -> bytes:
    """A line with its reviewed frames."""
    if not raw.strip() and problem is None:
        return raw
    figures, start = corrections.figures, len(BOM) if line == 1 and raw.startswith(BOM) else 0
    try:
        if problem is not None:
            raise problem
        text = _decoded(raw[start:], path, line)
        data = json_from_line(text, path, line)
        document = document_from_json(data, path=path, line=line)
    except InputError:
        if not skip_bad:
            raise
        figures["bad_lines"] += 1
        return raw
    figures["documents"] += 1
    named = isinstance(data, dict) and data.get("id") is not None
    decided = corrections.of(document.id if named else None, path, line)
    changes: dict[int, str | None] = {}
    for event, decision in decided.items():
        if event >= len(document.events):
            raise InputError(f"a decision is about event {event}, found {len(document.events)} events", path, line)
        if decision.decision == "skip":
            figures["skipped"] += 1
        elif decision.frame == document.events[event].frame:
            figures["unchanged"] += 1
        else:
            figures["changed"] += 1
            changes[event] = decision.frame
    return raw[:start] + set_frames(text, changes).encode("utf-8") if changes else raw


def _decoded(raw: bytes, path: str, line: int) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 text: {error.reason} at byte {error.start}", path, line) from None


def _raw_lines(path: str | Path) -> Iterator[tuple[int, bytes, InputError | None]]:
    """Yield every line with its number; a line that is too long comes in pieces, each with the error."""
    name, number = display_name(path), 0
    with open_binary(path) as stream:
        while True:
            number += 1
            try:
                raw, problem = stream.readline(LONGEST_LINE + 1), None
                if len(raw) > LONGEST_LINE:
                    problem = InputError(f"the line is longer than {LONGEST_LINE // 2**20} MiB", name, number)
                    while raw and not raw.endswith(b"\n"):
                        yield number, raw, problem
                        raw = stream.readline(LONGEST_LINE)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise InputError(f"the compressed file is damaged: {error}", name, number) from None
            except OSError as error:
                raise InputError(f"can't be read: {error.strerror or error}", name, number) from None
            if not raw:
                return
            yield number, raw, problem


def _one_digest(chosen: Mapping[tuple[str, int], Decision], name: str) -> str | None:
    """The digest of the file that the decisions are about; None where there are no decisions."""
    digests = {decision.digest for decision in chosen.values()}
    if None in digests:
        advice = "review with `revup review ISSUES.jsonl FILE`"
        raise InputError(f"doesn't say which file was reviewed: {advice}", name, field="digest")
    if len(digests) > 1:
        raise InputError("has decisions about several files", name, field="digest")
    return cast(str, digests.pop()).removeprefix("sha256:") if digests else None


def _checked(file: str | Path, expected: str) -> str:
    """Refuse a file that is not the reviewed one; returns the digest of its contents."""
    found = content_digest(file)
    if found != expected:
        with open(file, "rb") as stream:  # a digest made by other tools is that of the compressed file
            if hashlib.file_digest(stream, "sha256").hexdigest() != expected:
                raise _other_file(file, found, expected)
    return found


def _other_file(file: str | Path, found: str, expected: str) -> InputError:
    message = f"not the file that was reviewed: its SHA-256 is {found[:12]}…, that of the reviewed one {expected[:12]}…"
    return InputError(message, display_name(file))
