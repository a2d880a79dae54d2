"""Narrative cloze: scores against direct computation, items with a known answer, and ties."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from paths import DATA
from revup.cli import run as run_verb
from revup.data.corpus import Corpus, encode_documents
from revup.data.events import Document, Event
from revup.data.knowledge import Observation
from revup.data.readers.cloze import ClozeItem, items
from revup.errors import InputError, RevupError
from revup.inference import cloze as cloze_module
from revup.inference.cloze import candidate_scores, cloze, sequence_scores
from revup.inference.trained import Trained
from revup.training.run import train

SHARED = DATA / "nyt_cloze" / "inverse_cloze.txt.gz"
WRITERS = ("revup", "ssdvae", "haqae", "rnnlm")


def item(first: Event, true: list[Event], others: list[list[Event]]) -> ClozeItem:
    return ClozeItem("i", [first, *true], [[first, *rest] for rest in (true, *others)])


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """Two kinds of stories that share no word: the first event determines the kind."""
    rng = np.random.default_rng(0)
    return Corpus.build(
        [story(rng, kind, f"{kind}{n}", 3) for n in range(100) for kind in "ab"], events=3, duplicates="keep"
    )


def events(rng: np.random.Generator, kind: str, count: int) -> list[Event]:
    return [
        Event(f"{kind}v{rng.integers(4)}", f"{kind}n{rng.integers(5)}", f"{kind}n{rng.integers(5)}", frame=f"F{kind}")
        for _ in range(count)
    ]


def story(rng: np.random.Generator, kind: str, name: str, count: int) -> Document:
    return Document(name, events(rng, kind, count))


@pytest.fixture(scope="module")
def models(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    sizes = {"embedding": 16, "hidden": 24, "latent": 8, "frame": 16, "layers": 1}
    training = {"epochs": 10, "batch_size": 20, "learning_rate": 0.02}
    made = {
        name: train(
            corpus,
            name,
            device="cpu",
            network=sizes,
            training=training,
            out=tmp_path_factory.mktemp("cloze") / name,
            objective={"codes": 8} if name == "haqae" else {},
        )
        for name in WRITERS
    }
    return made


def easy_items(count: int = 40, length: int = 5, seed: int = 1) -> list[ClozeItem]:
    """The true continuation is of the first event's kind, the five others are not."""
    rng = np.random.default_rng(seed)
    found = []
    for n in range(count):
        kind, other = ("a", "b") if n % 2 else ("b", "a")
        distractors = [events(rng, other, length) for _ in range(5)]
        found.append(item(events(rng, kind, 1)[0], events(rng, kind, length), distractors))
    return found


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("score", cloze_module.SCORES)
def test_cloze_finds_the_continuation_of_the_same_kind(models: dict[str, Trained], name: str, score: str) -> None:
    found = cloze(models[name], easy_items(), score)
    assert found["items"] == 40
    assert found["chance"] == pytest.approx(1 / 6)
    assert found["accuracy"] > 0.9
    assert found["mean_rank"] < 1.5
    assert found["unknown_words"] == 0


@pytest.mark.parametrize("name", WRITERS)
def test_scores_match_stepwise_reading_of_each_candidate(models: dict[str, Trained], name: str) -> None:
    model = models[name]
    asked = easy_items(3)
    asked[1].candidates[2] = asked[1].candidates[2][:3]  # of another length than the rest
    found = [scores for scores, _ in candidate_scores(model, asked, "whole", "first")]
    for one, scores in zip(asked, found, strict=True):
        opening = encode_documents([Document("", one.true[:1])], model.vocabulary, model.frames, 3, "first")
        batch = next(model.module.batches(opening, Observation(0.0), 1).ordered())
        for candidate, value in zip(one.candidates, scores, strict=True):
            text = encode_documents([Document("", candidate)], model.vocabulary, model.frames, len(candidate), "first")
            tokens = torch.from_numpy(text.arrays["tokens"].reshape(-1)).long()
            with torch.no_grad():
                state = model.module.start(model.module.memory(batch))
                total, last = 0.0, torch.tensor([2])  # <bos>
                for token in tokens:
                    log_p, state = model.module.step(last, state)
                    total -= float(log_p[0, token])
                    last = token.view(1)
            assert value == pytest.approx(total / len(tokens), abs=1e-4)


def test_sequence_scores_by_hand() -> None:
    nll = torch.arange(15.0).view(1, 15).repeat(2, 1)
    lengths = torch.tensor([3, 2])
    assert sequence_scores(nll, lengths, "whole").tolist() == [7.0, 4.5]
    assert sequence_scores(nll, lengths, "continuation").tolist() == [sum(range(5, 15)), sum(range(5, 10))]
    assert sequence_scores(nll, lengths, "normalised").tolist() == [9.5, 7.0]


