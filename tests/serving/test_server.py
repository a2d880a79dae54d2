"""The server's answers: equal to those of `revup predict` and `embed`, several models, tokens, CORS, other routes."""

from __future__ import annotations

import importlib
import json
import logging
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asking import ask
from revup import cli
from revup.errors import RevupError
from revup.inference.trained import Trained
from revup.serving.server import running


def predicted_by_command(run: Path, documents: list[dict[str, Any]], folder: Path, *options: str) -> list[Any]:
    source, out = folder / "in.jsonl", folder / "out.jsonl"
    source.write_text("".join(json.dumps(document) + "\n" for document in documents))
    cli.run(["predict", str(run), str(source), "--out", str(out), "--force", "--device", "cpu", *options])
    return [json.loads(line) for line in out.read_text().splitlines()]


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ((), {}),
        (("--top", "2"), {"top": 2}),
        (("--revise", "--top", "3"), {"revise": True, "top": 3}),
        (("--at-least", "0.5"), {"at_least": 0.5}),
    ],
)
def test_answers_equal_those_of_the_command_however_they_are_batched(
    server: str,
    run_path: Path,
    documents: list[dict[str, Any]],
    tmp_path: Path,
    options: tuple[str, ...],
    asked: dict[str, Any],
) -> None:
    expected = predicted_by_command(run_path, documents, tmp_path, *options)
    assert ask(server, "/predict", {"documents": documents, **asked}).data["documents"] == expected
    with ThreadPoolExecutor(8) as clients:
        single = list(clients.map(lambda d: ask(server, "/predict", {"documents": [d], **asked}), documents))
    assert [answer.data["documents"][0] for answer in single] == expected


def test_further_keys_are_kept(server: str) -> None:
    events = [{"pred": "arrested", "note": {"a": [10**30, "ü"]}}]
    answer = ask(server, "/predict", {"documents": [{"id": 7, "events": events, "source": "x"}], "unknown": 1})
    (document,) = answer.data["documents"]
    assert (document["id"], document["source"], document["events"][0]["note"]) == ("7", "x", {"a": [10**30, "ü"]})
    assert len(document["events"][0]["predicted"]) == 5


def test_vectors_equal_those_of_the_command(
    server: str, run_path: Path, documents: list[dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(document) + "\n" for document in documents))
    cli.run(["embed", str(run_path), str(tmp_path / "in.jsonl"), "--out", str(tmp_path / "x.npz"), "--device", "cpu"])
    found = ask(server, "/embed", {"documents": documents}).data["vectors"]
    with np.load(tmp_path / "x.npz") as arrays:
        assert set(found) == set(arrays)
        for name in arrays:
            assert np.array_equal(np.array(found[name], arrays[name].dtype), arrays[name]), name


def test_several_models_by_name(model: Trained, run_path: Path, documents: list[dict[str, Any]]) -> None:
    with running({"a": model, "b": run_path}) as address:
        info = ask(address, "/info").data
        assert (list(info["models"]), info["default"]) == (["a", "b"], "a")
        assert info["models"]["b"]["frames"] == model.frames
        answers = [ask(address, "/predict", {"documents": documents[:3], "model": name}).data for name in "ab"]
        assert answers[0] == answers[1]
        wrong = ask(address, "/predict", {"documents": documents[:3], "model": "c"})
        assert (wrong.status, wrong.data["detail"]) == (422, "model: expected one of a, b, found 'c'")


def test_token_is_needed_where_one_is_set(model: Trained, documents: list[dict[str, Any]]) -> None:
    with running(model, token="s3cret") as address:
        for path, body in (("/predict", {"documents": documents[:1]}), ("/info", None), ("/metrics", None)):
            for headers in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "s3cret"}):
                refused = ask(address, path, body, **headers)
                assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer"), path
            assert ask(address, path, body, Authorization="Bearer s3cret").status == 200
        assert [ask(address, path).status for path in ("/health", "/", "/docs", "/openapi.json")] == [200] * 4


