"""Tasks for Label Studio and Prodigy, and their answers back as decisions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from auditing.lists import FRAMES, SENTENCE, issues, lines, row, written
from failing import fails
from revup import cli
from revup.auditing.exports import export_issues, import_decisions
from revup.auditing.issues import decisions_path
from revup.auditing.page import write_page
from revup.errors import InputError, OutputExistsError, RevupError


def decided(listed: Path) -> list[tuple[str, str, str | None]]:
    return [(line["id"], line["decision"], line["frame"]) for line in lines(decisions_path(listed))]


def annotation(frame: str | None, **change: Any) -> dict[str, Any]:
    """An annotation as Label Studio exports it."""
    result: list[dict[str, Any]] = [
        {"from_name": "predicate", "to_name": "text", "type": "labels", "value": {"labels": ["predicate"]}}
    ]
    if frame is not None:
        value = {"choices": [frame]}
        result.append({"id": "x", "from_name": "frame", "to_name": "text", "type": "choices", "value": value})
    return {"result": result, "was_cancelled": False, "updated_at": "2026-11-18T10:00:00Z", **change}


def test_label_studio_tasks_follow_its_format(tmp_path: Path) -> None:
    _, listed = written(tmp_path)
    assert export_issues(listed, tmp_path / "tasks.json", "label-studio") == 6
    tasks = json.loads((tmp_path / "tasks.json").read_text("utf-8"))
    assert len(tasks) == 6
    data, prediction = tasks[0]["data"], tasks[0]["predictions"][0]
    assert data["text"] == SENTENCE
    assert data["question"] == "convicted — given: Trial (5%); proposed: Verdict (90%)"
    assert data["document"].splitlines()[2] == "3. police arrested suspect 0 [Arrest]"
    config = ElementTree.parse(tmp_path / "tasks.config.xml").getroot()
    controls = {element.get("name"): element for element in config.iter() if element.get("toName")}
    for item in prediction["result"]:  # what is predicted must fit the interface
        control = controls[item["from_name"]]
        assert control.tag.lower() == item["type"]
        assert item["to_name"] == control.get("toName") == "text"
        assert set(item["value"][item["type"]]) <= {each.get("value") for each in control}
    place = prediction["result"][1]["value"]
    assert data["text"][place["start"] : place["end"]] == place["text"] == "convicted"
    used = {element.get("value", "")[1:] for element in config.iter() if element.get("value", "").startswith("$")}
    assert used <= set(data)
    assert [each.get("value") for each in controls["frame"]] == [*sorted(FRAMES), "No frame fits"]


def test_label_studio_annotations_become_decisions(tmp_path: Path) -> None:
    _, listed = written(tmp_path)
    export_issues(listed, tmp_path / "tasks.json", "label-studio")
    tasks = json.loads((tmp_path / "tasks.json").read_text("utf-8"))
    made = [
        [annotation("Verdict")],
        [annotation("Trial"), annotation("Trial")],
        [annotation("Arrest")],
        [annotation(None, was_cancelled=True)],
        [annotation("Verdict"), annotation("Trial")],
        [],
    ]
    for number, (task, each) in enumerate(zip(tasks, made, strict=True)):
        task |= {"id": number + 100, "annotations": each}
    (tmp_path / "export.json").write_text(json.dumps(tasks, indent=2))
    figures = import_decisions(listed, tmp_path / "export.json")
    assert figures == {"imported": 4, "unchanged": 0, "disagreements": 1, "unanswered": 1}
    expected = [("d0", "accept", "Verdict"), ("d1", "keep", "Trial"), ("d2", "other", "Arrest"), ("d3", "skip", None)]
    assert decided(listed) == expected
    assert lines(decisions_path(listed))[0]["time"] == "2026-11-18T10:00:00Z"
    assert import_decisions(listed, tmp_path / "export.json")["unchanged"] == 4
    assert decided(listed) == expected


def test_label_studio_minimal_form(tmp_path: Path) -> None:
    _, listed = written(tmp_path)
    export_issues(listed, tmp_path / "tasks.json", "label-studio")
    tasks = json.loads((tmp_path / "tasks.json").read_text("utf-8"))
    flat = [{**task["data"], "id": n, "frame": "No frame fits", "annotator": 1} for n, task in enumerate(tasks[:2])]
    flat[1]["frame"] = {"choices": ["Verdict"]}
    (tmp_path / "min.json").write_text(json.dumps(flat))
    import_decisions(listed, tmp_path / "min.json")
    assert decided(listed) == [("d0", "other", None), ("d1", "accept", "Verdict")]


def test_prodigy_tasks_and_answers(tmp_path: Path) -> None:
    _, listed = written(tmp_path)
    assert export_issues(listed, tmp_path / "tasks.jsonl", "prodigy") == 6
    tasks = lines(tmp_path / "tasks.jsonl")
    first = tasks[0]
    assert [option["id"] for option in first["options"]] == ["Verdict", "Trial", "No frame fits", "None of these"]
    assert all(set(option) == {"id", "text"} for option in first["options"])
    (span,) = first["spans"]
    assert first["text"][span["start"] : span["end"]] == "convicted"
    answers = [
        {"answer": "accept", "accept": ["Verdict"], "_timestamp": 1794960000},
        {"answer": "accept", "accept": ["Trial"], "_session_id": "x"},
        {"answer": "accept", "accept": ["No frame fits"]},
        {"answer": "accept", "accept": ["None of these"]},
        {"answer": "reject", "accept": ["Verdict"]},
        {"answer": "ignore", "accept": []},
    ]
    back = [{**task, **answer, "_task_hash": 1} for task, answer in zip(tasks, answers, strict=True)]
    (tmp_path / "out.jsonl").write_text("".join(json.dumps(task) + "\n" for task in back))
    assert import_decisions(listed, tmp_path / "out.jsonl")["imported"] == 6
    assert decided(listed) == [
        ("d0", "accept", "Verdict"),
        ("d1", "keep", "Trial"),
        ("d2", "other", None),
        ("d3", "skip", None),
        ("d4", "skip", None),
        ("d5", "skip", None),
    ]
    assert lines(decisions_path(listed))[0]["time"] == "2026-11-18T00:00:00Z"


def test_own_decisions_are_merged(tmp_path: Path) -> None:
    _, listed = written(tmp_path)
    export_issues(listed, tmp_path / "tasks.jsonl", "prodigy")
    identity = lines(tmp_path / "tasks.jsonl")[0]["revup"]
    rows = [{**identity, "decision": "keep", "frame": "Trial"}, {**identity, "decision": "accept", "frame": "Verdict"}]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    assert import_decisions(listed, tmp_path / "mine.jsonl")["imported"] == 1
    assert decided(listed) == [("d0", "accept", "Verdict")]


def test_event_without_text_is_shown_as_words(tmp_path: Path) -> None:
    _, listed = written(tmp_path, rows=[row(subj="jury", obj="man", mod="of"), row(event=1, given=None, p_given=None)])
    export_issues(listed, tmp_path / "tasks.jsonl", "prodigy")
    first, second = lines(tmp_path / "tasks.jsonl")
    assert first["text"] == "jury convicted man of"
    assert first["text"][first["spans"][0]["start"] : first["spans"][0]["end"]] == "convicted"
    assert second["text"] == "convicted"
    export_issues(listed, tmp_path / "tasks.json", "label-studio")
    assert json.loads((tmp_path / "tasks.json").read_text())[1]["data"]["question"].startswith("convicted — no label")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[3]", "task 1: expected a task, found the number 3"),
        ('[{"data": {}, "annotations": [{"result": []}]}]', "task 1: revup: expected a task of"),
        ('[{"data": {}, "annotations": [3]}]', "annotations: expected an annotation with a result"),
        ('{"answer": "accept"}', "line 1: revup: expected a task of"),
        ("[", "not valid JSON"),
        ('{"id": "zz", "event": 0, "decision": "skip"}', "line 1: event 0 of 'zz' is not in the list"),
        ('{"id": "d0", "event": 0, "decision": "skip", "digest": "x"}', "digest: is about another file"),
    ],
)
def test_what_is_no_answer_is_refused(text: str, expected: str, tmp_path: Path) -> None:
    _, listed = written(tmp_path)
    (tmp_path / "answers").write_text(text)
    with pytest.raises(InputError, match=expected):
        import_decisions(listed, tmp_path / "answers")
    assert not decisions_path(listed).exists()


def test_options_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, listed = written(tmp_path, rows=issues(2))
    tasks = str(tmp_path / "tasks.jsonl")
    cli.run(["review", str(listed), "--export", "prodigy", "--out", tasks])
    assert capsys.readouterr().err == "revup: 2 tasks\n"
    assert "exists already" in fails(["review", str(listed), "--export", "prodigy", "--out", tasks], capsys)
    assert "--export needs --out" in fails(["review", str(listed), "--export", "prodigy"], capsys)
    cli.run(["review", str(listed), "--import", tasks])
    assert json.loads(capsys.readouterr().out)["unanswered"] == 2
    cli.run(["review", str(listed), "--page", str(tmp_path / "page.html")])
    assert capsys.readouterr().err == "revup: 2 issues\n"
    with pytest.raises(OutputExistsError):
        write_page(tmp_path / "page.html", listed)
    with pytest.raises(RevupError, match="unknown tool 'x'"):
        export_issues(listed, tmp_path / "x", "x")