@pytest.mark.parametrize("latents", cloze_module.LATENTS)
def test_cloze_scores_do_not_depend_on_batching(
    models: dict[str, Trained], monkeypatch: pytest.MonkeyPatch, latents: str
) -> None:
    asked = easy_items(7)
    asked[3].candidates[4] = asked[3].candidates[4][:2]
    together = [s for s, _ in candidate_scores(models["revup"], asked, "whole", latents)]
    monkeypatch.setattr(cloze_module, "ITEMS_AT_ONCE", 1)
    apart = [s for s, _ in candidate_scores(models["revup"], asked, "whole", latents)]
    np.testing.assert_allclose(np.stack(together), np.stack(apart), atol=1e-5)


def test_latents_are_inferred_from_the_first_event_alone(models: dict[str, Trained]) -> None:
    """With latents = candidate they are inferred from all of it."""
    model, one = models["revup"], easy_items(1)[0]
    opening = model.module.prompt_memory(model.first_window([Document("", one.true[:1])]))
    assert opening.mask.tolist() == [[True, False, False]]
    whole = model.module.prompt_memory(model.first_window([Document("", one.true)]))
    assert whole.mask.all()
    first, _ = next(iter(candidate_scores(model, [one], "whole", "first")))
    candidate, _ = next(iter(candidate_scores(model, [one], "whole", "candidate")))
    assert not np.allclose(first, candidate)


def test_equal_candidates_score_at_chance(models: dict[str, Trained]) -> None:
    rng = np.random.default_rng(5)
    first, rest = events(rng, "a", 1)[0], events(rng, "a", 3)
    same = item(first, rest, [rest] * 5)
    found = cloze(models["rnnlm"], [same] * 3)
    assert found["accuracy"] == pytest.approx(1 / 6)
    assert found["mean_rank"] == pytest.approx(3.5)


def test_cloze_refuses_wrong_options_and_models(models: dict[str, Trained], corpus: Corpus) -> None:
    asked = easy_items(1)
    with pytest.raises(RevupError, match="score: expected one of whole"):
        cloze(models["rnnlm"], asked, "best")
    with pytest.raises(RevupError, match="latents: expected one of first"):
        cloze(models["rnnlm"], asked, latents="none")
    with pytest.raises(RevupError, match="no items"):
        cloze(models["rnnlm"], [])
    with pytest.raises(RevupError, match="the model lookup does not write text"):
        cloze(train(corpus, "lookup"), asked)


def line(one: ClozeItem) -> str:
    def text(sequence: list[Event]) -> str:
        return " <TUP> ".join(f"{e.pred} {e.subj} {e.obj} _NULL_" for e in sequence)

    return " <DIST> ".join([text(one.true), *(text(c[1:]) for c in one.candidates[1:])])


def test_cloze_verb_prints_the_accuracy(
    models: dict[str, Trained], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "items.txt"
    file.write_text("".join(line(one) + "\n" for one in easy_items(12)), "utf-8")
    run = str(models["rnnlm"].path)
    run_verb(["cloze", run, str(file), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (told["items"], told["chance"], told["skipped"]) == (12, pytest.approx(1 / 6), 0)
    assert told["accuracy"] == cloze(models["rnnlm"], list(items(file)))["accuracy"]
    file.write_text(file.read_text("utf-8") + "one sequence only\n", "utf-8")
    with pytest.raises(InputError, match="line 13"):
        run_verb(["cloze", run, str(file)])
    run_verb(["cloze", run, str(file), "--skip-bad", "--score", "normalised"])
    shown = capsys.readouterr()
    assert "accuracy" in shown.out
    assert "skipped 1 bad lines" in shown.err
    file.write_text("", "utf-8")
    with pytest.raises(InputError, match="no items"):
        run_verb(["cloze", run, str(file)])


@pytest.mark.skipif(not SHARED.exists(), reason="the NYT cloze items are not here")
def test_cloze_scores_the_nyt_items() -> None:
    asked = list(items(SHARED))[:60]
    corpus = Corpus.build([Document(one.id, one.true) for one in asked], window="first", split=(1.0, 0.0, 0.0))
    sizes = {"embedding": 16, "hidden": 16, "latent": 8, "frame": 16, "layers": 1}
    for name in WRITERS:
        model = train(corpus, name, device="cpu", network=sizes, training={"epochs": 1})
        found = cloze(model, asked)
        assert found["items"] == 60
        assert 0 <= found["accuracy"] <= 1
        assert math.isfinite(found["mean_rank"])
