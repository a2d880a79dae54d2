"""Audit: planted errors are found, nothing is left out twice, figures and reasons are what a reviewer needs."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import revup
from revup import cli
from revup.auditing.audit import Audit
from revup.data.events import Document, Event
from revup.errors import RevupError

SHARE = 0.15
TRUTH = {f"verb{n}": f"Frame{n % 12:02d}" for n in range(40)}


def planted(seed: int = 0, size: int = 150) -> tuple[list[Document], set[tuple[str, int]]]:
    """Documents of a clear language, some of whose labels are replaced by any other frame, and which."""
    draw = random.Random(seed)
    documents, wrong = [], set()
    for number in range(size):
        events = []
        for index, pred in enumerate(draw.sample(sorted(TRUTH), 4)):
            given = TRUTH[pred]
            if draw.random() < SHARE:
                given = draw.choice(sorted(set(TRUTH.values()) - {given}))
                wrong.add((f"d{number}", index))
            events.append(Event(pred, draw.choice(("police", "court")), draw.choice(("man", "woman")), None, given))
        documents.append(Document(f"d{number}", events))
    return documents, wrong


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> tuple[Audit, set[tuple[str, int]], Path]:
    folder = tmp_path_factory.mktemp("audit")
    documents, wrong = planted()
    revup.write(documents, folder / "docs.jsonl")
    corpus = revup.Corpus.build(train=documents, window="all", out=folder / "data")
    revup.train(corpus, "counts", out=folder / "run")
    return revup.audit(folder / "run", documents), wrong, folder


def test_planted_errors_come_first_with_the_right_proposal(audited: tuple[Audit, set[tuple[str, int]], Path]) -> None:
    found, wrong, _ = audited
    first = found.rows[: len(wrong)]
    hits = [row for row in first if (row["id"], row["event"]) in wrong]
    assert len(hits) / len(wrong) > 0.95
    assert np.mean([row["proposed"] == TRUTH[row["pred"]] for row in hits]) > 0.95
    assert all(row["reasons"] for row in hits)
    assert "other labelled events of" in hits[0]["reasons"][0]


def test_summary_estimates_the_number_of_errors(audited: tuple[Audit, set[tuple[str, int]], Path]) -> None:
    found, wrong, _ = audited
    low, high = found.summary["estimated_errors_interval"]
    assert low <= len(wrong) <= high
    assert found.summary["estimated_errors"] == pytest.approx(len(wrong), rel=0.35)
    assert found.summary["labelled"] == found.summary["events"] == len(found.rows) == 600
    assert found.summary["sources"]["frame"]["error_rate"] == pytest.approx(SHARE, abs=0.06)


def test_folds_find_the_same_errors(audited: tuple[Audit, set[tuple[str, int]], Path]) -> None:
    one, wrong, folder = audited
    five = revup.audit(folder / "run", revup.read(folder / "docs.jsonl"), folds=5)
    hits = {(row["id"], row["event"]) for row in five.rows[: len(wrong)]}
    assert len(hits & wrong) / len(wrong) > 0.95
    own, other = ({(row["id"], row["event"]): row["p_given"] for row in found.rows} for found in (one, five))
    assert own.keys() == other.keys()
    assert any(abs(own[key] - other[key]) > 1e-4 for key in own)  # labels of the same document are left out too
    with pytest.raises(RevupError, match="expected 2 to 150, the number of training documents"):
        revup.audit(folder / "run", revup.read(folder / "docs.jsonl"), folds=151)


def test_other_documents_are_judged_without_leaving_anything_out(
    audited: tuple[Audit, set[tuple[str, int]], Path],
) -> None:
    _, _, folder = audited
    others, wrong = planted(seed=9, size=20)
    renamed = [replace(document, id=f"new-{document.id}") for document in others]
    found = revup.audit(folder / "run", renamed)
    ranked = [(row["id"].removeprefix("new-"), row["event"]) in wrong for row in found.rows]
    assert sum(ranked[: len(wrong)]) >= len(wrong) - 1


def test_missing_labels_and_documents_without_any(audited: tuple[Audit, set[tuple[str, int]], Path]) -> None:
    _, _, folder = audited
    bare = [Document("x", [Event("verb1", "police", "man"), Event("verb2", "court", "man", None, "Frame02")])]
    found = revup.audit(folder / "run", bare, missing=True)
    assert [row["given"] for row in found.rows] in (["Frame02"], ["Frame02", None])
    assert all(row["proposed"] == "Frame01" for row in found.rows if row["given"] is None)
    with pytest.raises(RevupError, match="no event has a label"):
        revup.audit(folder / "run", [Document("x", [Event("verb1")])])


def test_models_without_counts_are_refused(tmp_path: Path) -> None:
    documents, _ = planted(size=20)
    corpus = revup.Corpus.build(train=documents, window="all", out=tmp_path / "data")
    model = revup.train(corpus, "lookup")
    with pytest.raises(RevupError, match="an audit needs a model with counts"):
        revup.audit(model, documents)


def test_command_writes_list_page_and_figures(
    audited: tuple[Audit, set[tuple[str, int]], Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from revup.cli import main

    _, _, folder = audited
    given = [str(folder / "run"), str(folder / "docs.jsonl"), "--out", str(tmp_path / "issues.jsonl")]
    with pytest.raises(SystemExit) as done:
        main(["audit", *given, "--page", str(tmp_path / "page.html"), "--json"])
    assert done.value.code == 0
    figures = json.loads(capsys.readouterr().out)
    wanted = {"events", "labelled", "estimated_errors", "estimated_errors_interval", "error_rate", "sources", "flagged"}
    assert wanted <= figures.keys()
    rows = [json.loads(line) for line in (tmp_path / "issues.jsonl").read_text().splitlines()]
    keys = {"id", "event", "pred", "given", "p_given", "p_wrong", "proposed", "p_proposed", "source", "reasons"}
    assert all(keys <= row.keys() for row in rows)
    assert [row["p_wrong"] for row in rows] == sorted((row["p_wrong"] for row in rows), reverse=True)
    assert (tmp_path / "page.html").read_text().lower().startswith("<!doctype html>")


def test_reviewed_labels_are_trusted_in_training(audited: tuple[Audit, set[tuple[str, int]], Path]) -> None:
    found, _, folder = audited
    lines = [
        {"id": r["id"], "event": r["event"], "given": r["given"], "decision": "accept", "frame": r["proposed"]}
        for r in found.rows[:40]
    ]
    (folder / "decisions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    corpus = revup.Corpus.load(folder / "data")
    model = revup.train(corpus, "counts", out=folder / "better", labels=folder / "decisions.jsonl", force=True)
    assert model.reliability["reviewed"]["items"] == 40
    assert revup.load(folder / "better").data["labels"]
    again = revup.audit(folder / "better", list(revup.read(folder / "docs.jsonl"))).summary
    assert again["told_by"] == "reviewed"
    assert again["reviewed"] == 40
    width = [high - low for low, high in (each["estimated_errors_interval"] for each in (found.summary, again))]
    assert width[1] < width[0]  # reviewed labels tell what one source can't


def test_labels_of_unknown_frames_are_counted_not_judged(
    audited: tuple[Audit, set[tuple[str, int]], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, folder = audited
    event = Event("verb1", "police", "man", None, TRUTH["verb1"])
    strange = [Document("new", [event, replace(event, frame="Unheard_of"), replace(event, frame=None)])]
    found = revup.audit(folder / "run", strange)
    assert (found.summary["labelled"], found.summary["unknown_frames"]) == (1, 1)
    revup.write(strange, folder / "strange.jsonl")
    cli.run(
        ["audit", str(folder / "run"), str(folder / "strange.jsonl"), "--out", str(folder / "strange-issues.jsonl")]
    )
    assert "1 labels name a frame that the run does not know" in capsys.readouterr().out


def test_help_names_the_split_that_is_audited(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("audit", "suggest"):
        with pytest.raises(SystemExit):
            cli.run([verb, "--help"])
        assert "part of the dataset (default: train)" in capsys.readouterr().out
