"""What to label next: useful events first, batches that are diverse, doubtful labels among them, an honest forecast."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import revup
from revup.auditing.gain import MOST, accuracies, slopes
from revup.auditing.issues import read_issues
from revup.auditing.suggest import between_documents
from revup.cli import main
from revup.data.events import Document, Event
from revup.errors import RevupError

KNOWN, UNKNOWN = [f"verb{n}" for n in range(8)], [f"new{n}" for n in range(6)]


def patchy(size: int = 60, seed: int = 0) -> list[Document]:
    """Predicates that are labelled everywhere, and others that never are: new0 is frequent, new5 is rare."""
    draw = random.Random(seed)
    documents = []
    for number in range(size):
        events = [Event(pred, "police", "man", None, f"Frame{pred[-1]}") for pred in draw.sample(KNOWN, 3)]
        for place, pred in enumerate(UNKNOWN):
            if number % (1 + 3 * place) == 0:
                events.append(Event(pred, draw.choice(("court", "jury")), draw.choice(("man", "case"))))
        documents.append(Document(f"d{number}", events))
    return documents


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Document]]:
    folder = tmp_path_factory.mktemp("suggest")
    documents = patchy()
    wrong = documents[3].events[0]
    documents[3].events[0] = replace(wrong, frame="Frame7" if wrong.frame != "Frame7" else "Frame6")
    revup.write(documents, folder / "docs.jsonl")
    corpus = revup.Corpus.build(train=documents, window="all", duplicates="keep", out=folder / "data")
    revup.train(corpus, "counts", out=folder / "run")
    return folder, documents


def test_frequent_unknown_predicates_come_first_and_batches_are_diverse(run: tuple[Path, list[Document]]) -> None:
    folder, documents = run
    found = revup.suggest(folder / "run", documents, n=6)
    assert found.rows[0]["pred"] == "new0"
    assert found.rows[0]["action"] == "label"
    assert len({row["pred"] for row in found.rows}) >= 3
    gains = [row["gain"] for row in found.rows]
    assert gains == sorted(gains, reverse=True)
    assert len({(row["id"], row["event"]) for row in found.rows}) == 6


def test_doubtful_labels_are_in_the_same_ranking(run: tuple[Path, list[Document]]) -> None:
    folder, documents = run
    found = revup.suggest(folder / "run", documents, n=200)
    checks = [row for row in found.rows if row["action"] == "check"]
    assert checks
    assert (checks[0]["id"], checks[0]["event"]) == ("d3", 0)
    only = revup.suggest(folder / "run", documents, n=200, check=False)
    assert {row["action"] for row in only.rows} == {"label"}


def test_forecast_rises_with_labels(run: tuple[Path, list[Document]]) -> None:
    folder, documents = run
    summary = revup.suggest(folder / "run", documents, n=10).summary
    expected = [each["accuracy"] for each in summary["forecast"]]
    assert expected == sorted(expected)
    assert expected[0] >= summary["accuracy"]
    assert all(
        low <= each <= high
        for each, (low, high) in zip(expected, (each["accuracy_interval"] for each in summary["forecast"]), strict=True)
    )


def test_expected_accuracy_of_a_coin_is_that_of_the_closed_form() -> None:
    # θ ~ Beta(1, 1): after one label the best frame has mean 2/3; after many E max(θ, 1 − θ) = 3/4
    curve = accuracies(np.array([[0.5, 0.5]]).repeat(200, 0), np.full(200, 2.0)).mean(0)
    assert curve[0] == pytest.approx(0.5, abs=0.01)
    assert curve[1] == pytest.approx(2 / 3, abs=0.01)
    assert curve[MOST] == pytest.approx(0.75, abs=0.02)


def test_slopes_are_those_of_the_concave_curve_above() -> None:
    found = slopes(np.array([[0.0, 0.0, 0.0, 3.0, 3.0], [0.0, 2.0, 3.0, 3.5, 3.5]]))
    assert found.tolist() == [[1.0, 1.0, 1.0, 0.0], [2.0, 1.0, 0.5, 0.0]]


def test_command_writes_a_list_that_review_reads(
    run: tuple[Path, list[Document]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = run
    out = tmp_path / "next.jsonl"
    with pytest.raises(SystemExit) as done:
        main(["suggest", str(folder / "run"), str(folder / "docs.jsonl"), "-n", "7", "--out", str(out), "--json"])
    assert done.value.code == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["suggested"] == 7
    assert figures["forecast"]
    issues = read_issues(out)
    assert len(issues) == 7
    assert issues.about.digest
    assert {"gain", "action"} <= issues[0].keys()


def test_datasets_are_audited_and_suggested_from(run: tuple[Path, list[Document]], tmp_path: Path) -> None:
    folder, documents = run
    data = revup.Corpus.load(folder / "data")
    by_file, by_data = revup.audit(folder / "run", documents), revup.audit(folder / "run", data)
    first = [{(row["id"], row["event"]): row["p_wrong"] for row in found.rows} for found in (by_file, by_data)]
    assert first[0].keys() == first[1].keys()
    assert all(first[0][key] == pytest.approx(first[1][key], abs=1e-4) for key in first[0])
    assert Counter(row["pred"] for row in revup.suggest(folder / "run", data, n=5).rows)["new0"] >= 1


def test_nothing_to_label_is_an_error(run: tuple[Path, list[Document]]) -> None:
    folder, _ = run
    with pytest.raises(RevupError, match="expected 1 or more"):
        revup.suggest(folder / "run", [Document("x", [Event("verb1")])], n=0)


def test_forecast_expects_new_predicates_in_new_documents(run: tuple[Path, list[Document]]) -> None:
    folder, documents = run
    alone = [Document(f"x{number}", [Event(f"rare{number}", "police", "man")]) for number in range(200)]
    usual, mixed = (revup.suggest(folder / "run", given, n=5).summary for given in (documents, [*documents, *alone]))
    assert mixed["accuracy"] < usual["accuracy"]  # half of the events have predicates that no other document has


def test_forecast_is_surer_with_more_labels(run: tuple[Path, list[Document]]) -> None:
    folder, documents = run
    widths = []
    for given in (documents[:12], documents):
        low, high = revup.suggest(folder / "run", given, n=4).summary["forecast"][0]["accuracy_interval"]
        widths.append(high - low)
    assert widths[1] < widths[0]


def test_variance_between_documents_is_that_of_their_draw() -> None:
    draw = np.random.default_rng(0)
    document = np.repeat(np.arange(400), draw.integers(5, 40, size=400))
    same = 0.7 + 0.2 * draw.standard_normal(len(document))
    assert between_documents(same, document)[0] < 0.02**2
    different = same + 0.1 * draw.standard_normal(400)[document]
    variance, size = between_documents(different, document)
    assert variance == pytest.approx(0.1**2, rel=0.15)
    assert size.sum() == len(document)
    assert between_documents(same[:5], np.zeros(5, np.int64))[0] == pytest.approx(0.06**2)  # one document says nothing


def test_forecast_that_says_nothing_is_put_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = [Document("a", [Event("verb1", frame="F"), Event("verb2", frame="G"), Event("verb3"), Event("verb4")])]
    corpus = revup.Corpus.build(train=tiny, window="all", out=tmp_path / "data")
    revup.train(corpus, "counts", out=tmp_path / "run")
    revup.write(tiny, tmp_path / "docs.jsonl")
    given = [str(tmp_path / "run"), str(tmp_path / "docs.jsonl"), "-n", "1", "--out", str(tmp_path / "next.jsonl")]
    with pytest.raises(SystemExit) as done:
        main(["suggest", *given])
    assert done.value.code == 0
    said = capsys.readouterr().out
    assert "expected accuracy of predictions now: can't be told, there are too few labels and documents" in said
    assert "after 2 labels: can't be told" in said
    assert "90%" not in said
