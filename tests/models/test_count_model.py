"""The count model: its equations by hand, labels left out, kinds of knowledge, storage, many frames."""

from __future__ import annotations

import resource
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import revup.models.count_sources as count_sources
import revup.models.count_training as count_training
from counting import a_dictionary, corpus, dense, events, inputs, labels, only
from revup.data.encode import NULL, UNK
from revup.data.reliability import Source
from revup.data.sparse_table import Table
from revup.errors import InputError
from revup.models.count_fit import DEFAULTS
from revup.models.count_model import CountInputs, CountModel, EventArrays

# ---- equations -------------------------------------------------------------------------------------------


def test_prediction_follows_the_equations_without_slots() -> None:
    model = CountModel.fit(events([0, 0, 0, 1]), {"a": labels([0, 0, 1, 2])}, inputs(2, 4), noise=False)
    only(model, a=0.0, a_form=0.0, c=0.0, **{f"slot{j}": 0.0 for j in range(7)})
    base = np.array([1, 1, 1, 0]) + 0.25
    base /= base.sum()  # frames by the number of lemmas that have them; no vectors: G is the base
    lemma = (np.array([2, 1, 0, 0]) + base) / (3 + 1)
    form = (np.array([2, 1, 0, 0]) + lemma) / (3 + 1)
    assert np.allclose(dense(model, model.predict(events([0])))[0], form, atol=1e-6)
    other = replace(events([0]), read=np.array([[30, NULL, NULL, NULL]]))  # another form of the lemma
    assert np.allclose(dense(model, model.predict(other))[0], lemma, atol=1e-6)


def test_dictionary_entry_and_missing_rate_follow_the_equations() -> None:
    book = Table(np.array([0, 0]), np.array([0, 1]), np.array([0.8, 0.2]), 4)
    entry = np.array([0, -1, -1])
    model = CountModel.fit(
        events([0, 1, 2], entry=entry), {"a": labels([1, 2], [1, 2])}, inputs(3, 4, book), noise=False, unlabelled=False
    )
    only(model, **{f"slot{j}": 0.0 for j in range(7)})
    base = np.array([0.8, 1.2, 1, 0]) + 0.25
    near = base / base.sum()
    score = np.array([0.8, 0.2]) ** 0.5 * (np.array([0, 1]) + 0.5) ** 0.3 * (near[:2] + 1e-4) ** 0.3
    mu = 1 / (1 + np.exp(3))
    expected = mu * near
    expected[:2] += (1 - mu) * score / score.sum()
    assert np.allclose(dense(model, model.predict(events([0], entry=[0])))[0], expected, atol=1e-6)


def test_slots_follow_the_equations() -> None:
    data = events([0] * 4, subj=[20, 20, 21, 21])
    model = CountModel.fit(data, {"a": labels([0, 0, 1, 1])}, inputs(1, 2), noise=False)
    only(model, a=0.0, a_form=0.0, c=0.0, **{f"slot{j}": 0.0 for j in range(7)} | {"slot0": 1.0})
    theta = 0.5
    share = 2 / (4 + 1)
    word = (np.array([2, 0]) + 40 * share) / (2 + 40)
    both = (np.array([2, 0]) + 10 * word) / (2 + 10)
    score = theta * both / share
    found = dense(model, model.predict(events([0], subj=[20])))[0]
    assert np.allclose(found, score / score.sum(), atol=1e-6)
    assert np.allclose(dense(model, model.predict(events([0], subj=[UNK])))[0], [0.5, 0.5])


# ---- labels left out -------------------------------------------------------------------------------------


def test_leaving_a_document_out_equals_fitting_without_it() -> None:
    data, frame = corpus()
    shared = inputs(12, 6, a_dictionary(12, 6))
    data = replace(data, entry=data.lemma % 12)
    model = CountModel.fit(data, {"a": labels(frame)}, shared, noise=False)
    only(model, document=0.0)  # with document context, frequencies of frames differ by the own document
    left = dense(model, model.predict(data, "document"))
    for document in (0, 7, 33):
        inside = np.flatnonzero(data.document == document)
        rest = np.flatnonzero(data.document != document)
        again = CountModel.fit(data, {"a": labels(frame[rest], rest)}, shared, noise=False, unlabelled=False)
        only(again, **model.scalars)
        assert np.allclose(dense(again, again.predict(data.take(inside))), left[inside], atol=2e-4)


