"""Counts that models share: of models prepared one after another, those that stand on the same counts fit them once.

What counts are depends on the corpus, the observed labels and `CountSettings`, not on the network that stands on them.
A sweep or a search trains many networks on the same ones; within `sharing_counts()` the last fit of a process is kept.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import fields

from revup.data.corpus import Corpus
from revup.data.knowledge import Observation
from revup.models.count_prior import CountPrior, CountSettings

_sharing = False
_last: tuple[Corpus, Hashable, CountPrior] | None = None


@contextmanager
def sharing_counts() -> Iterator[None]:
    """Within it, a fit to the same corpus and labels as the one before returns the same counts."""
    global _sharing, _last
    before, _sharing = _sharing, True
    try:
        yield
    finally:
        _sharing = before
        _last = _last if before else None


def counts_key(observation: Observation, settings: CountSettings) -> Hashable:
    """What counts depend on beside the corpus."""
    return observation, tuple(getattr(settings, part.name) for part in fields(CountSettings))


def fitted_counts(corpus: Corpus, observation: Observation, settings: CountSettings) -> CountPrior:
    """`CountPrior.fit`, or the counts that the last call returned if they are these.

    Args:
        corpus: The dataset.
        observation: Which labels are observed, and which of them are wrong.
        settings: How labels are treated.
    """
    global _last
    key = counts_key(observation, settings)
    if _last is not None and _last[0] is corpus and _last[1] == key:
        return _last[2]
    _last = None  # before the next one takes its memory
    found = CountPrior.fit(corpus, observation, settings)
    if _sharing:
        _last = corpus, key, found
    return found
