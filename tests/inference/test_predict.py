"""Prediction and embedding of streams of documents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from revup.data.corpus import Corpus
from revup.data.events import Document, Event, document_to_json
from revup.errors import OutputExistsError, RevupError
from revup.inference import trained as trained_module
from revup.inference.embed import embed
from revup.inference.predict import predict
from revup.inference.trained import Trained
from revup.training.run import train


@pytest.fixture(scope="module")
def trained(tiny_corpus: Corpus, tiny_network: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Trained:
    out = tmp_path_factory.mktemp("predict") / "run"
    return train(tiny_corpus, device="cpu", network=tiny_network, training={"epochs": 1}, out=out)


def with_empty(documents: list[Document]) -> list[Document]:
    return [Document("empty", []), *documents[:7], Document("empty too", [])]


def test_predicted_documents_are_the_input_with_a_further_key(trained: Trained, tiny_documents: list[Document]) -> None:
    given = with_empty(tiny_documents)
    given[1] = replace(given[1], events=[replace(e, extra={"tense": "past"}) for e in given[1].events])
    found = list(predict(trained, iter(given), top=2))
    expected = trained.predict(given, top=2)
    for before, after, events in zip(given, found, expected, strict=True):
        known, labelled = document_to_json(before), document_to_json(after)
        for event, frames in zip(labelled["events"], events, strict=True):
            shown = event.pop("predicted")
            assert event.pop("known") is True
            assert [item["frame"] for item in shown] == [name for name, _ in frames]
            assert [item["probability"] for item in shown] == pytest.approx([p for _, p in frames], abs=1e-6)
        assert labelled == known


@pytest.mark.parametrize("sizes", [{}, {"embedding": 20, "hidden": 28, "latent": 12, "frame": 20}])
@pytest.mark.parametrize("model", ["revup", "ssdvae", "tagger", "lookup"])
def test_answers_do_not_depend_on_the_other_documents_of_a_batch(
    model: str,
    sizes: dict[str, int],
    tiny_corpus: Corpus,
    tiny_documents: list[Document],
    tiny_network: dict[str, Any],
) -> None:
    trained = train(tiny_corpus, model, device="cpu", network=tiny_network | sizes, training={"epochs": 0})
    given = [Document("long", [e for d in tiny_documents[:9] for e in d.events]), *tiny_documents[:40]]
    whole, vectors = trained.probabilities(given, revise=True), trained.event_vectors(given)
    for size in (1, 2, 3, 5, 13):
        parts = [given[start : start + size] for start in range(0, len(given), size)]
        alone = [rows for part in parts for rows in trained.probabilities(part, revise=True)]
        assert all(np.array_equal(a, b) for a, b in zip(whole, alone, strict=True))
        alone = [rows for part in parts for rows in trained.event_vectors(part)]
        assert all(np.array_equal(a, b) for a, b in zip(vectors, alone, strict=True))


def test_prediction_opens_a_run_directory(trained: Trained, tiny_documents: list[Document]) -> None:
    assert trained.path is not None
    assert list(predict(trained.path, tiny_documents[:3])) == list(predict(trained, tiny_documents[:3]))


def test_prediction_reads_no_further_than_it_must(
    trained: Trained, tiny_documents: list[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trained_module, "DOCUMENTS_AT_ONCE", 4)
    read = 0

    def stream() -> Iterator[Document]:
        nonlocal read
        for document in tiny_documents * 3:
            read += 1
            yield document

    assert next(predict(trained, stream())).id == tiny_documents[0].id
    assert read <= 8


def test_models_without_frames_do_not_predict(tiny_corpus: Corpus, tiny_network: dict[str, Any]) -> None:
    model = train(tiny_corpus, "rnnlm", device="cpu", network=tiny_network, training={"epochs": 0})
    with pytest.raises(RevupError, match="the model rnnlm does not predict frames"):
        list(predict(model, [Document("d", [Event("arrest")])]))


def test_embeddings_are_plain_arrays_by_document_and_event(
    trained: Trained, tiny_documents: list[Document], tmp_path: Path
) -> None:
    given = with_empty(tiny_documents)
    embed(trained, iter(given)).save(tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz", allow_pickle=False) as arrays:
        assert set(arrays) == {"documents", "events", "document_ids", "event_document", "event_index"}
        assert arrays["document_ids"].tolist() == [document.id for document in given]
        places = list(zip(arrays["event_document"].tolist(), arrays["event_index"].tolist(), strict=True))
        assert places == [(row, index) for row, document in enumerate(given) for index in range(len(document.events))]
        for row, document in enumerate(given):
            events = arrays["events"][arrays["event_document"] == row]
            expected = events.mean(0) if document.events else np.zeros(arrays["events"].shape[1])
            np.testing.assert_allclose(arrays["documents"][row], expected, atol=1e-6)
        np.testing.assert_array_equal(arrays["documents"], trained.embed(given))
    with pytest.raises(OutputExistsError, match="exists already"):
        embed(trained, given).save(tmp_path / "x.npz")


def test_parts_make_no_difference_to_embeddings(
    trained: Trained, tiny_documents: list[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = with_empty(tiny_documents)
    together = embed(trained, given)
    monkeypatch.setattr(trained_module, "DOCUMENTS_AT_ONCE", 1)  # some parts are a single document without events
    apart = embed(trained, given)
    np.testing.assert_allclose(apart.documents, together.documents, atol=1e-6)
    np.testing.assert_allclose(apart.events, together.events, atol=1e-6)


@pytest.mark.parametrize("documents", [[], [Document("empty", [])]])
def test_nothing_to_embed_is_an_error(trained: Trained, documents: list[Document]) -> None:
    with pytest.raises(RevupError, match="no document with events"):
        embed(trained, documents)


def test_dicts_and_one_document_are_predicted_like_documents(trained: Trained, tiny_documents: list[Document]) -> None:
    given = tiny_documents[:5]
    expected, vectors = trained.predict(given, top=2), trained.embed(given)
    dicts = [document_to_json(document) for document in given]
    assert trained.predict(dicts, top=2) == expected
    assert trained.predict(given[1], top=2) == expected[1:2]
    assert trained.predict(dicts[1], top=2) == expected[1:2]
    np.testing.assert_array_equal(trained.embed(dicts[1]), vectors[1:2])
    assert [document.id for document in predict(trained, dicts)] == [document.id for document in given]


def test_nan_as_a_frame_is_missing(trained: Trained, tiny_documents: list[Document]) -> None:
    (document,) = tiny_documents[:1]
    bare = replace(document, events=[replace(event, frame=None) for event in document.events])
    blank = replace(document, events=[replace(event, frame=float("nan")) for event in document.events])
    assert trained.predict(blank, revise=True) == trained.predict(bare, revise=True)


def test_something_else_than_documents_is_refused(trained: Trained, tiny_documents: list[Document]) -> None:
    for given in ("docs.jsonl", 3, None, tiny_documents[0].events):
        with pytest.raises(RevupError, match="expected documents"):
            trained.predict(given)  # type: ignore[arg-type]
        with pytest.raises(RevupError, match="expected documents"):
            trained.embed(given)  # type: ignore[arg-type]


def test_live_answers_are_those_of_the_batch(trained: Trained, tiny_documents: list[Document]) -> None:
    assert list(predict(trained, tiny_documents, live=True)) == list(predict(trained, tiny_documents))


def test_table_has_a_row_per_frame(trained: Trained, tiny_documents: list[Document]) -> None:
    pytest.importorskip("pyarrow")
    given = with_empty(tiny_documents)
    table = trained.predict_table(given, top=2).to_pylist()
    expected = [
        (document.id, index, rank, frame, round(probability, 6))
        for document, events in zip(given, trained.predict(given, top=2), strict=True)
        for index, event in enumerate(events)
        for rank, (frame, probability) in enumerate(event, 1)
    ]
    assert [
        tuple(row[name] for name in ("document", "event", "rank", "frame", "probability")) for row in table
    ] == expected
    assert {row["frame"] for row in trained.predict_table(given, at_least=1.0).to_pylist()} == {None}
