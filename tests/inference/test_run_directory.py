"""The validations of a run: damaged records are refused in one line, and no other file is copied in their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from revup.data.corpus import Corpus
from revup.errors import InputError
from revup.inference.run_directory import METRICS, read_metrics, write_metrics
from revup.training.run import train

RECORD = {"step": 3, "epoch": 0.5, "seconds": 1, "best": True, "settled": False, "train": {}, "valid": {"nll": 0.25}}


def test_metrics_round_trip_and_a_cut_line_is_left_out(tmp_path: Path) -> None:
    assert read_metrics(tmp_path) == []
    write_metrics(tmp_path, [RECORD, {**RECORD, "step": 4}])
    assert [record["step"] for record in read_metrics(tmp_path)] == [3, 4]
    with open(tmp_path / METRICS, "ab") as out:
        out.write(b'{"step": 5')
    assert len(read_metrics(tmp_path, cut=True)) == 2
    with pytest.raises(InputError, match=r"metrics\.jsonl: line 3: damaged"):
        read_metrics(tmp_path)


@pytest.mark.parametrize("line", ["[]", "{}", "x", "\xff", '{"step": "3"}', "[" * 100_000])
def test_damaged_metrics_are_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / METRICS).write_text(line + "\n", "latin-1")
    with pytest.raises(InputError, match=r"metrics\.jsonl: line 1: damaged"):
        read_metrics(tmp_path)


def test_secret_behind_a_link_is_not_saved_with_a_model(tiny_corpus: Corpus, tmp_path: Path) -> None:
    """Metrics have no digest: a run by an enemy could have a link in their place, and a Hub the file it leads to."""
    model = train(tiny_corpus, model="lookup", out=tmp_path / "run")
    (tmp_path / "secret").write_text("key\n")
    (tmp_path / "run" / METRICS).symlink_to(tmp_path / "secret")
    with pytest.raises(InputError, match=r"metrics\.jsonl: line 1: damaged"):
        model.save(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
