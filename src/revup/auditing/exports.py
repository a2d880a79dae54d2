"""The list of issues for Label Studio and Prodigy, and what was decided there back as decisions.

Each task carries what identifies the event under the key `revup`, which both tools keep, so that their exports can be
matched with the list. A chosen frame becomes the decision `keep` where it is the given one, `accept` where it is the
proposed one, and `other` else; a task that was skipped or rejected becomes `skip`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import quoteattr

from revup.auditing.decisions import now, open_decisions
from revup.auditing.issues import decisions_path, read_issues
from revup.auditing.page import reviewed_file
from revup.data.decisions import Decision, decision_from_json, latest
from revup.data.events import json_from_line, json_kind
from revup.errors import InputError, RevupError
from revup.io.files import lines, open_output, write_text

NO_FRAME = "No frame fits"
UNDECIDED = "None of these"


def export_issues(
    issues: str | Path, out: str | Path, tool: str, file: str | Path | None = None, force: bool = False
) -> int:
    """Write a list of issues as tasks of another annotation tool.

    Args:
        issues: The list of issues.
        out: The file to write: JSON for Label Studio (and, beside it, `NAME.config.xml`, the labelling interface to
            paste into a project), JSON Lines for Prodigy's `choice` interface.
        tool: "label-studio" or "prodigy".
        file: The audited file; by default the one that the list names.
        force: Replace a file that exists.

    Returns:
        The number of tasks.
    """
    if tool not in TOOLS:
        raise RevupError(f"unknown tool '{tool}': one of {', '.join(TOOLS)}")
    found = read_issues(issues)
    digest = reviewed_file(found, file)[0]
    tasks = (TOOLS[tool](found[row], digest) for row in range(len(found)))
    with open_output(out, force) as stream:
        if tool == "prodigy":
            stream.writelines(json.dumps(task, ensure_ascii=False) + "\n" for task in tasks)
        else:
            for number, task in enumerate(tasks):
                stream.write((",\n" if number else "[\n") + json.dumps(task, ensure_ascii=False))
            stream.write("\n]\n")
    if tool == "label-studio" and str(out) != "-":
        write_text(Path(out).with_suffix(".config.xml"), label_studio_config(found.frames()))
    return len(found)


# ---- tasks -------------------------------------------------------------------------------------------------


class Shown(NamedTuple):
    """An event as one text, with the place of its predicate."""

    text: str
    start: int
    end: int


def _shown(row: Mapping[str, Any]) -> Shown:
    text, span = row.get("text"), row.get("span")
    if text and span:
        return Shown(text, span[0], span[1])
    if text:
        at = text.lower().find(row["pred"].lower())
        return Shown(text, max(at, 0), at + len(row["pred"]) if at >= 0 else 0)
    before = f"{row['subj']} " if row.get("subj") else ""
    after = [row[slot] for slot in ("obj", "mod") if row.get(slot)]
    return Shown(" ".join([before + row["pred"], *after]), len(before), len(before) + len(row["pred"]))


def _identity(row: Mapping[str, Any], digest: str | None) -> dict[str, Any]:
    return {**{key: row[key] for key in ("id", "event", "given", "proposed")}, "digest": digest}


def _percent(value: float | None) -> str:
    return "" if value is None else f" ({value:.0%})"


def _question(row: Mapping[str, Any]) -> str:
    given = f"given: {row['given']}{_percent(row['p_given'])}" if row["given"] is not None else "no label given"
    proposed = f"; proposed: {row['proposed']}{_percent(row['p_proposed'])}" if row["proposed"] is not None else ""
    return f"{row['pred']} — {given}{proposed}"


def _around(row: Mapping[str, Any]) -> str:
    events = [*(row.get("context") or []), {**row, "frame": row["given"]}]
    texts = [(event["event"], _shown(event).text, event.get("frame")) for event in events]
    return "\n".join(f"{index + 1}. {text} [{frame or 'no label'}]" for index, text, frame in sorted(texts))


def _label_studio(row: Mapping[str, Any], digest: str | None) -> dict[str, Any]:
    shown = _shown(row)
    result: list[dict[str, Any]] = []
    if row["proposed"] is not None:
        value = {"choices": [row["proposed"]]}
        result.append({"id": "frame", "from_name": "frame", "to_name": "text", "type": "choices", "value": value})
    if shown.end > shown.start:
        words = shown.text[shown.start : shown.end]
        place = {"start": shown.start, "end": shown.end, "text": words, "labels": ["predicate"]}
        result.append({"id": "pred", "from_name": "predicate", "to_name": "text", "type": "labels", "value": place})
    prediction = {"model_version": "revup", "score": row["p_proposed"] or 0.0, "result": result}
    return {
        "data": {
            "text": shown.text,
            "question": _question(row),
            "reasons": "; ".join(row["reasons"]),
            "document": _around(row),
            "p_wrong": row["p_wrong"],
            "revup": _identity(row, digest),
        },
        "predictions": [prediction],
    }


def label_studio_config(frames: Iterable[str]) -> str:
    """Return the labelling interface of a Label Studio project for these frames.

    Args:
        frames: The frames to choose from.
    """
    choices = "\n".join(f"    <Choice value={quoteattr(frame)}/>" for frame in [*frames, NO_FRAME])
    return f"""<View>
  <Header value="$question"/>
  <Labels name="predicate" toName="text"><Label value="predicate" background="#ffe58f"/></Labels>
  <Text name="text" value="$text"/>
  <Choices name="frame" toName="text" choice="single" layout="select">
{choices}
  </Choices>
  <Header value="$reasons" size="5"/>
  <Text name="document" value="$document"/>
