"""`revup bench` and benchmarks/train.py: what they measure is what they say, at tiny sizes."""

from __future__ import annotations

import json
import runpy
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paths import ROOT
from revup import benchmark as benching
from revup.benchmark import Plan, RandomCorpus, Size, bench, peak_memory, predict_alone, table
from revup.cli import run
from revup.data.encode import SPECIAL, TUP
from revup.data.events import Document
from revup.errors import RevupError

CPU = torch.device("cpu")
TINY = Size(words=60, frames=5, hidden=8, batch=20)
PROGRAM = ROOT / "benchmarks" / "train.py"


def test_random_documents_have_the_sizes_asked_for() -> None:
    corpus = RandomCorpus(TINY, 300)
    arrays = corpus.split("train").arrays
    assert arrays["tokens"].shape == (300, 5, 5)
    assert (arrays["tokens"][..., -1] == TUP).all()
    assert arrays["tokens"][..., :-1].min() >= len(SPECIAL)
    assert arrays["tokens"].max() < TINY.words == len(corpus.vocabulary)
    counts = np.bincount(arrays["tokens"][..., 0].ravel())
    assert counts[len(SPECIAL)] == counts.max()  # the first word is the most frequent
    assert set(np.unique(arrays["reference"])) <= set(range(5))
    assert len(np.unique(arrays["keys"])) == arrays["keys"].size


def test_random_documents_are_the_same_inside_and_outside_the_corpus() -> None:
    corpus = RandomCorpus(TINY, 30)
    model = benching.trained(corpus, TINY, CPU)
    documents = list(corpus.documents())
    encoded = model.encode(documents)
    np.testing.assert_array_equal(encoded.arrays["tokens"], corpus.split("test").arrays["tokens"])
    assert all(event.frame is None for document in documents for event in document.events)


def test_the_reference_takes_more_memory_where_logits_are_many(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    size = Size(words=40_000, frames=5, hidden=8, batch=20)
    fast, reference = (peak_memory(name, size, CPU) for name in ("fast", "reference"))
    logits = size.words * size.batch * 25 * 4 / 2**20
    assert reference > fast + logits / 2
    benching.print_peak_memory("fast", json.dumps(asdict(TINY)), "cpu")
    assert float(capsys.readouterr().out) > 50  # MiB: torch alone takes more
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(RevupError, match="memory of fast at 40000 words could not be measured: status 1"):
        peak_memory("fast", size, CPU)


def test_bench_reports_ratios_of_what_it_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = {"fast": 300.0, "bf16": 310.0, "reference": 900.0}
    monkeypatch.setattr(benching, "peak_memory", lambda system, size, device: peaks[system])
    plan = Plan(TINY, 2, replace(TINY, words=100), 40)
    result = json.loads(json.dumps(bench(plan, CPU)))
    rate = result["documents_per_second"]
    assert result["ratio"] == pytest.approx(rate["fast"] / rate["reference"])
    assert result["ratio_bf16"] == pytest.approx(rate["bf16"] / rate["reference"])
    assert result["memory_ratio"] == pytest.approx(1 / 3)
    assert min(result["predict_documents_per_second"].values()) > 0
    assert result["config"] == json.loads(json.dumps(asdict(plan)))
    assert {"date", "commit", "hardware", "versions", "threads", "load_before", "load_after"} <= result.keys()
    assert result["versions"]["torch"] == torch.__version__
    shown = table(result)
    assert f"{result['ratio']:.2f}" in shown
    assert "batch 20" in shown


def test_the_verb_hands_on_what_it_was_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Plan] = []

    def remember(plan: Plan, device: torch.device) -> dict[str, Any]:
        asked.append(plan)
        return {"ratio": 2.5}

    monkeypatch.setattr(benching, "bench", remember)
    run(["bench", "--json", "--device", "cpu"])
    run(["bench", "--json", "--device", "cpu", "--quick", "--batch", "7", "--steps", "9", "--hidden", "16"])
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [{"ratio": 2.5}] * 2
    assert asked[0] == Plan(Size(20_000, 600, 128, 500), 3)
    assert asked[1] == replace(Plan.quick(), size=replace(Plan.quick().size, batch=7, hidden=16), steps=9)
    for wrong in (["--steps", "0"], ["--words", "3"], ["--batch", "0"]):
        with pytest.raises(RevupError, match="expected"):
            run(["bench", "--device", "cpu", *wrong])


