"""Settings: wrong ones are refused by name, and they survive JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from revup.errors import RevupError
from revup.models import CLASSES
from revup.settings import Config, Training


def test_setting_of_another_model_is_noted_and_ignored() -> None:
    config = Config.make("rnnlm", overrides={"objective": {"alpha": 3.0}, "training": {"epochs": 2}})
    assert config.notes == ("objective.alpha is not used by rnnlm: ignored",)
    assert config.training.epochs == 2
    assert config == Config.make("rnnlm", overrides={"training": {"epochs": 2}})


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("preset", ["default", "paper", "released"])
def test_settings_survive_json(name: str, preset: str) -> None:
    config = Config.make(name, preset, 0.3, 0.1, 7, {"training": {"epochs": 3}})
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("batch_size", 0), ("epochs", -1), ("patience", 0), ("clip", -1.0), ("minutes", float("nan"))),
        *(("learning_rate", -1e-3), ("measure", "beauty"), ("precision", "int8"), ("validate_steps", -1)),
        ("schedule", "cosine"),
    ],
)
def test_wrong_setting_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(RevupError, match=rf"training\.{name.replace('_', '-')}: expected .*, found"):
        Training(**{name: value})
