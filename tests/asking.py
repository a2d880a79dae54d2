"""A client for tests of servers."""

from __future__ import annotations

import http.client
import json
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    data: Any
    headers: dict[str, str]


def ask(address: str, path: str, body: Any = None, method: str | None = None, **headers: str) -> Answer:
    """Send a request with a JSON body, or with bytes as they are; without a body, GET."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=30)
    content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    connection.request(method or ("GET" if body is None else "POST"), path, content, headers)
    response = connection.getresponse()
    text = response.read()
    found = {name.lower(): value for name, value in response.getheaders()}
    is_json = found.get("content-type", "").startswith("application/json") and text
    connection.close()
    return Answer(response.status, json.loads(text) if is_json else text.decode("utf-8", "replace"), found)
