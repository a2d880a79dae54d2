"""Why a label is suspicious, in words, and events that contradict each other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from revup.data.events import Document, Event
from revup.inference.trained import Trained

EXPLAINED = 0.05  # p_wrong from which on reasons are given
MOST_CONTRADICTIONS, EXAMPLES = 50, 3  # that the figures name


def _lemma(event: Event) -> str:
    return (event.lemma or event.pred).lower()


def explain(model: Trained, documents: Sequence[Document], rows: Sequence[dict[str, Any]]) -> None:
    """Say in words why labels are suspicious.

    Args:
        model: The model.
        documents: All documents; a row's `place` is a document's number and the index of the event in it.
        rows: The rows, whose `reasons` are filled.
    """
    by_lemma: dict[Any, Counter[str]] = defaultdict(Counter)
    for document in documents:
        for event in document.events:
            if event.frame:
                by_lemma[_lemma(event)][event.frame] += 1
                if event.obj:
                    by_lemma[_lemma(event), event.obj.lower()][event.frame] += 1
    for row in rows:
        if row["given"] is not None and row["p_wrong"] < EXPLAINED:
            continue
        event = documents[row["place"][0]].events[row["place"][1]]
        lemma, given = _lemma(event), row["given"]
        said = []
        for key, what in (((lemma, (event.obj or "").lower()), f" with object “{event.obj}”"), (lemma, "")):
            count = Counter(by_lemma.get(key, Counter()))
            if given is not None:
                count[given] -= 1
            total, best = sum(count.values()), max(count, key=lambda name: (count[name], name), default=None)
            if best is not None and best != given and count[best] > 0 and total > 1:
                said.append(f"{count[best]} of {total} other labelled events of “{lemma}”{what} are {best}")
                break
        senses = model.lexicon.senses(event.lemma or event.pred, None) if model.lexicon is not None else {}
        if senses and given is not None and given not in senses:
            said.append(f"{given} is not in the dictionary's entry of “{lemma}”")
        if senses:
            row["candidates"] = {name: round(weight, 4) for name, weight in senses.items()}
        for name, value in (event.sources or {}).items():
            if given is not None and isinstance(value, str) and value != given:
                said.append(f"the sources disagree: {name} says {value}")
        if not said and given is not None:
            said.append(f"similar predicates and arguments are {row['proposed']} more often")
        row["reasons"] = said


def contradictions(documents: Iterable[Document]) -> list[dict[str, Any]]:
    """Return events with equal words and different labels, the first of them.

    Args:
        documents: The documents.
    """
    found: dict[tuple[Any, ...], dict[str, list[Any]]] = defaultdict(dict)
    for document in documents:
        for index, event in enumerate(document.events):
            if event.frame and event.subj and event.obj:
                key = (_lemma(event), event.subj.lower(), event.obj.lower(), event.mod)
                found[key].setdefault(event.frame, []).append([document.id, index])
    several = [(key, frames) for key, frames in found.items() if len(frames) > 1]
    return [
        {"event": list(key), "frames": {frame: places[:EXAMPLES] for frame, places in frames.items()}}
        for key, frames in several[:MOST_CONTRADICTIONS]
    ]
