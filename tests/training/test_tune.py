"""Searching for settings: nothing is lost by a kill, trials are what `train` would do, the verdict is fair."""

from __future__ import annotations

import csv
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import revup
from revup.cli.options import Parser, overrides
from revup.data.corpus import Corpus
from revup.errors import InputError, Interrupted, RevupError
from revup.inference.run_directory import read_metrics
from revup.inference.students_t import t_quantile
from revup.training.deadline import Deadline
from revup.training.tuning.comparison import compare
from revup.training.tuning.outcome import summary
from revup.training.tuning.plan import Plan
from revup.training.tuning.space import parse_space
from revup.training.tuning.study import JOURNAL, Study
from training.runs import TINY, start, wait_for_validations

pytest.importorskip("optuna")

SPACE = "training.learning-rate=0.0005..0.05,network.dropout,objective.alpha"
SETTINGS: dict[str, Any] = {
    "epsilon": 0.7,
    "eta": 0.1,
    "seed": 2,
    "search": SPACE,
    "device": "cpu",
    "overrides": {"network": TINY, "training": {"epochs": 2, "batch_size": 30, "checkpoint_minutes": 0.0}},
}


def tune(data: Path, out: Path, **more: Any) -> dict[str, Any]:
    return revup.tune(data, out, **{"trials": 4, "seeds": 0, "jobs": 1, **SETTINGS, **more})


def trials(out: Path) -> list[dict[str, str]]:
    """trials.csv without the times."""
    with open(out / "trials.csv", encoding="utf-8", newline="") as table:
        return [{name: value for name, value in row.items() if name != "seconds"} for row in csv.DictReader(table)]


