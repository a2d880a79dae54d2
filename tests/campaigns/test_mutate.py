"""A short run of tests/campaigns/mutate_readers.py: a mutated file gives documents or an InputError."""

from __future__ import annotations

import random

import pytest

from campaigns.mutate_readers import SEEDS, campaign, mutate
from revup.data.readers import FORMATS


@pytest.mark.no_cover  # twice as slow when measured, and every line is measured elsewhere
@pytest.mark.parametrize("name", SEEDS)
def test_mutated_files_give_documents_or_input_errors(name: str) -> None:
    tally = campaign(name, 400, seed=1)
    assert not tally.failures, tally.failures[0][3]
    assert tally.inputs == 400
    # a campaign in which all inputs or none are refused tests nothing
    assert tally.documents > 10
    assert tally.refused > 40


def test_unmutated_files_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("campaigns.mutate_readers.mutate", lambda data, random: data)
    for name in SEEDS:
        tally = campaign(name, 4)
        assert not tally.failures
        assert (tally.refused, tally.documents >= 4) == (0, True), name


def test_every_format_is_mutated() -> None:
    assert set(SEEDS) == set(FORMATS)


def test_mutation_follows_from_seed_and_number() -> None:
    data = b"some valid file"
    first = [mutate(data, random.Random(f"0 jsonl {n}")) for n in range(50)]
    assert first == [mutate(data, random.Random(f"0 jsonl {n}")) for n in range(50)]
    assert len(set(first)) > 25
    assert all(make() == make() for make in SEEDS.values())


def test_failure_is_found_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(document: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("campaigns.mutate_readers._check", break_down)
    tally = campaign("tuples", 100)
    assert len(tally.failures) == 5
    assert "ZeroDivisionError" in tally.failures[0][3]
