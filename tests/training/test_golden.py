"""The golden loss curve (tests/golden/revup.json): a refactoring must not change it.

This is the one test against the implementation's own output. After a change that is meant to alter the curve, write it
anew: python tests/training/test_golden.py --rewrite
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import revup
from revup.data.corpus import Corpus
from revup.reporting.progress import Progress
from revup.world.world import World

GOLDEN = Path(__file__).parents[1] / "golden" / "revup.json"


def golden_curve() -> list[dict[str, Any]]:
    """The reports of a short run of each preset."""
    world = World(frames=6, seed=1, words=90, events=4)
    corpus = Corpus.build(world.sample(160), events=4, split=(0.8, 0.1, 0.1))
    curve: list[dict[str, Any]] = []
    for preset in ("default", "paper", "released"):

        def note(report: Progress, preset: str = preset) -> None:
            if report.terms:  # a slow machine reports in between, without terms
                curve.append({"preset": preset, "step": report.step, "train": report.terms, "valid": report.scores})

        settings: dict[str, Any] = {
            "network": {"embedding": 16, "hidden": 16, "latent": 8, "frame": 16},
            "training": {"batch_size": 50, "epochs": 2, "learning_rate": 0.005},
        }
        revup.train(corpus, preset=preset, epsilon=0.6, eta=0.1, seed=3, device="cpu", progress=note, **settings)
    return curve


def test_golden_loss_curve() -> None:
    expected, found = json.loads(GOLDEN.read_text("utf-8")), golden_curve()
    assert [line["step"] for line in found] == [line["step"] for line in expected]
    for old, new in zip(expected, found, strict=True):
        assert new["train"] == pytest.approx(old["train"], rel=1e-4, abs=1e-7), old
        assert new["valid"] == pytest.approx(old["valid"], rel=1e-4, abs=1e-7), old


if __name__ == "__main__":
    if sys.argv[1:] != ["--rewrite"]:
        sys.exit("usage: python tests/training/test_golden.py --rewrite")
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text("[\n" + ",\n".join(json.dumps(line) for line in golden_curve()) + "\n]\n", "utf-8")