@pytest.fixture(scope="module")
def search(few: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a search of four trials that was never stopped."""
    out = tmp_path_factory.mktemp("search") / "search"
    found = tune(few, out)
    assert found["complete"]
    return out


# ---- trials --------------------------------------------------------------------------------------------------------


def test_trial_zero_is_default(few: Path, search: Path, tmp_path: Path) -> None:
    found = json.loads((search / "results.json").read_text("utf-8"))
    given = {name: SETTINGS[name] for name in ("epsilon", "eta", "seed")}
    revup.train(Corpus.load(few), out=tmp_path / "run", device="cpu", **given, **SETTINGS["overrides"])
    lines = read_metrics(tmp_path / "run")  # the decoder phase leaves the frames as they are
    assert found["default"] == {"trial": 0, "value": min(line["valid"]["label_nll"] for line in lines)}
    assert trials(search)[0]["note"] == "default"


def test_printed_command_trains_the_trial_to_the_bit(few: Path, search: Path, tmp_path: Path) -> None:
    found = json.loads((search / "results.json").read_text("utf-8"))
    words = shlex.split(found["best_command"])
    assert words[:3] == ["revup", "train", str(few)]
    words[words.index("RUN")] = str(tmp_path / "run")
    revup.cli.run(words[1:])
    assert min(line["valid"]["label_nll"] for line in read_metrics(tmp_path / "run")) == found["best"]["value"]


def test_more_trials_continue_the_search(few: Path, search: Path, tmp_path: Path) -> None:
    out = tmp_path / "search"
    tune(few, out, trials=2)
    assert tune(few, out)["counts"]["finished"] + tune(few, out)["counts"]["stopped"] == 4
    assert trials(out) == trials(search)  # the trials of a search in one go


def test_perplexity_needs_no_label(few: Path, tmp_path: Path) -> None:
    more: dict[str, Any] = {"epsilon": 0.0, "search": None, "overrides": {**SETTINGS["overrides"], "objective": {}}}
    found = tune(few, tmp_path / "search", trials=1, **more)
    assert found["measure"] == "perplexity"
    assert not [name for name in found["defaults"] if name.startswith("objective.")]
    with pytest.raises(RevupError, match="no label is observed that accuracy"):
        tune(few, tmp_path / "other", measure="accuracy", **more)


def test_trial_that_falls_behind_is_stopped(few: Path, tmp_path: Path) -> None:
    """A learning rate of next to nothing, after trials that learned."""
    corpus = Corpus.load(few)
    settings = {"search": "training.learning-rate=1e-8..0.02,network.dropout", "overrides": SETTINGS["overrides"]}
    out = tmp_path / "search"
    tune(few, out, trials=1, **settings)
    plan = Plan.make(
        corpus, "revup", None, revup.data.knowledge.Observation(0.7, 0.1, 2), settings["overrides"],
        settings["search"], "tpe", True,
    )  # fmt: skip
    study = Study(out, plan, plan.defaults(corpus))
    for rate in (0.01, 0.02, 0.015, 1e-8):
        study.study.enqueue_trial({"training.learning-rate": rate, "network.dropout": 0.1})
    found = tune(few, out, trials=5, **settings)
    assert found["counts"] == {"finished": 4, "stopped": 1, "failed": 0, "unfinished": 0}
    assert trials(out)[4]["end"] == "stopped"
    assert float(trials(out)[4]["training.learning-rate"]) == 1e-8


def test_diverged_trial_is_set_aside(few: Path, tmp_path: Path) -> None:
    settings = {"search": "training.learning-rate=0.001..1e36"}
    found = tune(few, tmp_path / "search", trials=3, **settings)
    assert found["counts"]["finished"] >= 1
    assert any("diverged" in row["note"] for row in trials(tmp_path / "search"))
    assert found["complete"]


def test_default_that_fails_is_an_error(few: Path, tmp_path: Path) -> None:
    bad = {**SETTINGS["overrides"], "training": {"epochs": 1, "learning_rate": 1e36}}
    with pytest.raises(RevupError, match="default settings can't be trained: training diverged"):
        tune(few, tmp_path / "search", search="network.dropout", overrides=bad)


# ---- stops, kills, continuing --------------------------------------------------------------------------------------


def search_in_process(data: Path, out: Path, more: dict[str, Any]) -> None:
    try:
        tune(data, out, **more)
    except Interrupted as stop:
        sys.exit(stop.status)


def begun(out: Path) -> list[Path]:
    return sorted(out.glob("work/trial-*/metrics.jsonl"))


@pytest.mark.slow
def test_killed_search_loses_no_trial(few: Path, search: Path, tmp_path: Path) -> None:
    """SIGKILL in the middle of trial 0, and again in a later one; the outcome is that of a search in one go."""
    out = tmp_path / "search"
    for trial, validations in (("trial-00000", 1), ("trial-00002", 1)):
        process = start(search_in_process, few, out, {})
        wait_for_validations(process, out / "work" / trial, validations)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert [path.parent.name for path in begun(out)] == [trial]
    finished = [json.loads(line) for line in (out / JOURNAL).read_text("utf-8").splitlines()]
    assert sum(line.get("state") in (1, 2) for line in finished) >= 2  # optuna: complete, pruned
    found = tune(few, out)
    assert found["recovered"] == 1
    assert found["complete"]
    assert trials(out) == trials(search)
    assert not begun(out)


@pytest.mark.slow
def test_interrupted_search_says_how_to_continue(few: Path, tmp_path: Path) -> None:
    """SIGTERM to a search in two processes: both write checkpoints, and the same command continues them."""
    out = tmp_path / "search"
    words = ["tune", str(few), "--out", str(out), "--trials", "3", "--seeds", "0", "--jobs", "2", "--device", "cpu"]
    words += ["--search", "network.dropout", "--training.epochs", "400", "--training.patience", "400"]
    words += [f"--network.{name}={value}" for name, value in TINY.items()]
    running = subprocess.Popen([sys.executable, "-m", "revup", *words], stderr=subprocess.PIPE, text=True)
    while running.poll() is None and len(begun(out)) < 2:
        time.sleep(0.05)
    running.send_signal(signal.SIGTERM)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 143
    assert said == f"revup: stopped by SIGTERM; resume with: revup {shlex.join(words)}\n"
    assert len(list(out.glob("work/trial-*/checkpoint.safetensors"))) == 2
    parser = Parser("tune", "")
    parser.settings([])
    nested, _ = parser.parse_known_args(words[1:])
    study = Study(out, _plan(few, out), {})
    assert study.recovered == 2
    assert overrides(nested)["training"]["epochs"] == 400


def _plan(data: Path, out: Path) -> Plan:
    """The plan that a directory was started with."""
    known = json.loads((out / "tune.json").read_text("utf-8"))
    observation = revup.data.knowledge.Observation(known["epsilon"], known["eta"], known["seed"])
    names = ",".join(each["name"] for each in known["space"])
    return Plan.make(
        Corpus.load(data), known["model"], known["measure"], observation, known["fixed"], names, known["sampler"], True
    )


LONGER: dict[str, Any] = {
    "jobs": 2,
    "trials": 2,
    "search": "network.dropout",
    "overrides": {**SETTINGS["overrides"], "training": {**SETTINGS["overrides"]["training"], "epochs": 12}},
}


def children(process: Any) -> list[int]:
    tasks = Path(f"/proc/{process.pid}/task").iterdir()
    return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]


def runs(pid: int) -> bool:
    """Whether a process runs; one that has ended stays in /proc without a command line until somebody waits for it."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes by /proc")
