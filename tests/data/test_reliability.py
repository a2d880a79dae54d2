"""The reliability module against crowd-kit, planted truths, and data that cannot tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from revup.reliability import Estimate, Source, estimate, shared_predicates, single_source


def crowd(
    items: int = 400,
    frames: int = 5,
    rates: tuple[float, ...] = (0.1, 0.3, 0.5, 0.2),
    seed: int = 0,
    cover: float = 0.8,
) -> tuple[Any, dict[str, Source]]:
    rng = np.random.default_rng(seed)
    truth = rng.integers(frames, size=items)
    sources = {}
    for number, rate in enumerate(rates):
        there = np.flatnonzero(rng.random(items) < cover)
        wrong = rng.random(len(there)) < rate
        label = np.where(wrong, (truth[there] + rng.integers(1, frames, size=len(there))) % frames, truth[there])
        sources[f"s{number}"] = Source("label", there, label)
    return truth, sources


def dense(found: Estimate, items: int, frames: int) -> Any:
    out = np.zeros((items, frames))
    out[found.item, found.frame] = found.probability
    named = np.zeros((items, frames), bool)
    named[found.item, found.frame] = True
    rest = np.where(named, 0.0, found.frame_prior)  # the remainder, shared as the prior over frames has it
    return out + found.other[:, None] * rest / np.maximum(rest.sum(1, keepdims=True), 1e-300)


def as_table(sources: dict[str, Source]) -> Any:
    pd = pytest.importorskip("pandas")
    return pd.concat(pd.DataFrame({"task": s.item, "worker": name, "label": s.frame}) for name, s in sources.items())


@pytest.mark.filterwarnings("ignore")  # crowd-kit's own, of pandas
@pytest.mark.parametrize("kind", ["one_coin", "full"])
def test_agrees_with_crowd_kit(kind: str) -> None:
    kit: Any = pytest.importorskip("crowdkit.aggregation.classification.dawid_skene")
    _truth, sources = crowd()
    named = np.unique(np.concatenate([s.item for s in sources.values()]))
    oracle = (kit.OneCoinDawidSkene if kind == "one_coin" else kit.DawidSkene)(n_iter=200, tol=-1e9).fit(
        as_table(sources)
    )
    found = estimate(
        sources,
        400,
        5,
        frame_prior="estimated",
        rate_prior=(0.0, 0.0),
        iterations=200,
        tolerance=0.0,
        confusion="pooled" if kind == "one_coin" else "full",
    )
    expected = oracle.probas_.sort_index()[list(range(5))].to_numpy()
    got = dense(found, 400, 5)[named]
    if kind == "one_coin":
        for name in sources:
            assert found.sources[name].error_rate == pytest.approx(1 - oracle.skills_[name], abs=1e-6)
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_recovers_planted_rates_and_confusion() -> None:
    rng = np.random.default_rng(1)
    frames, predicates, items = 60, 120, 4000
    entry = [rng.choice(frames, size=rng.integers(1, 5), replace=False) for _ in range(predicates)]
    predicate = rng.integers(predicates, size=items)
    truth = np.array([rng.choice(entry[p]) for p in predicate])
    rows = np.concatenate([np.full(len(e), p) for p, e in enumerate(entry)])
    graph = shared_predicates(rows, np.concatenate(entry), frames)
    np.testing.assert_allclose(np.bincount(graph.row, graph.value)[np.unique(graph.row)], 1)

    def annotator(rate: float, kappa: float) -> Source:
        out = truth.copy()
        for i in np.flatnonzero(rng.random(items) < rate):
            row = graph(np.full(frames, truth[i]), np.arange(frames))
            out[i] = (
                rng.choice(frames, p=row)
                if row.sum() > 0 and rng.random() < kappa
                else (truth[i] + rng.integers(1, frames)) % frames
            )
        return Source("label", np.arange(items), out)

    planted = {"a": (0.4, 1.0), "b": (0.3, 0.0), "c": (0.15, 0.5)}
    sources = {name: annotator(*p) for name, p in planted.items()}
    found = estimate(sources, items, frames, confusable=graph)
    for name, (_, kappa) in planted.items():
        rate = (sources[name].frame != truth).mean()
        assert found.sources[name].identified
        assert found.sources[name].error_rate == pytest.approx(rate, abs=0.03)
        assert found.sources[name].confusable == pytest.approx(kappa, abs=0.12)
    best = np.zeros(items)
    arg = np.zeros(items, int)
    for i, f, p in zip(found.item, found.frame, found.probability, strict=True):
        if p > best[i]:
            best[i], arg[i] = p, f
    assert (arg == truth).mean() > max((s.frame == truth).mean() for s in sources.values()) + 0.03


@pytest.mark.parametrize("kappa", [0.0, 1.0])
@pytest.mark.parametrize("rate", [0.02, 0.3, 0.5])
def test_one_source_through_unambiguous_predicates(rate: float, kappa: float) -> None:
    rng = np.random.default_rng(2)
    frames, predicates = 100, 300
    entry = [rng.choice(frames, size=rng.choice([1, 1, 1, 2, 3]), replace=False) for _ in range(predicates)]
    predicate = np.repeat(np.arange(predicates), 12)
    truth = np.array([e[0] if rng.random() < 0.8 else rng.choice(e) for e in (entry[p] for p in predicate)])
    graph = shared_predicates(
        np.concatenate([np.full(len(e), p) for p, e in enumerate(entry)]), np.concatenate(entry), frames
    )
    label = truth.copy()
    for i in np.flatnonzero(rng.random(len(label)) < rate):
        rest = (
            [f for f in entry[predicate[i]] if f != truth[i]]
            or graph.column[graph.row == truth[i]].tolist()
            or [truth[i]]
        )
        label[i] = rng.choice(rest) if kappa else rng.integers(frames)
    real = (label != truth).mean()
    found = single_source(predicate, label, frames)
    assert found.reliability.identified
    assert found.reliability.error_rate == pytest.approx(real, abs=0.07)
    if real > 0.1:
        assert found.reliability.confusable == pytest.approx(kappa, abs=0.15)


def test_every_predicate_once_cannot_be_told() -> None:
    label = np.random.default_rng(0).integers(50, size=500)
    once = single_source(np.arange(500), label, 50)
    assert once.reliability.error_rate is None
    assert not once.reliability.identified
    np.testing.assert_array_equal(once.frame, once.label)  # labels stay as they are
    np.testing.assert_array_equal(once.probability, 1)


def test_one_frame_cannot_be_told() -> None:
    assert single_source(np.arange(500) % 50, np.zeros(500, int), 1).reliability.error_rate is None
    sources = {name: Source("label", np.arange(500), np.zeros(500, int)) for name in "abc"}
    assert all(found.error_rate is None for found in estimate(sources, 500, 1).sources.values())


def test_one_document_cannot_be_told() -> None:
    rng = np.random.default_rng(0)
    predicate, label = rng.integers(30, size=300), rng.integers(50, size=300)
    assert single_source(predicate, label, 50, document=np.zeros(300, int)).reliability.error_rate is None


def test_few_clean_documents_are_not_said_to_be_wrong() -> None:
    rng = np.random.default_rng(0)
    for documents in (2, 3, 5):
        for _ in range(5):
            predicate = np.minimum(rng.zipf(1.5, size=5 * documents), 200)
            document = np.repeat(np.arange(documents), 5)
            found = single_source(predicate, predicate % 40, 40, document=document).reliability
            assert found.error_rate is None or found.error_rate < 0.05


def test_one_or_two_sources_cannot_be_told() -> None:
    alone = estimate({"a": Source("label", np.arange(500), np.zeros(500, int))}, 500, 20)
    assert alone.sources["a"].error_rate is None
    assert (alone.probability > 0.8).all()
    label = np.arange(500) % 7
    other = np.where(np.arange(500) % 4 == 0, (label + 1) % 7, label)
    pair = estimate({"a": Source("label", np.arange(500), label), "b": Source("label", np.arange(500), other)}, 500, 7)
    for name in "ab":  # two sources tell how often they differ, not which one errs
        assert pair.sources[name].error_rate is None
        low, high = pair.sources[name].interval or (1.0, 0.0)
        assert low < 0.02
        assert high > 0.2


def test_interval_holds_the_planted_rate() -> None:
    inside = 0
    for seed in range(10):
        truth, sources = crowd(seed=seed)
        found = estimate(sources, 400, 5, frame_prior="estimated")
        for name, source in sources.items():
            low, high = found.sources[name].interval or (1.0, 0.0)
            inside += low <= (source.frame != truth[source.item]).mean() <= high
            assert high - low < 0.15
    assert inside >= 34  # of 40 intervals of 90%


def test_distributions_are_averaged_and_never_sharpened() -> None:
    item, frame = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    same = {s: Source("distribution", item, frame, np.array([0.6, 0.4, 0.6, 0.4])) for s in ("a", "b", "c")}
    found = estimate(same, 2, 5)
    np.testing.assert_allclose(found.probability, [0.6, 0.4, 0.6, 0.4], atol=1e-12)
    label = Source("label", np.array([0]), np.array([1]))
    both = estimate({"a": same["a"], "l": label}, 2, 5, known_rates={"l": (0.2, 0.0)})
    expected = np.array([0.6 * 0.2 / 4, 0.4 * 0.8])
    np.testing.assert_allclose(both.probability[:2], expected / expected.sum(), atol=1e-9)
    np.testing.assert_allclose(both.probability[2:], [0.6, 0.4], atol=1e-12)


def test_candidates_narrow_and_confidence_is_an_exponent() -> None:
    prior = (np.zeros(3, int), np.arange(3), np.array([0.5, 0.3, 0.2]))
    entry = Source("candidates", np.zeros(2, int), np.array([1, 2]))
    found = estimate({"d": entry}, 1, 10, prior, known_rates={"d": (0.0, 0.0)})
    np.testing.assert_allclose(found.probability, [0, 0.6, 0.4], atol=1e-9)
    label = Source("label", np.zeros(1, int), np.ones(1, int), confidence=0.5)
    weak = estimate({"l": label}, 1, 10, prior, known_rates={"l": (0.1, 0.0)})
    value = np.array([0.5, 0.3, 0.2]) * np.array([0.1 / 9, 0.9, 0.1 / 9]) ** 0.5
    np.testing.assert_allclose(weak.probability, value / value.sum(), atol=1e-9)


def test_many_frames_stay_sparse() -> None:
    tracemalloc = pytest.importorskip("tracemalloc")
    _truth, sources = crowd(items=20_000, frames=20_000)
    tracemalloc.start()
    found = estimate(sources, 20_000, 20_000, iterations=10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6
    assert found.sources["s2"].error_rate == pytest.approx(0.5, abs=0.03)


def test_bad_weights_are_refused() -> None:
    bad = Source("candidates", np.zeros(2, int), np.arange(2), np.array([1.0, -1.0]))
    with pytest.raises(ValueError, match="weights"):
        estimate({"d": bad}, 1, 3)


def test_recovers_planted_sources_of_the_world() -> None:
    """Labels of three annotators of the built-in world: rates, confusion, and how much of the exact posterior is lost.

    The exact posterior knows the context, the planted rates and the confusion; `estimate` knows p(t|predicate) alone.
    """
    from revup.world import World
    from revup.world.annotators import Annotator, statements

    world = World(frames=20, seed=1)
    planted = {"a": Annotator(rate=0.15), "b": Annotator(rate=0.3, confusable=1.0), "c": Annotator(rate=0.45)}
    documents = world.annotate(world.sample(600), planted, truth=True)
    events = [event for document in documents for event in document.events]
    column = {name: number for number, name in enumerate(world.frames)}
    truth = np.array([column[str(event.frame)] for event in events])
    said = {name: np.array([column[str(statements(e)[name])] for e in events]) for name in planted}
    sources = {name: Source("label", np.arange(len(events)), label) for name, label in said.items()}
    uses = world.predicate_probs > 0
    frame, predicate = np.nonzero(uses)
    found = estimate(sources, len(events), 20, confusable=shared_predicates(predicate, frame, 20))
    for name, annotator in planted.items():
        assert found.sources[name].error_rate == pytest.approx((said[name] != truth).mean(), abs=0.03)
        assert found.sources[name].confusable == pytest.approx(annotator.confusable, abs=0.15)
    names, known = world.frame_given_predicate()
    row = np.array([names.index(event.pred) for event in events])
    items, frames = np.nonzero(known[row] > 0)
    prior = (items, frames, known[row][items, frames])
    informed = estimate(sources, len(events), 20, prior, shared_predicates(predicate, frame, 20))
    exact = np.concatenate([world.posterior(document, sources=planted) for document in documents])
    right = {"estimate": dense(found, len(events), 20), "informed": dense(informed, len(events), 20), "exact": exact}
    accuracy = {name: (posterior.argmax(1) == truth).mean() for name, posterior in right.items()}
    best = max((label == truth).mean() for label in said.values())
    assert best < accuracy["estimate"] < accuracy["informed"] <= accuracy["exact"] + 0.01
    assert accuracy["informed"] > accuracy["exact"] - 0.05
