"""Training: the same run is the same to the bit, however often it is killed and however many processes share it.

The golden loss curve (tests/golden/revup.json) is the one test against the implementation's own output: a refactoring
must not change it. After a change that is meant to, write it anew: python tests/test_training.py --rewrite
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch
from safetensors.torch import save_file

import revup
from paths import ROOT
from revup.data.corpus import Corpus
from revup.data.events import Document
from revup.errors import InputError, RevupError, UnfinishedError
from revup.inference.trained import Trained
from revup.io.tensors import load_tensors, save_tensors
from revup.models.base import Sizes, step_seed
from revup.ops.device import choose_device
from revup.reporting.progress import Progress
from revup.settings import Config, Course, Training, build_module
from revup.training.checkpoint import State, load_checkpoint, save_checkpoint
from revup.training.loop import LOG_EVERY, fit
from revup.training.optimiser import make_optimiser
from revup.world.world import World

TINY = {"embedding": 16, "hidden": 16, "latent": 8, "frame": 16}
GOLDEN = ROOT / "tests" / "golden" / "revup.json"


def lines(run_path: Path) -> list[dict[str, Any]]:
    """metrics.jsonl, times left out."""
    found = [json.loads(line) for line in (run_path / "metrics.jsonl").read_text("utf-8").splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in found]


def files(run_path: Path) -> set[str]:
    return {path.name for path in run_path.iterdir()}


# ---- the golden curve ----------------------------------------------------------------------------------------


def golden_curve() -> list[dict[str, Any]]:
    """A short run of each preset: what every validation says."""
    world = World(frames=6, seed=1, words=90, events=4)
    corpus = Corpus.build(world.sample(160), events=4, split=(0.8, 0.1, 0.1))
    curve: list[dict[str, Any]] = []
    for preset in ("default", "paper", "released"):

        def note(progress: Progress, preset: str = preset) -> None:
            curve.append({"preset": preset, "step": progress.step, "train": progress.terms, "valid": progress.scores})

        training = {"batch_size": 50, "epochs": 2, "learning_rate": 0.005}
        settings: dict[str, Any] = {"network": TINY, "training": training, "progress": note, "device": "cpu"}
        revup.train(corpus, preset=preset, epsilon=0.6, eta=0.1, seed=3, **settings)
    return curve


def test_golden_loss_curve() -> None:
    expected, found = json.loads(GOLDEN.read_text("utf-8")), golden_curve()
    assert [line["step"] for line in found] == [line["step"] for line in expected]
    for old, new in zip(expected, found, strict=True):
        assert new["train"] == pytest.approx(old["train"], rel=1e-4, abs=1e-7), old
        assert new["valid"] == pytest.approx(old["valid"], rel=1e-4, abs=1e-7), old


# ---- equal runs, killed runs ---------------------------------------------------------------------------------

SETTINGS: dict[str, Any] = {
    "epsilon": 0.7,
    "eta": 0.1,
    "seed": 4,
    "network": {**TINY, "dropout": 0.2},
    "training": {
        "epochs": 4,
        "batch_size": 4,
        "patience": 2,  # so that the frames settle on the way
        "validate_steps": 25,
        "checkpoint_minutes": 0.0,
        "schedule": "linear",
    },
}


def train_or_resume(data: Path, out: Path) -> None:
    torch.set_num_threads(1)
    revup.train(Corpus.load(data), out=out, device="cpu", resume=True, **SETTINGS)


def start(data: Path, out: Path) -> ForkServerProcess:
    """A process of its own that trains, forked from one that has everything imported: starting anew takes seconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["revup.training.run", "torch._dynamo", __name__])
    process = context.Process(target=train_or_resume, args=(data, out))
    process.start()
    return process


def wait_for_checkpoints(process: ForkServerProcess, out: Path, count: int) -> None:
    """Until so many checkpoints were written, or the run has ended."""
    last, seen = None, -1
    while process.is_alive() and seen < count:
        try:
            now = (out / "checkpoint.safetensors").stat().st_mtime_ns
        except FileNotFoundError:
            now = 0
        seen, last = seen + (now != last), now
        time.sleep(0.002)


