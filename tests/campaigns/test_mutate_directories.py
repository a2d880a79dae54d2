"""A short run of tests/campaigns/mutate_directories.py: a changed directory is used or refused in one line."""

from __future__ import annotations

import pytest

from campaigns.mutate_directories import KINDS, campaign


@pytest.mark.no_cover
@pytest.mark.parametrize("name", KINDS)
def test_changed_directories_are_used_or_refused(name: str) -> None:
    tally = campaign(name, 60, seed=1)
    assert not tally.failures, tally.failures[0][1]
    assert tally.inputs == 60
    # a campaign in which all inputs or none are refused tests nothing
    assert tally.refused > 15
    assert tally.used > 2
