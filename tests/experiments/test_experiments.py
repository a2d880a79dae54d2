"""The experiments: an engine that computes nothing twice, tables against known numbers, the paper's own figures."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import revup
from paths import SHARED
from revup import cli
from revup.bottleneck import expected_reliance
from revup.data.corpus import Corpus
from revup.data.encode import NONE, UNK, UNSEEN
from revup.data.events import Document
from revup.data.knowledge import Observation
from revup.errors import RevupError
from revup.experiments import (
    ablation,
    claims,
    experiment,
    grid,
    incomplete,
    noise,
    paper,
    perplexity,
    reliance,
    small,
    sweep,
)
from revup.experiments.grid import Condition, Scope, System, parse_systems
from revup.experiments.scoring import labelled_predicates, unlabelled_scores
from revup.experiments.sweep import Deadline, Run, Sweep, TimeUp, compute, read_result
from revup.experiments.views import ambiguous_frames, first_documents, frequent_frames
from revup.io import folders
from revup.models import model_module
from revup.models.lookup import Lookup
from revup.reporting import tables as t
from revup.reporting.tables import Row, Table, judge, paired_p, t_p
from revup.settings import Config
from revup.world.world import World

SPEC = SHARED / "SPEC.md"
TINY: dict[str, dict[str, Any]] = {
    "network": {"embedding": 8, "hidden": 8, "latent": 4, "frame": 8, "layers": 1},
    "training": {"epochs": 1, "batch_size": 60},
}
OPTIONS = [f"--{section}.{name.replace('_', '-')}={value}" for section in TINY for name, value in TINY[section].items()]


# ---- runs and their names ----------------------------------------------------------------------------------------


def test_a_run_is_named_by_all_that_decides_it() -> None:
    run = Run.of("revup", overrides=TINY)
    assert run.name("data") == Run.of("revup", epsilon=1, overrides=TINY).name("data")
    different = [
        Run.of("revup", "paper", overrides=TINY),
        Run.of("revup", epsilon=0.5, overrides=TINY),
        Run.of("revup", eta=0.5, overrides=TINY),
        Run.of("revup", seed=1, overrides=TINY),
        Run.of("revup"),
        Run.of("ssdvae", overrides=TINY),
    ]
    assert len({run.name("data"), run.name("other data"), *(other.name("data") for other in different)}) == 8


def test_a_changed_preset_is_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Run.of("revup").name("data")
    changed = {**model_module("revup").PRESETS, "default": {"objective": {"alpha": 0.123}}}
    monkeypatch.setattr(model_module("revup"), "PRESETS", changed)
    assert Run.of("revup").name("data") != before


def test_what_makes_no_difference_is_not_in_a_run() -> None:
    """RNNLM and HAQAE know no frames; the lookup table has no network; without anything seen nothing is wrong."""
    for model in ("rnnlm", "haqae"):
        assert Run.of(model, epsilon=0.1) == Run.of(model, epsilon=1.0, eta=0.5)
    assert Run.of("lookup", overrides=TINY) == Run.of("lookup")
    assert Run.of("lookup", epsilon=0.1) != Run.of("lookup", epsilon=0.3)
    assert Run.of("revup", epsilon=0, eta=0.5) == Run.of("revup", epsilon=0)
    assert Run.of("tagger", overrides={"objective": {"alpha": 3.0}}) == Run.of("tagger")
    with pytest.raises(RevupError, match=r"objective\.nonsense"):
        Run.of("tagger", overrides={"objective": {"nonsense": 3.0}})


def test_the_tables_share_their_runs(tmp_path: Path, tiny_corpus: Corpus) -> None:
    """About 200 trained runs for the three tables with three seeds, lookups aside."""
    scope = Scope(tiny_corpus, tmp_path)
    parts = [set(part.plan(scope)) for part in (incomplete, noise, perplexity)]
    trained = [run for run in set.union(*parts) if run.model != "lookup"]
    per_table = 5 * 6 * 3
    assert len(trained) == 2 * per_table + 4 * 3 + 2 * 3  # perplexity adds ε = 0, and the two without frames
    assert sum(run.model == "rnnlm" for run in trained) == 3
    assert len(parts[0] & parts[1]) == 6 * 3  # ε = 1 without noise


# ---- the engine --------------------------------------------------------------------------------------------------


def test_nothing_is_computed_twice(tmp_path: Path, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [Run.of("lookup"), Run.of("tagger", overrides=TINY), Run.of("tagger", overrides=TINY)]
    first = Sweep(tiny_corpus, tmp_path).complete(runs)
    assert set(first.results) == set(runs)
    assert (first.left, first.failed) == (0, {})
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {run.name(tiny_corpus.fingerprint) for run in runs}
    assert not any(path.is_dir() for path in (tmp_path / "work").iterdir())  # checkpoints are gone

    monkeypatch.setattr(sweep, "train_config", lambda *a, **k: pytest.fail("trained again"))
    again = Sweep(tiny_corpus, tmp_path).complete(runs)
    assert again.results == first.results


def test_results_are_those_of_training_and_evaluating(tmp_path: Path, tiny_corpus: Corpus) -> None:
    run = Run.of("tagger", epsilon=0.5, eta=0.2, seed=3, overrides=TINY)
    found = compute(run, tiny_corpus, tmp_path)
    model = revup.train(tiny_corpus, "tagger", 0.5, 0.2, 3, **TINY)
    for split in ("test", "valid"):
        expected = revup.evaluate(model, tiny_corpus, split)
        assert {key: found[split][key] for key in expected} == expected
    assert found["data"] == tiny_corpus.fingerprint
    assert found["config"] == model.config.to_json()
    assert (found["epochs"], found["best_epoch"]) == (1, 1)
    assert found["seconds"] > 0
    assert read_result(tmp_path, run.name(tiny_corpus.fingerprint)) == found


def test_a_damaged_result_is_computed_again(tmp_path: Path, tiny_corpus: Corpus) -> None:
    run = Run.of("lookup")
    path = tmp_path / "runs" / run.name(tiny_corpus.fingerprint) / "results.json"
    expected = compute(run, tiny_corpus, tmp_path)
    path.write_text(path.read_text()[:100])
    assert Sweep(tiny_corpus, tmp_path).complete([run]).results[run]["test"] == expected["test"]


def test_a_run_that_is_stopped_goes_on(tmp_path: Path, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped after a validation and taken up, it gives the very result of a run in one sitting."""
    settings = {**TINY, "training": {**TINY["training"], "epochs": 3}}
    run = Run.of("tagger", overrides=settings)
    whole = compute(run, tiny_corpus, tmp_path / "whole")

    sittings = 0
    while True:
        calls = itertools.count()  # the deadline comes near after the first epoch of each sitting
        monkeypatch.setattr(Deadline, "near", property(lambda self, calls=calls: next(calls) > 1))
        sittings += 1
        outcome = Sweep(tiny_corpus, tmp_path / "parts", deadline=Deadline(0, math.inf)).complete([run])
        if outcome.results:
            break
        assert (outcome.left, outcome.failed) == (1, {})
        assert (tmp_path / "parts" / "work" / run.name(tiny_corpus.fingerprint) / "checkpoint.safetensors").exists()
    assert sittings > 1
    found = outcome.results[run]
    assert (found["test"], found["validations"]) == (whole["test"], whole["validations"])


