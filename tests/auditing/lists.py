"""Lists of issues for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from revup.auditing.issues import About, describe, write_issues
from revup.data.events import Document, Event, write
from revup.io.digests import content_digest

FRAMES = ("Arrest", "Sentencing", "Trial", "Verdict")
SENTENCE = "The jury convicted the man of murder."


def row(**change: Any) -> dict[str, Any]:
    """A row with every required key."""
    found = {"id": "d0", "event": 0, "pred": "convicted", "given": "Trial", "p_given": 0.05, "p_wrong": 0.93}
    found |= {"proposed": "Verdict", "p_proposed": 0.9, "source": "frame", "reasons": ["9 of 10 others are Verdict"]}
    return {**found, **change}


def documents(count: int = 6) -> list[Document]:
    """Documents of three events each, the first of which is labelled wrong."""
    return [
        Document(
            f"d{n}",
            [
                Event("convicted", "jury", "man", "of", "Trial", text=SENTENCE, extra={"span": [9, 18]}),
                Event("sentenced", "judge", "man", "to", "Sentencing"),
                Event("arrested", "police", f"suspect {n}", None, "Arrest"),
            ],
        )
        for n in range(count)
    ]


def issues(count: int = 6, **change: Any) -> list[dict[str, Any]]:
    """One row for each document's first event, most suspicious first."""
    rows = []
    for n, document in enumerate(documents(count)):
        found = row(id=document.id, p_wrong=round(0.95 - 0.9 * n / count, 6), p_given=round(0.05 + 0.9 * n / count, 6))
        rows.append({**found, "candidates": {"Verdict": 3, "Trial": 1}, **describe(document, 0), **change})
    return rows


def written(folder: Path, rows: list[dict[str, Any]] | None = None, count: int = 6) -> tuple[Path, Path]:
    """A file of documents and the list of issues about it."""
    folder.mkdir(exist_ok=True)
    file, listed = folder / "docs.jsonl", folder / "issues.jsonl"
    write(documents(count), file)
    about = About(str(file), content_digest(file), FRAMES, {"estimated_errors": 4.0})
    write_issues(listed, issues(count) if rows is None else rows, about)
    return file, listed


def lines(path: Path) -> list[dict[str, Any]]:
    """The JSON lines of a file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