def test_the_model_alone_is_asked_for_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = RandomCorpus(TINY, 40)
    model = benching.trained(corpus, TINY, CPU)
    plain, asked = model.module.frame_probabilities, []

    def counting(batch: Any) -> Any:
        asked.append(batch.documents)
        assert not torch.is_grad_enabled()
        return plain(batch)

    monkeypatch.setattr(model.module, "frame_probabilities", counting)
    assert predict_alone(model, corpus, 3, batch=20) > 0
    assert asked == [20, 20] * 4


def test_predictions_in_several_threads_are_those_of_one() -> None:
    """The best frames of every document, in order, whatever the number of threads; torch's own number is restored."""
    corpus = RandomCorpus(TINY, 130)
    model = benching.trained(corpus, TINY, CPU)
    documents = list(corpus.documents())
    expected = model.predict(documents, top=3)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("revup.inference.trained.DOCUMENTS_AT_ONCE", 40)
            pairs = list(model.predict_documents(iter(documents), top=3))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert [document.id for document, _ in pairs] == [document.id for document in documents]
    for (_, found), wanted in zip(pairs, expected, strict=True):
        assert [[name for name, _ in event] for event in found] == [[name for name, _ in event] for event in wanted]
    by_sorting = np.argsort(-model.probabilities(documents)[7], axis=1, kind="stable")[:, :3]
    assert [[name for name, _ in event] for event in expected[7]] == [
        [model.frames[k] for k in row] for row in by_sorting
    ]


def test_an_error_while_reading_ends_a_prediction() -> None:
    corpus = RandomCorpus(TINY, 30)
    model = benching.trained(corpus, TINY, CPU)

    def broken() -> Any:
        yield next(corpus.documents())
        raise RevupError("line 2 is bad")

    with pytest.raises(RevupError, match="line 2 is bad"):
        list(model.predict_documents(broken()))
    assert model.predict([Document("empty", [])]) == [[]]


def measured(options: list[str], out: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a command of benchmarks/train.py wrote."""
    monkeypatch.setattr(sys, "argv", [str(PROGRAM), *options])
    runpy.run_path(str(PROGRAM), run_name="__main__")
    return json.loads(out.read_text())


@pytest.mark.parametrize(
    "command", ["throughput", "operations", "predict", "growth", "profile", "concurrent", "same", "full"]
)
def test_every_command_of_the_training_benchmark_runs(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "result.json"
    options = [command, "--tiny", "--device", "cpu", "--seconds", "0.05", "--runs", "2", "--out", str(out)]
    result = measured(options, out, monkeypatch)
    assert result["complete"]
    assert result["runs"]
    assert {"date", "commit", "hardware", "versions", "config", "threads"} <= result.keys()
    assert len(capsys.readouterr().out.splitlines()) == len(result["runs"]) + 1
    if command == "concurrent":
        assert [(r["how"], r["runs"]) for r in result["runs"]] == [
            (how, n) for how in ("processes", "streams") for n in (1, 2)
        ]
    if command == "same":
        plain, fast = (r for r in result["runs"] if r["how"].endswith("float32"))
        assert plain["perplexity"] == pytest.approx(fast["perplexity"], rel=1e-3)


def test_the_benchmark_stops_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "result.json"
    options = ["throughput", "--tiny", "--device", "cpu", "--seconds", "0.05", "--limit", "0", "--out", str(out)]
    result = measured(options, out, monkeypatch)
    assert not result["complete"]
    assert len(result["runs"]) == 1
