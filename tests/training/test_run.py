"""A run as users hold it: settings, files that are whole or refused, predictions that depend on the text alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import revup
from revup.data.corpus import Corpus
from revup.data.events import Document, Event
from revup.errors import InputError, RevupError
from revup.inference.trained import Trained
from revup.models import CLASSES
from revup.reporting.progress import Progress
from revup.settings import Config
from revup.world.world import World

QUICK = {"epochs": 1, "batch_size": 60, "learning_rate": 0.01, "settle": 0.0}


@pytest.fixture(scope="module")
def settings(tiny_network: dict[str, Any]) -> dict[str, Any]:
    return {"epsilon": 0.8, "seed": 2, "network": tiny_network, "training": QUICK, "device": "cpu"}


@pytest.fixture(scope="module")
def finished(tiny_corpus: Corpus, settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory that no test changes."""
    out = tmp_path_factory.mktemp("finished") / "run"
    revup.train(tiny_corpus, out=out, **settings)
    return out


@pytest.fixture(scope="module")
def model(finished: Path) -> Trained:
    return revup.load(finished)


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A run directory to spoil."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def long_document(world: World, events: int, name: str = "long") -> Document:
    found = [event for document in world.sample(4, seed=77) for event in document.events]
    return Document(name, found[:events])


# ---- saving and loading --------------------------------------------------------------------------------------


def test_a_run_directory_holds_what_was_promised(finished: Path, tiny_corpus: Corpus) -> None:
    names = {"config.json", "model.safetensors", "metrics.jsonl", "checkpoint.safetensors"}
    assert set(contents(finished)) == names | {"vocabulary.txt", "lemmas.txt", "beyond.txt", "frames.txt"}
    about = json.loads((finished / "config.json").read_text("utf-8"))
    assert about["version"] == revup.__version__
    assert about["data"]["fingerprint"] == tiny_corpus.fingerprint
    assert about["observation"] == {"epsilon": 0.8, "eta": 0.0, "seed": 2}
    assert (finished / "frames.txt").read_text("utf-8").split("\n")[:-1] == tiny_corpus.frames
    line = json.loads((finished / "metrics.jsonl").read_text("utf-8"))
    assert {"step", "epoch", "seconds", "best", "train", "valid"} <= line.keys()


def test_save_and_load_keep_the_predictions(model: Trained, tiny_documents: list[Document], tmp_path: Path) -> None:
    model.save(tmp_path / "saved")
    again = revup.load(tmp_path / "saved")
    assert again.predict(tiny_documents) == model.predict(tiny_documents)
    assert again.config == model.config
    before = contents(tmp_path / "saved")
    again.save(tmp_path / "saved", force=True)
    assert contents(tmp_path / "saved") == before
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_a_run_can_move_with_its_data(finished: Path, tiny_path: Path, tmp_path: Path) -> None:
    """Run and dataset keep their places to each other; nothing in the run says where on the disk they are."""
    corpus = Corpus.load(shutil.copytree(tiny_path, tmp_path / "here" / "data"))
    model = revup.load(finished)
    trained = revup.train(corpus, out=tmp_path / "here" / "run", network={"hidden": 8}, training={"epochs": 0})
    scores = revup.evaluate(trained)
    shutil.move(tmp_path / "here", tmp_path / "there")
    assert revup.evaluate(revup.load(tmp_path / "there" / "run")) == scores
    for name, content in contents(tmp_path / "there" / "run").items():
        assert str(tmp_path).encode() not in content, name
    assert model.path == finished