def test_killed_worker_is_replaced(few: Path, tmp_path: Path) -> None:
    """Its trial continues from the checkpoint in another process; the outcome is that of a search without a kill."""
    out = tmp_path / "search"
    process = start(search_in_process, few, out, LONGER)
    wait_for_validations(process, out / "work" / "trial-00001", 1)
    killed = children(process)
    assert len(killed) == 2
    for child in killed:
        os.kill(child, signal.SIGKILL)
    process.join(120)
    assert process.exitcode == 0
    assert [row["end"] for row in trials(out)] == ["finished", "finished"]
    tune(few, tmp_path / "whole", **{**LONGER, "jobs": 1})
    assert trials(out) == trials(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes by /proc")
def test_workers_of_a_killed_search_write_checkpoints_and_end(few: Path, tmp_path: Path) -> None:
    out = tmp_path / "search"
    process = start(search_in_process, few, out, LONGER)
    wait_for_validations(process, out / "work" / "trial-00001", 1)
    left = children(process)
    process.kill()
    process.join()
    found = tune(few, out, **LONGER)  # at once: it waits for them
    assert found["recovered"] == 2
    assert found["counts"] == {"finished": 2, "stopped": 0, "failed": 0, "unfinished": 0}
    until = time.monotonic() + 20  # a worker lets go of its trial before its process has ended
    while any(runs(child) for child in left):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_time_limit_leaves_trials_to_the_next_call(few: Path, search: Path, tmp_path: Path, monkeypatch: Any) -> None:
    out, sittings = tmp_path / "search", 0
    while True:
        sittings += 1
        looks = iter(range(100))
        monkeypatch.setattr(Deadline, "near", property(lambda self, looks=looks: next(looks) > 5))
        found = tune(few, out)
        if found["complete"]:
            break
        assert sittings < 20
    assert sittings > 1
    assert trials(out) == trials(search)


def test_half_written_journal_is_repaired(few: Path, tmp_path: Path) -> None:
    out = tmp_path / "search"
    tune(few, out, trials=1)
    with open(out / JOURNAL, "ab") as journal:
        journal.write(b'{"op_code": 4, "worker')
    (out / f"{JOURNAL}.lock").symlink_to(out / JOURNAL)  # as Optuna locks it
    before = time.monotonic()
    assert tune(few, out, trials=2)["complete"]
    assert time.monotonic() - before < 20  # Optuna itself would wait for half a minute
    (out / JOURNAL).write_bytes(b"nonsense\n" + (out / JOURNAL).read_bytes())
    with pytest.raises(InputError, match=r"journal\.log: damaged"):
        tune(few, out, trials=3)


def test_other_search_is_refused(few: Path, search: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"was started with measure \"label_nll\", not \"accuracy\""):
        tune(few, search, measure="accuracy")
    with pytest.raises(InputError, match="was started with seed 2, not 3"):
        tune(few, search, seed=3)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match="not the directory of a search"):
        tune(few, tmp_path / "mine")


# ---- what is searched ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("training.learning-rat", "has no setting 'training.learning-rat'; did you mean training.learning-rate"),
        ("objective.codes=4..8", "revup has no setting 'objective.codes'"),
        ("objective.beta", "needs a range: objective.beta=LOW..HIGH"),
        ("network.dropout=0.5..0.1", "LOW below HIGH"),
        ("network.dropout=0.5", "expected LOW..HIGH within a number from 0 to below 1"),
        ("training.measure", "set by tune itself"),
    ],
)
def test_wrong_space_is_named(text: str, message: str) -> None:
    with pytest.raises(RevupError, match=message.replace(".", r"\.")):
        parse_space(text, "revup")


