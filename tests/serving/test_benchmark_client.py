"""The clients of benchmarks/serve.py: they count what a server answers, busy, at a rate, and to bad requests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from asking import ask
from paths import ROOT


@pytest.mark.parametrize("plan", [{"clients": 8}, {"clients": 4, "rate": 40}])
def test_client_reports_answers_and_latencies(
    server: str, documents: list[dict[str, Any]], tmp_path: Path, plan: dict[str, Any]
) -> None:
    bodies = ["".join(json.dumps({"documents": [document]})) for document in documents[1:]]
    (tmp_path / "requests.jsonl").write_text("\n".join([*bodies, '{"documents": 1}']) + "\n")
    whole = {"port": int(server.rsplit(":", 1)[1]), "file": str(tmp_path / "requests.jsonl"), "seconds": 1.5, **plan}
    command = [sys.executable, str(ROOT / "benchmarks" / "serve_client.py"), json.dumps(whole)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)
    assert set(found["statuses"]) <= {"200", "422"}
    assert found["answers"] == found["statuses"]["200"] > 0
    assert (found["cut"], found["refused"]) == (0, 0)
    times = found["milliseconds"]
    assert 0 < times["p50"] <= times["p99"] <= times["max"]
    if "rate" in plan:
        assert sum(found["statuses"].values()) <= 62


def test_misbehaving_clients_get_the_right_refusals(server: str) -> None:
    plan = {"port": int(server.rsplit(":", 1)[1]), "seconds": 4, "seed": 1, "pause": 0.1}
    command = [sys.executable, str(ROOT / "benchmarks" / "serve_hostile.py"), json.dumps(plan)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout)
    assert found["unexpected"] == {}
    assert all(found["kinds"].values())
    assert ask(server, "/health").status == 200
