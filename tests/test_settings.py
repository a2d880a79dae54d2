"""Settings: wrong values are refused by name, every setting is explained, and they survive JSON."""

from __future__ import annotations

import json
import runpy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paths import ROOT
from revup.cli.options import show
from revup.errors import RevupError
from revup.fields import check, parse, setting
from revup.models import CLASSES
from revup.settings import Config, Training, every_setting


def test_setting_of_another_model_is_noted_and_ignored() -> None:
    config = Config.make("rnnlm", overrides={"objective": {"alpha": 3.0}, "training": {"epochs": 2}})
    assert config.notes == ("objective.alpha is not used by rnnlm: ignored",)
    assert config.training.epochs == 2
    assert config == Config.make("rnnlm", overrides={"training": {"epochs": 2}})


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("preset", ["default", "paper", "released"])
def test_settings_survive_json(name: str, preset: str) -> None:
    config = Config.make(name, preset, 0.3, 0.1, 7, {"training": {"epochs": 3}}, "confusable", "0.1,0.3")
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


@dataclass(frozen=True)
class Example:
    size: str = setting("small", "which size", choices=("small", "large", "huge"))
    share: float = setting(0.5, "a share", minimum=0, below=1)
    rate: float | None = setting(None, "a rate", above=0)
    count: int = setting(3, "how many", minimum=1)
    limit: int = setting(3, "how many at most", minimum=1, maximum=9)
    weight: float = setting(0.0, "any number")
    fast_mode: bool = setting(False, "whether it is fast")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("size", "tiny", "x.size: expected one of small, large, huge, found 'tiny'"),
        ("share", 1, "x.share: expected a number from 0 to below 1, found 1"),
        ("share", float("nan"), "x.share: expected a number from 0 to below 1, found nan"),
        ("share", None, "x.share: expected a number from 0 to below 1, found None"),
        ("rate", 0, "x.rate: expected a number above 0, found 0"),
        ("count", 0, "x.count: expected a whole number of 1 or more, found 0"),
        ("count", 2.5, "x.count: expected a whole number of 1 or more, found 2.5"),
        ("count", True, "x.count: expected a whole number of 1 or more, found True"),
        ("limit", 10, "x.limit: expected a whole number from 1 to 9, found 10"),
        ("weight", float("inf"), "x.weight: expected a number, found inf"),
        ("weight", "much", "x.weight: expected a number, found 'much'"),
        ("fast_mode", 1, "x.fast-mode: expected true or false, found 1"),
    ],
)
def test_value_outside_its_range_is_named(name: str, value: Any, message: str) -> None:
    with pytest.raises(RevupError) as error:
        check(Example(**{name: value}), "x")
    assert str(error.value) == message


def test_allowed_values_pass() -> None:
    check(Example())
    check(Example(size="huge", share=0, rate=2, count=10**18, limit=9, weight=-1.5, fast_mode=True))


@pytest.mark.parametrize("text", ["yes", "TRUE", "1", "on"])
def test_true_is_parsed_from_text(text: str) -> None:
    item = Example.__dataclass_fields__["fast_mode"]
    assert parse(item, "x", text) is True
    with pytest.raises(RevupError, match=r"x\.fast-mode: expected true or false, found 'maybe'"):
        parse(item, "x", "maybe")


def test_every_setting_is_explained_and_has_an_allowed_default() -> None:
    names = [setting.name for setting in every_setting()]
    assert len(names) == len(set(names)) > 50
    for each in every_setting():
        assert each.help
        assert not each.help.endswith(".")
        parse(each.item, each.section, show(each.value())) if each.value() is not None else None


def test_reference_page_is_current() -> None:
    program = ROOT / "docs" / "make_reference.py"
    made = runpy.run_path(str(program))["page"]()
    found = (ROOT / "docs" / "reference" / "settings.md").read_text("utf-8")
    assert found == made, "run: python docs/make_reference.py"


def test_settings_shown_by_help_follow_from_the_code() -> None:
    from revup import cli
    from revup.cli.options import SETTINGS, settings_as_json

    written = Path(cli.__file__).with_name(SETTINGS).read_text("utf-8")
    assert written == settings_as_json(), "run: python docs/make_reference.py"


def test_numbers_of_numpy_become_plain_ones() -> None:
    config = Config.make(epsilon=np.float32(0.5), seed=np.int64(3), overrides={"network": {"hidden": np.int32(8)}})
    assert [type(value) for value in (config.observation.epsilon, config.seed, config.network.hidden)] == [
        float,
        int,
        int,
    ]
    assert json.loads(json.dumps(config.to_json()))["seed"] == 3
    with pytest.raises(RevupError, match="seed: expected a whole number"):
        Config.make(seed=np.int64(-1))