def test_leaving_a_lemma_out_equals_fitting_without_it() -> None:
    data, frame = corpus()
    shared = inputs(12, 6, vectors=True)
    model = CountModel.fit(data, {"a": labels(frame)}, shared, noise=False)
    only(model, document=0.0)
    found = model.predict(data, "lemma")
    left = dense(model, found)
    assert not found.seen.any()
    for lemma in (2, 9):
        inside, rest = np.flatnonzero(data.lemma == lemma), np.flatnonzero(data.lemma != lemma)
        again = CountModel.fit(data, {"a": labels(frame[rest], rest)}, shared, noise=False, unlabelled=False)
        only(again, **model.scalars)
        assert np.allclose(dense(again, again.predict(data.take(inside))), left[inside], atol=2e-3)


def test_labels_are_only_left_out_of_the_training_events() -> None:
    data, frame = corpus(60)
    model = CountModel.fit(data, {"a": labels(frame)}, inputs(12, 6))
    with pytest.raises(ValueError, match="fitted"):
        model.predict(data.take(np.arange(10)), "document")


# ---- knowledge -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [2000, 40000])
def test_distributions_are_never_sharpened(number: int) -> None:
    item = np.repeat(np.arange(number), 2)
    belief = Source("distribution", item, np.tile([0, 1], number), np.tile([0.6, 0.4], number))
    model = CountModel.fit(events(np.arange(number) % 4), {"crowd": belief}, inputs(4, 3))
    assert np.allclose(dense(model, model.predict(events([0, 1, 2, 3])))[:, :2], [0.6, 0.4], atol=0.01)
    said = model.evidence({"crowd": belief}, events(np.arange(number) % 4))
    assert said.belief.all()
    assert not said.other.any()
    assert np.allclose(said.value, np.tile([0.6, 0.4], number))


def test_candidates_narrow_down_and_context_decides() -> None:
    # lemma 0 is labelled by people; lemma 1 only has candidates, and the same subjects
    lemma = np.repeat([0, 1], 200)
    subject = np.tile([20, 21], 200)
    item = np.repeat(np.arange(200, 400), 2)
    sources = {
        "people": labels(np.tile([0, 1], 100)),
        "rules": Source("candidates", item, np.tile([0, 1], 200)),
    }
    model = CountModel.fit(events(lemma, subj=subject), sources, inputs(2, 5))
    found = dense(model, model.predict(events([1, 1], subj=[20, 21])))
    assert found[:, :2].sum(1).min() > 0.9
    assert found[0, 0] > 0.6
    assert found[1, 1] > 0.6


def test_labels_distributions_and_candidates_mix_in_one_fit() -> None:
    data, frame = corpus()
    third = len(frame) // 3
    item = np.arange(third, 2 * third)
    rest = np.arange(2 * third, len(frame))
    sources = {
        "people": labels(frame[:third]),
        "crowd": Source("distribution", np.repeat(item, 2), np.stack([frame[item], (frame[item] + 1) % 6], 1).ravel()),
        "rules": Source("candidates", np.repeat(rest, 2), np.stack([frame[rest], (frame[rest] + 3) % 6], 1).ravel()),
    }
    model = CountModel.fit(data, sources, inputs(12, 6))
    assert set(model.reliability) == set(sources)
    assert (dense(model, model.predict(data)).argmax(1) == frame).mean() > 0.7
    said = model.evidence(sources, data)
    assert said.spoken.all()
    assert (said.belief == np.isin(np.arange(len(frame)), item)).all()
    assert said.value.max() <= 1
    assert (said.other[:third] < 0.1).all()


