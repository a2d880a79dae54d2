"""Event vectors: from a file, from a transformer, reduced alike in training and prediction."""

from __future__ import annotations

import io
import json
import shutil
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import revup
from failing import fails
from revup import cli
from revup.data.corpus import Corpus
from revup.data.event_vectors import REDUCTION, EventVectors, Reduction, fit_reduction
from revup.data.events import Document, Event, write
from revup.errors import InputError, RevupError, RevupWarning

TRAINING = {"epochs": 8, "batch_size": 50, "learning_rate": 0.01}
FRAMES = ("Arriving", "Becoming")


def ambiguous(count: int, start: int = 0) -> list[Document]:
    """Documents of one predicate with two frames that only a far word of the sentence tells apart."""
    rng = np.random.default_rng(start)
    found = []
    for number in range(start, start + count):
        events = []
        for frame in rng.choice(FRAMES, 3).tolist():
            text = "they got all of this home" if frame == "Arriving" else "they got all of this angry"
            subj = f"name{rng.integers(50)}"  # documents with equal events would be one
            events.append(Event("got", subj, frame=frame, text=text, span=(5, 8)))
        found.append(Document(f"d{number}", events))
    return found


def file_of(documents: list[Document], path: Path, size: int = 12) -> Path:
    """Vectors whose third number tells the frame, among noise."""
    rng, rows, owner, index = np.random.default_rng(3), [], [], []
    for number, document in enumerate(documents):
        for place, event in enumerate(document.events):
            row = rng.normal(size=size)
            row[2] = 40 + 5 * (event.frame == FRAMES[0])
            rows.append(row)
            owner.append(number)
            index.append(place)
    ids = np.array([document.id for document in documents])
    arrays = {"events": np.array(rows, np.float32), "document_ids": ids}
    np.savez(path, **arrays, event_document=np.array(owner), event_index=np.array(index))
    return path


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    return ambiguous(240)


