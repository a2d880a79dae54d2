"""The ceiling when some true frames are revealed."""

from __future__ import annotations

import numpy as np
import pytest

from revup.errors import RevupError
from revup.world import World, ceiling, reveal


def test_reveal_draws_nested_shares_of_true_frames() -> None:
    world = World(frames=10, seed=1)
    documents = world.sample(1000)
    assert reveal(documents, 0.0) == [{}] * 1000
    some, more, every = (reveal(documents, share, seed=2) for share in (0.3, 0.7, 1.0))
    assert sum(map(len, some)) / 5000 == pytest.approx(0.3, abs=0.03)
    for document, few, many, whole in zip(documents, some, more, every, strict=True):
        assert few.items() <= many.items() <= whole.items()
        assert whole == {index: event.frame for index, event in enumerate(document.events)}
    assert some[40:60] == reveal(documents[40:60], 0.3, seed=2)
    assert some != reveal(documents, 0.3, seed=3)
    documents[0].events[1].frame = None
    assert 1 not in reveal(documents, 1.0)[0]
    with pytest.raises(RevupError, match=r"share: expected a number from 0 to 1, found 1\.2"):
        reveal(documents, 1.2)


def test_ceiling_scores_exact_posterior_on_remaining_events() -> None:
    world = World(frames=10, seed=1)
    documents = world.sample(300)
    rows = ceiling(world, documents, [0.0, 0.5, 1.0], seed=3)
    plain = world.optimum(documents)
    assert rows[0]["accuracy"] == rows[0]["accuracy_without"] == plain["accuracy"]
    assert (rows[0]["revealed"], rows[0]["events"]) == (0, 1500)
    assert rows[2]["events"] == 0
    assert rows[2]["accuracy"] is None

    given = reveal(documents, 0.5, seed=3)
    right, before, count = 0, 0, 0
    for document, told in zip(documents, given, strict=True):
        with_frames, without = world.posterior(document, told), world.posterior(document)
        for place in set(range(5)) - set(told):
            true = world.frames.index(document.events[place].frame or "")
            right += int(with_frames[place].argmax() == true)
            before += int(without[place].argmax() == true)
            count += 1
    assert rows[1]["events"] == count == 1500 - sum(map(len, given))
    assert rows[1]["accuracy"] == pytest.approx(right / count)
    assert rows[1]["accuracy_without"] == pytest.approx(before / count)


def test_revealed_frames_raise_the_likelihood_of_the_others() -> None:
    """More evidence can only raise the expected log p of the truth; here by several standard errors."""
    world = World(frames=20, seed=0)
    documents = world.sample(3000)
    given = reveal(documents, 0.5)
    truth = np.array([[world.frames.index(event.frame or "") for event in d.events] for d in documents])[..., None]
    rest = np.array([[place not in told for place in range(5)] for told in given])
    before, after = (
        np.log(np.take_along_axis(world.posteriors(documents, told), truth, axis=2)[..., 0]) for told in (None, given)
    )
    gain = (after - before)[rest]
    assert gain.mean() > 3 * gain.std() / np.sqrt(len(gain))


def test_one_revealed_frame_decides_a_document_of_twins() -> None:
    world = World(frames=40, seed=1, twins=True)
    uses = world.predicate_probs > 0
    shared = (uses[:, None] & uses[None]).sum(axis=2)
    np.fill_diagonal(shared, 0)
    assert ((shared > 0).sum(axis=1) == 1).all()  # the twin
    twin = shared.argmax(axis=1)
    assert all(not set(row) & set(twin[row]) for row in world.scenario_frames)
    documents = world.sample(500, seed=2)
    none, half = ceiling(world, documents, [0.0, 0.5])
    assert (none["accuracy"] or 0) < 0.92
    assert (half["accuracy"] or 0) > (half["accuracy_without"] or 0) + 0.08
    assert World(**world.config()).sample(5) == world.sample(5)
    with pytest.raises(RevupError, match="frames: expected a multiple of 10 with twins, found 12"):
        World(frames=12, twins=True)
