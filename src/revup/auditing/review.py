"""The review server: the page on this machine, and every decision on disk before the next event is shown.

It listens on 127.0.0.1 only, and answers requests that name this machine as their host (a foreign name that resolves to
it is refused), carry the session's token and come from its own page. So no other web page can read or decide.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from revup.auditing.decisions import DecisionLog, now, open_decisions
from revup.auditing.issues import IssueList, decisions_path, read_issues
from revup.auditing.page import Documents, entry, fingerprint, fits, listing, page_html, reviewed_file
from revup.data.decisions import Decision, decision_from_json
from revup.errors import InputError, RevupError

PORT = 8765
HOSTS = ("127.0.0.1", "localhost", "[::1]")
LARGEST_BODY = 2**16  # bytes
MOST_ROWS = 100  # a request
NEAR = 30  # events of the document on either side


class Refused(Exception):
    """A request that is not carried out.

    Args:
        status: The HTTP status.
        message: What the page shows.
    """

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class Review:
    """One list under review: what the page asks for, and the decisions on disk.

    Args:
        issues: The list.
        digest: Digest of the reviewed file; None where it is not known.
        documents: The documents around the events, as far as they are known.
        log: The decisions.
    """

    def __init__(self, issues: IssueList, digest: str | None, documents: Documents, log: DecisionLog) -> None:
        self.issues, self.digest, self.documents, self.log = issues, digest, documents, log
        self.list, self.token = fingerprint(issues, digest), secrets.token_urlsafe(32)
        self._listing = {**listing(issues, digest), "path": str(log.path)}
        self._lock, self._closed = threading.Lock(), False

    def close(self) -> None:
        """Let a decision that is being written finish, and accept no more."""
        with self._lock:
            self._closed = True

    def session(self) -> dict[str, Any]:
        """What a page that was open before this server started needs to go on."""
        return {"token": self.token, "list": self.list}

    def everything(self) -> dict[str, Any]:
        """What is known of all rows, and all decisions."""
        with self._lock:
            return {**self._listing, "decisions": [entry(decision, self.issues) for decision in self.log.entries]}

    def rows(self, numbers: list[int]) -> dict[str, Any]:
        """The rows with the documents around their events."""
        if len(numbers) > MOST_ROWS or not all(0 <= number < len(self.issues) for number in numbers):
            raise Refused(HTTPStatus.BAD_REQUEST, "no such rows")
        return {"rows": {number: self._row(number) for number in numbers}}

    def _row(self, number: int) -> dict[str, Any]:
        row = self.issues[number]
        events = json.loads(self.documents.get(row["id"], b"[]"))
        if fits(row, events):
            first = max(0, row["event"] - NEAR)
            row["document"] = {"events": events[first : row["event"] + NEAR + 1], "total": len(events)}
        return row

    def decide(self, request: dict[str, Any]) -> dict[str, Any]:
        """Write a decision. The same request again, after its answer was lost, changes nothing."""
        with self._lock:
            decision = self._decision(request)
            if not self._is_repeated(request, decision):
                self._check_count(request)
                self._write(lambda: self.log.append(decision))
            return {"count": len(self.log.entries), "entry": entry(self.log.entries[-1], self.issues)}

    def undo(self, request: dict[str, Any]) -> dict[str, Any]:
        """Take the last decision back. The same request again, after its answer was lost, changes nothing."""
        with self._lock:
            self._check_list(request)
            if request.get("after") != len(self.log.entries) + 1:
                self._check_count(request)
                self._write(self.log.undo)
            return {"count": len(self.log.entries)}

    def _decision(self, request: dict[str, Any]) -> Decision:
        self._check_list(request)
        number = request.get("row")
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < len(self.issues):
            raise Refused(HTTPStatus.BAD_REQUEST, "no such row")
        row = self.issues[number]
        data = {"id": row["id"], "event": row["event"], "given": row["given"], "digest": self.digest, "time": now()}
        try:
            decision = decision_from_json({**data, **{key: request.get(key) for key in ("decision", "frame")}})
            decision.frame and decision.frame.encode("utf-8")
        except UnicodeEncodeError:
            raise Refused(HTTPStatus.BAD_REQUEST, "frame: half a surrogate pair is no character") from None
        except InputError as error:
            raise Refused(HTTPStatus.BAD_REQUEST, str(error)) from None
        if decision.decision == "accept" and decision.frame != row["proposed"]:
            raise Refused(HTTPStatus.BAD_REQUEST, "frame: expected the proposed frame")
        return decision

    def _is_repeated(self, request: dict[str, Any], decision: Decision) -> bool:
        if not self.log.entries or request.get("after") != len(self.log.entries) - 1:
            return False
        last = self.log.entries[-1]
        return (last.key, last.decision, last.frame) == (decision.key, decision.decision, decision.frame)

    def _check_list(self, request: dict[str, Any]) -> None:
        if request.get("list") != self.list:
            raise Refused(HTTPStatus.CONFLICT, "another list is under review now: reload the page")

    def _check_count(self, request: dict[str, Any]) -> None:
        if request.get("after") != len(self.log.entries):
            raise Refused(HTTPStatus.CONFLICT, "another window decided meanwhile")

    def _write(self, change: Callable[[], object]) -> None:
        if self._closed:
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "the review server is stopping")
        try:
            change()
        except RevupError as error:
            raise Refused(HTTPStatus.INSUFFICIENT_STORAGE, str(error)) from None


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: ReviewServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "revup", ""
    timeout = 120  # seconds until an idle connection is closed
    wbufsize, disable_nagle_algorithm = -1, True  # head and body leave together: each answer is 40 ms sooner

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _get(self) -> tuple[str, bytes]:
        review, url = self.server.review, urlsplit(self.path)
        if url.path == "/":
            page = page_html({"mode": "server", "token": review.token}, connect=True)
            return "text/html; charset=utf-8", page.encode("utf-8")
        self._check_origin()
        if url.path == "/api/session":
            return _json(review.session())
        self._check_token()
        if url.path == "/api/list":
            return _json(review.everything())
        if url.path == "/api/rows":
            return _json(review.rows(_numbers(parse_qs(url.query).get("rows", [""])[0])))
        raise Refused(HTTPStatus.NOT_FOUND, "there is nothing here")

    def _post(self) -> tuple[str, bytes]:
        review = self.server.review
        body = self._body()
        self._check_origin()
        self._check_token()
        actions = {"/api/decide": review.decide, "/api/undo": review.undo}
        if self.path not in actions:
            raise Refused(HTTPStatus.NOT_FOUND, "there is nothing here")
        if self.headers.get_content_type() != "application/json":
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "expected JSON")
        try:
            data = json.loads(body)
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, dict):
            raise Refused(HTTPStatus.BAD_REQUEST, "expected a JSON object")
        return _json(actions[self.path](data))

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            self.close_connection = True
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "expected a Content-Length")
        if int(length[:12]) > LARGEST_BODY:
            self.close_connection = True  # what follows is not read
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too large")
        return self.rfile.read(int(length))

    def _check_host(self) -> None:
        """Refuse a request that was sent to another name: that is a foreign page's way past the same-origin policy."""
        name, _, port = self.headers.get("Host", "").rpartition(":")
        if name not in HOSTS or not port.isdigit():
            raise Refused(HTTPStatus.FORBIDDEN, "this server answers on this machine only")

    def _check_origin(self) -> None:
        origin, site = self.headers.get("Origin"), self.headers.get("Sec-Fetch-Site")
        if origin not in (None, f"http://{self.headers.get('Host')}") or site not in (None, "same-origin", "none"):
            raise Refused(HTTPStatus.FORBIDDEN, "this server answers its own page only")

    def _check_token(self) -> None:
        given = self.headers.get("X-Revup-Token", "")
        if not hmac.compare_digest(given.encode("utf-8", "replace"), self.server.review.token.encode("utf-8")):
            raise Refused(HTTPStatus.FORBIDDEN, "token")

    def _answer(self, work: Callable[[], tuple[str, bytes]]) -> None:
        status = HTTPStatus.OK
        try:
            self._check_host()
            kind, body = work()
        except Refused as refused:
            status, (kind, body) = refused.status, _json({"error": refused.message})
            if self.command == "POST":
                self.close_connection = True  # its body may not have been read
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in SAFETY.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal belongs to the verb."""


SAFETY = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}


class ReviewServer(ThreadingHTTPServer):
    """The server of one review; made by `open_review`.

    Attributes:
        review: The review.
        url: Where the page is.
    """

    daemon_threads = True

    def __init__(self, review: Review, port: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.review = review
        self.url = f"http://127.0.0.1:{self.server_address[1]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that were closed in the middle."""