@pytest.fixture(scope="module")
def vectors(documents: list[Document], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return file_of(documents, tmp_path_factory.mktemp("vectors") / "x.npz")


@pytest.fixture(scope="module")
def data(documents: list[Document], vectors: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data")
    write(documents, out / "docs.jsonl")
    revup.prepare(out / "docs.jsonl", out / "data", event_vectors=vectors, events=3, split=(0.6, 0.2, 0.2))
    return out / "data"


@pytest.fixture(scope="module", params=["revup", "tagger", "ssdvae"])
def run(
    request: pytest.FixtureRequest, data: Path, tiny_network: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    out = tmp_path_factory.mktemp("run") / str(request.param)
    revup.train(Corpus.load(data), request.param, out=out, network=tiny_network, training=TRAINING, device="cpu")
    return out


def test_vectors_tell_what_words_cannot(run: Path, data: Path) -> None:
    assert revup.evaluate(run)["accuracy"] > 0.95
    bare = revup.load(run)
    bare.reduction = Reduction(np.zeros(1, np.float32), np.ones(1, np.float32), np.ones((1, 1), np.float32))
    with pytest.warns(RevupWarning, match="event vectors"):
        assert revup.evaluate(bare, Corpus.load(data))["accuracy"] < 0.7  # others than its own are left out


def test_prediction_reduces_as_training_did(run: Path, vectors: Path, tmp_path: Path) -> None:
    fresh = ambiguous(30, start=1000)
    model = revup.load(run).use_event_vectors(file_of(fresh, tmp_path / "fresh.npz"))
    right = [
        events[0][0] == event.frame
        for document, found in zip(fresh, model.predict(fresh, top=1), strict=True)
        for event, events in zip(document.events, found, strict=True)
    ]
    assert np.mean(right) > 0.95
    assert len(model.embed(fresh)) == 30


def test_without_vectors_it_predicts_and_says_so_once(run: Path) -> None:
    model, fresh = revup.load(run), ambiguous(10, start=1000)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        first = model.predict(fresh)
        model.predict(fresh)
    assert [str(each.message) for each in caught if each.category is RevupWarning] == [
        "the model was trained with event vectors, and predicts without them; give them by --event-vectors FILE"
    ]
    assert sum(probability for _, probability in first[0][0]) == pytest.approx(1)


def test_an_event_without_a_vector_is_predicted_as_without_any(run: Path, vectors: Path, tmp_path: Path) -> None:
    fresh = ambiguous(4, start=1000)
    given = revup.load(run).use_event_vectors(file_of(ambiguous(2, start=1000), tmp_path / "two.npz"))
    bare = revup.load(run)
    with pytest.warns(RevupWarning):
        expected = bare.predict(fresh[3])[0]
    assert [dict(event) for event in given.predict(fresh[3])[0]] == [
        pytest.approx(dict(event), abs=1e-6) for event in expected
    ]


def test_models_and_presets_without_vectors_ignore_them(
    data: Path, tiny_network: dict[str, Any], tmp_path: Path
) -> None:
    counts = revup.train(Corpus.load(data), "counts", out=tmp_path / "counts")
    paper = revup.train(
        Corpus.load(data), preset="paper", out=tmp_path / "paper", network=tiny_network, training={"epochs": 1}
    )
    for model in (counts, paper):
        assert model.reduction is None
        assert model.predict(ambiguous(1))
        with pytest.raises(RevupError, match="trained without event vectors"):
            model.use_encoder("any")
    assert not (tmp_path / "paper" / REDUCTION).exists()


def test_vectors_do_not_depend_on_workers(documents: list[Document], data: Path, vectors: Path, tmp_path: Path) -> None:
    write(documents, tmp_path / "docs.jsonl")
    how: dict[str, Any] = {"event_vectors": vectors, "events": 3, "split": (0.6, 0.2, 0.2)}
    revup.prepare(tmp_path / "docs.jsonl", tmp_path / "again", workers=2, **how)
    for split in ("train", "test"):
        a, b = (Corpus.load(path).split(split).arrays["vectors"] for path in (data, tmp_path / "again"))
        assert np.array_equal(a, b)


def test_another_dataset_is_reduced_like_the_run(run: Path, tmp_path: Path) -> None:
    fresh = ambiguous(30, start=2000)
    write(fresh, tmp_path / "fresh.jsonl")
    vectors = file_of(fresh, tmp_path / "fresh.npz")
    how: dict[str, Any] = {"events": 3, "split": (0.4, 0.3, 0.3), "event_vectors": vectors}
    revup.prepare(tmp_path / "fresh.jsonl", tmp_path / "like", reduce_like=run, **how)
    revup.prepare(tmp_path / "fresh.jsonl", tmp_path / "own", **how)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert revup.evaluate(run, Corpus.load(tmp_path / "like"))["accuracy"] > 0.9
        model = revup.load(run).use_event_vectors(vectors)
        assert revup.evaluate(model, Corpus.load(tmp_path / "own"))["accuracy"] > 0.9
    with pytest.warns(RevupWarning):
        revup.evaluate(run, Corpus.load(tmp_path / "own"))


def test_reduction_is_principal_components() -> None:
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(0)
    x = (rng.normal(size=(300, 5)) @ rng.normal(size=(5, 9)) * 7 + 3 + rng.normal(size=(300, 9))).astype(np.float32)
    found = fit_reduction(iter([x[:100], x[100:]]), most=4)
    reduced = found.apply(x, np.ones(300, bool))
    expected = PCA(4).fit_transform(StandardScaler().fit_transform(x.astype(np.float64)))
    factor = reduced.std() / expected.std()
    assert np.abs(reduced) == pytest.approx(np.abs(expected) * factor, abs=1e-3)
    assert reduced.var(0).mean() == pytest.approx(1, rel=1e-4)
    assert not found.apply(x[:2], np.array([True, False]))[1].any()


# ---- wrong input ---------------------------------------------------------------------------------------------------


def changed(path: Path, **arrays: Any) -> dict[str, Any]:
    with np.load(path) as data:
        return {**{name: data[name] for name in data.files}, **arrays}


def test_zip_of_a_later_version_is_refused(vectors: Path, tmp_path: Path) -> None:
    """zipfile raises NotImplementedError at the version in its central directory."""
    data = bytearray(vectors.read_bytes())
    data[data.index(b"PK\x01\x02") + 6] = 99
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(InputError, match=r"x\.npz: not a \.npz file of plain arrays"):
        EventVectors.load(tmp_path / "x.npz")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda a: {"events": np.where(np.arange(len(a["events"]))[:, None] == 4, np.nan, a["events"])}, "events[4]"),
        (lambda a: {"events": a["events"][:, 0]}, "events"),
        (lambda a: {"event_document": a["event_document"] + 900}, "event_document"),
        (lambda a: {"event_index": a["event_index"] * 0}, "event_index"),
        (lambda a: {"event_index": a["event_index"][:-1]}, "event_index"),
        (lambda a: {"document_ids": np.arange(3)}, "document_ids"),
    ],
)
def test_wrong_arrays_are_named(vectors: Path, tmp_path: Path, change: Any, field: str) -> None:
    arrays = changed(vectors)
    np.savez(tmp_path / "bad.npz", **{**arrays, **change(arrays)})
    with pytest.raises(InputError) as caught:
        EventVectors.load(tmp_path / "bad.npz")
    assert str(caught.value).startswith(f"{tmp_path / 'bad.npz'}: {field}: ")


