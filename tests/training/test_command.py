"""The printed command trains with the same settings."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from revup.settings import Config
from revup.training.command import changed_settings, train_command

CASES: list[tuple[str, str, dict[str, dict[str, Any]]]] = [
    ("revup", "default", {}),
    ("revup", "default", {"training": {"epochs": 6}}),
    ("revup", "default", {"training": {"epochs": 3, "most_steps": 70, "learning_rate": 1e-4}}),
    ("revup", "default", {"training": {"least_steps": 0}, "objective": {"strength": 2.5, "induce": False}}),
    ("revup", "paper", {"objective": {"alpha": 0.3}, "network": {"hidden": 64, "size": "paper"}}),
    ("revup", "released", {"objective": {"noise_rate": 0.1}}),
    ("ssdvae", "default", {"network": {"dropout": 0.123456789012345}}),
    ("lookup", "default", {"objective": {"smoothing": 0.3}}),
]


@pytest.mark.parametrize(("model", "preset", "overrides"), CASES)
def test_settings_survive_the_command(model: str, preset: str, overrides: dict[str, dict[str, Any]]) -> None:
    config = Config.make(model, preset, 0.3, 0.25, 7, overrides).resolve(12)
    again = Config.make(model, preset, 0.3, 0.25, 7, changed_settings(config, 12)).resolve(12)
    assert again == config


def test_command_names_only_what_differs_from_the_preset() -> None:
    config = Config.make("revup", overrides={"network": {"dropout": 0.1}}, epsilon=0.5)
    words = shlex.split(train_command(config, "my data", "run", classes=12, device="cuda"))
    assert words == [
        *("revup", "train", "my data", "--out", "run", "--model", "revup", "--epsilon", "0.5"),
        *("--network.dropout", "0.1", "--device", "cuda"),
    ]
