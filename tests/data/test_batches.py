"""Batches of a split: every row once, reproducible, the same however they are sharded and shared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from revup.data.batches import Batches
from revup.data.corpus import Corpus
from revup.data.encode import (
    PAD,
    TOKENS,
)
from revup.data.knowledge import Observation
from revup.errors import RevupError
from samples import document, many


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "data"
    Corpus.build(many(400), out=folder)
    return folder


def rows_of(batches: list[Any]) -> list[tuple[int, ...]]:
    return [tuple(row) for batch in batches for row in batch.tokens.tolist()]


@pytest.mark.parametrize("shard", [None, 50, 64, 1000])
def test_epoch_holds_every_row_once_and_follows_from_seed(built: Path, shard: int | None) -> None:
    split = Corpus.load(built).split("train")
    everything = sorted(tuple(row.ravel().tolist()) for row in split.arrays["tokens"])
    batches = Batches(split, Observation(0.5, 0.2, 1), 32, shard_rows=shard)
    first = list(batches.epoch(3, seed=7))
    assert sorted(rows_of(first)) == everything
    assert len(first) == len(batches)
    assert sum(batch.documents for batch in first) == len(split)
    again = Batches(split, Observation(0.5, 0.2, 1), 32, shard_rows=shard).epoch(3, seed=7)
    for one, two in zip(first, again, strict=True):
        for name in ("tokens", "mask", "frames", "weights", "observed", "confidence", "reference"):
            assert torch.equal(getattr(one, name), getattr(two, name))
    assert rows_of(list(batches.epoch(4, seed=7))) != rows_of(first)
    assert rows_of(list(batches.epoch(3, seed=8))) != rows_of(first)
    assert rows_of(list(batches.ordered())) == [tuple(row.ravel().tolist()) for row in split.arrays["tokens"]]


def test_observed_labels_do_not_depend_on_shards(built: Path) -> None:
    split = Corpus.load(built).split("train")
    whole = next(Batches(split, Observation(0.5, 0.5, 1), 10_000).ordered())
    parts = list(Batches(split, Observation(0.5, 0.5, 1), 16, shard_rows=50).ordered())
    for name in ("frames", "weights", "observed", "confidence", "reference"):
        assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(whole, name))
    assert sum(part.observed_events for part in parts) == whole.observed_events == int(whole.observed.sum())
    assert sum(part.events for part in parts) == split.events


@pytest.mark.parametrize("start", [0, 1, 5, 9])
def test_epoch_resumes_at_any_batch(built: Path, start: int) -> None:
    split = Corpus.load(built).split("train")
    batches = Batches(split, Observation(), 32, shard_rows=100)
    whole = list(batches.epoch(0, seed=1))
    rest = list(batches.epoch(0, seed=1, start=start))
    assert rows_of(rest) == rows_of(whole[start:])
    assert list(batches.epoch(0, seed=1, start=len(whole))) == []


@pytest.mark.parametrize("processes", [2, 3, 8])
def test_processes_share_each_batch(built: Path, processes: int) -> None:
    split = Corpus.load(built).split("train")
    whole = list(Batches(split, Observation(), 50).epoch(0, seed=1))
    parts = [
        list(Batches(split, Observation(), 50, rank=rank, processes=processes).epoch(0, seed=1))
        for rank in range(processes)
    ]
    for batch, *shares in zip(whole, *parts, strict=True):
        assert torch.equal(torch.cat([share.tokens for share in shares]), batch.tokens)
        assert {(share.documents, share.events, share.observed_events) for share in shares} == {
            (batch.documents, batch.events, batch.observed_events)
        }


def test_missing_events_are_masked() -> None:
    corpus = Corpus.build(train=[document(f"d{n}", *["F"] * n) for n in range(1, 6)])
    batch = next(Batches(corpus.split("train"), Observation(1.0), 8).ordered())
    assert batch.mask.tolist() == [[m < n for m in range(5)] for n in range(1, 6)]
    assert batch.events == batch.observed_events == 15
    assert batch.token_mask.sum() == 15 * TOKENS
    assert (batch.tokens[~batch.token_mask] == PAD).all()
    assert (batch.tokens[batch.token_mask] != PAD).all()
    assert not batch.observed[~batch.mask].any()
    assert batch.empirical(1).sum() == 15
    assert batch.observed_share == 1.0


def test_empty_split_is_refused() -> None:
    corpus = Corpus.build(train=many(3))
    assert len(corpus.split("valid")) == 0
    assert corpus.split("valid").ids == []
    with pytest.raises(RevupError, match="the valid split is empty"):
        Batches(corpus.split("valid"), Observation(), 4)
