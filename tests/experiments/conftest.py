"""What the tests of experiments share: settings that train in a blink."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from revup.experiments.datasets import Corpora


@pytest.fixture
def tiny() -> dict[str, dict[str, Any]]:
    """Settings by section."""
    return {
        "network": {"embedding": 8, "hidden": 8, "latent": 4, "frame": 8, "layers": 1},
        "training": {"epochs": 1, "batch_size": 60},
    }


@pytest.fixture
def options(tiny: dict[str, dict[str, Any]]) -> list[str]:
    """The same on a command line."""
    return [
        f"--{section}.{name.replace('_', '-')}={value}" for section in tiny for name, value in tiny[section].items()
    ]


@pytest.fixture
def corpora(tmp_path: Path, tiny_path: Path) -> Corpora:
    """The tiny world's corpus as the only dataset, called "data"."""
    return Corpora({"data": tiny_path}, tmp_path / "labels")