def test_a_run_that_is_not_stopped_writes_no_weights(
    tmp_path: Path, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With word vectors they are hundreds of megabytes, and nobody asks for them."""
    written: list[Path] = []
    monkeypatch.setattr("revup.inference.trained.save_tensors", lambda path, *rest: written.append(path))
    monkeypatch.setattr("revup.training.checkpoint.save_tensors", lambda path, *rest: written.append(path))
    compute(Run.of("revup", overrides=TINY), tiny_corpus, tmp_path)
    assert not written
    assert not list((tmp_path / "work").iterdir())


def test_no_run_starts_after_the_deadline(tmp_path: Path, tiny_corpus: Corpus) -> None:
    with pytest.raises(TimeUp):
        compute(Run.of("lookup"), tiny_corpus, tmp_path, deadline=Deadline(0, 0))
    outcome = Sweep(tiny_corpus, tmp_path, deadline=Deadline(0, 0)).complete([Run.of("lookup")])
    assert (outcome.results, outcome.left) == ({}, 1)
    limit = Deadline.after(10)
    assert time.time() + 500 < limit.soft < limit.hard < time.time() + 600


def test_a_failing_run_does_not_stop_the_others(tmp_path: Path, tiny_corpus: Corpus) -> None:
    settings = {**TINY, "training": {**TINY["training"], "learning_rate": 1e30}}
    bad, good = Run.of("tagger", overrides=settings), Run.of("lookup", seed=1)
    outcome = Sweep(tiny_corpus, tmp_path).complete([bad, good])
    assert set(outcome.results) == {good}
    assert "diverged" in outcome.failed[bad]
    assert outcome.left == 0


def test_any_exception_is_one_runs_own(tmp_path: Path, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any, **more: Any) -> Any:
        raise ZeroDivisionError("in the\nmiddle")

    monkeypatch.setattr(sweep, "train_config", broken)
    outcome = Sweep(tiny_corpus, tmp_path).complete([Run.of("lookup")])
    assert outcome.failed == {Run.of("lookup"): "ZeroDivisionError: in the middle"}


def test_workers_give_the_same_results(tmp_path: Path, tiny_corpus: Corpus) -> None:
    """Several processes, one of them with a run that fails; a dead process is told of and replaced."""
    settings = {**TINY, "training": {**TINY["training"], "learning_rate": 1e30}}
    runs = [Run.of("tagger", overrides=TINY, seed=seed) for seed in (0, 1)]
    bad = Run.of("tagger", overrides=settings)
    told: list[tuple[int, int, int]] = []
    tell = lambda status: told.append((status.done, status.failed, len(status.running)))  # noqa: E731
    outcome = Sweep(tiny_corpus, tmp_path / "workers", "cpu", 2, tell=tell).complete([*runs, bad])
    assert "diverged" in outcome.failed[bad]
    assert outcome.left == 0
    assert told[-1] == (2, 1, 0)
    for run in runs:
        assert outcome.results[run]["test"] == compute(run, tiny_corpus, tmp_path / "here", "cpu")["test"]


def test_a_worker_that_is_stopped_starts_no_process(tmp_path: Path, tiny_corpus: Corpus) -> None:
    """Nobody would be left to end it."""
    crew = sweep._Worker(Sweep(tiny_corpus, tmp_path, "cpu"), 0, 1)
    crew.stop()
    assert crew._ask(Run.of("lookup")) == (None, None)
    assert crew.process is None


def test_a_worker_that_dies_is_replaced(tmp_path: Path, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    crew = sweep._Worker(Sweep(tiny_corpus, tmp_path, "cpu"), 0, 1)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    result, problem = crew._ask(Run.of("lookup"))
    assert result is None
    assert "died with status 1" in (problem or "")
    crew.stop()
    assert crew._ask(Run.of("lookup")) == (None, None)  # stopping is no failure


def test_the_time_left_follows_the_models() -> None:
    results: list[Any] = [
        {"config": {"model": "revup", "preset": "default"}, "seconds": 30.0},
        {"config": {"model": "lookup", "preset": "default"}, "seconds": 0.0},
        None,
    ]
    timer = sweep._Timer(results, jobs=2)
    assert timer.left([Run.of("revup", seed=1), Run.of("lookup", seed=1)]) == pytest.approx(15.0)
    assert timer.left([Run.of("tagger")]) == pytest.approx(7.5)  # nothing known of it: the mean of all
    assert sweep._Timer([], 1).left([Run.of("tagger")]) is None


def test_only_one_sweep_at_a_time(tmp_path: Path) -> None:
    with folders.lock(tmp_path), pytest.raises(RevupError, match="another process"), folders.lock(tmp_path):
        pass


# ---- scoring apart -----------------------------------------------------------------------------------------------


def test_unlabelled_predicates_against_brute_force(tiny_corpus: Corpus) -> None:
    """Event by event, in plain Python."""
    observation = Observation(0.05, 0.3, 7)
    model = revup.train(tiny_corpus, "lookup", 0.05, 0.3, 7)
    train, test = tiny_corpus.split("train"), tiny_corpus.split("test")
    seen = train.seen(observation).observed
    labelled = set()
    for row in range(len(train)):
        for m in range(train.arrays["lengths"][row]):
            if seen[row, m]:
                labelled.add(int(train.arrays["tokens"][row, m, 0]))
    labelled.discard(UNK)
    mask = labelled_predicates(tiny_corpus, observation)
    assert set(np.flatnonzero(mask).tolist()) == labelled
    right = events = 0
    for row in range(len(test)):
        for m in range(test.arrays["lengths"][row]):
            pred, frame = int(test.arrays["tokens"][row, m, 0]), int(test.arrays["reference"][row, m])
            if frame != NONE and pred not in labelled:
                events += 1
                right += int(model.module.probabilities(np.array([pred]))[0].argmax()) == frame
    found = unlabelled_scores(model, tiny_corpus, observation)
    assert 0 < events < test.events
    assert found["events"] == events
    assert found["accuracy"] == pytest.approx(right / events)


def test_models_without_frames_or_events_apart_have_no_score(tiny_corpus: Corpus) -> None:
    model = revup.train(tiny_corpus, "rnnlm", **TINY)
    assert unlabelled_scores(model, tiny_corpus, Observation(0.1)) == {"events": 0, "accuracy": None, "macro_f1": None}


# ---- tables ------------------------------------------------------------------------------------------------------


def test_students_t_against_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for freedom in (1, 2, 3, 4, 5, 8, 9, 30):
        for value in (0.0, 0.3, 1.0, 4.303, 12.0, -2.0):
            assert t_p(value, freedom) == pytest.approx(2 * stats.t.sf(abs(value), freedom), abs=1e-12)
    rng = np.random.default_rng(0)
    for n in (2, 3, 5, 10):
        a, b = rng.normal(size=n), rng.normal(0.5, size=n)
        assert paired_p(tuple(a), tuple(b)) == pytest.approx(stats.ttest_rel(a, b).pvalue)


def test_three_seeds_have_two_degrees_of_freedom() -> None:
    """At ν = 2 in closed form: p = 1 − t/√(2 + t²), and 4.303 is the critical value at 5%."""
    for value in (0.5, 2.0, 4.303):
        assert t_p(value, 2) == pytest.approx(1 - value / math.sqrt(2 + value**2))
    assert t_p(4.303, 2) == pytest.approx(0.05, abs=1e-4)
    assert paired_p((1.0,), (2.0,)) is None
    assert paired_p((1.0, None, 3.0), (None, 2.0, 2.0)) is None
    assert paired_p((1.0, 2.0), (1.0, 2.0)) == 1.0
    assert paired_p((2.0, 3.0), (1.0, 2.0)) == 0.0


TABLE = Table(
    "test-table",
    "A title",
    "ε",
    ("0.1", "1"),
    (
        Row("A & B", ((0.50, 0.52, 0.54), (0.9, 0.8, 0.7))),
        Row("RevUp", ((0.70, 0.72, 0.741), (0.91, 0.79, 0.73))),
        Row("Lookup", ((None, None, None), (0.5, None, 0.7))),
        t.quoted("printed", [0.99, None], 2),
    ),
    "A caption, 100% true.",
)


def test_mean_deviation_best_and_significance() -> None:
    cells = judge(TABLE)
    assert cells[0][0].mean == pytest.approx(0.52)
    assert cells[0][0].deviation == pytest.approx(0.02)
    assert [row[0].best for row in cells] == [False, True, False, False]  # what is quoted never competes
    assert cells[1][0].significant
    assert cells[1][0].p == pytest.approx(paired_p(*(TABLE.rows[i].cells[0] for i in (1, 0))))
    assert [row[1].best for row in cells] == [False, True, False, False]
    assert not cells[1][1].significant
    assert (cells[2][0].mean, cells[2][1].seeds) == (None, 2)
    assert cells[2][1].deviation == pytest.approx(statistics.stdev([0.5, 0.7]))


def test_lower_is_better_ties_and_no_competition() -> None:
    lower = judge(replace(TABLE, higher=False))
    assert [row[0].best for row in lower] == [True, False, False, False]
    tie = judge(replace(TABLE, rows=(TABLE.rows[0], TABLE.rows[0])))
    assert all(cell.best and not cell.significant for row in tie for cell in row)
    assert not any(cell.best for row in judge(replace(TABLE, compete=False)) for cell in row)
    assert not any(cell.best for row in judge(replace(TABLE, rows=TABLE.rows[:1])) for cell in row)


def test_markdown() -> None:
    lines = t.markdown(TABLE).split("\n")
    assert lines[0] == "### A title"
    assert lines[2] == "| ε | 0.1 | 1 |"
    assert lines[4] == "| A & B | 0.520 ± 0.020 | 0.800 ± 0.100 |"
    assert lines[5] == r"| RevUp | **0.720** ± 0.021\* | **0.810** ± 0.092 |"
    assert lines[6] == "| Lookup | – | 0.600 ± 0.141 (2 of 3) |"
    assert lines[7] == "| *printed* | 0.99 | – |"
    assert {line.count("|") for line in lines[2:8]} == {4}


def test_latex_is_well_formed() -> None:
    text = t.latex(TABLE)
    assert r"A \& B & 0.520{\scriptsize$\,\pm\,$0.020}" in text
    assert r"RevUp & \textbf{0.720}{\scriptsize$\,\pm\,$0.021}$^{*}$" in text
    assert r"\textit{printed} & 0.99 & -- \\" in text
    assert r"100\% true" in text
    assert r"$\epsilon$ & 0.1 & 1 \\" in text
    assert text.isascii()
    assert re.findall(r"\\(begin|end)\{(\w+)\}", text) == [
        ("begin", "table"),
        ("begin", "tabular"),
        ("end", "tabular"),
        ("end", "table"),
    ]
    plain = re.sub(r"\\[\\{}$&%]", "", text)
    assert plain.count("{") == plain.count("}")
    assert plain.count("$") % 2 == 0
    assert {line.replace(r"\&", "").count("&") for line in text.split("\n") if line.endswith(r"\\")} == {2}


def test_csv_reads_back() -> None:
    rows = list(csv.DictReader(io.StringIO(t.csv_text([TABLE]))))
    assert len(rows) == 8
    found = next(row for row in rows if row["system"] == "RevUp" and row["condition"] == "0.1")
    assert float(found["mean"]) == pytest.approx(0.720333, abs=1e-6)
    assert [float(value) for value in found["values"].split()] == [0.70, 0.72, 0.741]
    assert (found["best"], found["seeds"], found["source"]) == ("1", "3", "ours")
    assert rows[-1]["source"] == "quoted"
    assert json.loads(json.dumps(t.as_json(TABLE)))["rows"][1]["cells"][0]["best"]


# ---- the paper's numbers -----------------------------------------------------------------------------------------


def _spec_table(after: str) -> dict[float, list[tuple[float, ...]]]:
    lines = SPEC.read_text("utf-8").split(after, 1)[1].split("\n")
    rows = [line for line in itertools.takewhile(lambda line: line.startswith("|") or not line, lines[1:]) if line]
    return {
        float(cells[0]): [tuple(float(value) for value in cell.split("/")) for cell in cells[1:]]
        for line in rows[2:]
        if (cells := [cell.strip() for cell in line.strip("|").split("|")])
    }


@pytest.mark.skipif(not SPEC.exists(), reason="the specification is not beside the checkout")
def test_the_papers_numbers_are_the_specifications() -> None:
    order = [("ssdvae", "Wiki"), ("revup", "Wiki"), ("ssdvae", "NYT"), ("revup", "NYT")]
    for ours, after in (
        (paper.INCOMPLETE, "Accuracy / macro-F1 / macro-precision, by ε:"),
        (paper.NOISE, "By η (ε = 1):"),
    ):
        theirs = _spec_table(after)
        assert len(theirs) == 6
        assert ours == {system: {at: row[i] for at, row in theirs.items()} for i, system in enumerate(order)}
    text = SPEC.read_text("utf-8").split("Test perplexity (appendix columns):", 1)[1].split("\n")[0]
    numbers = [float(number) for number in re.findall(r"\d+\.\d+", text)]
    flat = [paper.PERPLEXITY[model, corpus][0.0] for model in ("rnnlm", "haqae") for corpus in paper.CORPORA]
    for epsilon in (0.0, 0.1, 0.7, 1.0):
        by_corpus = [[paper.PERPLEXITY[m, c][epsilon] for m in ("ssdvae", "revup")] for c in paper.CORPORA]
        flat += [epsilon, *by_corpus[0], *by_corpus[1]]
    assert numbers == flat


def test_the_papers_numbers_stand_beside_ours(tmp_path: Path, tiny_corpus: Corpus) -> None:
    scope = Scope(tiny_corpus, tmp_path)
    tables = incomplete.show(scope, {}).tables
    row = next(row for row in tables[1].rows if row.label == "RevUp, printed in the paper (its Wiki)")
    assert row.quoted
    assert [cell[0] for cell in row.cells] == [0.02, 0.11, 0.22, 0.65, 0.72, 0.75]
    optimum = next(row for row in tables[0].rows if row.label == "exact optimum")
    assert optimum.cells[0] == (tiny_corpus.meta["optimum"]["test"]["accuracy"],)


# ---- single tables and figures ----------------------------------------------------------------------------------


def test_reliance_is_the_formula(tmp_path: Path) -> None:
    section = reliance.show(Scope(None, tmp_path), {})
    (table,) = section.tables
    for row, strength in zip(table.rows, reliance.STRENGTHS, strict=True):
        share = 1.0 if math.isinf(strength) else strength / (1 + strength)
        for cell, epsilon in zip(row.cells, reliance.EPSILONS, strict=True):
            assert cell[0] == pytest.approx(1 - epsilon * share)
            assert cell[0] == expected_reliance(epsilon, strength)
    (ax,) = section.figures[0][1].axes
    for line, strength in zip(ax.lines, reliance.STRENGTHS, strict=True):
        assert list(line.get_ydata()) == [1.0, expected_reliance(1.0, strength)]


def test_what_is_kept_and_what_is_estimated(tmp_path: Path, tiny_corpus: Corpus) -> None:
    system = System("revup")
    scope = Scope(tiny_corpus, tmp_path, (0, 1), (system,), quick=True)

    def result(accuracy: float) -> dict[str, Any]:
        return {
            "test": {"accuracy": accuracy, "unlabelled": {"events": 5, "accuracy": accuracy / 2}},
            "config": Config.make("revup").to_json(),
            "figures": {"noise_rate": 0.4},
        }

    results = {
        scope.run(system, condition, seed): result(accuracy + seed / 10)
        for condition, accuracy in ((noise.CLEAN, 0.8), (Condition("0.5", 1.0, 0.5, text=False), 0.4))
        for seed in (0, 1)
    }
    tables = {table.name: table for table in noise.show(scope, results).tables}
    assert tables["noise-accuracy"].rows[0].cells == ((0.4, 0.5),)
    assert tables["noise-kept"].rows[0].cells == ((0.4 / 0.8, 0.5 / 0.9),)
    assert tables["noise-unlabelled"].rows[0].cells == ((0.2, 0.25),)
    assert tables["noise-unlabelled"].rows[1].cells == ((5, 5),)
    assert tables["noise-estimates"].rows[0].cells == ((0.4, 0.4),)
    assert tables["noise-estimates"].rows[1].cells == ((0.5,),)


def test_perplexities_without_frames_stand_in_every_column(tmp_path: Path, tiny_corpus: Corpus) -> None:
    scope = Scope(tiny_corpus, tmp_path, (0,))
    levels = {"rnnlm": 60.0, "haqae": 50.0, "ssdvae": 40.0, "revup": 30.0}
    results = {
        run: {"test": {"perplexity": levels[run.model] + run.epsilon, "perplexity_hard": 2 * levels[run.model]}}
        for run in perplexity.plan(scope)
    }
    hard, soft = perplexity.show(scope, results).tables
    rows = {row.label: row for row in soft.rows}
    assert rows["RNNLM"].cells == ((60.0,),) * 4
    assert rows["SSDVAE paper"].cells == ((40.0,), (40.1,), (40.7,), (41.0,))
    assert [cell[0] for cell in rows["RevUp, printed in the paper (its NYT)"].cells] == [39.48, 33.34, 33.20, 28.33]
    assert rows["exact optimum"].cells[0] == (tiny_corpus.meta["optimum"]["test"]["perplexity"],)
    best = [row.label for row, cells in zip(hard.rows, judge(hard), strict=True) if cells[0].best]
    assert best == ["RevUp paper", "RevUp default"]  # a tie, and lower is better
    assert not any("printed" in row.label for row in hard.rows)  # the paper's are soft


def test_claims_are_judged_by_all_that_was_measured(tmp_path: Path, tiny_corpus: Corpus) -> None:
    """Each verdict by counting: RevUp default leads everywhere but at one ε, where SSDVAE default is far ahead."""
    scope = Scope(tiny_corpus, tmp_path, (0, 1, 2))
    level = {"lookup": 0.5, "tagger": 0.6, "ssdvae paper": 0.4, "ssdvae default": 0.7, "revup paper": 0.3}
    results = {}
    for run in claims.plan(scope):
        name = run.model if run.model in ("lookup", "tagger") else f"{run.model} {run.preset}"
        value = level.get(name, 0.7) + 0.01 * run.seed
        if name == "ssdvae default" and run.epsilon == 0.5:
            value += 0.1
        scores = {
            "accuracy": value,
            "macro_f1": value,
            "perplexity_hard": 10 / value,
            "unlabelled": {"accuracy": value},
        }
        results[run] = {"test": scores, "figures": {}, "config": run.config().to_json()}
    section = claims.show(scope, results)
    said = section.text.split("\n\n")
    assert ["does not hold" in said[0], "holds** in all 48 comparisons" in said[2]] == [True, True]  # 12 conditions
    assert "holds in 118 of 120 comparisons" in said[1]  # accuracy and macro-F1, five systems
    assert "accuracy at ε=0.5 against SSDVAE default (-0.100, deviation 0.010)" in said[1]
    assert "holds in 48 of 60" in said[3]  # equal is not ahead
    assert "(c)" in said[4]
    assert "does not hold" in said[5]
    assert "holds** in all 24" in said[6]
    accuracy, *_, hard = section.tables
    row = next(row for row in accuracy.rows if row.label == "RevUp default − SSDVAE default")
    assert row.cells[2] == pytest.approx((-0.1,) * 3)
    assert {row.label for row in hard.rows} == {
        f"RevUp default − {other}" for other in ("HAQAE", "SSDVAE paper", "SSDVAE default", "RevUp paper")
    }
    assert "not measured" in claims.show(scope, {}).text


def test_ablations_follow_the_presets(tmp_path: Path, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is one setting away from the default, and none is the default itself."""
    default = Config.make("revup").to_json()
    for label, changed in ablation.ingredients():
        config = Config.make("revup", overrides=changed).to_json()
        different = {(s, n) for s in changed for n in config[s] if config[s][n] != default[s][n]}
        assert different
        assert label == "the paper's weights" or len(different) == 1
    labels = [label for label, _ in ablation.ingredients()]
    assert "objective.prior = none" in labels
    assert "network.attention = full" in labels
    module = model_module("revup")
    monkeypatch.setattr(module, "PRESETS", {**module.PRESETS, "default": {"network": {"dropout": 0.0}}})
    assert "network.dropout = 0.0" not in [label for label, _ in ablation.ingredients()]

    scope = Scope(tiny_corpus, tmp_path, (0,))
    oracle = [run for run in ablation.plan(scope) if ("objective", "noise_rate", 0.5) in run.settings]
    assert [run.eta for run in oracle] == [0.5]
    section = ablation.show(scope, {})
    assert {row.label for row in section.tables[0].rows} >= {"RevUp default", "oracle: told η"}


def test_systems_by_name() -> None:
    assert parse_systems("revup, revup:paper,lookup,revup") == (
        System("revup"),
        System("revup", "paper"),
        System("lookup"),
    )
    assert [system.label for system in grid.FRAMES] == [
        "Lookup",
        "Tagger",
        "SSDVAE paper",
        "SSDVAE default",
        "RevUp paper",
        "RevUp default",
    ]
    for text, match in (("nonsense", "unknown model"), ("revup:nonsense", "no preset")):
        with pytest.raises(RevupError, match=match):
            parse_systems(text)


# ---- views -------------------------------------------------------------------------------------------------------


def _words(corpus: Corpus, split: str, row: int) -> list[list[str]]:
    a = corpus.split(split).arrays
    return [[corpus.vocabulary.words[n] for n in event] for event in a["tokens"][row, : a["lengths"][row]]]


def test_a_view_holds_the_first_documents(tmp_path: Path, tiny_corpus: Corpus) -> None:
    view = first_documents(tiny_corpus, tmp_path / "view", 40, 10, 30)
    assert {name: len(split) for name, split in view.splits.items()} == {"train": 40, "valid": 10, "test": 10}
    assert view.fingerprint != tiny_corpus.fingerprint
    known = set(view.vocabulary.words)
    assert len(known) == 30 + 5  # and the special tokens
    for split in ("train", "test"):
        assert view.split(split).ids == tiny_corpus.split(split).ids[:10][: len(view.split(split))] or split == "train"
        for row in range(len(view.split(split))):
            whole = _words(tiny_corpus, split, row)
            assert _words(view, split, row) == [[w if w in known else "<unk>" for w in event] for event in whole]
            mine, theirs = (c.split(split).arrays["reference"][row] for c in (view, tiny_corpus))
            for here, there in zip(mine, theirs, strict=True):
                if there >= 0 and tiny_corpus.frames[there] in view.frames:
                    assert view.frames[here] == tiny_corpus.frames[there]
                else:
                    assert here == (NONE if there == NONE else UNSEEN)
    assert "optimum" not in view.meta  # that of the whole test split

    stamp = (tmp_path / "view" / "corpus.json").stat().st_mtime_ns
    again = first_documents(tiny_corpus, tmp_path / "view", 40, 10, 30)
    assert (again.fingerprint, (tmp_path / "view" / "corpus.json").stat().st_mtime_ns) == (view.fingerprint, stamp)
    (tmp_path / "view" / "corpus.json").write_text("{")  # damaged: made anew
    assert first_documents(tiny_corpus, tmp_path / "view", 40, 10, 30).fingerprint == view.fingerprint
    other = first_documents(tiny_corpus, tmp_path / "view", 20, 10, 30)
    assert (len(other.split("train")), other.fingerprint == view.fingerprint) == (20, False)


def test_what_is_seen_in_a_view_is_seen_in_the_whole(tmp_path: Path, tiny_corpus: Corpus) -> None:
    """Draws follow the events, so a view under the same seed sees the same of them."""
    view = first_documents(tiny_corpus, tmp_path / "view", 40, 10, 1000)
    a, b = (c.split("train").seen(Observation(0.4, 0.0, 5), slice(40)) for c in (view, tiny_corpus))
    assert (a.observed == b.observed).all()


def test_frequent_frames_keep_their_events_only(tmp_path: Path, tiny_corpus: Corpus) -> None:
    view = frequent_frames(tiny_corpus, tmp_path / "view", 25, 3)
    assert len(view.frames) == 3
    assert len(view.split("train")) == 25
    a, whole = view.split("train").arrays, tiny_corpus.split("train").arrays
    keys = {int(whole["keys"][i, m]): (i, m) for i, n in enumerate(whole["lengths"]) for m in range(n)}
    for row in range(25):
        assert a["lengths"][row] >= 2
        for m in range(a["lengths"][row]):
            i, n = keys[int(a["keys"][row, m])]
            assert view.frames[a["reference"][row, m]] == tiny_corpus.frames[whole["reference"][i, n]]
            assert _words(view, "train", row)[m] == _words(tiny_corpus, "train", i)[n]
        assert (a["reference"][row, a["lengths"][row] :] == NONE).all()


def test_frames_that_share_predicates_are_preferred() -> None:
    preds = np.array([[1] * 9, [2] * 9, [3] * 9, [1] * 2 + [4] * 7])
    reference = np.array([[0] * 9, [1] * 9, [2] * 9, [3] * 9])
    assert ambiguous_frames(preds, reference, 5, 2).tolist() == [0, 3]  # 3 shares predicate 1 with 0


# ---- the small example ---------------------------------------------------------------------------------------------


def test_the_small_example_knows_the_truth(
    tmp_path: Path, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small, "DOCUMENTS", 60)
    world = small.example(Scope(None, tmp_path / "world"))
    names, table = World(frames=10, seed=0).frame_given_predicate()
    for name, truth in zip(world.names, world.truth, strict=True):
        exact = dict(zip(World(frames=10, seed=0).frames, table[names.index(name)], strict=True))
        assert truth == pytest.approx([exact[frame] for frame in world.corpus.frames])
    assert small.example(Scope(None, tmp_path / "world")).corpus.fingerprint == world.corpus.fingerprint

    data = small.example(Scope(tiny_corpus, tmp_path / "data"))
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


def test_the_small_example_is_watched_once(
    tmp_path: Path, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small, "DOCUMENTS", 40)
    monkeypatch.setattr(small, "ITERATIONS", (0, 10))
    scope = Scope(tiny_corpus, tmp_path, (0,), overrides={"network": {"embedding": 8, "layers": 1}})
    section = small.show(scope, {})
    (table,) = section.tables
    assert [row.label for row in table.rows][:2] == ["RevUp paper, proposed", "RevUp paper, revised"]
    proposed, revised = (np.array(row.cells)[:, 0] for row in table.rows[:2])
    assert (revised < proposed).all()  # the revision mixes the seen frame in
    assert {name for name, _, _ in section.figures} == {"small-heatmaps", "small-convergence"}
    monkeypatch.setattr(small, "train_config", lambda *a, **k: pytest.fail("trained again"))
    assert small.show(scope, {}).tables == section.tables
    with pytest.raises(TimeUp):
        small.show(replace(scope, seeds=(1,), deadline=Deadline(0, 0)), {})


# ---- the verb ----------------------------------------------------------------------------------------------------


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incomplete, "EPSILONS", (0.3, 1.0))


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "find_spec", lambda name: None)


