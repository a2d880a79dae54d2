"""Statistics of a corpus against counting by hand, and as text."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from revup.data.corpus import Corpus
from revup.data.events import Document, Event, write
from revup.data.prepare import prepare
from revup.data.statistics import ambiguity, render_statistics
from revup.errors import RevupError
from revup.reporting.statistics_page import statistics_page
from revup.world import World


def test_ambiguity_is_conditional_entropy() -> None:
    pairs = Counter({("a", "X"): 2, ("a", "Y"): 2, ("b", "X"): 4})
    assert ambiguity(pairs) == pytest.approx(0.5)  # one bit for half of the events
    assert ambiguity(Counter()) == 0


def test_statistics_equal_counting_by_hand() -> None:
    train = [
        Document("1", [Event("a", frame="X"), Event("a", frame="Y"), Event("b")]),
        Document("2", [Event("A", "s", frame="X"), Event("b", frames={"X": 1, "Y": 3})]),
    ]
    found = Corpus.build(train=train, test=[Document("3", [Event("c", frame="X")])]).statistics
    assert (found["documents"], found["events"], found["events_with_frame"], found["frames"]) == (3, 6, 5, 2)
    assert found["share_with_frame"] == round(5 / 6, 4)
    assert found["frame_counts"] == {"X": 2.25, "Y": 1.75}
    assert found["predicate_counts"] == {"a": 3, "b": 2}
    h = lambda p: float(-p * np.log2(p) - (1 - p) * np.log2(1 - p))  # noqa: E731
    assert found["ambiguity_bits"] == pytest.approx((3 * h(1 / 3) + 1 * h(1 / 4)) / 4, abs=1e-4)
    assert found["frame_entropy_bits"] == pytest.approx(h(2.25 / 4), abs=1e-4)
    assert found["table_accuracy"] == pytest.approx((2 + 0.75) / 4, abs=1e-4)
    assert found["events_per_document"] == {"1": 1, "2": 1, "3": 1}


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("documents") / "docs.jsonl.gz"
    write(World(frames=20, seed=3).sample(600), path)
    return path


def test_statistics_as_text_and_page(tmp_path: Path, documents: Path) -> None:
    (tmp_path / "vectors.txt").write_text("man 1 2\nthe 3 4\n")
    found = prepare([documents, documents], tmp_path / "data", vectors=tmp_path / "vectors.txt")
    text = render_statistics(found)
    for expected in ("documents     1,200", "100.0%", "ambiguity", "vectors", "repeated ids  600", "unseen frames"):
        assert expected in text
    pytest.importorskip("matplotlib", reason="the extra 'report' is not installed")
    statistics_page(found, tmp_path / "page.html", title="A <corpus>")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert page.count("data:image/svg+xml;base64,") == 3
    assert "A &lt;corpus&gt;" in page
    assert 'src="http' not in page


def test_statistics_of_a_corpus_without_frames(tmp_path: Path) -> None:
    write([Document(str(n), [Event("say", f"s{n}")] * (n % 90 + 1)) for n in range(200)], tmp_path / "docs.jsonl")
    found = prepare([tmp_path / "docs.jsonl"], tmp_path / "data")
    text = render_statistics(found)
    assert "none: 50 unnamed classes" in text
    assert "ambiguity" not in text
    assert found["predicate_counts"].keys() == {"say"}
    pytest.importorskip("matplotlib", reason="the extra 'report' is not installed")
    statistics_page(found, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text("utf-8").count("data:image/svg+xml") == 2


def test_page_names_missing_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, documents: Path) -> None:
    found = prepare([documents], tmp_path / "data")
    monkeypatch.setattr("revup.reporting.figures.find_spec", lambda name: None)
    with pytest.raises(RevupError, match="needs the extra 'report'"):
        statistics_page(found, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
