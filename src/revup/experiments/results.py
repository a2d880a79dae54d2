"""Runs and their results: a run is named by everything that determines it, so that none is computed twice.

A name is a digest of the full settings (those of the preset included, so a changed preset is another run), the data's
fingerprint and the format of runs. `runs/NAME/results.json` in the output directory holds the scores of a finished run;
these files are small, can be copied, and are all that tables are made of.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import revup
from revup.inference.run_directory import FORMAT
from revup.io.files import write_text
from revup.models import model_class
from revup.settings import SECTIONS, Config, Overrides

RESULTS = 1  # format of results.json

Result = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One training run. Made by `Run.of`, which leaves out what makes no difference, so that equal runs are equal."""

    model: str
    preset: str
    epsilon: float
    eta: float
    seed: int
    settings: tuple[tuple[str, str, Any], ...]  # section, name, value

    @classmethod
    def of(
        cls,
        model: str,
        preset: str = "default",
        epsilon: float = 1.0,
        eta: float = 0.0,
        seed: int = 0,
        overrides: Overrides | None = None,
    ) -> Run:
        """A run of a model.

        Args:
            model: Name of the model.
            preset: Name of its preset.
            epsilon: Observation probability of the labels; none are observed by models without frames.
            eta: Noise rate of the observed labels.
            seed: Determines weights, order of documents, and which labels are observed or replaced.
            overrides: Settings by section and name; those that the model does not have are left out.

        Returns:
            The run.

        Raises:
            RevupError: A setting is unknown, or its value is not allowed.
        """
        kind, given = model_class(model), overrides or {}
        config = Config.make(model, preset, overrides=given)
        epsilon = float(epsilon) if kind.predicts_frames else 0.0
        eta = float(eta) if epsilon > 0 else 0.0
        sections = SECTIONS if kind.learns else ("objective",)  # counts have neither size nor epochs
        settings = sorted(
            (section, name, value)
            for section in sections
            for name, value in given.get(section, {}).items()
            if hasattr(getattr(config, section), name)
        )
        return cls(model, preset, epsilon, eta, seed, tuple(settings))

    def config(self) -> Config:
        """All its settings."""
        overrides: dict[str, dict[str, Any]] = {}
        for section, name, value in self.settings:
            overrides.setdefault(section, {})[name] = value
        return Config.make(self.model, self.preset, self.epsilon, self.eta, self.seed, overrides)

    def name(self, fingerprint: str) -> str:
        """Its name on data with this fingerprint."""
        return content_name({"config": self.config().to_json(), "data": fingerprint})

    def __str__(self) -> str:
        extra = "".join(f" {section}.{name}={value}" for section, name, value in self.settings)
        return f"{self.model} {self.preset} ε={self.epsilon:g} η={self.eta:g} seed {self.seed}{extra}"


def content_name(content: Mapping[str, Any]) -> str:
    """The name of a result that is computed from this content alone."""
    canonical = json.dumps({"format": FORMAT, "results": RESULTS, **content}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:20]


def read_result(out: Path, name: str) -> Result | None:
    """The result of a finished run in an output directory; None where it is absent or damaged."""
    try:
        found = json.loads((out / "runs" / name / "results.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("results") == RESULTS else None


def write_result(out: Path, name: str, result: Result) -> Result:
    """Write a result, whole or not at all; returns it as `read_result` would."""
    folder = out / "runs" / name
    folder.mkdir(parents=True, exist_ok=True)
    whole = {"results": RESULTS, "name": name, "version": revup.__version__, **result}
    write_text(folder / "results.json", json.dumps(whole, indent=1) + "\n")
    return whole
