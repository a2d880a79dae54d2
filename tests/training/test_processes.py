"""Several processes train one model as a single process does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import revup
from revup.data.corpus import Corpus
from training.runs import TINY, lines

WORKER = """
import json, os, sys, torch
torch.set_num_threads(1)
import revup
corpus = revup.Corpus.load(sys.argv[1])
for out, settings in json.loads(sys.argv[2]).items():
    model = revup.train(corpus, out=out, device="cpu", **settings)
    if int(os.environ["RANK"]) == 1:  # the one that writes nothing
        print(json.dumps(revup.evaluate(model, corpus)), flush=True)
torch.distributed.destroy_process_group()
"""


def torchrun(script: Path, *arguments: str) -> list[str]:
    """The command that starts two processes."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return [*launch, str(script), *arguments]


@pytest.mark.slow
def test_two_processes_compute_what_one_does(tiny_corpus: Corpus, tmp_path: Path) -> None:
    """184 documents: of batches of 75 the last has 34; of batches of 61 one document is left, which joins others."""
    shared: dict[str, Any] = {"epsilon": 0.6, "network": TINY}
    speed = {"epochs": 2, "learning_rate": 0.005, "settle": 0.0}
    cases: dict[str, dict[str, Any]] = {
        "default": {**shared, "training": {**speed, "batch_size": 75}, "objective": {"samples": 2}},
        "released": {**shared, "training": {**speed, "batch_size": 61}, "preset": "released"},
        "settling": {**shared, "training": {"epochs": 8, "patience": 1, "learning_rate": 0.02, "batch_size": 75}},
    }
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    settings = json.dumps({str(tmp_path / f"{name}2"): case for name, case in cases.items()})
    command = torchrun(script, str(tiny_corpus.path), settings)
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Warning" not in done.stderr
    for (name, case), printed in zip(cases.items(), done.stdout.splitlines(), strict=True):
        alone = revup.train(tiny_corpus, out=tmp_path / name, device="cpu", **case)
        one, two = lines(tmp_path / name), lines(tmp_path / f"{name}2")
        assert [line["step"] for line in two] == [line["step"] for line in one]
        for expected, found in zip(one, two, strict=True):
            assert found["train"] == pytest.approx(expected["train"], rel=1e-5, abs=1e-7)
            assert found["valid"] == pytest.approx(expected["valid"], rel=1e-4)
        assert one[-1]["settled"] == two[-1]["settled"] == (name == "settling")
        accuracy = revup.evaluate(alone, tiny_corpus)["accuracy"]
        assert json.loads(printed)["accuracy"] == accuracy
        assert revup.evaluate(revup.load(tmp_path / f"{name}2"))["accuracy"] == accuracy


INTERRUPTED = """
import json, os, signal, sys, torch
torch.set_num_threads(1)
import revup

def progress(report):
    if int(os.environ["RANK"]) == 1 and report.step == 40:
        signal.raise_signal(signal.SIGTERM)

corpus = revup.Corpus.load(sys.argv[1])
stopped = False
try:
    revup.train(corpus, out=sys.argv[2], device="cpu", progress=progress, **json.loads(sys.argv[3]))
except revup.errors.Interrupted:
    stopped = True
revup.train(corpus, out=sys.argv[2], device="cpu", resume=True)
if int(os.environ["RANK"]) == 0:
    print(stopped)
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_signal_to_one_process_stops_all_of_them(tiny_corpus: Corpus, tmp_path: Path) -> None:
    """The one that writes is another; all stop at the same step, and continue together."""
    settings = {"network": TINY, "training": {"epochs": 4, "batch_size": 8, "settle": 0.0}}
    script = tmp_path / "worker.py"
    script.write_text(INTERRUPTED)
    command = torchrun(script, str(tiny_corpus.path), str(tmp_path / "run"), json.dumps(settings))
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["True"]
    assert [line["epoch"] for line in lines(tmp_path / "run")] == [1, 2, 3, 4]
