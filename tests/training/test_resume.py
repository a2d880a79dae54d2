"""Resuming a run: with its own settings, on its own data, and only if its files are intact."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import revup
from revup.data.corpus import Corpus
from revup.data.events import Document
from revup.errors import InputError, RevupError
from revup.inference.run_directory import WEIGHTS, unseal
from revup.reporting.progress import Progress
from revup.world.world import World
from training.runs import STOPPABLE, TINY, contents, lines, start, state, train_or_resume, wait_for_validations, weights

QUICK: dict[str, Any] = {"epochs": 1, "batch_size": 60, "learning_rate": 0.01, "settle": 0.0}
SETTINGS: dict[str, Any] = {"epsilon": 0.8, "seed": 2, "network": TINY, "training": QUICK}


@pytest.fixture(scope="module")
def finished(tiny_corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory that no test changes."""
    out = tmp_path_factory.mktemp("finished") / "run"
    revup.train(tiny_corpus, out=out, device="cpu", **SETTINGS)
    return out


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A run directory to spoil."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def stop_after(reports: int) -> Any:
    """A progress callback that stops training."""
    left = [reports]

    def progress(report: Progress) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    return progress


def stop_once_validated(out: Path) -> Any:
    """A progress callback that stops training after its first validation, however often a slow machine reports."""

    def progress(report: Progress) -> None:
        if (out / "metrics.jsonl").exists():
            raise KeyboardInterrupt

    return progress


def stopped(corpus: Corpus, out: Path, **settings: Any) -> Path:
    """A run directory of a run that was stopped at its first report."""
    with pytest.raises(KeyboardInterrupt):
        revup.train(corpus, out=out, progress=stop_after(1), **settings)
    return out


# ---- where it continues --------------------------------------------------------------------------------------


def test_finished_run_is_left_alone(copy: Path, tiny_corpus: Corpus, tiny_documents: list[Document]) -> None:
    before, times = contents(copy), {path.name: path.stat().st_mtime_ns for path in copy.iterdir()}
    told: list[Progress] = []
    model = revup.train(tiny_corpus, out=copy, resume=True, progress=told.append, **SETTINGS)
    assert told == []
    assert contents(copy) == before
    assert {path.name: path.stat().st_mtime_ns for path in copy.iterdir()} == times
    assert model.predict(tiny_documents[:5]) == revup.load(copy).predict(tiny_documents[:5])


def test_absent_run_is_started(finished: Path, tiny_corpus: Corpus, tmp_path: Path) -> None:
    revup.train(tiny_corpus, out=tmp_path / "new" / "run", resume=True, **SETTINGS)
    assert weights(tmp_path / "new" / "run") == weights(finished)


def test_resume_is_bit_identical(few: Path, uninterrupted: Path, tmp_path: Path) -> None:
    """Stopped by its own progress callback, several times."""
    corpus = Corpus.load(few)
    for reports in (1, 3, 2):
        with pytest.raises(KeyboardInterrupt):
            revup.train(corpus, out=tmp_path / "run", resume=True, progress=stop_after(reports), **STOPPABLE)
    revup.train(corpus, out=tmp_path / "run", resume=True, **STOPPABLE)
    assert weights(tmp_path / "run") == weights(uninterrupted)
    assert lines(tmp_path / "run") == lines(uninterrupted)


def test_kill_in_the_last_write_is_bit_identical(few: Path, uninterrupted: Path, tmp_path: Path) -> None:
    """The weights on disk are those of the end, calibrated; the checkpoint is one from before the decoder phase."""
    corpus, out = Corpus.load(few), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        revup.train(corpus, out=out, progress=stop_once_validated(out), **STOPPABLE)
    assert not lines(out)[-1]["settled"]
    unseal(out)
    shutil.copy(uninterrupted / WEIGHTS, out / WEIGHTS)
    revup.train(corpus, out=out, resume=True, **STOPPABLE)
    assert weights(out) == weights(uninterrupted)
    assert lines(out) == lines(uninterrupted)


def test_incomplete_line_of_the_metrics_is_written_again(few: Path, tmp_path: Path) -> None:
    corpus, out = Corpus.load(few), tmp_path / "run"
    settings: dict[str, Any] = {"network": TINY, "training": {"epochs": 3, "batch_size": 50, "settle": 0.0}}
    with pytest.raises(KeyboardInterrupt):
        revup.train(corpus, out=out, progress=stop_once_validated(out), **settings)
    with open(out / "metrics.jsonl", "a") as metrics:
        metrics.write('{"step": 3, "epo')
    revup.train(corpus, out=out, resume=True, **settings)
    assert [line["epoch"] for line in lines(out)] == [1, 2, 3]


def test_model_without_steps_is_finished_at_once(tiny_corpus: Corpus, tmp_path: Path) -> None:
    trained = revup.train(tiny_corpus, "lookup", out=tmp_path / "run")
    assert state(tmp_path / "run")["finished"] is True
    again = revup.train(out=tmp_path / "run", resume=True)
    scores = [revup.evaluate(model)["accuracy"] for model in (trained, again, revup.load(tmp_path / "run"))]
    assert len(set(scores)) == 1


# ---- its own settings and data ---------------------------------------------------------------------------------


def test_resume_takes_settings_and_data_from_the_run(few: Path, uninterrupted: Path, tmp_path: Path) -> None:
    """Run and dataset were moved together."""
    data = Path(shutil.copytree(few, tmp_path / "here" / "data"))
    stopped(Corpus.load(data), tmp_path / "here" / "run", **STOPPABLE)
    shutil.move(tmp_path / "here", tmp_path / "there")
    revup.train(out=tmp_path / "there" / "run", resume=True)
    assert weights(tmp_path / "there" / "run") == weights(uninterrupted)


