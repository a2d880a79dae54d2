"""The trained model: predictions and embeddings depend on the text alone, and survive saving and loading."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import revup
from revup.data.corpus import Corpus
from revup.data.events import Document, Event
from revup.errors import RevupError
from revup.inference.trained import Trained
from revup.world.world import World


@pytest.fixture(scope="module")
def finished(tiny_corpus: Corpus, tiny_network: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory that no test changes."""
    out = tmp_path_factory.mktemp("finished") / "run"
    training = {"epochs": 1, "batch_size": 60, "learning_rate": 0.01, "settle": 0.0}
    revup.train(tiny_corpus, epsilon=0.8, seed=2, network=tiny_network, training=training, device="cpu", out=out)
    return out


@pytest.fixture(scope="module")
def model(finished: Path) -> Trained:
    return revup.load(finished)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def long_document(world: World, events: int, name: str = "long") -> Document:
    found = [event for document in world.sample(4, seed=77) for event in document.events]
    return Document(name, found[:events])


def test_save_and_load_keep_predictions(model: Trained, tiny_documents: list[Document], tmp_path: Path) -> None:
    model.save(tmp_path / "saved")
    again = revup.load(tmp_path / "saved")
    assert again.predict(tiny_documents) == model.predict(tiny_documents)
    assert again.config == model.config
    before = contents(tmp_path / "saved")
    again.save(tmp_path / "saved", force=True)
    assert contents(tmp_path / "saved") == before
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_repr_says_what_the_model_is(model: Trained) -> None:
    shown = repr(model)
    assert "revup model (preset default)" in shown
    assert str(model.path) in shown
    assert f"{len(model.frames)} frames, {len(model.vocabulary)} words, windows of 4 events, on cpu" in shown


# ---- predictions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("events", [0, 1, 4, 7, 12])
def test_prediction_of_any_number_of_events(model: Trained, tiny_world: World, events: int) -> None:
    predicted = model.predict([long_document(tiny_world, events)], top=3)
    assert [len(document) for document in predicted] == [events]
    for event in predicted[0]:
        assert len(event) == 3
        assert all(frame in model.frames for frame, _ in event)
        shares = [share for _, share in event]
        assert shares == sorted(shares, reverse=True)
    full = model.predict([long_document(tiny_world, events)], top=99)[0]
    assert [sum(share for _, share in event) for event in full] == pytest.approx([1.0] * events)
    assert all(len(event) == len(model.frames) for event in full)