def test_space_of_choices_and_ranges(few: Path, tmp_path: Path) -> None:
    prior, hidden, beta = parse_space("objective.prior,network.hidden=16..32,objective.beta=1e-8..1e-3", "revup")
    assert prior.choices == ("pooled", "none")
    assert (hidden.value(17.3), hidden.multiple) == (16, 16)
    assert beta.log
    found = tune(few, tmp_path / "search", trials=2, search="objective.prior,objective.straight-through", model="revup")
    assert found["complete"]


def test_model_without_steps_and_given_settings_are_refused(few: Path, tmp_path: Path) -> None:
    with pytest.raises(RevupError, match="the model lookup is not trained by steps"):
        tune(few, tmp_path / "search", model="lookup")
    with pytest.raises(RevupError, match=r"network\.dropout can't be both given and searched"):
        tune(few, tmp_path / "search", overrides={"network": {"dropout": 0.1}})
    with pytest.raises(RevupError, match="trials: expected a whole number of 1 or more, found '3'"):
        tune(few, tmp_path / "search", trials="3")  # type: ignore[arg-type]
    with pytest.raises(RevupError, match=r"search: expected text such as"):
        tune(few, tmp_path / "search", search={"training.epochs": "1..3"})  # type: ignore[arg-type]


# ---- the verdict ---------------------------------------------------------------------------------------------------


def test_quantiles_are_those_of_tables() -> None:
    assert t_quantile(0.9, 2) == pytest.approx(2.920, abs=1e-3)
    assert t_quantile(0.9, 9) == pytest.approx(1.833, abs=1e-3)


def test_better_only_if_the_interval_says_so() -> None:
    sure = compare([1.0, 1.1, 0.9], [1.5, 1.6, 1.41], sign=-1)
    assert sure["better"]
    assert sure["gain"] == pytest.approx(0.50333, abs=1e-4)
    assert not compare([1.0, 1.6, 0.9], [1.5, 1.5, 1.5], sign=-1)["better"]
    assert not compare([1.0], [2.0], sign=-1)["better"]


def test_comparison_uses_other_seeds_and_is_kept(few: Path, tmp_path: Path, monkeypatch: Any) -> None:
    out = tmp_path / "search"
    found = tune(few, out, trials=3, seeds=2, search="training.learning-rate=0.01..0.05")
    assert found["best"]["trial"] != 0  # the default rate is too low for two epochs
    assert found["comparison"]["seeds"] == [3, 4]
    assert found["comparison"]["missing"] == 0
    told = summary(found)
    assert ("better than default" in told) == found["comparison"]["better"]
    assert found["command"] == (found["best_command"] if found["comparison"]["better"] else found["command"])
    monkeypatch.setattr("revup.training.tuning.crew.train_trial", lambda *a: pytest.fail("trained again"))
    again = tune(few, out, trials=3, seeds=2, search="training.learning-rate=0.01..0.05")
    assert again["comparison"] == found["comparison"]


def test_search_that_does_not_beat_default_says_so() -> None:
    found: dict[str, Any] = {
        "measure": "label_nll",
        "counts": {"finished": 9, "stopped": 0, "failed": 0, "unfinished": 0},
        "seconds": 10.0,
        "default": {"trial": 0, "value": 1.0},
        "best": {"trial": 4, "value": 0.9, "settings": {"network.dropout": 0.2}},
        "defaults": {"network.dropout": 0.3},
        "importance": {"network.dropout": 1.0},
        "comparison": {"seeds": [1, 2], "best": [1.0, 1.1], "default": [1.0, 1.0], "missing": 0}
        | compare([1.0, 1.1], [1.0, 1.0], -1),
        "command": "revup train data --out RUN",
        "best_command": "revup train data --out RUN --network.dropout 0.2",
        "complete": True,
    }
    told = summary(found)
    assert "it does not beat default (it is worse): train with\n\nrevup train data --out RUN\n" in told
    found |= {"best": {"trial": 0, "value": 1.0, "settings": {}}, "comparison": {}}
    assert "no trial was better" in summary(found)