@pytest.fixture(scope="module")
def few(tiny_world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of which an epoch takes a moment."""
    out = tmp_path_factory.mktemp("few") / "corpus"
    Corpus.build(tiny_world.sample(130), out=out, events=4, split=(0.7, 0.2, 0.1))
    return out


@pytest.fixture(scope="module")
def uninterrupted(few: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    revup.train(Corpus.load(few), out=out, device="cpu", **SETTINGS)
    assert {line["settled"] for line in lines(out)} == {False, True}
    return out


@pytest.mark.slow
def test_a_run_killed_again_and_again_ends_in_the_same_weights(few: Path, uninterrupted: Path, tmp_path: Path) -> None:
    """SIGKILL at random moments, from before the first step to the middle of a write, then resume."""
    out, moments, reached = tmp_path / "run", random.Random(), []
    for checkpoints in (0, 2, 2):
        process = start(few, out)
        wait_for_checkpoints(process, out, checkpoints)
        time.sleep(moments.uniform(0, 0.15))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL  # it was not done yet
        if (out / "checkpoint.safetensors").exists():
            reached.append(load_tensors(out / "checkpoint.safetensors")[1]["state"]["step"])
    process = start(few, out)
    process.join(120)
    assert process.exitcode == 0
    assert reached == sorted(reached)
    assert len(set(reached)) >= 2  # it was stopped at different places, and went on from them
    assert (out / "model.safetensors").read_bytes() == (uninterrupted / "model.safetensors").read_bytes()
    assert lines(out) == lines(uninterrupted)
    mine, theirs = (load_tensors(path / "checkpoint.safetensors")[0] for path in (out, uninterrupted))
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert files(out) == files(uninterrupted)


def stop_after(yields: int) -> Any:
    """A progress display that pulls the plug."""
    left = [yields]

    def progress(*_: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    return progress


@pytest.mark.slow
def test_a_run_stopped_by_the_keyboard_goes_on(few: Path, uninterrupted: Path, tmp_path: Path) -> None:
    corpus = Corpus.load(few)
    for yields in (1, 3, 2):
        with pytest.raises(KeyboardInterrupt):
            revup.train(corpus, out=tmp_path / "run", resume=True, progress=stop_after(yields), **SETTINGS)
    revup.train(corpus, out=tmp_path / "run", resume=True, **SETTINGS)
    assert (tmp_path / "run/model.safetensors").read_bytes() == (uninterrupted / "model.safetensors").read_bytes()
    assert lines(tmp_path / "run") == lines(uninterrupted)


def test_a_line_cut_short_in_the_metrics_is_done_again(few: Path, tmp_path: Path) -> None:
    corpus, out = Corpus.load(few), tmp_path / "run"
    settings: dict[str, Any] = {"network": TINY, "training": {"epochs": 3, "batch_size": 50, "settle": 0.0}}
    with pytest.raises(KeyboardInterrupt):
        revup.train(corpus, out=out, progress=stop_after(2), **settings)
    with open(out / "metrics.jsonl", "a") as metrics:
        metrics.write('{"step": 3, "epo')
    revup.train(corpus, out=out, resume=True, **settings)
    assert [line["epoch"] for line in lines(out)] == [1, 2, 3]


QUICK: dict[str, Any] = {"network": TINY, "training": {"epochs": 1, "batch_size": 60}}


def test_equal_runs_are_equal_bytes(tiny_corpus: Corpus, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        revup.train(tiny_corpus, seed=seed, out=tmp_path / name / "deep" / "run", **QUICK)
    first, again, other = ((tmp_path / name / "deep/run/model.safetensors").read_bytes() for name in "abc")
    assert first == again
    assert first != other
    length = int.from_bytes(first[:8], "little")
    header = json.loads(first[8 : 8 + length])
    assert header["__metadata__"].keys() == {"revup"}
    assert json.loads(header["__metadata__"]["revup"]).keys() == {"model", "digest"}
    assert str(tmp_path).encode() not in first
    assert str(time.localtime().tm_year).encode() not in first[8 : 8 + length]


def test_files_or_not_the_weights_are_the_same(tiny_corpus: Corpus, tmp_path: Path) -> None:
    kept, written = revup.train(tiny_corpus, **QUICK), revup.train(tiny_corpus, out=tmp_path / "run", **QUICK)
    assert all(torch.equal(a, b) for a, b in zip(_tensors(kept), _tensors(written), strict=True))


def _tensors(model: Trained) -> list[torch.Tensor]:
    return [tensor for _, tensor in sorted(model.module.state_dict().items())]


def test_shards_change_the_order_and_nothing_else(tiny_corpus: Corpus) -> None:
    """A split that is streamed in parts trains as well, on every document once an epoch."""
    seen = []

    def note(progress: Progress) -> None:
        seen.append(progress.documents)

    training = {"epochs": 2, "batch_size": 30, "shard_rows": 70, "settle": 0.0}
    revup.train(tiny_corpus, network=TINY, training=training, progress=note)
    assert seen == [len(tiny_corpus.split("train"))] * 2


# ---- several processes ---------------------------------------------------------------------------------------

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
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    command += [str(tiny_corpus.path), json.dumps({str(tmp_path / f"{name}2"): case for name, case in cases.items()})]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
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


# ---- when it stops, and what it keeps ------------------------------------------------------------------------


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, float]]:
    """Validation scores that a test writes down beforehand."""
    script: list[dict[str, float]] = []
    told = iter(script)
    monkeypatch.setattr("revup.training.run.validate", lambda *_: next(told))
    return script


def progress_of(corpus: Corpus, **settings: Any) -> tuple[Trained, list[tuple[Progress, torch.Tensor]]]:
    """Train, keeping what is reported at each validation, and a copy of some weights."""
    told = []
    model: list[Any] = []

    def note(progress: Progress) -> None:
        if progress.scores is not None:
            told.append((progress, model[0].words.weight.detach().clone()))

    def build(*given: Any) -> Any:
        model.append(build_module(*given))
        return model[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("revup.training.run.build_module", build)
        return revup.train(corpus, network=TINY, progress=note, **settings), told


@pytest.mark.parametrize("files", [False, True], ids=["memory", "files"])
def test_patience_and_the_best_weights(
    tiny_corpus: Corpus, scripted: list[dict[str, float]], tmp_path: Path, files: bool
) -> None:
    """Best at the second validation; three without improvement (a tie is none) and it stops."""
    scripted += [{"accuracy": a, "perplexity": 9.0 - i} for i, a in enumerate((0.3, 0.5, 0.5, 0.4, 0.1, 0.9))]
    training = {"epochs": 9, "batch_size": 100, "patience": 3, "settle": 0.0}
    trained, told = progress_of(tiny_corpus, training=training, out=tmp_path / "run" if files else None)
    assert [progress.is_best for progress, _ in told] == [True, True, False, False, False]
    assert [progress.finished for progress, _ in told] == [False] * 4 + [True]
    assert torch.equal(trained.module.words.weight, told[1][1])
    assert not torch.equal(trained.module.words.weight, told[-1][1])
    if files:
        assert torch.equal(revup.load(tmp_path / "run").module.words.weight, told[1][1])
        assert [line["best"] for line in lines(tmp_path / "run")] == [True, True, False, False, False]


@pytest.mark.parametrize("files", [False, True], ids=["memory", "files"])
def test_the_frames_settle_and_the_decoder_goes_on(
    tiny_corpus: Corpus, scripted: list[dict[str, float]], tmp_path: Path, files: bool
) -> None:
    """Frames best at the second validation, settled at the fourth; of what follows the second has the best text."""
    accuracies, perplexities = (0.3, 0.5, 0.4, 0.5, 0.9, 0.9, 0.9, 0.9), (9.0, 8.0, 7.0, 1.0, 6.0, 5.0, 5.5, 5.6)
    scripted += [{"accuracy": a, "perplexity": p} for a, p in zip(accuracies, perplexities, strict=True)]
    training = {"epochs": 12, "batch_size": 100, "patience": 2, "settle": 0.5, "learning_rate": 0.01}
    text: list[torch.Tensor] = []
    model: list[Any] = []

    def build(*given: Any) -> Any:
        model.append(build_module(*given))
        return model[0]

    def note(progress: Progress) -> None:
        parts = ("words.weight", "vocabulary.weight")
        text.extend(model[0].state_dict()[name].clone() for name in parts if progress.scores is not None)

    out = tmp_path / "run" if files else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("revup.training.run.build_module", build)
        trained = revup.train(tiny_corpus, network=TINY, progress=note, training=training, out=out)
    words, vocabulary = text[::2], text[1::2]
    assert len(words) == 8  # out of patience once more, now with the text
    assert all(torch.equal(later, words[1]) for later in words[3:])
    assert not torch.equal(words[2], words[1])
    assert not torch.equal(vocabulary[4], vocabulary[3])
    for found in (trained, *([revup.load(tmp_path / "run")] if files else [])):
        assert torch.equal(found.module.words.weight, words[1])
        assert torch.equal(found.module.vocabulary.weight, vocabulary[5])
    assert all(parameter.requires_grad for parameter in trained.module.parameters())
    if files:
        assert [line["settled"] for line in lines(tmp_path / "run")] == [False] * 3 + [True] * 5
        assert [line["best"] for line in lines(tmp_path / "run")] == [True, True, False, False] + [True, True] + [
            False
        ] * 2


@pytest.mark.parametrize("stopped", [False, True])
def test_a_decoder_that_learned_by_heart_goes_back(
    tiny_corpus: Corpus, scripted: list[dict[str, float]], tmp_path: Path, stopped: bool
) -> None:
    """Frames best at the third validation, text at the second: each goes on from there, a run that was stopped too."""
    scores = [{"accuracy": a, "perplexity": p} for a, p in zip((0.3, 0.4, 0.5, 0.4, 0.3), (9, 5, 6, 7, 8), strict=True)]
    scripted += [*scores, {"perplexity": 4.0}]
    training = {"epochs": 5, "batch_size": 100, "patience": 9, "settle": 0.2, "learning_rate": 0.01}
    model: list[Any] = []
    kept: list[dict[str, torch.Tensor]] = []

    def build(*given: Any) -> Any:
        model.append(build_module(*given))
        return model[-1]

    def note(progress: Progress) -> None:
        if progress.scores is not None:
            kept.append({name: tensor.clone() for name, tensor in model[-1].state_dict().items()})
        if stopped and len(kept) == 4 and len(model) == 1:
            raise KeyboardInterrupt

    def train() -> Any:
        told: Any = {"network": TINY, "training": training, "progress": note}
        return revup.train(tiny_corpus, out=tmp_path / "run", resume=True, **told)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("revup.training.run.build_module", build)
        if stopped:
            with pytest.raises(KeyboardInterrupt):
                train()
        train()
    assert len(kept) == 6
    for name, tensor in kept[4].items():  # settled, before the decoder's first step
        assert torch.equal(tensor, kept[1 if name.partition(".")[0] in ("decoder", "vocabulary") else 2][name]), name


def test_frames_settle_at_the_end_of_their_epochs_at_the_latest(
    tiny_corpus: Corpus, tiny_documents: list[Document]
) -> None:
    """Three epochs, and half as many more for the decoder; where there is none, or none are wanted, three."""
    training = {"epochs": 3, "batch_size": 100, "patience": 99, "settle": 0.5}
    bare = [replace(d, events=[replace(event, frame=None) for event in d.events]) for d in tiny_documents]
    frameless = Corpus.build(bare, events=4, split=(0.7, 0.15, 0.15))
    _, told = progress_of(tiny_corpus, training=training)
    assert [(progress.epoch, progress.settled) for progress, _ in told] == [
        *((1, False), (2, False), (3, True), (4, True), (5, True))
    ]
    for epochs, settings in (
        (3, {"training": {**training, "settle": 0.0}}),
        (3, {"training": training, "model": "tagger"}),
        (5, {"training": training, "model": "rnnlm"}),  # text alone: as many epochs as the others' text has
        (5, {"training": training, "epsilon": 0.0}),
        (5, {"training": training, "corpus": frameless}),
    ):
        _, told = progress_of(**{"corpus": tiny_corpus, **settings})
        assert [(p.epoch, p.settled) for p, _ in told] == [(n + 1, False) for n in range(epochs)]


def test_what_settles_in_the_middle_of_an_epoch_starts_the_next(
    tiny_corpus: Corpus, scripted: list[dict[str, float]]
) -> None:
    scripted += [{"accuracy": 0.5, "perplexity": 9.0 - n} for n in range(8)]
    training = {"epochs": 4, "batch_size": 24, "patience": 1, "validate_steps": 3, "settle": 0.25}
    _, told = progress_of(tiny_corpus, training=training)
    assert [(progress.step, progress.settled, progress.epoch) for progress, _ in told] == [
        *((3, False, 0), (6, True, 0), (9, True, 1), (12, True, 1), (14, True, 2))  # 8 steps an epoch, 2 left out
    ]


def test_a_small_corpus_is_gone_through_more_often() -> None:
    training = Training(epochs=12, least_steps=2000, patience=4, settle=0.5)
    assert training.course(178) == Course(epochs=12, every=1, patience=4, settled_epochs=6)
    assert training.course(48) == Course(epochs=42, every=1, patience=14, settled_epochs=21)
    assert training.course(6) == Course(epochs=334, every=7, patience=16, settled_epochs=167)
    assert training.course(1600) == Course(epochs=12, every=1, patience=4, settled_epochs=6)
    assert replace(training, most_steps=10_000).course(1600) == Course(7, every=1, patience=3, settled_epochs=4)
    assert Config.make().training.course(1600).epochs == 6
    assert Config.make().training.course(3000).epochs == 4
    assert Config.make(preset="paper").training.course(1600).epochs == 30  # as published, however large the corpus
    assert training.course(178, settles=False) == Course(epochs=18, every=1, patience=4, settled_epochs=0)
    assert Training(epochs=0, least_steps=2000).course(6).epochs == 0
    assert Config.make(overrides={"training": {"epochs": 3}}).training.course(1).epochs == 3  # what is told holds
    assert Config.make(overrides={"training": {"epochs": 3}}).training.course(9999).epochs == 3
    assert Config.make(overrides={"training": {"epochs": 3, "most_steps": 10}}).training.course(9).epochs == 2
    assert Config.make().training.course(1).epochs == Config.make().training.least_steps


def test_several_epochs_between_validations(tiny_corpus: Corpus) -> None:
    """2 steps an epoch; 30 are asked for: 15 epochs, validated every other one and after the last."""
    training = {"epochs": 2, "batch_size": 100, "patience": 99, "least_steps": 30, "settle": 0.0}
    _, told = progress_of(tiny_corpus, training=training)
    assert [progress.step for progress, _ in told] == [4, 8, 12, 16, 20, 24, 28, 30]


@pytest.mark.parametrize(("measure", "best"), [("accuracy", 2), ("label_nll", 1), ("perplexity", 0)])
def test_the_chosen_measure_chooses(
    tiny_corpus: Corpus, scripted: list[dict[str, float]], measure: str, best: int
) -> None:
    scripted += [
        {"accuracy": 0.1, "label_nll": 2.0, "perplexity": 5.0},
        {"accuracy": 0.2, "label_nll": 1.0, "perplexity": 6.0},
        {"accuracy": 0.3, "label_nll": 1.5, "perplexity": 7.0},
    ]
    training = {"epochs": 3, "batch_size": 100, "measure": measure, "settle": 0.0}
    trained, told = progress_of(tiny_corpus, training=training)
    assert told[-1][0].best_step == told[best][0].step
    assert torch.equal(trained.module.words.weight, told[best][1])


def test_perplexity_decides_where_nothing_is_observed(tiny_corpus: Corpus) -> None:
    _, told = progress_of(tiny_corpus, epsilon=0.0, training={"epochs": 2, "batch_size": 100})
    assert all(list(progress.scores or {}) == ["perplexity"] for progress, _ in told)
    lowest = min((progress for progress, _ in told), key=lambda p: (p.scores or {})["perplexity"])
    assert told[-1][0].best_step == lowest.step


def test_without_a_validation_split_the_last_weights_are_kept(tiny_documents: list[Document]) -> None:
    corpus = Corpus.build(train=tiny_documents[:60], events=4)
    trained, told = progress_of(corpus, training={"epochs": 5, "batch_size": 30, "patience": 1})
    assert len(told) == 5
    assert torch.equal(trained.module.words.weight, told[-1][1])


def test_validation_in_the_middle_of_an_epoch(tiny_corpus: Corpus) -> None:
    """184 documents, 8 batches an epoch (the last one of 24): after every third step, and at the end of each epoch."""
    _, told = progress_of(
        tiny_corpus, training={"epochs": 2, "batch_size": 24, "patience": 99, "validate_steps": 3, "settle": 0.0}
    )
    assert [progress.step for progress, _ in told] == [3, 6, 8, 9, 12, 15, 16]
    assert [progress.share for progress, _ in told][:3] == [3 / 8, 6 / 8, 0]


@pytest.mark.parametrize("files", [False, True], ids=["memory", "files"])
def test_a_time_limit_stops_it_and_keeps_what_was_learnt(tiny_corpus: Corpus, tmp_path: Path, files: bool) -> None:
    """Here before the first validation: what is kept is the last weights, not the first."""
    told = []
    out = tmp_path / "run" if files else None
    training = {"epochs": 50, "batch_size": 4, "minutes": 1e-9}
    settings: dict[str, Any] = {"training": training, "progress": told.append, "out": out}
    trained = revup.train(tiny_corpus, network=TINY, **settings)
    assert [progress.step for progress in told] == [LOG_EVERY]
    initial = revup.train(tiny_corpus, network=TINY, training={"epochs": 0})
    assert not torch.equal(trained.module.words.weight, initial.module.words.weight)
    if files:
        assert torch.equal(revup.load(tmp_path / "run").module.words.weight, trained.module.words.weight)


def test_no_epochs_leave_the_initial_weights(tiny_corpus: Corpus, tmp_path: Path) -> None:
    trained = revup.train(tiny_corpus, network=TINY, training={"epochs": 0}, out=tmp_path / "run")
    expected = build_module(trained.config, trained.module.sizes).words.weight
    assert torch.equal(trained.module.words.weight, expected)
    assert torch.equal(revup.load(tmp_path / "run").module.words.weight, expected)


# ---- the loop itself -----------------------------------------------------------------------------------------


def loop(corpus: Corpus, config: Config, state: State) -> tuple[Any, Iterator[Progress]]:
    sizes = Sizes(len(corpus.vocabulary), len(corpus.frames), corpus.events)
    module = build_module(config, sizes)
    module.prepare(corpus, config.observation)
    optimiser = make_optimiser(module, config.training, torch.device("cpu"))
    return module, fit(module, optimiser, corpus, config.training, config.observation, config.seed, state, dict)


def made(**training: Any) -> Config:
    return Config.make(overrides={"network": TINY, "training": training})


def test_the_loop_is_a_generator_that_waits(tiny_corpus: Corpus) -> None:
    state = State()
    _, progress = loop(tiny_corpus, made(epochs=2, batch_size=8), state)
    assert state.step == 0
    first = next(progress)
    assert (first.step, state.step, first.documents) == (LOG_EVERY, LOG_EVERY, 8 * LOG_EVERY)
    assert first.scores is None
    assert {"loss", "reconstruction", "update", "z", "uniform"} <= first.terms.keys()
    assert [p.step for p in progress if p.scores is not None] == [
        22,
        44,
    ]  # a last batch too small to share joins the one before it
    assert (state.epoch, state.batch, state.step) == (2, 0, 44)


def test_training_lowers_the_loss(tiny_corpus: Corpus) -> None:
    _, progress = loop(tiny_corpus, made(epochs=9, batch_size=30, learning_rate=0.02), State())
    losses = [p.terms["loss"] for p in progress if p.scores is not None]
    assert losses[-1] < 0.8 * losses[0]


def test_clipping_bounds_a_step(tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient that Adam gets has at most the norm that was asked for; with 0 it is left alone."""
    norms: dict[float, list[float]] = {}
    for clip in (0.0, 0.01):
        norms[clip] = []
        module, progress = loop(tiny_corpus, made(epochs=1, batch_size=60, clip=clip), State())
        step = torch.optim.Adam.step

        def noted(self: Any, *args: Any, clip: float = clip, module: Any = module, step: Any = step) -> Any:
            norms[clip].append(math.sqrt(sum(float(p.grad.square().sum()) for p in module.parameters())))
            return step(self, *args)

        monkeypatch.setattr(torch.optim.Adam, "step", noted)
        list(progress)
        monkeypatch.setattr(torch.optim.Adam, "step", step)
    assert max(norms[0.01]) == pytest.approx(0.01, rel=1e-3)
    assert min(norms[0.0]) > 0.02


def test_divergence_is_one_clear_error(tiny_corpus: Corpus, tmp_path: Path) -> None:
    training = {"epochs": 3, "batch_size": 8, "learning_rate": 1e30, "clip": 0.0}
    with pytest.raises(RevupError, match=r"training diverged at step \d+: .*smaller learning rate") as caught:
        revup.train(tiny_corpus, network=TINY, training=training, out=tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_a_score_that_is_no_number_is_divergence(tiny_corpus: Corpus, scripted: list[dict[str, float]]) -> None:
    scripted.append({"perplexity": float("nan")})
    with pytest.raises(RevupError, match="training diverged"):
        revup.train(tiny_corpus, epsilon=0.0, network=TINY, training={"epochs": 1, "batch_size": 100})


def test_bf16_runs_and_stays_near_float32(tiny_corpus: Corpus) -> None:
    losses = {}
    for precision in ("float32", "bf16"):
        module, progress = loop(tiny_corpus, made(epochs=2, batch_size=60, precision=precision), State())
        losses[precision] = [p.terms["loss"] for p in progress]
        assert all(p.dtype == torch.float32 for p in module.parameters())
    assert losses["bf16"] == pytest.approx(losses["float32"], rel=0.02)
    assert losses["bf16"] != losses["float32"]


def test_the_learning_rate_may_fall(tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """From what was asked for, in equal steps, towards 0 at the end of the last epoch."""
    rates: list[float] = []
    step = torch.optim.Adam.step

    def noted(self: Any, *args: Any) -> Any:
        rates.append(self.param_groups[0]["lr"])
        return step(self, *args)

    monkeypatch.setattr(torch.optim.Adam, "step", noted)
    list(loop(tiny_corpus, made(epochs=2, batch_size=60, learning_rate=0.01, schedule="linear"), State())[1])
    assert rates == pytest.approx([0.01 * (1 - i / len(rates)) for i in range(len(rates))])
    assert len(rates) == 6
    rates.clear()
    list(loop(tiny_corpus, made(epochs=1, batch_size=60, learning_rate=0.01, schedule="constant"), State())[1])
    assert rates == [0.01] * 3


def test_step_seeds_differ() -> None:
    seeds = {step_seed(s, n, p) for s in range(3) for n in range(50) for p in ("train", "validate")}
    assert len(seeds) == 300
    assert all(0 <= seed < 2**63 for seed in seeds)


# ---- settings and files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("batch_size", 0), ("epochs", -1), ("patience", 0), ("clip", -1.0), ("minutes", float("nan"))),
        *(("learning_rate", -1e-3), ("measure", "beauty"), ("precision", "int8"), ("validate_steps", -1)),
        ("schedule", "cosine"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(RevupError, match=rf"training\.{name.replace('_', '-')}: expected .*, found"):
        Training(**{name: value})


def test_devices() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    with pytest.raises(RevupError, match="device: expected cpu or cuda, found 'toaster'"):
        choose_device("toaster")
    if not torch.cuda.is_available():
        assert choose_device() == torch.device("cpu")
        with pytest.raises(RevupError, match="torch sees no CUDA device"):
            choose_device("cuda")


def test_a_part_of_a_gpu_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    before = torch.get_float32_matmul_precision()
    try:
        assert choose_device("cuda").type == "cuda"  # no warning: one is an error here
        monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "30")
        with pytest.warns(UserWarning, match="wrong products"):
            choose_device("cuda")
    finally:
        torch.set_float32_matmul_precision(before)


def test_tensors_come_back_as_they_were(tmp_path: Path) -> None:
    tensors = {
        "b": torch.randn(3, 4).t(),
        "a": torch.tensor(3, dtype=torch.long),
        "half": torch.randn(5).bfloat16(),
        "yes": torch.tensor([True, False]),
        "none": torch.zeros(0, 4),
    }
    save_tensors(tmp_path / "x", tensors, {"note": "ε"})
    found, meta = load_tensors(tmp_path / "x")
    assert meta == {"note": "ε"}
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)
    assert files(tmp_path) == {"x"}


def test_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x"
    save_tensors(path, {"a": torch.arange(6.0), "b": torch.zeros(2)}, {})
    whole = path.read_bytes()
    data = 8 + int.from_bytes(whole[:8], "little")
    for place in range(data, len(whole), 5):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(InputError, match="do not match their digest"):
            load_tensors(path)
    for place in range(0, data, 7):  # in the header, where a change need not matter (a blank), but must not do harm
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with suppress(InputError):
            assert torch.equal(load_tensors(path)[0]["a"], torch.arange(6.0))
    for length in range(0, len(whole), 11):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError):
            load_tensors(path)


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_tensors(tmp_path / "absent")
    save_file({"a": torch.zeros(3)}, tmp_path / "foreign")
    with pytest.raises(InputError, match="not one that revup wrote"):
        load_tensors(tmp_path / "foreign")
    save_file({"a": torch.zeros(3)}, tmp_path / "odd", metadata={"revup": "{"})
    with pytest.raises(InputError, match="not a safetensors file"):
        load_tensors(tmp_path / "odd")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError):
        load_tensors(tmp_path / "folder")