def test_prediction_depends_on_its_own_document_alone(model: Trained, tiny_world: World) -> None:
    """Alone, in a crowd, in another order, beside an empty document: the same."""
    documents = [long_document(tiny_world, n, f"d{n}") for n in (5, 0, 1, 12, 0, 7)]
    together = model.probabilities(documents)
    assert [len(rows) for rows in together] == [5, 0, 1, 12, 0, 7]
    for document, expected in zip(documents, together, strict=True):
        np.testing.assert_allclose(model.probabilities([document])[0], expected, atol=1e-6)
    for found, expected in zip(model.probabilities(documents[::-1]), together[::-1], strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_equally_probable_frames_come_in_the_frames_order(model: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    k = len(model.frames)
    rows = np.full((3, k), 0.01, np.float32)
    rows[1, [4, 1]] = 0.3  # a tie inside the best
    rows[2, 3] = 0.5  # and one at their border
    monkeypatch.setattr(model, "probabilities", lambda documents, revise: [rows])
    found = model.predict([Document("d", [])], top=3)[0]
    assert [[model.frames.index(name) for name, _ in event] for event in found] == [[0, 1, 2], [1, 4, 0], [3, 0, 1]]
    assert found[2][0][1] == pytest.approx(0.5)


def test_bf16_predictions_stay_near_float32(finished: Path, tiny_documents: list[Document]) -> None:
    plain, half = revup.load(finished), revup.load(finished, precision="bf16")
    for exact, close in zip(plain.probabilities(tiny_documents), half.probabilities(tiny_documents), strict=True):
        np.testing.assert_allclose(close, exact, atol=0.03)
    np.testing.assert_allclose(half.embed(tiny_documents), plain.embed(tiny_documents), atol=0.05)
    assert half.embed(tiny_documents).dtype == np.float32
    with pytest.raises(RevupError, match="precision: expected float32 or bf16, found 'int8'"):
        revup.load(finished, precision="int8")


def test_predict_documents_streams(
    model: Trained, tiny_documents: list[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = model.predict(tiny_documents[:23])
    monkeypatch.setattr("revup.inference.trained.DOCUMENTS_AT_ONCE", 5)
    taken = []

    def stream() -> Any:
        for document in tiny_documents[:23]:
            taken.append(document)
            yield document

    pairs = model.predict_documents(stream())
    assert next(pairs)[0] is tiny_documents[0]
    assert len(taken) <= 5
    rest = [frames for _, frames in pairs]
    assert [[f for f, _ in e] for d in rest for e in d] == [[f for f, _ in e] for d in whole[1:] for e in d]


def test_unknown_words_are_no_error(model: Trained) -> None:
    strange, stranger = (
        Document("d", [Event(word, subj=word, obj="<pad>", mod="", frame="Never")]) for word in ("zzz", "ÿ 漢 \n x")
    )
    assert model.predict([strange]) == model.predict([stranger])


def test_labels_are_ignored_unless_revising(model: Trained, tiny_world: World) -> None:
    document = long_document(tiny_world, 4)
    bare = replace(document, events=[replace(e, frame=None) for e in document.events])
    assert model.predict([document]) == model.predict([bare]) == model.predict([bare], revise=True)


def test_revise_mixes_in_labels(model: Trained, tiny_world: World) -> None:
    """λ = 9: a tenth of the proposal, the rest the frame; confidence scales λ; a frame not listed says nothing."""
    document = long_document(tiny_world, 1)
    plain = model.probabilities([document])[0][0]
    for frames, confidence, keep in (({"Trial": 1.0}, None, 1 / 10), ({"Trial": 3.0, "Arrest": 1.0}, 4.0, 1 / 37)):
        event = replace(document.events[0], frame=None, frames=frames, confidence=confidence)
        known = np.zeros(len(plain))
        for name, weight in frames.items():
            known[model.frames.index(name)] = weight / sum(frames.values())
        found = model.probabilities([Document("d", [event])], revise=True)[0][0]
        np.testing.assert_allclose(found, keep * plain + (1 - keep) * known, atol=1e-6)
    event = replace(document.events[0], frame="Unheard_of")
    np.testing.assert_allclose(model.probabilities([Document("d", [event])], revise=True)[0][0], plain, atol=1e-6)


def test_embeddings(model: Trained, tiny_world: World) -> None:
    documents = [long_document(tiny_world, n, f"d{n}") for n in (5, 0, 1, 7)]
    whole, events = model.embeddings(documents)
    size = (model.module.network.latent or 0) + (model.module.network.frame or 0)
    assert whole.shape == (4, size)
    assert events.shape == (13, size)
    np.testing.assert_allclose(whole[0], events[:5].mean(0), atol=1e-6)
    np.testing.assert_allclose(whole[2], events[5], atol=1e-6)
    assert not whole[1].any()
    np.testing.assert_array_equal(model.embed(documents), whole)
    np.testing.assert_allclose(model.embed(documents[3:])[0], whole[3], atol=1e-6)
    for nothing in ([], [Document("empty", [])]):
        with pytest.raises(RevupError, match="embed"):
            model.embed(nothing)


def test_language_model_does_not_predict_frames(tiny_corpus: Corpus, tiny_network: dict[str, Any]) -> None:
    language_model = revup.train(tiny_corpus, "rnnlm", network=tiny_network, training={"epochs": 0})
    with pytest.raises(RevupError, match="rnnlm does not predict frames"):
        language_model.predict([])  # even of nothing