def test_what_exists_is_not_overwritten(
    model: Trained, tiny_corpus: Corpus, settings: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    for name in ("file", "folder"):
        attempts: list[Callable[[], Any]] = [
            lambda name=name: model.save(tmp_path / name),
            lambda name=name: revup.train(tiny_corpus, out=tmp_path / name, **settings),
        ]
        for attempt in attempts:
            with pytest.raises(InputError, match=f"{name}: exists already"):
                attempt()
    assert (tmp_path / "file").read_text() == "mine"
    model.save(tmp_path / "file", force=True)
    revup.train(tiny_corpus, out=tmp_path / "folder", force=True, **settings)
    assert revup.load(tmp_path / "file").predict([]) == revup.load(tmp_path / "folder").predict([]) == []
    assert {path.name for path in tmp_path.iterdir()} == {"file", "folder"}


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    about = json.loads(path.read_text("utf-8"))
    change(about)
    path.write_text(json.dumps(about), "utf-8")


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "truncated": (
        lambda p: (p / "model.safetensors").write_bytes((p / "model.safetensors").read_bytes()[:-9]),
        "model",
    ),
    "empty": (lambda p: (p / "model.safetensors").write_bytes(b""), "not a safetensors file"),
    "tampered": (lambda p: flip(p / "model.safetensors", -100), "do not match their digest"),
    "header": (lambda p: flip(p / "model.safetensors", 3), "model.safetensors"),
    "foreign": (lambda p: save_file({"w": torch.zeros(3)}, p / "model.safetensors"), "not one that revup wrote"),
    "pickled": (lambda p: torch.save({"w": torch.zeros(3)}, p / "model.safetensors"), "not a safetensors file"),
    "missing": (lambda p: (p / "model.safetensors").unlink(), "no such file"),
    "words": (lambda p: (p / "vocabulary.txt").write_text("a\nb\n"), "vocabulary.txt: expected"),
    "no words": (lambda p: (p / "vocabulary.txt").unlink(), "vocabulary.txt is missing"),
    "no text": (lambda p: (p / "frames.txt").write_bytes(b"\xff\xfe\n"), "damaged"),
    "frames": (lambda p: (p / "frames.txt").write_text("One\n"), "do not fit"),
    "config gone": (lambda p: (p / "config.json").unlink(), "not a run directory: config.json is missing"),
    "config cut": (lambda p: (p / "config.json").write_text('{"format": 1, "mod'), "not valid JSON"),
    "config list": (lambda p: (p / "config.json").write_text("[1]"), "expected a run of format 2"),
    "format": (lambda p: edit(p / "config.json", lambda a: a.update(format=99)), "expected a run of format 2"),
    "model": (lambda p: edit(p / "config.json", lambda a: a.update(model="gpt")), "unknown model 'gpt'"),
    "model type": (lambda p: edit(p / "config.json", lambda a: a.update(model=["revup"])), "damaged"),
    "other model": (
        lambda p: edit(p / "config.json", lambda a: a.update(model="rnnlm", objective={})),
        "expected a rnnlm",
    ),
    "setting": (lambda p: edit(p / "config.json", lambda a: a["network"].update(size="vast")), "network.size"),
    "new setting": (
        lambda p: edit(p / "config.json", lambda a: a["network"].update(wings=2)),
        r"no setting network\.wings",
    ),
    "no network": (lambda p: edit(p / "config.json", lambda a: a.pop("network")), "damaged"),
    "hidden": (lambda p: edit(p / "config.json", lambda a: a["network"].update(hidden=12)), "do not fit"),
    "hidden type": (lambda p: edit(p / "config.json", lambda a: a["network"].update(hidden=1.5)), "damaged"),
    "no hidden": (lambda p: edit(p / "config.json", lambda a: a["network"].update(hidden=None)), "damaged"),
    "events": (lambda p: edit(p / "config.json", lambda a: a.update(events="many")), "damaged"),
    "data": (lambda p: edit(p / "config.json", lambda a: a.update(data=3)), "damaged"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_run_is_one_clear_error(copy: Path, what: str) -> None:
    spoil, message = DAMAGE[what]
    spoil(copy)
    with pytest.raises(InputError, match=message) as caught:
        revup.load(copy)
    assert "\n" not in str(caught.value)
    assert str(copy) in str(caught.value)


@pytest.mark.parametrize("what", ["absent", "a file", "a dataset", "an empty folder"])
def test_what_is_no_run_is_refused(tmp_path: Path, tiny_path: Path, what: str) -> None:
    (tmp_path / "a file").write_text("hello")
    (tmp_path / "an empty folder").mkdir()
    with pytest.raises(InputError, match=r"not a run directory: config\.json is missing"):
        revup.load(tiny_path if what == "a dataset" else tmp_path / what)


# ---- predictions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("events", [0, 1, 4, 7, 12])
def test_any_number_of_events(model: Trained, tiny_world: World, events: int) -> None:
    predicted = model.predict([long_document(tiny_world, events)], top=3)
    assert [len(document) for document in predicted] == [events]
    for event in predicted[0]:
        assert len(event) == 3
        assert all(frame in model.frames for frame, _ in event)
        shares = [share for _, share in event]
        assert shares == sorted(shares, reverse=True)
    full = model.predict([long_document(tiny_world, events)], top=99)[0]
    assert [sum(share for _, share in event) for event in full] == pytest.approx([1.0] * events)
    assert all(len(event) == len(model.frames) for event in full)


def test_a_prediction_depends_on_its_own_document_alone(model: Trained, tiny_world: World) -> None:
    """Alone, in a crowd, in another order, beside an empty document: the same."""
    documents = [long_document(tiny_world, n, f"d{n}") for n in (5, 0, 1, 12, 0, 7)]
    together = model.probabilities(documents)
    assert [len(rows) for rows in together] == [5, 0, 1, 12, 0, 7]
    for document, expected in zip(documents, together, strict=True):
        np.testing.assert_allclose(model.probabilities([document])[0], expected, atol=1e-6)
    for found, expected in zip(model.probabilities(documents[::-1]), together[::-1], strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_equally_probable_frames_come_in_the_frames_order(model: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    k = len(model.frames)
    rows = np.full((3, k), 0.01, np.float32)
    rows[1, [4, 1]] = 0.3  # a tie inside the best
    rows[2, 3] = 0.5  # and one at their border
    monkeypatch.setattr(model, "probabilities", lambda documents, revise: [rows])
    found = model._best([Document("d", [])], 3, False)[0]
    assert [[model.frames.index(name) for name, _ in event] for event in found] == [[0, 1, 2], [1, 4, 0], [3, 0, 1]]
    assert found[2][0][1] == pytest.approx(0.5)


def test_half_the_precision_gives_nearly_the_same_predictions(finished: Path, tiny_documents: list[Document]) -> None:
    plain, half = revup.load(finished), revup.load(finished, precision="bf16")
    for exact, close in zip(plain.probabilities(tiny_documents), half.probabilities(tiny_documents), strict=True):
        np.testing.assert_allclose(close, exact, atol=0.03)
    np.testing.assert_allclose(half.embed(tiny_documents), plain.embed(tiny_documents), atol=0.05)
    assert half.embed(tiny_documents).dtype == np.float32
    with pytest.raises(RevupError, match="precision: expected float32 or bf16, found 'int8'"):
        revup.load(finished, precision="int8")


def test_predictions_come_in_constant_memory(
    model: Trained, tiny_documents: list[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = model.predict(tiny_documents[:23])
    monkeypatch.setattr("revup.inference.trained.DOCUMENTS_AT_ONCE", 5)
    taken = []

    def stream() -> Any:
        for document in tiny_documents[:23]:
            taken.append(document)
            yield document

    pairs = model.predict_documents(stream())
    assert next(pairs)[0] is tiny_documents[0]
    assert len(taken) <= 5
    rest = [frames for _, frames in pairs]
    assert [[f for f, _ in e] for d in rest for e in d] == [[f for f, _ in e] for d in whole[1:] for e in d]


def test_unknown_words_are_unknown_and_no_error(model: Trained) -> None:
    strange, stranger = (
        Document("d", [Event(word, subj=word, obj="<pad>", mod="", frame="Never")]) for word in ("zzz", "ÿ 漢 \n x")
    )
    assert model.predict([strange]) == model.predict([stranger])


def test_frames_are_ignored_unless_asked_for(model: Trained, tiny_world: World) -> None:
    document = long_document(tiny_world, 4)
    bare = replace(document, events=[replace(e, frame=None) for e in document.events])
    assert model.predict([document]) == model.predict([bare]) == model.predict([bare], revise=True)


def test_revise_mixes_in_what_is_known(model: Trained, tiny_world: World) -> None:
    """λ = 9: a tenth of the proposal, the rest the frame; confidence scales λ; a frame not listed says nothing."""
    document = long_document(tiny_world, 1)
    plain = model.probabilities([document])[0][0]
    for frames, confidence, keep in (({"Trial": 1.0}, None, 1 / 10), ({"Trial": 3.0, "Arrest": 1.0}, 4.0, 1 / 37)):
        event = replace(document.events[0], frame=None, frames=frames, confidence=confidence)
        known = np.zeros(len(plain))
        for name, weight in frames.items():
            known[model.frames.index(name)] = weight / sum(frames.values())
        found = model.probabilities([Document("d", [event])], revise=True)[0][0]
        np.testing.assert_allclose(found, keep * plain + (1 - keep) * known, atol=1e-6)
    event = replace(document.events[0], frame="Unheard_of")
    np.testing.assert_allclose(model.probabilities([Document("d", [event])], revise=True)[0][0], plain, atol=1e-6)


@pytest.mark.parametrize("name", ["revup", "ssdvae", "haqae", "rnnlm"])
def test_the_decoder_starts_from_word_frequencies(name: str, tiny_corpus: Corpus, tiny_network: dict[str, Any]) -> None:
    """With `default`: how often each word stands in a training event, once more for each; `paper` starts at random."""
    split = tiny_corpus.split("train").arrays
    counts = np.ones(len(tiny_corpus.vocabulary))
    for tokens, events in zip(split["tokens"], split["lengths"], strict=True):
        for word in np.asarray(tokens)[:events].ravel():
            counts[word] += 1
    starts = {
        preset: revup.train(tiny_corpus, name, preset=preset, network=tiny_network, training={"epochs": 0})
        for preset in ("default", "paper")
    }
    bias = {preset: model.module.vocabulary.bias.detach().double().exp().numpy() for preset, model in starts.items()}
    np.testing.assert_allclose(bias["default"], counts / counts.sum(), rtol=1e-5)
    assert abs(bias["paper"].sum() - 1) > 0.1


def test_embeddings(model: Trained, tiny_world: World) -> None:
    documents = [long_document(tiny_world, n, f"d{n}") for n in (5, 0, 1, 7)]
    whole, events = model.embeddings(documents)
    size = (model.module.network.latent or 0) + (model.module.network.frame or 0)
    assert whole.shape == (4, size)
    assert events.shape == (13, size)
    np.testing.assert_allclose(whole[0], events[:5].mean(0), atol=1e-6)
    np.testing.assert_allclose(whole[2], events[5], atol=1e-6)
    assert not whole[1].any()
    np.testing.assert_array_equal(model.embed(documents), whole)
    np.testing.assert_allclose(model.embed(documents[3:])[0], whole[3], atol=1e-6)
    for nothing in ([], [Document("empty", [])]):
        with pytest.raises(RevupError, match="embed"):
            model.embed(nothing)


def test_a_model_says_what_it_cannot_do(tiny_corpus: Corpus, tiny_network: dict[str, Any]) -> None:
    language_model = revup.train(tiny_corpus, "rnnlm", network=tiny_network, training={"epochs": 0})
    with pytest.raises(RevupError, match="rnnlm does not predict frames"):
        language_model.predict([])  # even of nothing


# ---- settings ------------------------------------------------------------------------------------------------


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


def test_a_setting_of_another_model_is_noted_and_ignored() -> None:
    config = Config.make("rnnlm", overrides={"objective": {"alpha": 3.0}, "training": {"epochs": 2}})
    assert config.notes == ("objective.alpha is not used by rnnlm: ignored",)
    assert config.training.epochs == 2
    assert config == Config.make("rnnlm", overrides={"training": {"epochs": 2}})


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("preset", ["default", "paper", "released"])
def test_settings_come_back_from_json(name: str, preset: str) -> None:
    config = Config.make(name, preset, 0.3, 0.1, 7, {"training": {"epochs": 3}})
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config


# ---- resuming ------------------------------------------------------------------------------------------------


def test_resuming_a_finished_run_does_nothing(
    copy: Path, tiny_corpus: Corpus, settings: dict[str, Any], tiny_documents: list[Document]
) -> None:
    before, times = contents(copy), {path.name: path.stat().st_mtime_ns for path in copy.iterdir()}
    told: list[Progress] = []

    def note(progress: Progress) -> None:
        told.append(progress)

    model = revup.train(tiny_corpus, out=copy, resume=True, progress=note, **settings)
    assert told == []
    assert contents(copy) == before
    assert {path.name: path.stat().st_mtime_ns for path in copy.iterdir()} == times
    assert model.predict(tiny_documents[:5]) == revup.load(copy).predict(tiny_documents[:5])


def test_resuming_what_is_absent_starts_it(
    finished: Path, tiny_corpus: Corpus, settings: dict[str, Any], tmp_path: Path
) -> None:
    revup.train(tiny_corpus, out=tmp_path / "new" / "run", resume=True, **settings)
    found = (tmp_path / "new" / "run" / "model.safetensors").read_bytes()
    assert found == (finished / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"seed": 3}, "its observation differs|its seed differs"),
        ({"epsilon": 0.7}, "its observation differs"),
        ({"preset": "paper"}, "its preset differs"),
        ({"network": {"hidden": 9}}, "its network differs"),
        ({"objective": {"alpha": 0.5}}, "its objective differs"),
        ({"training": {**QUICK, "epochs": 2}}, "its training differs"),
        ({"model": "tagger"}, "its model differs"),
    ],
    ids=lambda part: str(part)[:20],
)
def test_a_run_resumes_as_itself_only(
    copy: Path, tiny_corpus: Corpus, settings: dict[str, Any], other: dict[str, Any], message: str
) -> None:
    before = contents(copy)
    with pytest.raises(InputError, match=rf"can't resume: ({message})"):
        revup.train(tiny_corpus, out=copy, resume=True, **{**settings, **other})
    assert contents(copy) == before


def test_a_run_resumes_on_its_own_data_only(copy: Path, tiny_world: World, settings: dict[str, Any]) -> None:
    other = Corpus.build(tiny_world.sample(60, seed=8), events=4, split=(0.8, 0.1, 0.1))
    with pytest.raises(InputError, match="can't resume: it was trained on other data"):
        revup.train(other, out=copy, resume=True, **settings)


@pytest.mark.parametrize("what", ["config cut", "no network", "data", "model type"])
def test_a_damaged_run_is_not_resumed(copy: Path, tiny_corpus: Corpus, settings: dict[str, Any], what: str) -> None:
    DAMAGE[what][0](copy)
    with pytest.raises(InputError):
        revup.train(tiny_corpus, out=copy, resume=True, **settings)


def test_a_damaged_checkpoint_is_not_resumed(copy: Path, tiny_corpus: Corpus, settings: dict[str, Any]) -> None:
    flip(copy / "checkpoint.safetensors", -50)
    with pytest.raises(InputError, match="do not match their digest"):
        revup.train(tiny_corpus, out=copy, resume=True, **settings)


def test_a_table_of_counts_is_a_run_as_well(tiny_corpus: Corpus, tmp_path: Path) -> None:
    trained = revup.train(tiny_corpus, "lookup", out=tmp_path / "run")
    again = revup.train(tiny_corpus, "lookup", out=tmp_path / "run", resume=True)
    scores = [revup.evaluate(model)["accuracy"] for model in (trained, again, revup.load(tmp_path / "run"))]
    assert len(set(scores)) == 1


# ---- pretrained vectors --------------------------------------------------------------------------------------


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


# ---- imports -------------------------------------------------------------------------------------------------


def python(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_revup_imports_nothing_heavy() -> None:
    loaded = python("import sys, revup; print(*(n for n in ('torch', 'numpy', 'safetensors') if n in sys.modules))")
    assert loaded.split() == []


CORE_ALONE = """
import re, sys
from importlib.machinery import PathFinder
from importlib.metadata import distributions, packages_distributions

def plain(name):
    return re.match(r"[A-Za-z0-9._-]+", name)[0].lower().replace("_", "-")

installed = {plain(d.metadata["Name"]): d for d in distributions()}
queue, allowed = ["torch", "numpy", "safetensors"], {"revup"}
while queue:  # these three, and what they cannot be installed without
    name = queue.pop()
    if name in installed and name not in allowed:
        allowed.add(name)
        queue += [plain(text) for text in installed[name].requires or [] if "extra ==" not in text]
homes = packages_distributions()

class Bare:
    def find_spec(name, path=None, target=None):
        owners = {plain(owner) for owner in homes.get(name.partition(".")[0], ())}
        return None if owners and not owners & allowed else PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Bare
import revup.training.run, revup.training.loop, revup.inference.evaluate, revup.data.corpus
from revup.models import CLASSES, model_class
for name in CLASSES:
    model_class(name)
import torch
torch.set_num_threads(1)
corpus = revup.Corpus.load(sys.argv[1])
model = revup.train(corpus, network={"hidden": 8, "embedding": 8}, training={"epochs": 1})
print(revup.evaluate(model, corpus)["accuracy"] is not None)
try:
    import pytest
except ImportError:
    print("blocked")
"""


def test_the_core_trains_with_torch_numpy_and_safetensors_alone(tiny_path: Path) -> None:
    assert python(CORE_ALONE, str(tiny_path)).split() == ["True", "blocked"]


def test_names_that_are_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        revup.nonsense  # noqa: B018
    assert all(getattr(revup, name) for name in revup.__all__)
