"""The bill of materials lists every pinned package; a licence or version that does not fit is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.dependencies import component, pinned, problems


def test_lock_file_is_read_and_packages_are_described() -> None:
    pins = pinned(Path(__file__).parents[2] / "requirements.lock")
    assert pins["torch"] == "2.13.0"
    described = component("numpy", pins["numpy"])
    assert described["purl"] == f"pkg:pypi/numpy@{pins['numpy']}"
    assert "BSD" in described["licenses"][0]["license"]["name"]


def test_other_version_and_unfit_licence_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    (problem,) = problems({"numpy": "0.1"})
    assert "0.1 is pinned" in problem
    monkeypatch.setattr("campaigns.dependencies.licence", lambda name: "AGPL-3.0")
    assert any("AGPL" in problem for problem in problems({"numpy": "0.1"}))
