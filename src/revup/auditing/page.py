"""The review page: one HTML document, put together from `assets/`, for the server or as a file of its own."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from revup.auditing.issues import IssueList, decisions_path, event_view, read_issues
from revup.data.decisions import Decision
from revup.data.readers import read
from revup.errors import InputError, RevupError
from revup.io.digests import content_digest
from revup.io.files import open_output

MOST_ISSUES = 10_000  # on a page that is a file of its own
MOST_CONTEXT = 32 * 2**20  # bytes of documents on such a page; beyond, only the events around each issue
SCRIPTS = ("store.js", "chooser.js", "view.js", "filters.js", "review.js")

Documents = dict[str, bytes]  # id → the events as JSON


def page_html(data: Mapping[str, Any], connect: bool) -> str:
    """Return the page.

    Args:
        data: What the script starts with.
        connect: Whether the page may ask the host that it came from; other hosts it may never ask.
    """
    style, script, own = _asset("style.css"), _script(), "'self'" if connect else "'none'"
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            f"style-src '{_hash(style)}'",
            "style-src-attr 'none'",
            "img-src data:",
            f"connect-src {own}",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    parts = {"policy": policy, "style": style, "script": script, "data": _embedded(data)}
    head, *rest = _asset("review.html").split("{{")
    filled = (f"{parts[name]}{text}" for name, _, text in (piece.partition("}}") for piece in rest))
    return head + "".join(filled)


def _embedded(data: Any) -> str:
    """JSON that can stand inside a script element: nothing in it ends the element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _asset(name: str) -> str:
    return (files("revup.auditing") / "assets" / name).read_text("utf-8")


@cache
def _script() -> str:
    return '"use strict";\n(() => {\n' + "\n".join(map(_asset, SCRIPTS)) + "})();\n"


def _hash(text: str) -> str:
    return "sha256-" + b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


# ---- what the page knows -----------------------------------------------------------------------------------


def listing(issues: IssueList, digest: str | None, count: int | None = None) -> dict[str, Any]:
    """Return what the page knows of all rows: the columns to filter and sort by, the frames, names of files.

    Args:
        issues: The list.
        digest: Digest of the reviewed file.
        count: Only so many rows, from the first.
    """
    count = len(issues) if count is None else count
    numbers: dict[str, int] = {}
    columns: dict[str, list[int]] = {}
    for key in ("pred", "given", "proposed", "source"):
        values = issues.columns[key][:count]
        columns[key] = [-1 if value is None else numbers.setdefault(value, len(numbers)) for value in values]
    documents: dict[str, int] = {}
    return {
        "title": Path(issues.path).name,
        "list": fingerprint(issues, digest),
        "file": issues.about.file and Path(issues.about.file).name,
        "path": decisions_path(issues.path).name,
        "digest": digest,
        "count": count,
        "total": len(issues),
        "frames": issues.frames(),
        **columns,
        "document": [documents.setdefault(name, len(documents)) for name in issues.columns["id"][:count]],
        "event": issues.columns["event"][:count],
        "p_wrong": [value and round(value, 5) for value in issues.columns["p_wrong"][:count]],
        "names": list(numbers),
    }


def fingerprint(issues: IssueList, digest: str | None) -> str:
    """Return what identifies a list: decisions about its rows fit no other list."""
    whole = hashlib.sha256((digest or "").encode())
    for identity, event in zip(issues.columns["id"], issues.columns["event"], strict=True):
        whole.update(json.dumps([identity, event]).encode())
    return whole.hexdigest()[:32]


def entry(decision: Decision, issues: IssueList) -> dict[str, Any]:
    """Return a decision as the page knows it; the row is -1 where the list does not have the event."""
    row = issues.find(*decision.key)
    return {
        "row": -1 if row is None else row,
        "decision": decision.decision,
        "frame": decision.frame,
        "time": decision.time,
    }


def reviewed_file(issues: IssueList, file: str | Path | None) -> tuple[str | None, Documents]:
    """Return the digest of the reviewed file, and the documents of the list.

    Args:
        issues: The list.
        file: The file, which must be the one that was audited. Where it is None, the one that the list names is read,
            if it is still there and unchanged.

    Raises:
        InputError: The file is not the one that was audited, or can't be read.
    """
    about, documents = issues.about, Documents()
    if file is not None:
        digest = content_digest(file)
        if about.digest is not None and digest != about.digest:
            message = f"not the file that was audited: its SHA-256 is {digest[:12]}…, that of the audited one"
            raise InputError(f"{message} {about.digest[:12]}…", str(file))
        return digest, _documents(issues, file)
    if about.file is not None and about.digest is not None and Path(about.file).is_file():
        try:
            if content_digest(about.file) == about.digest:
                documents = _documents(issues, about.file)
        except (RevupError, OSError):
            documents = {}  # the rows have the events around theirs
    return about.digest, documents


def _documents(issues: IssueList, file: str | Path) -> Documents:
    wanted, found = set(issues.columns["id"]), Documents()
    for document in read(file, **issues.about.reading):
        if document.id in wanted and document.id not in found:
            events = [event_view(event, index) for index, event in enumerate(document.events)]
            found[document.id] = json.dumps(events, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    return found


def fits(row: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a document has the event of a row, and not another document with the same id."""
    return row["event"] < len(events) and bool(events[row["event"]]["pred"] == row["pred"])


# ---- a page of its own -------------------------------------------------------------------------------------


def write_page(
    path: str | Path,
    issues: str | Path,
    file: str | Path | None = None,
    most: int = MOST_ISSUES,
    force: bool = False,
) -> int:
    """Write the review as one HTML file that needs nothing beside itself.

    The browser keeps the decisions, and the page exports them as a file that `revup apply` reads.

    Args:
        path: The page to write.
        issues: The list of issues.
        file: The audited file, for the documents around the events; by default the one that the list names.
        most: The number of issues on the page, most suspicious first.
        force: Replace a page that exists.

    Returns:
        The number of issues on the page.
    """
    found = read_issues(issues)
    digest, documents = reviewed_file(found, file)
    count = min(len(found), most)
    rows = [found[row] for row in range(count)]
    shown: dict[str, Any] = {}
    size = 0
    for row in rows:
        if row["id"] in documents and row["id"] not in shown:
            size += len(documents[row["id"]])
            if size > MOST_CONTEXT:
                break
            shown[row["id"]] = json.loads(documents[row["id"]])
    for row in rows:
        if row["id"] in shown and fits(row, shown[row["id"]]):
            row.pop("context", None)
    data = {"mode": "file", **listing(found, digest, count), "rows": rows, "documents": shown}
    with open_output(path, force) as out:
        out.write(page_html(data, connect=False))
    return count
