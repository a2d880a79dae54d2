"""Models on the Hugging Face Hub: predictions survive a round trip bit by bit, offline; uploads are private."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import revup
from paths import ROOT
from revup.data.corpus import Corpus
from revup.data.events import Document
from revup.errors import InputError, OutputExistsError, RevupError
from revup.inference.trained import Trained

hub = pytest.importorskip("huggingface_hub")

TINY: dict[str, Any] = {"embedding": 16, "hidden": 16, "latent": 8, "frame": 16}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def run(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("hub") / "run"
    revup.train(
        Corpus.load(tiny_path),
        epsilon=0.7,
        eta=0.1,
        out=out,
        device="cpu",
        network=TINY,
        training={"epochs": 2, "batch_size": 60},
    )
    return out


@pytest.fixture(scope="module")
def model(run: Path) -> Trained:
    return revup.load(run)


def same_predictions(one: Trained, other: Trained, documents: list[Document]) -> bool:
    pairs = zip(one.probabilities(documents), other.probabilities(documents), strict=True)
    embedded = np.array_equal(one.embed(documents), other.embed(documents))
    return embedded and all(np.array_equal(a, b) for a, b in pairs)


def cached(saved: Path, cache: Path) -> None:
    """Put a saved model into a cache as the Hub's library lays it out: blobs, and links to them in a snapshot."""
    home = cache / "models--jo--frames"
    snapshot, blobs = home / "snapshots" / COMMIT, home / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(COMMIT)
    for number, path in enumerate(sorted(path for path in saved.iterdir() if path.is_file())):
        shutil.copy(path, blobs / str(number))
        (snapshot / path.name).symlink_to(os.path.relpath(blobs / str(number), snapshot))


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "__init__", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.usefixtures("no_network")
def test_round_trip_is_bit_identical_without_network(
    model: Trained, tiny_documents: list[Document], tmp_path: Path
) -> None:
    model.save_pretrained(tmp_path / "saved")
    again = revup.from_pretrained(tmp_path / "saved")
    assert same_predictions(model, again, tiny_documents[:40])
    assert again.figures == model.figures
    again.save_pretrained(tmp_path / "twice")
    assert (tmp_path / "twice" / "model.safetensors").read_bytes() == (model.path / "model.safetensors").read_bytes()  # type: ignore[operator]


@pytest.mark.usefixtures("no_network")
def test_loads_from_the_cache_without_network(model: Trained, tiny_documents: list[Document], tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "saved")
    cached(tmp_path / "saved", tmp_path / "cache")
    again = revup.from_pretrained("jo/frames", cache_dir=tmp_path / "cache", local_files_only=True)
    assert same_predictions(model, again, tiny_documents[:40])
    with pytest.raises(InputError, match="jo/other: not in the cache"):
        revup.from_pretrained("jo/other", cache_dir=tmp_path / "cache", local_files_only=True)


OFFLINE = """
import socket, sys
def refuse(*_, **__):
    raise AssertionError("a socket was opened")
socket.socket.__init__ = socket.create_connection = socket.getaddrinfo = refuse
import revup
print(revup.from_pretrained("jo/frames").reliability)
"""


def test_loads_with_hf_hub_offline(model: Trained, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "saved")
    cached(tmp_path / "saved", tmp_path / "cache")
    environment = {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE], capture_output=True, text=True, env={**os.environ, **environment}, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(model.reliability)


def test_saved_directory_holds_no_pickle_and_no_path_of_this_machine(
    model: Trained, tmp_path: Path, tiny_path: Path
) -> None:
    model.save_pretrained(tmp_path / "saved")
    names = {path.name for path in (tmp_path / "saved").rglob("*")}
    lists = {"vocabulary.txt", "lemmas.txt", "beyond.txt", "frames.txt"}
    assert names - lists == {
        *("config.json", "state.json", "digest.json", "model.safetensors", "counts.safetensors"),
        *("metrics.jsonl", "README.md"),
    }
    assert "path" not in json.loads((tmp_path / "saved" / "config.json").read_text())["data"]
    for path in (tmp_path / "saved").iterdir():
        assert tiny_path.parent.name.encode() not in path.read_bytes(), path


def test_a_directory_that_exists_is_kept(model: Trained, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "saved")
    with pytest.raises(OutputExistsError):
        model.save_pretrained(tmp_path / "saved")
    model.save_pretrained(tmp_path / "saved", force=True)


def test_a_changed_file_is_refused(model: Trained, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "saved")
    with open(tmp_path / "saved" / "frames.txt", "a") as out:
        out.write("Another\n")
    with pytest.raises(InputError, match=r"frames\.txt was changed"):
        revup.from_pretrained(tmp_path / "saved")