def test_files_that_hold_no_vectors(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.zeros(3))
    (tmp_path / "text.npz").write_text("no archive")
    np.savez(tmp_path / "objects.npz", events=np.array([{}], object))
    for name in ("one.npy", "text.npz", "objects.npz", "absent.npz"):
        with pytest.raises(InputError, match=name):
            EventVectors.load(tmp_path / name)


def test_archive_that_unpacks_to_far_more_is_refused(
    vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "bomb.npz", **{**changed(vectors), "events": np.zeros((10**5, 12))})
    monkeypatch.setattr("revup.io.archives.LARGEST_UNPACKED", 1000)
    with pytest.raises(InputError, match=r"bomb\.npz: unpacked it would be more than 200 times as large"):
        EventVectors.load(tmp_path / "bomb.npz")


def test_array_whose_header_lies_is_refused(vectors: Path, tmp_path: Path) -> None:
    header = io.BytesIO()
    about = {"descr": "<f4", "fortran_order": False, "shape": (10**13, 12)}
    np.lib.format.write_array_header_1_0(header, about)
    with zipfile.ZipFile(vectors) as packed, zipfile.ZipFile(tmp_path / "lies.npz", "w") as made:
        for name in packed.namelist():
            made.writestr(name, header.getvalue() if name == "events.npy" else packed.read(name))
    with pytest.raises(InputError, match=r"lies\.npz: not a \.npz file of plain arrays"):
        EventVectors.load(tmp_path / "lies.npz")


def test_vectors_of_other_documents_are_an_error(documents: list[Document], tmp_path: Path) -> None:
    path = file_of(ambiguous(5, start=5000), tmp_path / "other.npz")
    with pytest.raises(RevupError, match="no training event has an event vector"):
        Corpus.build(documents, event_vectors=path)


def test_vectors_of_another_size_are_an_error(run: Path, documents: list[Document], tmp_path: Path) -> None:
    with pytest.raises(RevupError, match="event vectors of 12 numbers, not 7"):
        revup.load(run).use_event_vectors(file_of(documents, tmp_path / "other.npz", size=7))


