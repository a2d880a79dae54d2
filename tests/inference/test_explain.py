"""What the parts of a model contribute: counts and changes add up to the prediction; the dictionary as it is listed."""

from __future__ import annotations

from typing import Any

import pytest

import revup
from revup.data.corpus import Corpus
from revup.data.events import Document
from revup.data.lexicon import Lexicon
from revup.errors import RevupError


@pytest.mark.parametrize("name", ["revup", "tagger", "counts"])
def test_counts_and_context_add_up_to_the_prediction(
    name: str, tiny_documents: list[Document], tiny_network: dict[str, Any]
) -> None:
    pred = tiny_documents[0].events[0].pred
    frames = sorted({event.frame for document in tiny_documents for event in document.events if event.frame})
    lexicon = Lexicon({pred: {(frames[0], ""): 3.0, (frames[1], ""): 1.0}})
    corpus = Corpus.build(tiny_documents, events=4, lexicon=lexicon)
    model = revup.train(corpus, name, network=tiny_network, training={"epochs": 1}, device="cpu")
    asked = tiny_documents[:6]
    for revise in (False, True):
        told = model.explain(asked, top=len(frames), revise=revise)
        predicted = model.predict(asked, top=len(frames), revise=revise)
        for document, parts, found in zip(asked, told, predicted, strict=True):
            assert len(parts) == len(document.events)
            for part, answer in zip(parts, found, strict=True):
                counts = {item["frame"]: item["probability"] for item in part["counts"]}
                change = {item["frame"]: item["change"] for item in part["context"]}
                assert sum(counts.values()) == pytest.approx(1, abs=1e-4)
                for frame, probability in answer:
                    assert counts[frame] + change.get(frame, 0.0) == pytest.approx(probability, abs=2e-3)
    alone = [Document("alone", asked[0].events[:1])]
    assert name != "counts" or not model.explain(alone)[0][0]["context"]  # without a network the document alone matters
    first = told[0][0]
    assert first["lexicon"] == [
        {"frame": frames[0], "probability": 0.75},
        {"frame": frames[1], "probability": 0.25},
    ]
    assert first["labels"] > 0


def test_model_without_counts_says_so(tiny_corpus: Corpus, tiny_documents: list[Document]) -> None:
    model = revup.train(tiny_corpus, "lookup")
    with pytest.raises(RevupError, match=r"the model lookup .* can't tell its parts"):
        model.explain(tiny_documents[:1])
