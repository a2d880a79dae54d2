"""Fixtures of the command's tests: a small dataset, a run trained on it, documents to label."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from revup import cli

TINY = ["--network.embedding", "12", "--network.hidden", "12", "--network.latent", "6", "--network.frame", "12"]


@pytest.fixture(scope="session")
def tiny() -> list[str]:
    """Options of a network that trains in a second."""
    return [*TINY, "--device", "cpu"]


@pytest.fixture(scope="session")
def quick(tiny: list[str]) -> list[str]:
    """Options of a run of a second."""
    return [*tiny, "--training.epochs", "1", "--training.batch-size", "50"]


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cli") / "data"
    cli.run(["world", "--frames", "10", "--documents", "120", "--held-out", "40", "--out", str(out)])
    return out


@pytest.fixture(scope="session")
def trained(data: Path, quick: list[str]) -> Path:
    out = data.parent / "run"
    cli.run(["train", str(data), "--out", str(out), "--epsilon", "0.6", "--eta", "0.1", *quick])
    return out


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    path = tmp_path / "docs.jsonl"
    rows = [
        {"id": "a", "events": [{"pred": "arrested", "subj": "police", "frame": "Arrest", "note": 7}], "source": "x"},
        {"id": "b", "events": [{"pred": f"did{i}"} for i in range(7)]},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