def test_moved_data_must_be_named(few: Path, uninterrupted: Path, tmp_path: Path) -> None:
    data = Path(shutil.copytree(few, tmp_path / "data"))
    out = stopped(Corpus.load(data), tmp_path / "run", **STOPPABLE)
    shutil.move(data, tmp_path / "elsewhere")
    with pytest.raises(
        InputError, match=r"its dataset is no longer at .*; name it: revup train DATA --out .* --resume"
    ):
        revup.train(out=out, resume=True)
    revup.train(Corpus.load(tmp_path / "elsewhere"), out=out, resume=True)
    assert weights(out) == weights(uninterrupted)


def test_run_to_resume_must_exist_without_data(tmp_path: Path) -> None:
    with pytest.raises(RevupError, match="run: no run to resume; name a dataset"):
        revup.train(out=tmp_path / "run", resume=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"seed": 3}, "seed is 2 in this run, not 3"),
        ({"epsilon": 0.7}, "epsilon is 0.8 in this run, not 0.7"),
        ({"preset": "paper"}, "preset is default in this run, not paper"),
        ({"model": "tagger"}, "model is revup in this run, not tagger"),
        ({"network": {"hidden": 9}}, "network.hidden is 16 in this run, not 9"),
        ({"objective": {"alpha": 0.5}}, r"objective.alpha is [\d.]+ in this run, not 0.5"),
        ({"training": {"epochs": 2}}, "training.epochs is 1 in this run, not 2"),
        ({"training": {"batch_size": 61, "epochs": 1}}, "training.batch-size is 60 in this run, not 61"),
    ],
    ids=lambda part: str(part)[:20],
)
def test_differing_setting_is_named_with_both_values(
    copy: Path, tiny_corpus: Corpus, other: dict[str, Any], message: str
) -> None:
    before = contents(copy)
    with pytest.raises(InputError, match=rf"can't resume: {message}"):
        revup.train(tiny_corpus, out=copy, resume=True, **other)
    assert contents(copy) == before


def test_equal_settings_may_be_given_again(copy: Path, tiny_corpus: Corpus) -> None:
    before = contents(copy)
    revup.train(tiny_corpus, out=copy, resume=True, seed=2, preset="default", training={"epochs": 1})
    assert contents(copy) == before


def test_other_data_is_refused(copy: Path, tiny_world: World) -> None:
    other = Corpus.build(tiny_world.sample(60, seed=8), events=4, split=(0.8, 0.1, 0.1))
    with pytest.raises(InputError, match="can't resume: it was started on other data"):
        revup.train(other, out=copy, resume=True)


# ---- intact files, one process ---------------------------------------------------------------------------------


def swap_lines(path: Path) -> None:
    first, second, *rest = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join([second, first, *rest]), "utf-8")


@pytest.mark.parametrize("name", ["frames.txt", "vocabulary.txt", "lemmas.txt"])
def test_changed_list_is_refused(few: Path, tmp_path: Path, name: str) -> None:
    out = stopped(Corpus.load(few), tmp_path / "run", **STOPPABLE)
    swap_lines(out / name)
    with pytest.raises(InputError, match=f"damaged: {name} was changed"):
        revup.train(out=out, resume=True)


def test_damaged_checkpoint_is_refused(few: Path, tmp_path: Path) -> None:
    out = stopped(Corpus.load(few), tmp_path / "run", **STOPPABLE)
    data = bytearray((out / "checkpoint.safetensors").read_bytes())
    data[-50] ^= 1
    (out / "checkpoint.safetensors").write_bytes(data)
    with pytest.raises(InputError, match="do not match their digest"):
        revup.train(out=out, resume=True)


def test_damaged_config_is_refused(copy: Path) -> None:
    (copy / "config.json").write_text('{"format": 3, "mod')
    with pytest.raises(InputError, match="not valid JSON"):
        revup.train(out=copy, resume=True)


def test_older_format_is_refused(copy: Path) -> None:
    about = json.loads((copy / "config.json").read_text("utf-8"))
    (copy / "config.json").write_text(json.dumps({**about, "format": 2}), "utf-8")
    for attempt in (lambda: revup.load(copy), lambda: revup.train(out=copy, resume=True)):
        with pytest.raises(InputError, match=r"a run of format 2, expected 5: train it again, or use revup ") as caught:
            attempt()
        assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_only_one_process_trains_in_a_directory(few: Path, tmp_path: Path) -> None:
    out, long = (
        tmp_path / "run",
        {**STOPPABLE, "training": {**STOPPABLE["training"], "epochs": 10_000, "patience": 10_000}},
    )
    process = start(train_or_resume, few, out, long)
    try:
        wait_for_validations(process, out, 1)
        before = weights(out) if (out / "model.safetensors").exists() else None
        for how in ({"resume": True}, {"force": True}):
            with pytest.raises(RevupError, match="run: another process is using it now") as caught:
                revup.train(Corpus.load(few), out=out, **how, **long)
            assert "\n" not in str(caught.value)
        assert process.is_alive()
        assert before is None
    finally:
        process.kill()
        process.join()
    with pytest.raises(KeyboardInterrupt):  # the lock of a dead process is no lock
        revup.train(Corpus.load(few), out=out, resume=True, progress=stop_after(1), **long)