@pytest.mark.usefixtures("brief")
def test_the_verb_from_end_to_end(tmp_path: Path, tiny_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    command = ["experiment", "incomplete", str(tiny_path), "--out", str(out), "--seeds", "2", "--jobs", "1", *OPTIONS]
    cli.run([*command, "--models", "lookup,tagger"])
    assert "8 runs finished" in capsys.readouterr().out
    assert {path.name for path in out.iterdir()} >= {
        "incomplete.md",
        "incomplete.csv",
        "incomplete.tex",
        "incomplete.png",
        "incomplete.svg",
        "report.html",
        "results.json",
    }
    results = json.loads((out / "results.json").read_text())
    about = results["provenance"]
    assert about["data"] == Corpus.load(tiny_path).fingerprint
    assert about["seeds"] == [0, 1]
    assert about["version"] == revup.__version__
    assert about["settings"]["network"]["hidden"] == 8
    (lookup, tagger) = results["sections"]["incomplete"]["tables"][0]["rows"][:2]
    for seed in (0, 1):
        exact = revup.evaluate(revup.train(Corpus.load(tiny_path), "lookup", 0.3, seed=seed), Corpus.load(tiny_path))
        assert lookup["cells"][0]["values"][seed] == exact["accuracy"]
    assert tagger["system"] == "Tagger"
    page = (out / "report.html").read_text()
    assert "<strong>" in page
    assert about["data"] in page
    assert "http" not in re.sub(r'src="data:[^"]*"', "", page)  # self-contained
    assert (out / "incomplete.md").read_text().count("### ") == 6  # five tables and the provenance
    cli.run([*command, "--models", "lookup", "--json"])
    assert json.loads(capsys.readouterr().out)["provenance"]["runs"] == 4


@pytest.mark.usefixtures("brief", "no_figures")
def test_out_of_time_the_tables_say_what_is_missing(tmp_path: Path, tiny_path: Path) -> None:
    settings: dict[str, Any] = {"seeds": 1, "systems": parse_systems("lookup"), "jobs": 1}
    found = experiment("incomplete", tiny_path, tmp_path / "out", **settings, minutes=1e-9)
    assert (found["complete"], found["left"], found["unfinished"]) == (False, 2, ["incomplete"])
    assert "Not finished: 2 runs are missing" in (tmp_path / "out" / "incomplete.md").read_text()
    found = experiment("incomplete", tiny_path, tmp_path / "out", **settings)
    assert found["complete"]
    assert "Not finished" not in (tmp_path / "out" / "incomplete.md").read_text()


@pytest.mark.usefixtures("brief", "no_figures")
def test_quick_takes_part_of_the_data(tmp_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from revup import experiments

    monkeypatch.setattr(experiments, "QUICK_VIEW", {"documents": 30, "held_out": 10, "words": 50})
    found = experiment("incomplete", tiny_path, tmp_path, seeds=1, quick=True, systems=parse_systems("lookup"), jobs=1)
    about = json.loads((tmp_path / "results.json").read_text())["provenance"]
    assert found["runs"] == 2
    assert about["documents"] == {"train": 30, "valid": 10, "test": 10}
    assert about["view"]["of"] == Corpus.load(tiny_path).fingerprint
    assert about["settings"]["network"]["hidden"] == experiments.QUICK["network"]["hidden"]


@pytest.mark.usefixtures("brief", "no_figures")
def test_without_the_report_extra_tables_are_there(
    tmp_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr("revup.reporting.figures.find_spec", lambda name: None)
    found = experiment("incomplete", tiny_path, tmp_path, seeds=1, systems=parse_systems("lookup"), jobs=1)
    assert "revup[report]" in found["notes"][0]
    assert (tmp_path / "incomplete.md").exists()
    assert not (tmp_path / "report.html").exists()
    assert not list(tmp_path.glob("*.png"))


@pytest.mark.usefixtures("brief", "no_figures")
def test_failed_runs_are_told_after_the_rest_is_written(tmp_path: Path, tiny_path: Path) -> None:
    settings = {**TINY, "training": {**TINY["training"], "learning_rate": 1e30}}
    with pytest.raises(RevupError, match=r"2 runs failed.*tagger.*diverged"):
        experiment(
            "incomplete",
            tiny_path,
            tmp_path,
            seeds=1,
            jobs=1,
            systems=parse_systems("lookup,tagger"),
            overrides=settings,
        )
    assert "Not finished: 2 runs" in (tmp_path / "incomplete.md").read_text()


def test_what_cannot_be_done_is_refused(tmp_path: Path, tiny_path: Path, tiny_documents: list[Document]) -> None:
    with pytest.raises(RevupError, match="unknown experiment"):
        experiment("nonsense", tiny_path, tmp_path / "out")
    with pytest.raises(RevupError, match="--seeds"):
        experiment("incomplete", tiny_path, tmp_path / "out", seeds=0)
    with pytest.raises(RevupError, match="name the dataset"):
        experiment("all", None, tmp_path / "out")
    bare = [Document(d.id, [replace(event, frame=None) for event in d.events]) for d in tiny_documents[:20]]
    Corpus.build(bare, out=tmp_path / "bare", events=4, split=(0.8, 0.1, 0.1))
    with pytest.raises(RevupError, match="has no frames"):
        experiment("noise", tmp_path / "bare", tmp_path / "out")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").touch()
    with pytest.raises(RevupError, match="not an experiment's own"):
        experiment("reliance", None, tmp_path / "full")
    assert experiment("reliance", None, tmp_path / "new")["complete"]
    (tmp_path / "file").touch()
    with pytest.raises(RevupError, match="not a directory"):
        experiment("reliance", None, tmp_path / "file")


def test_ctrl_c_leaves_what_can_be_taken_up(tmp_path: Path, tiny_path: Path) -> None:
    """A sweep with two workers, interrupted: status 130, workers gone, finished runs kept, and it goes on."""
    out = tmp_path / "out"
    command = [sys.executable, "-m", "revup", "experiment", "perplexity", str(tiny_path), "--out", str(out)]
    command += ["--seeds", "2", "--jobs", "2", "--models", "rnnlm,haqae", *OPTIONS, "--training.epochs=2000"]
    command += ["--training.checkpoint-minutes=0.01"]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.time() + 60
        while not list(out.glob("work/*/checkpoint.safetensors")) and time.time() < deadline:
            time.sleep(0.1)
        os.killpg(started.pid, signal.SIGINT)
        error = started.communicate(timeout=30)[1].decode()
    finally:
        started.kill()
    assert started.returncode == 130
    assert error.strip() == "revup: stopped"
    with pytest.raises(ProcessLookupError):
        os.killpg(started.pid, 0)
    assert list(out.glob("work/*/checkpoint.safetensors"))
    with folders.lock(out / "work"):  # nobody is at work there any more
        pass


def test_lookups_need_no_training_directory(tmp_path: Path, tiny_corpus: Corpus) -> None:
    found = compute(Run.of("lookup", epsilon=0.5), tiny_corpus, tmp_path)
    assert not (tmp_path / "work").exists()
    table = Lookup().fit(tiny_corpus, Observation(0.5))
    test = tiny_corpus.split("test").arrays
    there = np.asarray(test["reference"]) >= 0
    guess = table.probabilities(np.asarray(test["tokens"])[..., 0]).argmax(-1)
    assert found["test"]["accuracy"] == (guess == test["reference"])[there].sum() / found["test"]["events_scored"]


def test_the_decoder_learns_on_only_where_perplexity_is_shown(tmp_path: Path) -> None:
    scope = Scope(None, tmp_path, (0,), (System("revup"),))
    settles = {run.epsilon: run.config().training.settle for run in incomplete.plan(scope)}
    assert {epsilon for epsilon, share in settles.items() if share} == set(settles) & set(perplexity.EPSILONS)
    assert [run.config().training.settle for run in noise.plan(scope)] == [0.0] * len(noise.ETAS) + [settles[1.0]]
    told = Scope(None, tmp_path, (0,), (System("revup"),), {"training": {"settle": 0.25}})
    assert {run.config().training.settle for run in [*incomplete.plan(told), *noise.plan(told)]} == {0.25}
