"""Variants of a dataset: dictionaries, simulated sources, labels aggregated beforehand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from revup.data.corpus import Corpus
from revup.data.encode import NO_ENTRY
from revup.data.events import Document
from revup.data.knowledge import Observation
from revup.data.lexicon import Lexicon
from revup.errors import RevupError
from revup.experiments import aggregate
from revup.experiments.variants import COVERAGE, WRONG, variant
from revup.world.world import World


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """A world whose dictionary lists the frames of its predicates, the most frequent frame as the heaviest."""
    world = World(frames=6, seed=1, words=90, events=4)
    predicates, table = world.frame_given_predicate()
    entries = {
        predicate: {(frame, ""): float(p) for frame, p in zip(world.frames, row, strict=True) if p > 0}
        for predicate, row in zip(predicates, table, strict=True)
    }
    documents = world.sample(260)
    out = tmp_path_factory.mktemp("listed") / "corpus"
    return Corpus.build(documents, out=out, events=4, split=(0.7, 0.15, 0.15), lexicon=Lexicon(entries))


def test_dictionaries(corpus: Corpus, tmp_path: Path) -> None:
    none = variant(corpus, "dictionary=none", 0, tmp_path)
    assert none.lexicon is None
    assert none.frames == corpus.frames
    for split in ("train", "test"):
        assert (none.split(split).arrays["entry"] == NO_ENTRY).all()
        assert (none.split(split).arrays["reference"] == corpus.split(split).arrays["reference"]).all()
    listed = variant(corpus, "dictionary=candidates", 0, tmp_path).lexicon
    assert listed is not None
    assert corpus.lexicon is not None
    assert listed.keys == corpus.lexicon.keys
    assert {weight for senses in listed.entries.values() for weight in senses.values()} == {1.0}
    with pytest.raises(RevupError, match="no variant"):
        variant(corpus, "dictionary=magic", 0, tmp_path)
    with pytest.raises(RevupError, match="unknown 'oracle'"):
        variant(corpus, "sources=people+oracle", 0, tmp_path)


def test_simulated_sources_err_as_announced(corpus: Corpus, tmp_path: Path) -> None:
    found = variant(corpus, "sources=people+parser", 3, tmp_path)
    split = found.split("train")
    told = split.told(Observation(seed=3))
    reference = np.asarray(split.arrays["reference"])[np.asarray(split.arrays["reference"]) >= 0]
    assert set(told) == {"people", "parser"}  # the events' own frames are not observed
    people, parser = told["people"], told["parser"]
    assert len(people.item) / len(reference) == pytest.approx(COVERAGE, abs=0.04)
    assert (people.frame == reference[people.item]).all()
    assert len(parser.item) == len(reference)
    assert (parser.frame != reference[parser.item]).mean() == pytest.approx(WRONG, abs=0.05)
    again = variant(corpus, "sources=people+parser", 4, tmp_path).split("train").told(Observation())
    assert (again["parser"].frame != parser.frame).any()
    assert found.split("test").arrays["knowledge_weights"].any()


def test_annotators_are_those_of_training_and_vote(corpus: Corpus, tmp_path: Path) -> None:
    rates = "0,0.6,0.6"
    told = corpus.split("train").told(Observation(seed=2, sources=rates))
    first, second, third = (told[f"annotator-{number}"].frame for number in (1, 2, 3))
    found = variant(corpus, f"annotators={rates}|vote", 2, tmp_path)
    split = found.split("train")
    there = np.asarray(split.arrays["reference"]) >= 0
    chosen = split.arrays["knowledge_frames"][..., 0][there]
    decided = (first == second) | (first == third) | (second == third)
    assert (chosen == np.where(second == third, second, first))[decided].all()
    equal = ~decided  # no annotator is preferred, least of all because of its rate
    assert equal.sum() > 100
    for label in (first, second, third):
        assert (chosen == label)[equal].mean() == pytest.approx(1 / 3, abs=0.12)
    assert found.lexicon is corpus.lexicon  # which the rival has beside the labels
    assert not found.sources
    with pytest.raises(RevupError, match="unknown ''"):
        variant(corpus, f"annotators={rates}", 0, tmp_path)


def test_vote_prefers_the_majority_then_the_first(tmp_path: Path) -> None:
    says = {"train": {"a": np.array([[0, 1, 2, -1]]), "b": np.array([[1, 1, -1, -1]]), "c": np.array([[1, 0, -1, -1]])}}
    frames, weights = aggregate.aggregated("vote", says, 3, tmp_path, "name")
    assert frames["train"][0, :3, 0].tolist() == [1, 1, 2]
    assert weights["train"][0, :, 0].tolist() == [1, 1, 1, 0]  # nobody speaks of the last event


@pytest.mark.parametrize("method", ["dawid-skene", "snorkel"])
def test_label_models_recover_frames_and_are_kept(
    corpus: Corpus, tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(aggregate.METHODS[method])
    name = f"sources=people+parser+dictionary|{method}"
    found = variant(corpus, name, 0, tmp_path)
    split = found.split("train")
    reference, weights = (np.asarray(split.arrays[x]) for x in ("reference", "knowledge_weights"))
    best = np.take_along_axis(split.arrays["knowledge_frames"], weights.argmax(-1)[..., None], -1)[..., 0]
    there = reference >= 0
    assert (best == reference)[there].mean() > 0.5  # of six frames
    assert weights[there].sum(-1) == pytest.approx(1, abs=1e-3)
    assert not found.sources
    monkeypatch.setattr(aggregate, "find_spec", lambda library: None)  # elsewhere the kept labels serve
    again = variant(corpus, name, 0, tmp_path).split("train").arrays["knowledge_weights"]
    assert (again == weights).all()
    with pytest.raises(RevupError, match="not installed"):
        variant(corpus, name, 1, tmp_path)


def test_published_presets_ignore_further_frames_under_confusable_noise(corpus: Corpus) -> None:
    """Frames that only the dictionary names are not in the published list, so numbers differ."""
    documents = [
        Document(str(n), [replace(event, frame=event.frame) for event in document.events])
        for n, document in enumerate(World(frames=6, seed=1, words=90, events=4).sample(60))
    ]
    lexicon = Lexicon({"zzz": {("AAA", ""): 1.0}})  # sorted before all others
    whole = Corpus.build(documents, events=4, split=(0.8, 0.1, 0.1), lexicon=lexicon)
    published = whole.as_published()
    seen = published.split("train").seen(Observation(1.0, 0.9, noise="confusable"))
    labels = seen.frames[..., 0][seen.observed]
    assert labels.max() < len(published.frames)
    plain = Corpus.build(documents, events=4, split=(0.8, 0.1, 0.1))
    expected = plain.split("train").seen(Observation(1.0, 0.9, noise="confusable"))
    assert labels.tolist() == expected.frames[..., 0][expected.observed].tolist()
