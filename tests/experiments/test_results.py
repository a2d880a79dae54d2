"""What identifies a run."""

from __future__ import annotations

from typing import Any

import pytest

from revup.errors import RevupError
from revup.experiments.results import Run
from revup.models import model_module

Settings = dict[str, dict[str, Any]]


def test_run_name_depends_on_everything_that_determines_it(tiny: Settings) -> None:
    run = Run.of("revup", overrides=tiny)
    assert run.name("data") == Run.of("revup", epsilon=1, overrides=tiny).name("data")
    different = [
        Run.of("revup", "paper", overrides=tiny),
        Run.of("revup", epsilon=0.5, overrides=tiny),
        Run.of("revup", eta=0.5, overrides=tiny),
        Run.of("revup", seed=1, overrides=tiny),
        Run.of("revup"),
        Run.of("ssdvae", overrides=tiny),
    ]
    assert len({run.name("data"), run.name("other data"), *(other.name("data") for other in different)}) == 8


def test_changed_preset_is_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Run.of("revup").name("data")
    changed = {**model_module("revup").PRESETS, "default": {"objective": {"alpha": 0.123}}}
    monkeypatch.setattr(model_module("revup"), "PRESETS", changed)
    assert Run.of("revup").name("data") != before


def test_settings_without_effect_are_left_out_of_a_run(tiny: Settings) -> None:
    """RNNLM and HAQAE know no frames; the lookup table has no network; without anything seen nothing is wrong."""
    for model in ("rnnlm", "haqae"):
        assert Run.of(model, epsilon=0.1) == Run.of(model, epsilon=1.0, eta=0.5)
    assert Run.of("lookup", overrides=tiny) == Run.of("lookup")
    assert Run.of("lookup", epsilon=0.1) != Run.of("lookup", epsilon=0.3)
    assert Run.of("revup", epsilon=0, eta=0.5) == Run.of("revup", epsilon=0)
    assert Run.of("tagger", overrides={"objective": {"alpha": 3.0}}) == Run.of("tagger")
    with pytest.raises(RevupError, match=r"objective\.nonsense"):
        Run.of("tagger", overrides={"objective": {"nonsense": 3.0}})