def test_wrong_names_are_errors(tmp_path: Path, model: Trained) -> None:
    with pytest.raises(InputError, match="no such directory, and not the name"):
        revup.from_pretrained(tmp_path / "absent")
    with pytest.raises(RevupError, match="expected owner/name"):
        model.push_to_hub("nonsense")


# ---- uploads -----------------------------------------------------------------------------------------------------


class FakeHub:
    """The Hub as a directory, with the methods of `huggingface_hub.HfApi` 2.4 that are used."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.private = folder, dict[str, bool]()

    def api(self, **_: Any) -> FakeHub:
        return self

    def create_repo(self, repo_id: str, *, private: bool | None = None, exist_ok: bool = False) -> None:
        assert exist_ok or repo_id not in self.private
        self.private.setdefault(repo_id, bool(private))

    def model_info(self, repo_id: str) -> Any:
        return SimpleNamespace(private=self.private[repo_id])

    def upload_folder(self, *, repo_id: str, folder_path: Path, **options: Any) -> Any:
        assert options["commit_message"]
        shutil.copytree(folder_path, self.folder / repo_id)
        return SimpleNamespace(commit_url=f"https://hub/{repo_id}/commit/1")

    def snapshot_download(self, repo_id: str, *, allow_patterns: list[str], **_: Any) -> str:
        got = self.folder / "downloaded" / repo_id
        got.mkdir(parents=True)
        for path in (self.folder / repo_id).iterdir():
            if path.name in allow_patterns:
                shutil.copy(path, got)
        return str(got)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    found = FakeHub(tmp_path / "hub")
    monkeypatch.setattr(hub, "HfApi", found.api)
    monkeypatch.setattr(hub, "snapshot_download", found.snapshot_download)
    return found


def test_upload_is_private_and_says_that_vocabularies_hold_names(
    model: Trained, fake: FakeHub, tiny_documents: list[Document]
) -> None:
    with pytest.warns(UserWarning, match="names of people"):
        address = model.push_to_hub("jo/frames")
    assert address == "https://hub/jo/frames/commit/1"
    assert fake.private == {"jo/frames": True}
    assert same_predictions(model, revup.from_pretrained("jo/frames"), tiny_documents[:40])


@pytest.mark.filterwarnings("ignore:The vocabulary files")
def test_a_public_repository_is_refused_unless_asked_for(model: Trained, fake: FakeHub) -> None:
    fake.private["jo/frames"] = False
    with pytest.raises(RevupError, match="exists and is public"):
        model.push_to_hub("jo/frames")
    assert not (fake.folder / "jo" / "frames").exists()
    model.push_to_hub("jo/frames", private=False)
    assert (fake.folder / "jo" / "frames" / "README.md").exists()


@pytest.mark.filterwarnings("ignore:The vocabulary files")
def test_the_hubs_errors_are_one_line(model: Trained, fake: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(fake, "create_repo", refuse)
    with pytest.raises(RevupError, match="jo/frames: can't be uploaded: no route to host"):
        model.push_to_hub("jo/frames")


@pytest.fixture
def refusing_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server that answers every request as the Hub answers one without a valid token."""

    class Refuse(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.do_GET()

        def do_GET(self) -> None:
            self.send_response(401)
            self.send_header("X-Error-Message", "Invalid username or password.")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refuse)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield
    server.shutdown()
    server.server_close()


