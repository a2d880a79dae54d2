"""A short run of tests/campaigns/kill_review.py: killed reviews lose no decision, killed applies leave whole files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from campaigns.kill_review import kill_apply, kill_review, on_disk


def test_killed_review_loses_no_decision(tmp_path: Path) -> None:
    tally = kill_review(tmp_path / "review", 4, seed=1)
    assert not tally.failures
    assert tally.kills == 4
    assert tally.acknowledged > 20  # a campaign in which nothing happens tests nothing


def test_killed_apply_leaves_whole_files(tmp_path: Path) -> None:
    tally = kill_apply(tmp_path / "apply", 3, seed=1, count=2000)
    assert not tally.failures
    assert tally.kills == 3


def test_broken_line_is_found(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text('{"id": "a"')
    with pytest.raises(ValueError, match="Expecting"):
        on_disk(tmp_path / "d.jsonl")
    (tmp_path / "d.jsonl").write_text(json.dumps(dict.fromkeys(("id", "event"))) + "\n")
    with pytest.raises(AssertionError):
        on_disk(tmp_path / "d.jsonl")
