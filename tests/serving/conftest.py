"""Fixtures of the server's tests: a small model, and a server in a thread of this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from revup.data.corpus import Corpus
from revup.data.events import Document, document_to_json
from revup.inference.trained import Trained
from revup.serving.server import running
from revup.training.run import train


@pytest.fixture(scope="session")
def model(tiny_corpus: Corpus, tiny_network: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Trained:
    out = tmp_path_factory.mktemp("serving") / "news"
    return train(tiny_corpus, device="cpu", network=tiny_network, training={"epochs": 1}, out=out)


@pytest.fixture(scope="session")
def run_path(model: Trained) -> Path:
    assert model.path is not None
    return model.path


@pytest.fixture(scope="session")
def server(model: Trained) -> Iterator[str]:
    """The address of a server."""
    with running(model, timeout=2.0, max_documents=50, max_events=200) as address:
        yield address


@pytest.fixture(scope="session")
def documents(tiny_documents: list[Document]) -> list[dict[str, Any]]:
    """Documents of different lengths as clients send them, one of them longer than a window."""
    long = {"id": "long", "events": [event for d in tiny_documents[:5] for event in document_to_json(d)["events"]]}
    return [long, *(document_to_json(document) for document in tiny_documents[:30])]