@pytest.mark.filterwarnings("ignore:The vocabulary files")
@pytest.mark.usefixtures("refusing_hub")
def test_without_login_one_line_says_how_to_log_in(
    model: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no token"))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    how = "log in with `hf auth login`, set HF_TOKEN"
    with pytest.raises(RevupError, match=f"^jo/frames: can't be uploaded without a token that allows it: {how}"):
        model.push_to_hub("jo/frames")
    with pytest.raises(RevupError, match=f"^jo/frames: can't be uploaded: no token is stored: {how}"):
        model.push_to_hub("jo/frames", token=True)
    with pytest.raises(RevupError, match=f"^jo/frames: can't be downloaded without a token that allows it: {how}"):
        revup.from_pretrained("jo/frames", cache_dir=tmp_path / "cache")


def test_the_real_api_has_the_parameters_that_are_used() -> None:
    import inspect

    used = {
        hub.HfApi.create_repo: {"repo_id", "private", "exist_ok"},
        hub.HfApi.model_info: {"repo_id"},
        hub.HfApi.upload_folder: {"repo_id", "folder_path", "commit_message", "revision", "create_pr"},
        hub.HfApi.__init__: {"token", "library_name"},
    }
    for method, names in used.items():
        assert names <= set(inspect.signature(method).parameters)


# ---- the card ----------------------------------------------------------------------------------------------------


def test_card_holds_scores_with_intervals_data_settings_and_command(
    model: Trained, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    model.save_pretrained(tmp_path / "saved", corpus=tiny_corpus, dataset="jo/events", license="cc-by-4.0")
    card = hub.ModelCard.load(tmp_path / "saved" / "README.md")
    scores = revup.evaluate(model, tiny_corpus)
    found = {result.metric_type: result for result in card.data.eval_results}
    assert found["accuracy"].metric_value == scores["accuracy"]
    assert found["label_nll"].metric_value == scores["label_nll"]
    assert "90% interval" in found["accuracy"].metric_name
    assert found["accuracy"].dataset_split == "test"
    assert (card.data.library_name, card.data.license, card.data.datasets) == ("revup", "cc-by-4.0", ["jo/events"])
    for expected in (tiny_corpus.fingerprint, "## Calibration", "noise rate", "revup train", "names of people"):
        assert expected in card.text
    text = (tmp_path / "saved" / ".eval_results" / "revup.yaml").read_text("utf-8")
    import yaml

    entries = {entry.task_id: entry for entry in hub.parse_eval_result_entries(yaml.safe_load(text))}
    assert entries["accuracy"].value == scores["accuracy"]
    assert entries["accuracy"].dataset_id == "jo/events"
    revup.from_pretrained(tmp_path / "saved")


def test_card_names_the_dataset_that_was_evaluated_on(
    model: Trained, tiny_documents: list[Document], tmp_path: Path
) -> None:
    other = Corpus.build(tiny_documents[:60], out=tmp_path / "other", events=4, split=(0.5, 0.1, 0.4))
    assert other.fingerprint != model.data["fingerprint"]
    model.save_pretrained(tmp_path / "saved", corpus=tmp_path / "other")
    card = hub.ModelCard.load(tmp_path / "saved" / "README.md")
    assert {result.dataset_name for result in card.data.eval_results} == {f"data {other.fingerprint}"}
    assert f"| fingerprint | `{model.data['fingerprint']}` |" in card.text


def test_a_dictionary_that_is_shared_is_named(fake: FakeHub, tiny_documents: list[Document], tmp_path: Path) -> None:
    (tmp_path / "frames.csv").write_text("predicate,frame\n" + f"{tiny_documents[0].events[0].pred},Trial\n")
    told = Corpus.build(tiny_documents[:60], events=4, lexicon=tmp_path / "frames.csv")
    with pytest.warns(UserWarning, match=r"lexicon\.csv.*licence"):
        revup.train(told, model="counts", device="cpu").push_to_hub("jo/frames")
    assert (fake.folder / "jo" / "frames" / "lexicon.csv").exists()
    assert "lexicon.csv" in (fake.folder / "jo" / "frames" / "README.md").read_text("utf-8")


def test_card_without_data_shows_the_best_validation(model: Trained, run: Path, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "saved")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    best = [line for line in lines if line["best"]][-1]
    card = hub.ModelCard.load(tmp_path / "saved" / "README.md")
    values = {result.metric_type: result.metric_value for result in card.data.eval_results}
    assert values == best["valid"]
    assert "against the observed labels" in card.text
    first = model.state.calibration[0]
    assert f"| {first['probability']:.2f} | {first['agreement']:.2f} | {first['events']} |" in card.text
    assert not (tmp_path / "saved" / ".eval_results").exists()


def test_card_holds_the_reliability_of_each_source(tiny_documents: list[Document], tmp_path: Path) -> None:
    def told(document: Document, place: int) -> Document:
        said = [
            {"ann1": e.frame, "ann2": "X" if (place + n) % 3 == 0 else e.frame} for n, e in enumerate(document.events)
        ]
        return replace(document, events=[replace(e, sources=s) for e, s in zip(document.events, said, strict=True)])

    documents = [told(document, place) for place, document in enumerate(tiny_documents)]
    counts = revup.train(Corpus.build(documents, events=4), model="counts", device="cpu")
    counts.save_pretrained(tmp_path / "saved")
    text = (tmp_path / "saved" / "README.md").read_text("utf-8")
    assert set(counts.reliability) >= {"ann1", "ann2"}
    for name, found in counts.reliability.items():
        rate = "–" if found["error_rate"] is None else f"{found['error_rate']:.1%}"
        assert f"| {name} | {found['items']:,} | {rate} |" in text


def test_a_model_that_only_counts_has_a_card_too(tiny_corpus: Corpus, tmp_path: Path) -> None:
    table = revup.train(tiny_corpus, model="lookup", device="cpu")
    table.save_pretrained(tmp_path / "saved")
    assert "the run has no validation" in (tmp_path / "saved" / "README.md").read_text("utf-8")
    assert revup.from_pretrained(tmp_path / "saved").config.model == "lookup"
