"""The published presets keep one epoch for the lowest perplexity and one for the best frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import revup
from revup.data.corpus import Corpus
from revup.inference.measures import evaluate_split
from revup.inference.run_directory import TEXT, read_metrics

SETTINGS: dict[str, Any] = {
    "preset": "paper",
    "epsilon": 1.0,
    "seed": 1,
    "network": {"embedding": 16, "hidden": 16, "latent": 8, "frame": 16},
    "training": {"batch_size": 16, "epochs": 12, "learning_rate": 0.02, "patience": 2},
}


class Stop(Exception):
    pass


@pytest.fixture(scope="module")
def run(tiny_corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("text") / "run"
    revup.train(tiny_corpus, model="ssdvae", out=out, **SETTINGS)
    return out


def test_perplexity_is_that_of_its_own_best_epoch(run: Path, tiny_corpus: Corpus) -> None:
    lines = read_metrics(run)
    lowest = min(line["valid"]["perplexity"] for line in lines)
    best = max(line["valid"]["accuracy"] for line in lines)
    model = revup.load(run)
    assert model.writer is not None
    valid = tiny_corpus.split("valid")
    from revup.data.knowledge import Observation
    from revup.inference.measures import validate

    observed = Observation(1.0, 0.0, 1)
    assert validate(model.writer, valid, observed, 1)["perplexity"] == pytest.approx(lowest, rel=1e-5)
    found = validate(model.module, valid, observed, 1)
    assert found["accuracy"] == pytest.approx(best)
    assert found["perplexity"] > lowest
    scores = revup.evaluate(model, tiny_corpus)
    test = tiny_corpus.split("test")
    assert scores["perplexity"] == evaluate_split(model.writer, test)["perplexity"]
    alone = evaluate_split(model.module, test)
    assert scores["perplexity_at_best_frames"] == alone["perplexity"]
    assert scores["accuracy"] == alone["accuracy"]


def test_training_ends_when_neither_improves(run: Path) -> None:
    lines = [line["valid"] for line in read_metrics(run)]
    since = [
        len(lines) - 1 - max(range(len(lines)), key=lambda i: sign * lines[i][name])
        for name, sign in (("accuracy", 1), ("perplexity", -1))
    ]
    assert min(since) == 2 or len(lines) == 12


def test_text_weights_survive_a_resume_and_a_copy(run: Path, tiny_corpus: Corpus, tmp_path: Path) -> None:
    def stop(progress: Any) -> None:
        if progress.step >= 60:
            raise Stop

    out = tmp_path / "stopped"
    with pytest.raises(Stop):
        revup.train(tiny_corpus, model="ssdvae", out=out, progress=stop, **SETTINGS)
    revup.train(tiny_corpus, out=out, resume=True)
    assert (out / TEXT).read_bytes() == (run / TEXT).read_bytes()
    revup.load(run).save(tmp_path / "copy")
    assert (tmp_path / "copy" / TEXT).read_bytes() == (run / TEXT).read_bytes()


def test_default_has_no_second_set_of_weights(tiny_corpus: Corpus) -> None:
    settings = {**SETTINGS, "preset": "default", "training": {"epochs": 1}}
    assert revup.train(tiny_corpus, model="ssdvae", **settings).writer is None