def test_other_origins_are_allowed_only_if_asked(server: str, model: Trained) -> None:
    preflight = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    assert "access-control-allow-origin" not in ask(server, "/info", Origin="https://a.example").headers
    assert ask(server, "/predict", method="OPTIONS", **preflight).status == 405
    for wrong in ("a.example", "https://a.example/", "* x"):
        with pytest.raises(RevupError, match="cors: expected an origin"), running(model, cors=[wrong]):
            pass
    with running(model, cors=["https://a.example"]) as address:
        allowed = ask(address, "/predict", method="OPTIONS", **preflight)
        assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (200, "https://a.example")
        other = ask(address, "/info", Origin="https://b.example")
        assert (other.status, "access-control-allow-origin" in other.headers) == (200, False)


def test_health_metrics_and_unknown_paths(server: str, documents: list[dict[str, Any]]) -> None:
    assert ask(server, "/health").data == {"status": "ready"}
    assert ask(server, "/health", method="HEAD").status == 200
    ask(server, "/predict", {"documents": documents[:2]})
    assert ask(server, "/nothing").data == {"detail": "no such path; see /docs"}
    text = ask(server, "/metrics").data
    for line in text.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) .+|[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [0-9.e+-]+', line), line
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(values['revup_requests_total{path="/predict",status="200"}']) >= 1
    assert float(values['revup_requests_total{path="other",status="404"}']) >= 1
    assert float(values['revup_documents_total{path="/predict"}']) >= 2
    assert float(values["process_resident_memory_bytes"]) > 1e6
    batches = [int(value) for name, value in values.items() if name.startswith("revup_batch_documents_bucket")]
    assert batches == sorted(batches)
    assert batches[-1] == int(values["revup_batch_documents_count"])


def test_description_names_every_route_and_option(server: str) -> None:
    described = ask(server, "/openapi.json").data
    assert set(described["paths"]) == {"/predict", "/embed", "/info", "/health", "/metrics"}
    options = described["components"]["schemas"]["PredictRequest"]["properties"]
    assert set(options) == {"documents", "text", "model", "top", "revise", "at_least", "explain"}
    example = described["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]["example"]
    assert len(ask(server, "/predict", example).data["documents"][0]["events"][1]["predicted"]) == 3


def test_nothing_that_a_user_sent_is_logged_unless_asked(
    model: Trained, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = "sesame"

    def send(address: str) -> None:
        ask(address, "/predict", {"documents": [{"id": secret, "events": [{"pred": secret}]}]})
        ask(address, "/predict", {"documents": [{"events": [{"pred": 1, secret: secret}]}], "model": secret})
        ask(address, f"/{secret}?{secret}", secret.encode(), **{secret: secret})

    caplog.set_level(logging.DEBUG)
    with running(model) as address, monkeypatch.context() as broken:
        send(address)
        broken.setattr(model, "best_frames", lambda documents, *_: {}[documents[0].id])
        failed = ask(address, "/predict", {"documents": [{"id": secret, "events": [{"pred": secret}]}]})
        assert (failed.status, failed.data["detail"]) == (500, "an internal error; the server's log names its place")
    assert "internal error: KeyError in" in caplog.text
    assert secret not in caplog.text + "".join(capfd.readouterr())
    with running(model, log_requests=True) as address:
        send(address)
    assert re.search(r"POST /predict 200 \d+\.\d ms", caplog.text)
    assert secret not in caplog.text
    with running(model, log_bodies=True) as address:
        send(address)
    assert secret in caplog.text


@pytest.mark.parametrize("library", ["uvicorn", "fastapi", "httptools", "orjson"])
def test_missing_library_names_the_extra(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = [name for name in sys.modules if name.startswith("revup.serving.")]
    theirs = [name for name in sys.modules if name.partition(".")[0] in (library, "uvicorn")]
    for name in (*ours, *theirs):
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(RevupError, match=re.escape("the server needs the extra 'serve': pip install 'revup[serve]'")):
        importlib.import_module("revup.serving.server")


def test_model_that_cannot_be_loaded_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RevupError, match="not a run directory"), running(tmp_path / "none"):
        pass


def test_port_in_use_is_an_error(server: str, model: Trained) -> None:
    port = int(server.rsplit(":", 1)[1])
    with pytest.raises(RevupError, match=f"can't listen on 127.0.0.1, port {port}: "), running(model, port=port):
        pass
