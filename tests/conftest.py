"""What several test files share: one thread, and a tiny world whose corpus is built once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from clusters import connect, nodes
from revup.data.corpus import Corpus
from revup.data.events import Document
from revup.world.world import World

os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that tests start
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before anything imports Triton

TINY: dict[str, Any] = {"embedding": 16, "hidden": 16, "latent": 8, "frame": 16}
"""Network sizes that train in a blink."""


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """From the start, so that what fixtures of a module train is to the bit what other processes train."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_network() -> dict[str, Any]:
    return dict(TINY)


@pytest.fixture(scope="session")
def tiny_world() -> World:
    return World(frames=6, seed=1, words=90, events=4)


def ragged(documents: list[Document]) -> list[Document]:
    """Documents of different lengths: every third one loses its last event or two."""
    kept = [d.events[: len(d.events) - (i % 3 == 1) - 2 * (i % 3 == 2) * (i % 2)] for i, d in enumerate(documents)]
    return [replace(d, events=events) for d, events in zip(documents, kept, strict=True)]


@pytest.fixture(scope="session")
def tiny_documents(tiny_world: World) -> list[Document]:
    return ragged(tiny_world.sample(260))


@pytest.fixture(scope="session")
def tiny_path(tiny_world: World, tiny_documents: list[Document], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset directory: 184 training documents, 35 to validate, 41 to test."""
    out = tmp_path_factory.mktemp("tiny") / "corpus"
    Corpus.build(tiny_documents, out=out, events=4, split=(0.7, 0.15, 0.15), world=tiny_world)
    return out


@pytest.fixture(scope="session")
def tiny_corpus(tiny_path: Path) -> Corpus:
    return Corpus.load(tiny_path)


@pytest.fixture(scope="session")
def ray_nodes() -> Iterator[tuple[Any, str]]:
    """A Ray cluster of two nodes, started once in a test process, and its address."""
    with nodes(2) as cluster:
        yield cluster, os.environ.pop("RAY_ADDRESS")  # only tests that ask for `ray_cluster` use it


@pytest.fixture
def ray_cluster(ray_nodes: tuple[Any, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The shared cluster, which RAY_ADDRESS names during the test and which this process is connected to."""
    cluster, address = ray_nodes
    monkeypatch.setenv("RAY_ADDRESS", address)
    connect()
    return cluster
