"""A short run of tests/campaigns/mutate_review.py: mutated lists, decisions and requests give results or errors."""

from __future__ import annotations

import pytest

from campaigns.mutate_review import TARGETS, campaign


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_input_gives_a_result_or_one_line(name: str) -> None:
    tally = campaign(name, 300, seed=1)
    assert not tally.failures, tally.failures[0][2]
    assert "serve" in name or name == "requests" or 30 < tally.refused < 300  # all or none refused would test nothing


@pytest.mark.parametrize("name", TARGETS)
def test_unmutated_input_is_accepted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("campaigns.mutate_review.mutate", lambda data, random: data)
    tally = campaign(name, 2)
    assert (tally.failures, tally.refused) == ([], 0)
