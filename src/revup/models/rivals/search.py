"""The small search of each system: values of its own settings that an experiment may try at one condition.

Every system has four candidates, the first being its preset. Which is taken is decided by the observed labels of the
validation split, never by reference frames. A candidate is a mapping of overrides as `revup.train` takes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Candidate = Mapping[str, Mapping[str, Any]]  # section → name → value


def _objective(**values: tuple[Any, ...]) -> tuple[Candidate, ...]:
    """Candidates that set one or two settings of the objective side by side; () is the preset."""
    rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    return ({}, *({"objective": row} for row in rows))


_ANCHOR = _objective(anchor=(200.0, 20_000.0, 200_000.0))
_DROPOUT: tuple[Candidate, ...] = ({}, *({"network": {"dropout": rate}} for rate in (0.1, 0.5, 0.6)))

# model:preset → candidates
SEARCH: dict[str, tuple[Candidate, ...]] = {
    "lookup:default": _objective(smoothing=(0.1, 0.5, 5.0)),
    "lookup:lemma": _objective(smoothing=(0.1, 0.5, 5.0)),
    "logistic:default": _objective(inverse_penalty=(0.1, 10.0, 100.0)),
    "propagation:default": _objective(spread=(0.2, 0.8, 0.95)),
    "tagger:default": _ANCHOR,
    "tagger:plain": _DROPOUT,
    "tagger:gce": _objective(power=(0.3, 0.5, 0.9)),
    "tagger:bootstrap": _objective(trust=(0.9, 0.8, 0.6)),
    "tagger:elr": _objective(early=(1.0, 7.0, 15.0)),
    "tagger:forward": _objective(anchors=(1, 30, 100)),
    "tagger:confident": _objective(prune=("predicted_neq_given",) * 3, anchor=(2000.0, 200.0, 20_000.0)),
    "tagger:coteaching": _objective(forget=(0.1, 0.3, 0.5)),
    "tagger:selftrain": _objective(threshold=(0.7, 0.95, 0.95), unlabelled=(1.0, 1.0, 0.3)),
    "tagger:consistency": _objective(threshold=(0.7, 0.95, 0.9), strong=(0.3, 0.3, 0.5)),
    "ssdvae:default": _ANCHOR,
    "revup:default": _ANCHOR,
}


def candidates(model: str, preset: str = "default") -> tuple[Candidate, ...]:
    """The candidates of a system; the preset alone where nothing is to be searched.

    Args:
        model: The model.
        preset: Its preset.
    """
    return SEARCH.get(f"{model}:{preset}", ({},))