def _json(data: Any) -> tuple[str, bytes]:
    return "application/json", json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def _numbers(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and len(part) < 12 for part in parts):
        raise Refused(HTTPStatus.BAD_REQUEST, "expected row numbers")
    return [int(part) for part in parts]


@contextmanager
def open_review(issues: str | Path, file: str | Path | None = None, port: int = PORT) -> Iterator[ReviewServer]:
    """Open a list of issues for review; `serve_forever` of what is yielded answers the browser.

    Args:
        issues: The list of issues.
        file: The audited file: the documents around the events are shown, and `revup apply` will accept this file
            only. By default the one that the list names.
        port: The port on 127.0.0.1; 0 picks one that is free.

    Raises:
        InputError: The list, the file or earlier decisions can't be read, or do not belong together.
        RevupError: Another process reviews the list, or the port is taken.
    """
    found = read_issues(issues)
    digest, documents = reviewed_file(found, file)
    with open_decisions(decisions_path(issues)) as log:
        for number, decision in enumerate(log.entries, 1):
            if decision.digest != digest:
                message = f"decision {number} is about another file than this list: move the decisions away, or"
                raise InputError(f"{message} review the list that they were made for", str(log.path), field="digest")
        try:
            server = ReviewServer(Review(found, digest, documents, log), port)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise RevupError(f"port {port}: {reason}; choose another with --port") from None
        with server:
            try:
                yield server
            finally:
                server.review.close()


def review(
    issues: str | Path,
    file: str | Path | None = None,
    port: int = PORT,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Show a list of issues in the browser and keep what the reviewer decides, until Ctrl-C.

    Decisions are in `ISSUES.decisions.jsonl`, each one on disk before the next event is shown.

    Args:
        issues: The list of issues that `revup audit` wrote.
        file: The audited file; by default the one that the list names.
        port: The port on 127.0.0.1; 0 picks one that is free.
        on_ready: Called with the address of the page when it can be opened.
    """
    with open_review(issues, file, port) as server:
        if on_ready is not None:
            on_ready(server.url)
        server.serve_forever()
