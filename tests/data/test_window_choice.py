"""Without --window, a small corpus of long documents uses all of its events; every other one is cut as in the paper."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from revup.cli import run
from revup.data import chunks, window_choice
from revup.data.corpus import Corpus
from revup.data.dataset import Settings
from revup.data.events import Document, Event, write
from revup.data.prepare import prepare
from revup.data.statistics import render_statistics


def documents(number: int, events: int, labelled: int) -> list[Document]:
    """Documents of which the first so many events are labelled."""
    return [
        Document(
            f"d{n}", [Event(f"verb{n}-{m}", "man", frame=f"F{m % 7}" if m < labelled else None) for m in range(events)]
        )
        for n in range(number)
    ]


def made(out: Path, given: list[Document], **choices: Any) -> Corpus:
    """The corpus that `prepare` makes of a file, which is that of `Corpus.build`."""
    write(given, out.with_suffix(".jsonl"))
    prepare(out.with_suffix(".jsonl"), out, **choices)
    corpus = Corpus.load(out)
    assert Corpus.build(given, **choices).fingerprint == corpus.fingerprint
    return corpus


def windows(corpus: Corpus) -> int:
    return sum(len(split) for split in corpus.splits.values())


def test_small_corpus_of_long_documents_uses_all_events(tmp_path: Path) -> None:
    given = documents(30, events=30, labelled=30)
    chosen = made(tmp_path / "chosen", given)
    assert windows(chosen) == 30 * 6
    assert chosen.settings.window == "all"
    assert chosen.fingerprint == made(tmp_path / "asked", given, window="all").fingerprint
    assert chosen.meta["window_by_corpus"] == chosen.statistics["window_by_corpus"] == pytest.approx(25 / 30, abs=1e-4)
    said = "all: --window framed would leave 83% of the events with a frame unused"
    assert said in render_statistics(chosen.statistics)
    assert "window_by_corpus" not in Corpus.load(tmp_path / "asked").meta


@pytest.mark.parametrize("choices", [{"window": "framed"}, {"events": 5}, {"events": 4}])
def test_given_window_or_number_of_events_is_kept(tmp_path: Path, choices: dict[str, Any]) -> None:
    corpus = made(tmp_path / "data", documents(30, events=30, labelled=30), **choices)
    assert (windows(corpus), corpus.settings.window) == (30, "framed")
    options = [word for name, value in choices.items() for word in (f"--{name}", str(value))]
    run(["prepare", str(tmp_path / "data.jsonl"), "--out", str(tmp_path / "by-command"), *options])
    assert Corpus.load(tmp_path / "by-command").fingerprint == corpus.fingerprint


@pytest.mark.parametrize(
    ("events", "labelled", "chosen"), [(10, 10, "framed"), (11, 11, "all"), (40, 5, "framed"), (40, 0, "all")]
)
def test_what_framed_leaves_unused_decides(tmp_path: Path, events: int, labelled: int, chosen: str) -> None:
    """Of labelled events if there are any, else of all of them; as long as half of them are used it is `framed`."""
    corpus = made(tmp_path / "data", documents(20, events, labelled))
    assert corpus.settings.window == chosen
    assert corpus.fingerprint == made(tmp_path / "same", documents(20, events, labelled), window=chosen).fingerprint


def test_large_corpus_is_cut_as_in_the_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = documents(30, events=30, labelled=30)
    monkeypatch.setattr(window_choice, "SMALL", 899)
    assert made(tmp_path / "by-events", given).settings.window == "framed"
    monkeypatch.undo()
    monkeypatch.setattr(chunks, "CHUNK_RECORDS", 10)
    monkeypatch.setattr(window_choice, "CHUNKS", 2)
    write(given, tmp_path / "docs.jsonl")
    prepare(tmp_path / "docs.jsonl", tmp_path / "by-chunks")
    assert Corpus.load(tmp_path / "by-chunks").settings.window == "framed"


def test_workers_resuming_and_standard_input_choose_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_RECORDS", 10)
    expected = made(tmp_path / "one", documents(60, events=30, labelled=30)).fingerprint
    source = tmp_path / "one.jsonl"
    prepare(source, tmp_path / "two", workers=2)
    assert Corpus.load(tmp_path / "two").fingerprint == expected

    def stop(count: int) -> None:
        if count >= 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(source, tmp_path / "stopped", progress=stop)
    prepare(source, tmp_path / "stopped")
    assert Corpus.load(tmp_path / "stopped").fingerprint == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(source.read_bytes())))
    prepare("-", tmp_path / "piped")
    assert Corpus.load(tmp_path / "piped").fingerprint == expected


def test_settings_of_a_dataset_name_its_window(tmp_path: Path) -> None:
    made(tmp_path / "data", documents(3, events=2, labelled=2))
    assert json.loads((tmp_path / "data" / "corpus.json").read_text())["settings"]["window"] == "framed"
    assert Settings().window == "auto"
    assert Settings(events=3).window == "framed"