</View>
"""


def _prodigy(row: Mapping[str, Any], digest: str | None) -> dict[str, Any]:
    shown, posterior = _shown(row), row.get("posterior") or {}
    likely = sorted(posterior, key=lambda name: (-posterior[name], name))
    names = [row["proposed"], row["given"], *likely, *(row.get("candidates") or [])]
    marks = {row["proposed"]: " (proposed)", row["given"]: " (given)"}
    offered = [name for name in dict.fromkeys(names) if name is not None]
    options = [{"id": name, "text": name + marks.get(name, "")} for name in offered]
    options += [{"id": NO_FRAME, "text": NO_FRAME}, {"id": UNDECIDED, "text": UNDECIDED}]
    spans = [{"start": shown.start, "end": shown.end, "label": "PREDICATE"}] if shown.end > shown.start else []
    meta = {
        "document": row["id"],
        "event": row["event"] + 1,
        "p_wrong": row["p_wrong"],
        "why": "; ".join(row["reasons"]),
    }
    return {
        "text": shown.text,
        "spans": spans,
        "options": options,
        "config": {"choice_style": "single"},
        "meta": meta,
        "revup": _identity(row, digest),
    }


TOOLS: dict[str, Callable[[Mapping[str, Any], str | None], dict[str, Any]]] = {
    "label-studio": _label_studio,
    "prodigy": _prodigy,
}


# ---- and back ----------------------------------------------------------------------------------------------


def import_decisions(issues: str | Path, answers: str | Path, file: str | Path | None = None) -> dict[str, int]:
    """Add what was decided elsewhere to the decisions about a list of issues.

    Args:
        issues: The list of issues.
        answers: Label Studio's export (JSON or JSON-MIN), Prodigy's (`prodigy db-out`), or decisions of revup, such
            as those that a page exported. Which of them it is shows in the file.
        file: The audited file; by default the one that the list names.

    Returns:
        Figures: `imported`; `unchanged`, decided so before; `disagreements`, events about which several annotators
        decided differently, which are left out; `unanswered` tasks.

    Raises:
        InputError: The file is none of these, or its tasks are about another list or file.
    """
    found = read_issues(issues)
    digest = reviewed_file(found, file)[0]
    figures = {"imported": 0, "unchanged": 0, "disagreements": 0, "unanswered": 0}
    chosen: dict[tuple[str, int], Decision] = {}
    doubtful: set[tuple[str, int]] = set()
    for place, line, decision in _answers(answers):
        if decision is None:
            figures["unanswered"] += 1
            continue
        if found.find(*decision.key) is None:
            raise InputError(f"event {decision.event} of {decision.id!r} is not in the list", place, line)
        if decision.digest != digest:
            raise InputError("is about another file than the list", place, line, "digest")
        before = chosen.get(decision.key)
        if before is not None and (before.decision, before.frame) != (decision.decision, decision.frame):
            doubtful.add(decision.key)
        chosen[decision.key] = decision
    with open_decisions(decisions_path(issues)) as log:
        held = latest(log.entries)
        for key, decision in chosen.items():
            if key in doubtful:
                figures["disagreements"] += 1
            elif key in held and (held[key].decision, held[key].frame) == (decision.decision, decision.frame):
                figures["unchanged"] += 1
            else:
                log.append(decision if decision.time else replace(decision, time=now()))
                figures["imported"] += 1
    return figures


def _answers(path: str | Path) -> Iterator[tuple[str, int, Decision | None]]:
    """Yield the place and line of each answer and the decision it means; None where a task was not answered."""
    text = _whole(path)
    if text.lstrip().startswith("["):
        data = json_from_line(text, str(path))
        for number, task in enumerate(data if isinstance(data, list) else [], 1):
            place = f"{path}: task {number}"
            for answer in _from_label_studio(task, place):
                yield place, 0, answer
        return
    held: dict[tuple[str, int], tuple[str, int, Decision]] = {}  # of revup's own decisions the last holds
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        data = json_from_line(line, str(path), number)
        if isinstance(data, dict) and "decision" in data and "revup" not in data:
            decision = decision_from_json(data, str(path), number)
            held[decision.key] = str(path), number, decision
        else:
            yield str(path), number, _from_prodigy(data, str(path), number)
    yield from held.values()


def _whole(path: str | Path) -> str:
    parts: list[str] = []
    for _, text in lines(path):
        if isinstance(text, InputError):
            raise text
        parts.append(text)
    return "".join(parts)


def _decision(task: object, frame: str | None, time: str | None, path: str, line: int, skip: bool) -> Decision:
    """The decision that a chosen frame means."""
    identity = task.get("revup") if isinstance(task, dict) else None
    if not isinstance(identity, dict):
        raise InputError("expected a task of `revup review --export`, found none of its keys", path, line, "revup")
    decision = "keep" if frame == identity.get("given") else "accept" if frame == identity.get("proposed") else "other"
    data = {"decision": "skip" if skip else decision, "frame": None if skip else frame, "time": time}
    return decision_from_json({**identity, **data}, path, line)


def _from_label_studio(task: object, path: str) -> Iterator[Decision | None]:
    if not isinstance(task, dict):
        raise InputError(f"expected a task, found {json_kind(task)}", path)
    if "annotations" not in task and "data" not in task:  # JSON-MIN: one annotation a task, flat
        chosen = task.get("frame")
        frame = chosen.get("choices", [None])[0] if isinstance(chosen, dict) else chosen
        yield _chosen(task, frame, task.get("updated_at"), path)
        return
    annotations = task.get("annotations")
    if not isinstance(annotations, list) or not annotations:
        yield None
        return
    for annotation in annotations:
        if not isinstance(annotation, dict) or not isinstance(annotation.get("result"), list):
            raise InputError("expected an annotation with a result", path, field="annotations")
        picked = [item for item in annotation["result"] if isinstance(item, dict) and item.get("from_name") == "frame"]
        values = [item.get("value") for item in picked]
        choices = [value.get("choices") for value in values if isinstance(value, dict)]
        names = [name for each in choices if isinstance(each, list) for name in each]
        frame = None if annotation.get("was_cancelled") or len(names) != 1 else names[0]
        yield _chosen(task.get("data"), frame, annotation.get("updated_at"), path)


def _from_prodigy(task: object, path: str, line: int) -> Decision | None:
    if not isinstance(task, dict):
        raise InputError(f"expected a task, found {json_kind(task)}", path, line)
    answer, accepted = task.get("answer"), task.get("accept")
    if answer is None:
        return None
    names = accepted if answer == "accept" and isinstance(accepted, list) and len(accepted) == 1 else [None]
    stamp = task.get("_timestamp")
    time = None
    if isinstance(stamp, int | float) and 0 <= stamp < 2**33:
        time = datetime.fromtimestamp(stamp, UTC).isoformat().replace("+00:00", "Z")
    return _chosen(task, None if names[0] == UNDECIDED else names[0], time, path, line)


def _chosen(task: object, frame: object, time: object, path: str, line: int = 0) -> Decision:
    """The decision that a choice means; no choice at all is a skip."""
    if not isinstance(frame, str | None):
        raise InputError(f"expected the name of a frame, found {json_kind(frame)}", path, line, "frame")
    when = time if isinstance(time, str) else None
    return _decision(task, None if frame == NO_FRAME else frame, when, path, line, skip=frame is None)