def test_evidence_is_the_likelihood_of_labels_under_estimated_rates() -> None:
    data, frame = corpus()
    model = CountModel.fit(data, {"a": labels(frame)}, inputs(12, 6), known_rates={"a": (0.25, 0.0)})
    assert model.reliability["a"].error_rate == 0.25
    said = model.evidence({"a": labels([3], [0])}, data)
    assert said.event.tolist() == [0]
    assert said.frame.tolist() == [3]
    assert said.value[0] == 1
    assert np.isclose(said.other[0], (0.25 / 6) / (0.75 + 0.25 / 6))
    assert said.other[1] == 1
    assert not said.spoken[1]
    half = Source("label", np.array([0]), np.array([3]), None, 0.5)
    assert np.isclose(model.evidence({"a": half}, data).other[0], ((0.25 / 6) / (0.75 + 0.25 / 6)) ** 0.5)


def test_labels_that_tell_nothing_leave_the_choice_to_the_dictionary() -> None:
    # two frames each, labels wrong half of the time: to the other frame
    random = np.random.default_rng(2)
    lemma = random.integers(30, size=3000)
    given = (lemma % 20 + random.integers(2, size=3000)) % 20
    heavy = Table(
        np.repeat(np.arange(30), 2),
        np.stack([np.arange(30) % 20, (np.arange(30) + 1) % 20], 1).ravel(),
        np.tile([0.9, 0.1], 30),
        20,
    )
    data = replace(events(lemma % 30, random.integers(300, size=3000)), lemma=lemma, entry=lemma)
    model = CountModel.fit(data, {"a": labels(given)}, inputs(30, 20, heavy), known_rates={"a": (0.5, 1.0)})
    assert (dense(model, model.predict(data)).argmax(1) == lemma % 20).all()
    said = model.evidence({"a": labels(given)}, data)
    top = dict(zip(zip(said.event.tolist(), said.frame.tolist(), strict=True), said.value.tolist(), strict=True))
    assert np.isclose(top[0, int(lemma[0] % 20)], top[0, int((lemma[0] + 1) % 20)])


def test_nearly_all_labels_wrong_does_not_overrule_the_dictionary() -> None:
    random = np.random.default_rng(3)
    lemma = random.integers(30, size=1000)
    wrong = random.random(1000) < 0.9
    given = np.where(wrong, random.integers(20, size=1000), lemma % 20)
    book = Table(np.arange(30), np.arange(30) % 20, np.ones(30), 20)
    data = replace(events(lemma % 30, random.integers(100, size=1000)), lemma=lemma, entry=lemma)
    model = CountModel.fit(data, {"a": labels(given)}, inputs(30, 20, book), known_rates={"a": (0.9, 0.0)})
    assert (dense(model, model.predict(data)).argmax(1) == lemma % 20).mean() > 0.9


def test_wrong_labels_are_found_where_predicates_repeat() -> None:
    random = np.random.default_rng(1)
    lemma = random.integers(30, size=4000)
    frame = lemma % 20
    wrong = random.random(4000) < 0.4
    given = np.where(wrong, random.integers(20, size=4000), frame)
    data = events(lemma, random.integers(400, size=4000))
    model = CountModel.fit(data, {"a": labels(given)}, inputs(30, 20))
    rate = model.reliability["a"].error_rate
    assert rate is not None
    assert abs(rate - 0.38) < 0.05
    assert dense(model, model.predict(data))[np.arange(4000), frame].min() > 0.8


@pytest.mark.parametrize("names", [("good", "poor"), ("poor", "good")])
def test_two_sources_of_labels_get_their_own_rates_in_any_order(names: tuple[str, str]) -> None:
    random = np.random.default_rng(0)
    lemma = random.integers(60, size=3000)
    frame = (lemma + (random.random(3000) < 0.3)) % 20
    given = {
        name: labels(np.where(random.random(3000) < rate, random.integers(20, size=3000), frame))
        for name, rate in (("good", 0.1), ("poor", 0.3))
    }
    model = CountModel.fit(
        events(lemma, random.integers(200, size=3000)), {name: given[name] for name in names}, inputs(60, 20)
    )
    rates = {name: model.reliability[name].error_rate for name in names}
    assert rates == pytest.approx({"good": 0.095, "poor": 0.285}, abs=0.03)


