"""The demo in a small setting, and the README's example as it stands there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import revup
from paths import ROOT
from revup import demo
from revup.errors import InputError, RevupError
from revup.world.world import World

Result = dict[str, Any]


@pytest.fixture(scope="module")
def small() -> Any:
    """The demo's sizes, cut down."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "DOCUMENTS", {"train": 800, "valid": 100, "test": 150})
        patch.setattr(demo, "TRAINING", {**demo.TRAINING, "batch_size": 50, "epochs": 3, "validate_steps": 8})
        yield patch


@pytest.fixture(scope="module")
def played(small: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result, list[int]]:
    out = tmp_path_factory.mktemp("demo") / "out"
    steps: list[int] = []
    result = demo.demo(out, seed=3, progress=lambda now: steps.append(now.step))
    return out, result, steps


def test_revup_lies_between_the_table_and_the_optimum(played: tuple[Path, Result, list[int]]) -> None:
    scores = played[1]["scores"]
    assert scores["lookup"]["accuracy"] < scores["revup"]["accuracy"] < scores["optimum"]["accuracy"]
    assert scores["lookup"]["perplexity"] is None
    assert scores["revup"]["perplexity"] > 1


def test_what_is_watched_learns(small: Any, tmp_path: Path) -> None:
    """The proposal for events of one frame comes nearer to the truth, and ends as that of the run left behind."""
    play = demo._Play(tmp_path, seed=3)
    play.train(None)
    first, *_, last = (play.watched.snapshots[step] for step in sorted(play.watched.snapshots))
    for before, after in zip(first[1:], last[1:], strict=True):
        far, near = (np.abs(one["proposal"] - one["truth"]).sum() for one in (before, after))
        assert near < far
    model = revup.load(tmp_path / "run")
    batch = next(demo.Batches(play.watched.part, play.observation, len(play.watched.part)).ordered())
    found = model.module.frame_probabilities(batch).detach().numpy()
    group = next(iter(play.watched.groups.values()))
    np.testing.assert_allclose(found[group].mean(0), last[0]["proposal"], atol=1e-5)


def test_the_optimum_is_the_worlds(played: tuple[Path, Result, list[int]]) -> None:
    """Its accuracy and likelihood, from the demo's own way of scoring, are those the world states."""
    out, result, _ = played
    world = World(**result["data"]["world"])
    documents = world.sample(1050)[900:]
    exact, found = world.optimum(documents), result["scores"]["optimum"]
    assert found["accuracy"] == exact["accuracy"]
    assert found["label_nll"] == pytest.approx(exact["nll"])
    assert found["perplexity"] == exact["perplexity"]
    assert revup.Corpus.load(out / "corpus").fingerprint == result["data"]["fingerprint"]


def test_the_figures_are_those_of_the_run_left_behind(played: tuple[Path, Result, list[int]]) -> None:
    out, result, _ = played
    model = revup.load(out / "run")
    assert revup.evaluate(model)["accuracy"] == result["scores"]["revup"]["accuracy"]
    assert model.config.to_json() == result["config"]
    assert json.loads((out / "results.json").read_text())["scores"] == result["scores"]
    documents = World(**result["data"]["world"]).sample(1050)[900:902]
    best = [frames[0] for document in model.predict(documents, top=1) for frames in document]
    for row, (frame, probability) in zip(result["examples"], best, strict=True):
        assert row["RevUp"].split()[1] == frame
        assert row["probability"] == pytest.approx(probability, abs=1e-5)


def test_the_share_of_wrong_frames_is_counted_and_estimated(played: tuple[Path, Result, list[int]]) -> None:
    noise, seen = played[1]["noise"], played[1]["data"]["seen"]
    expected = demo.ETA * (1 - 1 / 12)
    assert noise["true"] == pytest.approx(expected, abs=4 * np.sqrt(expected / seen))
    assert noise["estimated"] == pytest.approx(expected, abs=0.1)


def test_progress_is_passed_on(played: tuple[Path, Result, list[int]]) -> None:
    assert played[2][:3] == [8, 16, 20]  # validations at 8 and 16, the epoch's end


def test_the_report_has_every_figure_and_says_what_it_is_of(played: tuple[Path, Result, list[int]]) -> None:
    out, result, _ = played
    html = (out / "report.html").read_text("utf-8")
    assert html.count("data:image/svg+xml") == 4
    for text in (result["data"]["fingerprint"], result["version"], f"“{result['predicate']}”", "learning_rate"):
        assert text in html or text in html.replace("&#34;", '"')
    for row in result["examples"]:
        assert row["event"] in html


def test_the_terminal_shows_the_table(played: tuple[Path, Result, list[int]]) -> None:
    text = demo.summary(played[1])
    assert [line.split("  ")[0] for line in text.splitlines()[4:7]] == ["lookup table", "RevUp", "exact optimum"]
    assert f"{played[1]['scores']['revup']['accuracy']:.3f}" in text
    assert "frames it was given are wrong" in text
    assert max(map(len, text.splitlines()[:12])) < 130


def test_it_replaces_its_own_and_nothing_else(
    played: tuple[Path, Result, list[int]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = played[0]
    (out / "left over").touch()
    monkeypatch.setattr(demo, "TRAINING", {**demo.TRAINING, "epochs": 1})
    foreign = tmp_path / "mine"
    foreign.mkdir()
    (foreign / "thesis.txt").touch()
    with pytest.raises(InputError, match=r"mine: exists already and is not a demo's own \(--force replaces it\)"):
        demo.demo(foreign)
    assert (foreign / "thesis.txt").exists()
    with pytest.raises(InputError, match="not a demo's own"):
        demo.demo(foreign / "thesis.txt")

    demo.demo(foreign, force=True)
    assert not (foreign / "thesis.txt").exists()
    demo._refuse_foreign(out, force=False)
    (tmp_path / "empty").mkdir()
    demo._refuse_foreign(tmp_path / "empty", force=False)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_stopped_demo_leaves_the_earlier_one_alone(
    played: tuple[Path, Result, list[int]],
) -> None:
    out = played[0]
    before = (out / "report.html").read_bytes()

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        demo.demo(out, progress=stop)
    assert (out / "report.html").read_bytes() == before
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_a_missing_extra_is_said_before_any_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("revup.reporting.figures.find_spec", lambda name: None)
    with pytest.raises(RevupError, match="extra 'report'"):
        demo.demo(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_every_word_of_the_demos_world_is_english() -> None:
    from revup.world import newsroom as words

    world = World(**demo.WORLD, seed=0)
    told = [words.news_frame(index) for index in range(len(world.frames))]
    known = {*words.GENERAL_VERBS.split(), *words.GENERAL_NOUNS.split()}
    known |= {word for frame in told for word in (frame.verb, *frame.subj, *frame.obj)}
    assert {*world.predicates, *world.nouns} <= known


# ---- the README ----------------------------------------------------------------------------------------------


def test_the_readmes_example_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (example, *_) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert len(example.splitlines()) <= 24
    names: dict[str, Any] = {}
    exec(compile(example, "README.md", "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed[:2]] == ["lookup", "revup"]
    assert len(printed) == 7
    assert names["vectors"].shape[0] == 300


def test_the_readmes_links_lead_somewhere() -> None:
    for page in (ROOT / "README.md", ROOT / "docs" / "demo.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), target


def test_the_readmes_verbs_exist() -> None:
    from revup.cli import VERBS

    used = re.findall(r"^ +revup (\w+) ", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert used
    assert set(used) <= set(VERBS)
