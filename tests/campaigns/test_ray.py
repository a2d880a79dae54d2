"""A short run of tests/campaigns/ray_predict.py: the bytes of one process, though workers and the driver are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.ray_predict import campaign

pytest.importorskip("ray", reason="the extra 'cluster' is not installed")


@pytest.mark.long  # tests/inference/test_cluster.py kills workers and drivers as well
def test_kills_change_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("revup.data.chunks.CHUNK_RECORDS", 0)  # put back afterwards: the campaign sets it
    found = campaign(tmp_path, 400, ["predict"], 16, chunk=20)
    assert found["same"], found
    assert found["predict"]["cluster, workers killed"]["killed"] >= 1
    assert found["predict"]["cluster, driver killed"]["chunks_before_the_kill"] == 10