@pytest.mark.parametrize("matters", [True, False])
def test_noisy_annotators_who_agree_tell_how_far_to_trust_arguments(matters: bool) -> None:
    """None of three is right by itself; what they agree on says what subjects are worth."""
    random = np.random.default_rng(0)
    lemma, subject = random.integers(60, size=3000), random.integers(40, size=3000)
    frame = (lemma + 7 * (subject % 2) * matters + (random.random(3000) < 0.3)) % 20
    data = events(lemma, random.integers(200, size=3000), subj=subject)
    told = {
        name: labels(np.where(random.random(3000) < rate, random.integers(20, size=3000), frame))
        for name, rate in (("a", 0.2), ("b", 0.3), ("c", 0.4))
    }
    model = CountModel.fit(data, told, inputs(60, 20))
    assert model._training is not None
    combined = model._training.labels
    order = np.argsort(combined.weight, kind="stable")
    best = np.zeros(3000, np.int64)
    best[combined.event[order]] = combined.frame[order]
    wrong = float((best != frame).mean())
    assert wrong < 0.1  # of 20, 30 and 40% by themselves
    assert model.joint_error == pytest.approx(wrong, abs=0.03)
    assert CountModel.from_tensors(model.tensors(), inputs(60, 20)).joint_error == model.joint_error
    tensors = {**model.tensors(), "joint_error": torch.tensor([1.5], dtype=torch.float64)}
    with pytest.raises(InputError, match="a share from 0 to 1"):
        CountModel.from_tensors(tensors, inputs(60, 20))
    assert (model.scalars["slot0"] > 0.5) == matters
    assert (model.scalars["slot0"] < 0.05) == (not matters)
    right = CountModel.fit(data, {"frame": labels(frame)}, inputs(60, 20))
    loss, least = (-np.log(dense(m, m.predict(data))[np.arange(3000), frame]).mean() for m in (model, right))
    assert loss < least + 0.05


