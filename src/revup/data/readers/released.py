"""Format "released": the JSON Lines of the RevUp release, with a document's events in `abstract` and `headline`.

An item of either list is `{"candid": {"event_tuple": {…}}}`, the `candid` level sometimes absent; an event_tuple has
`pred`, `arg0`, `arg1`, `mod` and `semantic_parses`, where a tool's frame is the last part of a path. The document is
its abstract; the headline's events are kept in `Document.extra["headline"]`, in the JSON form, for other uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from revup.data.events import Document, Event, default_document_id, document_to_json, json_from_line, json_kind
from revup.data.readers import Options, Record, line_records
from revup.errors import InputError

_MISSING = frozenset(("", "_NULL_"))


records = line_records


def parse(record: Record, options: Options) -> Iterator[Document]:
    """Yield the document of a line."""
    path, line = record.path, record.line
    data = json_from_line(record.data, path, line)
    if not isinstance(data, dict):
        raise InputError(f"expected an object with 'abstract', found {json_kind(data)}", path, line)
    if "abstract" not in data:
        raise InputError("expected a list of events, found nothing", path, line, "abstract")
    tools: set[str] = set()
    events = _events(data["abstract"], "abstract", record, options, tools)
    headline = _events(data.get("headline") or [], "headline", record, options, tools)
    if options.tool is not None and tools and options.tool not in tools:
        found = ", ".join(repr(tool) for tool in sorted(tools))
        raise InputError(f"no semantic parse by '{options.tool}'; there is {found}", path, line)
    identity = data.get("id")
    extra = {"headline": document_to_json(Document("", headline))["events"]} if headline else None
    yield Document(
        identity if isinstance(identity, str) and identity else default_document_id(path, line), events, extra
    )


def _events(items: object, key: str, record: Record, options: Options, tools: set[str]) -> list[Event]:
    if not isinstance(items, list):
        raise InputError(f"expected a list of events, found {json_kind(items)}", record.path, record.line, key)
    return [_event(item, f"{key}[{index}]", record, options, tools) for index, item in enumerate(items)]


def _event(item: object, field: str, record: Record, options: Options, tools: set[str]) -> Event:
    def fail(key: str, message: str) -> InputError:
        return InputError(message, record.path, record.line, f"{field}.{key}")

    inner = item.get("candid", item) if isinstance(item, dict) else item
    data = inner.get("event_tuple") if isinstance(inner, dict) else None
    if not isinstance(data, dict):
        raise fail("event_tuple", f"expected an object with 'pred', found {json_kind(data)}")
    slots: list[str | None] = []
    for key in ("pred", "arg0", "arg1", "mod"):
        value = data.get(key)
        if value is not None and not isinstance(value, str):
            raise fail(key, f"expected text or null, found {json_kind(value)}")
        slots.append(None if value is None or value.strip() in _MISSING else value)
    pred, subj, obj, mod = slots
    if pred is None:
        raise fail("pred", "expected the predicate as text, found none")
    parses = data.get("semantic_parses")
    if parses is not None and not isinstance(parses, dict):
        raise fail("semantic_parses", f"expected an object of tool: parse, found {json_kind(parses)}")
    tools.update(parses or ())
    return Event(pred, subj, obj, mod, _frame(parses or {}, options.tool, fail))


def _frame(parses: dict[str, Any], tool: str | None, fail: Callable[[str, str], InputError]) -> str | None:
    """Return the frame by the named tool; without a name by Semafor, or by the only tool."""
    if tool is None:
        semafor = [name for name in parses if "semafor" in name.lower()]
        tool = semafor[0] if semafor else next(iter(parses)) if len(parses) == 1 else None
    parse = parses.get(tool) if tool is not None else None
    if parse is None:
        return None
    frame = parse.get("frame") if isinstance(parse, dict) else parse
    if frame is not None and not isinstance(frame, str):
        raise fail("semantic_parses", f"expected a frame's path by '{tool}', found {json_kind(frame)}")
    return frame.rsplit("/", 1)[-1].strip() or None if frame else None
