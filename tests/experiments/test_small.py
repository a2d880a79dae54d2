"""The paper's small example."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from revup.data.corpus import Corpus
from revup.experiments import small
from revup.experiments.runs import RunFile
from revup.experiments.small import Scope
from revup.training.deadline import Deadline, TimeUp
from revup.world.world import World


def test_small_example_has_the_true_distributions(
    tmp_path: Path, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small, "DOCUMENTS", 60)
    world = small.example(Scope(tmp_path / "world"), None)
    names, table = World(frames=10, seed=0).frame_given_predicate()
    for name, truth in zip(world.names, world.truth, strict=True):
        exact = dict(zip(World(frames=10, seed=0).frames, table[names.index(name)], strict=True))
        assert truth == pytest.approx([exact[frame] for frame in world.corpus.frames])
    assert small.example(Scope(tmp_path / "world"), None).corpus.fingerprint == world.corpus.fingerprint

    data = small.example(Scope(tmp_path / "data"), tiny_corpus)
    events = list(_framed(data.corpus))
    for name, truth in zip(data.names, data.truth, strict=True):
        mine = [frame for pred, frame in events if pred == name]
        assert truth == pytest.approx([mine.count(frame) / len(mine) for frame in data.corpus.frames])
    assert small.distance(data.truth, data) == 0.0
    assert small.distance(1 - data.truth, data) > 0.5


def _framed(corpus: Corpus) -> Any:
    a = corpus.split("train").arrays
    for row in range(len(a["lengths"])):
        for m in range(a["lengths"][row]):
            yield corpus.vocabulary.words[a["tokens"][row, m, 0]], corpus.frames[a["reference"][row, m]]


def test_small_example_is_trained_once(tmp_path: Path, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small, "DOCUMENTS", 40)
    monkeypatch.setattr(small, "ITERATIONS", (0, 10))
    scope = Scope(tmp_path, (0,), {"network": {"embedding": 8, "layers": 1}})
    file = RunFile(tmp_path / "runs.jsonl.gz")
    small.complete(scope, tiny_corpus, file)
    section = small.section(file.lines())
    assert section is not None
    (table,) = section.tables
    assert [row.label for row in table.rows][:2] == ["RevUp paper, proposed", "RevUp paper, revised"]
    proposed, revised = (np.array(row.cells)[:, 0] for row in table.rows[:2])
    assert (revised < proposed).all()  # the revision mixes the seen frame in
    assert {name for name, _, _ in section.figures} == {"small-heatmaps", "small-convergence"}
    for _, draw, _ in section.figures:
        assert draw().axes
    monkeypatch.setattr(small, "train_config", lambda *a, **k: pytest.fail("trained again"))
    small.complete(scope, tiny_corpus, RunFile(file.path))
    again = small.section(RunFile(file.path).lines())
    assert again is not None
    assert again.tables == section.tables
    with pytest.raises(TimeUp):
        small.complete(replace(scope, seeds=(1,), deadline=Deadline(0, 0)), tiny_corpus, file)