def test_several_sources_of_a_large_corpus_have_the_same_rates_from_fewer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    lemma = random.integers(5, size=4000)
    frame = (lemma + (random.random(4000) < 0.3)) % 40
    given = {
        name: labels(np.where(random.random(4000) < rate, random.integers(40, size=4000), frame))
        for name, rate in (("good", 0.1), ("poor", 0.4))
    }
    data, rows, found = events(lemma, random.integers(200, size=4000)), [], []
    estimate = count_sources.estimate

    def counting(*args: Any, **options: Any) -> Any:
        rows.append(len(args[3][0]))
        return estimate(*args, **options)

    monkeypatch.setattr(count_sources, "estimate", counting)
    for most in (count_sources.MOST_ROWS, 16_000):
        monkeypatch.setattr(count_sources, "MOST_ROWS", most)
        found.append(CountModel.fit(data, given, inputs(5, 40)))
    whole, part = ({name: each.error_rate for name, each in model.reliability.items()} for model in found)
    assert max(rows) > 100_000  # nearly every frame for every event
    assert max(rows[len(rows) // 2 :]) <= 16_000
    assert part == pytest.approx(whole, abs=0.01)
    assert part == pytest.approx({"good": 0.0975, "poor": 0.39}, abs=0.03)
    one, other = (dense(model, model.predict(data)) for model in found)
    np.testing.assert_array_equal(one.argmax(1), other.argmax(1))


def test_unknown_lemma_uses_its_dictionary_entry_and_its_neighbours() -> None:
    data, frame = corpus()
    shared = inputs(12, 6, a_dictionary(12, 6), vectors=True)
    model = CountModel.fit(data, {"a": labels(frame)}, shared)
    listed = events([-1], pred=[UNK], lemma_read=[UNK], entry=[3])
    assert dense(model, model.predict(listed))[0, 3:5].sum() > 0.8
    twin = events([-1], pred=[UNK], lemma_read=[7])  # a lemma with the vector of lemma 2
    assert dense(model, model.predict(twin))[0].argmax() in (2, 3)
    assert model.predict(twin).seen[0] == 0


# ---- storage ---------------------------------------------------------------------------------------------


def stored() -> tuple[CountModel, EventArrays, CountInputs]:
    data, frame = corpus()
    shared = inputs(12, 6, a_dictionary(12, 6), vectors=True)
    return CountModel.fit(data, {"a": labels(frame[:200])}, shared), data, shared


@pytest.mark.parametrize("largest", [2**21, 0])
def test_tensors_load_bit_identically(largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("revup.models.count_storage.LARGEST", largest)
    model, data, shared = stored()
    again = CountModel.from_tensors(model.tensors(), shared)
    asked = replace(data, lemma=np.where(data.lemma % 5 == 0, -1, data.lemma), entry=data.lemma % 13 - 1)
    one, two = model.predict(asked), again.predict(asked)
    for name in ("start", "frame", "probability", "rest", "seen"):
        assert np.array_equal(getattr(one, name), getattr(two, name))
    assert again.reliability == model.reliability
    with pytest.raises(ValueError, match="fitted"):
        again.predict(data, "document")


def test_damaged_tensors_are_refused() -> None:
    model, _, shared = stored()
    tensors = model.tensors()
    CountModel.from_tensors(tensors, shared)
    for name, tensor in tensors.items():
        for damage in ({}, {name: tensor.to(torch.float16)}, {name: tensor.unsqueeze(0)}):
            broken = {key: value for key, value in tensors.items() if key != name} | damage
            if not damage and name.partition(".")[0] in ("space", "classes", "lemma_all", "compiled"):
                continue  # absence may be right
            with pytest.raises(InputError, match="counts"):
                CountModel.from_tensors(broken, shared)
    for name in ("lemma.value", "base", "of_frame", "slot0.by_word.value", "compiled.log_theta", "scalars"):
        broken = {**tensors, name: torch.full_like(tensors[name], torch.nan)}
        with pytest.raises(InputError, match="counts"):
            CountModel.from_tensors(broken, shared)
    for name in ("lemma.key", "forms", "compiled.key", "compiled.frame", "slot1.pairs", "reliability"):
        broken = {**tensors, name: tensors[name].flip(0) if name != "compiled.frame" else tensors[name] + 6}
        with pytest.raises(InputError, match="counts"):
            CountModel.from_tensors(broken, shared)


def test_sources_that_do_not_fit_are_refused() -> None:
    data, frame = corpus(60)
    for source in (labels([6], [0]), labels([0], [60]), labels([-1], [0])):
        with pytest.raises(ValueError, match="source a"):
            CountModel.fit(data, {"a": source}, inputs(12, 6))
    with pytest.raises(ValueError, match="lemma"):
        CountModel.fit(data, {"a": labels(frame)}, inputs(3, 6))


# ---- many frames -----------------------------------------------------------------------------------------


def test_twenty_thousand_frames_stay_sparse() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    number, frames = 6000, 20000
    random = np.random.default_rng(0)
    lemma = random.integers(2000, size=number)
    frame = (lemma * 10 + random.integers(3, size=number)) % frames
    data = events(lemma % 30, random.integers(600, size=number), subj=20 + frame % 15)
    data = replace(data, lemma=lemma, lemma_read=np.full(number, UNK))
    model = CountModel.fit(data, {"a": labels(frame)}, inputs(2000, frames))
    found = model.predict(data)
    assert len(found.frame) < 250 * number
    assert sum(t.numel() * t.element_size() for t in model.tensors().values()) < 50e6
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1.2e6  # kilobytes


def test_fit_is_deterministic() -> None:
    one, two = stored()[0], stored()[0]
    assert one.scalars == two.scalars
    assert set(one.scalars) >= set(DEFAULTS)
    assert count_training.UNLABELLED == 0.3
