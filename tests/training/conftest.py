"""Fixtures of the tests of training."""

from __future__ import annotations

from pathlib import Path

import pytest

import revup
from revup.data.corpus import Corpus
from revup.world.world import World
from training.runs import OFTEN, lines


@pytest.fixture(scope="session")
def few(tiny_world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset directory of which an epoch takes a moment."""
    out = tmp_path_factory.mktemp("few") / "corpus"
    Corpus.build(tiny_world.sample(130), out=out, events=4, split=(0.7, 0.2, 0.1))
    return out


@pytest.fixture(scope="session")
def uninterrupted(few: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of `OFTEN`, which has the weights of `STOPPABLE` too."""
    out = tmp_path_factory.mktemp("whole") / "run"
    revup.train(Corpus.load(few), out=out, device="cpu", **OFTEN)
    assert {line["settled"] for line in lines(out)} == {False, True}
    return out
