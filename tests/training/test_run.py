"""A run: the files it leaves, equal bytes for equal runs, and where its weights start."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import revup
from revup.data.corpus import Corpus
from revup.data.events import Document
from revup.data.knowledge import Observation
from revup.errors import OutputExistsError, RevupError
from training.runs import TINY, contents, files, lines, state

QUICK: dict[str, Any] = {"network": TINY, "training": {"epochs": 1, "batch_size": 60, "settle": 0.0}}


# ---- its files -----------------------------------------------------------------------------------------------


def test_run_directory_holds_what_is_documented(tiny_corpus: Corpus, tmp_path: Path) -> None:
    out = tmp_path / "run"
    revup.train(tiny_corpus, epsilon=0.8, seed=2, out=out, **QUICK)
    lists = {"vocabulary.txt", "lemmas.txt", "beyond.txt", "frames.txt"}
    records = {"config.json", "state.json", "digest.json", "metrics.jsonl"}
    assert files(out) == lists | records | {"model.safetensors", "counts.safetensors", "checkpoint.safetensors"}
    about = json.loads((out / "config.json").read_text("utf-8"))
    assert about["version"] == revup.__version__
    assert about["data"]["fingerprint"] == tiny_corpus.fingerprint
    assert about["observation"] == {"epsilon": 0.8, "eta": 0.0, "seed": 2, "noise": "uniform", "sources": ""}
    assert (out / "frames.txt").read_text("utf-8").split("\n")[:-1] == tiny_corpus.frames
    (line,) = lines(out)
    assert {"step", "epoch", "best", "settled", "train", "valid"} == line.keys()
    expected = {"finished": True, "steps": line["step"], "epochs": 1, "best_step": line["step"]}
    found = state(out)
    assert found.keys() == expected.keys() | {"figures", "calibration"}
    assert {name: found[name] for name in expected} == expected
    observed = tiny_corpus.split("valid").seen(Observation(0.8, seed=2)).observed.sum()
    assert sum(row["events"] for row in found["calibration"]) == observed > 0


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


def test_weights_are_the_same_without_a_directory(tiny_corpus: Corpus, tmp_path: Path) -> None:
    kept, written = revup.train(tiny_corpus, **QUICK), revup.train(tiny_corpus, out=tmp_path / "run", **QUICK)
    theirs = written.module.state_dict()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in kept.module.state_dict().items())


def test_run_moves_with_its_data(tiny_path: Path, tmp_path: Path) -> None:
    """Run and dataset keep their places to each other; nothing in the run says where on the disk they are."""
    corpus = Corpus.load(shutil.copytree(tiny_path, tmp_path / "here" / "data"))
    scores = revup.evaluate(revup.train(corpus, out=tmp_path / "here" / "run", **QUICK))
    shutil.move(tmp_path / "here", tmp_path / "there")
    assert revup.evaluate(revup.load(tmp_path / "there" / "run")) == scores
    for name, content in contents(tmp_path / "there" / "run").items():
        assert str(tmp_path).encode() not in content, name


@pytest.mark.parametrize("to_files", [False, True])
def test_trained_model_can_be_saved(tiny_corpus: Corpus, tmp_path: Path, to_files: bool) -> None:
    model = revup.train(tiny_corpus, out=tmp_path / "run" if to_files else None, **QUICK)
    model.save(tmp_path / "saved")
    assert revup.load(tmp_path / "saved").state == model.state
    assert model.state.finished
    assert model.state.steps == 3


@pytest.mark.parametrize("name", ["file", "folder"])
def test_existing_output_is_replaced_only_by_force(tiny_corpus: Corpus, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    model = revup.train(tiny_corpus, **QUICK)
    with pytest.raises(OutputExistsError, match=f"{name}: exists already"):
        model.save(tmp_path / name)
    with pytest.raises(OutputExistsError, match=f"{name}: exists already"):
        revup.train(tiny_corpus, out=tmp_path / name, **QUICK)
    assert (tmp_path / "file").read_text() == "mine"
    model.save(tmp_path / name, force=True)
    assert revup.load(tmp_path / name).predict([]) == []
    revup.train(tiny_corpus, out=tmp_path / name, force=True, **QUICK)
    assert revup.load(tmp_path / name).predict([]) == []
    assert {path.name for path in tmp_path.iterdir()} == {"file", "folder"}


BAD: list[tuple[dict[str, Any], str]] = [
    ({"model": "gpt"}, "unknown model 'gpt': one of revup"),
    ({"preset": "best"}, "model revup has no preset 'best': one of default, paper, released"),
    ({"epsilon": 1.5}, "epsilon: expected a number from 0 to 1, found 1.5"),
    ({"eta": float("nan")}, "eta: expected a number from 0 to 1, found nan"),
    ({"network": {"hiden": 3}}, "unknown setting network.hiden"),
    ({"objective": {"gamma_ray": 3}}, "unknown setting objective.gamma-ray"),
    ({"training": {"epoch": 3}}, "unknown setting training.epoch"),
    ({"training": {"batch_size": 0}}, "training.batch-size: expected a whole number of 1 or more, found 0"),
    ({"objective": {"temperature": 0.0}}, "objective.temperature: expected a number of 0.001 or more"),
    ({"device": "toaster"}, "device: expected cpu or cuda"),
]


@pytest.mark.parametrize(("wrong", "message"), BAD, ids=[message[:30] for _, message in BAD])
def test_bad_settings_leave_nothing_behind(
    tiny_corpus: Corpus, tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(RevupError, match=message):
        revup.train(tiny_corpus, out=tmp_path / "deep" / "run", **wrong)
    assert list(tmp_path.iterdir()) == []


# ---- where its weights start -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["revup", "ssdvae", "haqae", "rnnlm"])
def test_decoder_bias_starts_from_word_frequencies(name: str, tiny_corpus: Corpus) -> None:
    """With `default`: occurrences of each word in the training events, plus one; `paper` starts at random."""
    split = tiny_corpus.split("train").arrays
    counts = np.ones(len(tiny_corpus.vocabulary))
    for tokens, events in zip(split["tokens"], split["lengths"], strict=True):
        for word in np.asarray(tokens)[:events].ravel():
            counts[word] += 1
    starts = {
        preset: revup.train(tiny_corpus, name, preset=preset, network=TINY, training={"epochs": 0})
        for preset in ("default", "paper")
    }
    bias = {preset: model.module.vocabulary.bias.detach().double().exp().numpy() for preset, model in starts.items()}
    np.testing.assert_allclose(bias["default"], counts / counts.sum(), rtol=1e-5)
    assert abs(bias["paper"].sum() - 1) > 0.1


def test_pretrained_vectors_start_the_embeddings(tiny_documents: list[Document], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    words = sorted({e.pred for d in tiny_documents for e in d.events})[:10]
    vectors = {word: rng.normal(size=5).round(3) for word in words}
    text = "".join(f"{word} {' '.join(map(str, vector))}\n" for word, vector in vectors.items())
    (tmp_path / "vectors.txt").write_text(text)
    corpus = Corpus.build(tiny_documents, events=4, split=(0.8, 0.1, 0.1), vectors=tmp_path / "vectors.txt")
    model = revup.train(corpus, network={"hidden": 8}, training={"epochs": 0})
    table = model.module.words.weight.detach()
    assert table.shape[1] == 5
    for word, vector in vectors.items():
        np.testing.assert_allclose(table[model.vocabulary.index[word]], vector, atol=1e-6)
    with pytest.raises(RevupError, match=r"network\.embedding is 16, but the word vectors have 5"):
        revup.train(corpus, network={"embedding": 16}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_dataset_may_be_named_by_its_directory(tiny_path: Path) -> None:
    model = revup.train(str(tiny_path), "lookup")
    assert revup.evaluate(model, tiny_path) == revup.evaluate(model, revup.Corpus.load(tiny_path))