def test_a_checkpoint_holds_all_and_is_nothing_else(tiny_corpus: Corpus, tmp_path: Path) -> None:
    """Weights, Adam's moments and the place, in one file; a file of weights is no checkpoint."""
    linear, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    optimisers = [make_optimiser(module, Training(), torch.device("cpu")) for module in (linear, other)]
    for _ in range(3):
        linear(torch.ones(1, 3)).square().sum().backward()
        optimisers[0].step()
    state = State(step=3, epoch=1, best=-0.5, figures={"noise_rate": 0.25})
    save_checkpoint(tmp_path / "c", linear, optimisers[0], state)
    assert load_checkpoint(tmp_path / "c", other, optimisers[1]) == (state, None)
    assert torch.equal(other.weight, linear.weight)
    for mine, theirs in zip(linear.parameters(), other.parameters(), strict=True):
        found, expected = optimisers[1].state[theirs], optimisers[0].state[mine]
        assert found.keys() == expected.keys() == {"step", "exp_avg", "exp_avg_sq"}
        assert all(torch.equal(found[key], expected[key]) for key in found)
    save_checkpoint(tmp_path / "c", linear, optimisers[0], state, {"bias": torch.ones(2)})
    _, text = load_checkpoint(tmp_path / "c", other, optimisers[1])
    assert text is not None
    assert torch.equal(text.pop("bias"), torch.ones(2))
    assert not text
    save_tensors(tmp_path / "w", linear.state_dict(), {"model": "revup"})
    with pytest.raises(InputError, match="not a checkpoint"):
        load_checkpoint(tmp_path / "w", other, optimisers[1])
    with pytest.raises(InputError, match="do not fit this model"):
        load_checkpoint(tmp_path / "c", torch.nn.Linear(4, 2), optimisers[1])


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_tensors(tmp_path / "x", {"a": torch.ones(2)}, {})
    before = (tmp_path / "x").read_bytes()

    def full(_: Any, path: Path, **__: Any) -> None:
        Path(path).write_bytes(b"half")
        raise safetensors.SafetensorError("No space left on device (os error 28)")

    monkeypatch.setattr("revup.io.tensors.save_file", full)
    with pytest.raises(UnfinishedError, match="x: can't be written: No space left"):
        save_tensors(tmp_path / "x", {"a": torch.zeros(2)}, {})
    assert (tmp_path / "x").read_bytes() == before
    assert files(tmp_path) == {"x"}


if __name__ == "__main__":
    if sys.argv[1:] != ["--rewrite"]:
        sys.exit("usage: python tests/test_training.py --rewrite")
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text("[\n" + ",\n".join(json.dumps(line) for line in golden_curve()) + "\n]\n", "utf-8")