# ---- a transformer -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny transformer with random weights, as a directory."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from torch import manual_seed

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "they", "go", "##t", "home", "early", "angry", "all", "of", "this"]
    raw = Tokenizer(models.WordPiece({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    raw.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]"
    )
    manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        initializer_range=0.5,
    )
    path = tmp_path_factory.mktemp("encoder") / "tiny-bert"
    transformers.BertModel(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def test_vector_is_the_mean_of_the_predicates_pieces(encoder: Path) -> None:
    import torch
    import transformers

    from revup.data.encoder import Encoder

    events = [
        Event("got", text="they got home", span=(5, 8)),
        Event("home", text="they got home early"),  # it stands there once
        Event("got"),
        Event("left", text="they got home"),
        Event("got", text="they " * 30 + "got", span=(150, 153)),  # behind what the model can read
    ]
    found, has = Encoder(str(encoder)).of(events, np.zeros(5, np.uint64))
    assert has.tolist() == [True, True, False, False, False]
    model = transformers.BertModel.from_pretrained(encoder)
    with torch.no_grad():
        first = model(torch.tensor([[2, 4, 5, 6, 7, 3]])).last_hidden_state[0]
        second = model(torch.tensor([[2, 4, 5, 6, 7, 8, 3]])).last_hidden_state[0]
    assert found[0] == pytest.approx(first[2:4].mean(0).numpy(), abs=1e-5)
    assert found[1] == pytest.approx(second[4].numpy(), abs=1e-5)
    assert not found[2:].any()


def test_command_line_with_an_encoder(
    encoder: Path, documents: list[Document], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(documents, tmp_path / "docs.jsonl")
    data, run, docs = (str(tmp_path / name) for name in ("data", "run", "docs.jsonl"))
    cli.run(["prepare", docs, "--out", data, "--encoder", str(encoder), "--events", "3", "--json"])
    about = json.loads(capsys.readouterr().out)["event_vectors"]
    assert (about["encoder"], about["size"], about["events"]["train"]) == (str(encoder), 16, 1.0)
    sizes = ["--network.hidden", "16", "--network.embedding", "16", "--training.epochs", "8"]
    more = ["--training.batch-size", "50", "--training.learning-rate", "0.01", "--device", "cpu"]
    cli.run(["train", data, "--out", run, *sizes, *more])
    capsys.readouterr()
    cli.run(["evaluate", run, "--json"])
    assert json.loads(capsys.readouterr().out)["accuracy"] > 0.95

    cli.run(["predict", run, docs, "--encoder", str(encoder), "--top", "1"])
    labelled = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    right = [e["frame"] == e["predicted"][0]["frame"] for document in labelled for e in document["events"]]
    assert np.mean(right) > 0.95
    with pytest.warns(RevupWarning, match=f"give them by --encoder {encoder}"):
        cli.run(["predict", run, docs, "--out", str(tmp_path / "bare.jsonl")])
    cli.run(["embed", run, docs, "--encoder", str(encoder), "--out", str(tmp_path / "e.npz")])
    cli.run(["audit", run, docs, "--encoder", str(encoder), "--out", str(tmp_path / "issues.jsonl")])
    capsys.readouterr()

    for arguments, message in (
        (["predict", run, docs, "--encoder", str(tmp_path)], "can't be loaded"),
        (["predict", run, docs, "--encoder", str(encoder), "--event-vectors", "x.npz"], "not both"),
        (["embed", run, docs, "--out", "y.npz", "--encoder", "x", "--engine", "ray"], "need --engine local"),
        (["prepare", docs, "--out", data + "2", "--reduce-like", run], "no event vectors to reduce"),
    ):
        assert message in fails(arguments, capsys)
    other = tmp_path / "other-bert"
    shutil.copytree(encoder, other)
    assert "trained with vectors of the encoder" in fails(["predict", run, docs, "--encoder", str(other)], capsys)


def test_damaged_reduction_is_refused(run: Path, tmp_path: Path) -> None:
    import torch

    from revup.io.tensors import save_tensors

    parts = {"mean": torch.zeros(3), "spread": torch.ones(3), "directions": torch.ones(2, 2)}
    save_tensors(tmp_path / REDUCTION, parts, {"encoder": ""})
    with pytest.raises(InputError, match="damaged"):
        Reduction.load(tmp_path)
