"""The client of benchmarks/serve.py: it counts what a server answers, busy and at a rate."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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
