"""Statistics of a corpus: what is counted over its documents, and how it is shown as text."""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from revup.data.dataset import SPLITS, Settings
from revup.data.encode import SPECIAL, Array, Chunk
from revup.data.vocabulary import Vocabulary

MUCH_UNUSED = 0.3  # share of unused events from which on a note says so


class CorpusCounts:
    """Counts over all chunks of a corpus: words, frames, documents, events."""

    def __init__(self) -> None:
        self.words: Counter[str] = Counter()
        self.frames: set[str] = set()
        self.documents: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.framed: Counter[str] = Counter()
        self.duplicates: Counter[str] = Counter()
        self.also_in_train: Counter[str] = Counter()
        self.without_frame: Counter[str] = Counter()
        self.without_events: Counter[str] = Counter()
        self.coverage: dict[str, float | None] = {}
        self.repeated_ids = 0
        self.width = 1
        self.source_rows = 0
        self.sources: set[str] = set()
        self._lemmas: Counter[tuple[str, str]] = Counter()
        self._pairs: Counter[tuple[str, str]] = Counter()
        self._references: dict[str, Counter[str]] = defaultdict(Counter)
        self._events_per_document: Counter[int] = Counter()
        # windows of each split; those without a frame count only where no event has one (False)
        self.rows = {True: Counter[str](), False: Counter[str]()}
        self._used = {True: Counter[str](), False: Counter[str]()}  # events in windows, those of duplicates included
        self._window = ""

    def add(self, chunk: Chunk, keep: Array, settings: Settings) -> None:
        """Add the counts of a chunk, of which the documents under the mask `keep` are kept."""
        split, a, counts = chunk.split, chunk.arrays, chunk.statistics
        rows = keep[a["document"]]
        self.documents[split] += counts["documents"]
        self.events[split] += counts["events"]
        self.framed[split] += counts["events_with_frame"]
        self.without_frame[split] += int((rows & a["unframed"]).sum())
        self.without_events[split] += dict(counts["events_per_document"]).get(0, 0)
        self.rows[True][split] += int((rows & ~a["unframed"]).sum())
        self.rows[False][split] += int(rows.sum())
        self._used[True][split] += int(a["lengths"][~a["unframed"]].sum())
        self._used[False][split] += int(a["lengths"].sum())
        self._window = settings.window
        self.width = max(self.width, a["knowledge_frames"].shape[-1])
        self.source_rows = max(self.source_rows, a["source_name"].shape[-1])
        self.sources.update(chunk.sources)
        self._events_per_document.update(dict(counts["events_per_document"]))
        self._references[split].update(dict(counts["references"]))
        if split == "train":
            self._learn(chunk, rows, settings)

    def _learn(self, chunk: Chunk, rows: Array, settings: Settings) -> None:
        """Count words and frames, which come from the training documents alone."""
        there = (np.arange(settings.events) < chunk.arrays["lengths"][:, None]) & rows[:, None]
        used = np.bincount(chunk.arrays["tokens"][there].ravel(), minlength=len(chunk.words))
        self.frames.update(chunk.all_frames)
        self.words.update({word: n for word, n in zip(chunk.words, used.tolist(), strict=True) if n})
        self._lemmas.update({(form, lemma): n for form, lemma, n in chunk.lemmas})
        self._pairs.update({(pred, frame): amount for pred, frame, amount in chunk.statistics["pairs"]})

    def vocabulary(self, settings: Settings) -> list[str]:
        """Return the special tokens, then words by decreasing count (ties by name), as many as fit."""
        real = [(w, c) for w, c in self.words.items() if w not in SPECIAL and c >= settings.minimum_count]
        real.sort(key=lambda item: (-item[1], item[0]))
        return [*SPECIAL, *(word for word, _ in real[: settings.vocabulary - len(SPECIAL)])]

    def lemmas_of(self, words: Sequence[str]) -> list[str]:
        """Return the lemma given most often for each word; the word itself where none was given."""
        best: dict[str, tuple[int, str]] = {}
        for (form, lemma), count in self._lemmas.items():
            best[form] = min(best.get(form, (0, lemma)), (-count, lemma))
        return [best[word][1] if word in best else word for word in words]

    def vector_coverage(self, vocabulary: Vocabulary, found: Array) -> dict[str, Any]:
        """Return how many words, and which share of words and tokens, have a pretrained vector."""
        counts = np.array([self.words[word] for word in vocabulary.words], np.float64)
        counts[: len(SPECIAL)] = 0
        return {
            "words": int(found.sum()),
            "share_of_words": share(int(found.sum()), len(vocabulary) - len(SPECIAL)),
            "share_of_tokens": share(float(counts[found].sum()), float(counts.sum())),
        }

    def statistics(self, named: bool, frames: list[str], vocabulary: Vocabulary) -> dict[str, Any]:
        """Return everything that statistics.json says of the documents."""
        by_predicate: Counter[str] = Counter()
        for (pred, _), amount in self._pairs.items():
            by_predicate[pred] += amount
        labelled = Counter({pair: amount for pair, amount in self._pairs.items() if pair[1]})
        by_frame: Counter[str] = Counter()
        for (_, frame), amount in labelled.items():
            by_frame[frame] += amount
        events, framed = sum(self.events.values()), sum(self.framed.values())
        return {
            "documents": sum(self.documents.values()),
            "events": events,
            "events_with_frame": framed,
            "share_with_frame": share(framed, events),
            "window": self._window,
            "events_unused": events - self._used[bool(self.frames)].total(),
            "frames": len(frames),
            "named_frames": named,
            "words": len(vocabulary),
            "distinct_words": len(self.words) - sum(word in self.words for word in SPECIAL),
            "token_coverage": self.coverage["train"],
            "duplicates": sum(self.duplicates.values()),
            "documents_without_events": self._events_per_document.get(0, 0),
            "repeated_ids": self.repeated_ids,
            "ambiguity_bits": round(ambiguity(labelled), 4),
            "frame_entropy_bits": round(_entropy(by_frame.values()), 4),
            "table_accuracy": table_accuracy(labelled),
            "distinct_predicates": len(by_predicate),
            "splits": {split: self._split_statistics(split, named, frames) for split in SPLITS},
            "events_per_document": {str(size): n for size, n in sorted(self._events_per_document.items())},
            "frame_counts": _ranked(by_frame),
            "predicate_counts": dict(list(_ranked(by_predicate).items())[:1000]),
        }

    def _split_statistics(self, split: str, named: bool, frames: list[str]) -> dict[str, Any]:
        known = set(frames)
        unseen = {f: c for f, c in sorted(self._references[split].items()) if named and f not in known}
        return {
            "documents": self.documents[split],
            "events": self.events[split],
            "events_with_frame": self.framed[split],
            "events_unused": self.events[split] - self._used[bool(self.frames)][split],
            "windows": self.rows[bool(self.frames)][split],
            "duplicates": self.duplicates[split],
            "documents_without_events": self.without_events[split],
            "documents_without_frame": self.without_frame[split] if self.frames else 0,
            "also_in_train": self.also_in_train[split],
            "unseen_frames": unseen,
            "token_coverage": self.coverage[split],
        }


def share(part: float, whole: float) -> float | None:
    """Return part/whole to four digits, or None of nothing."""
    return round(part / whole, 4) if whole else None


def _ranked(counts: Counter[str]) -> dict[str, float]:
    """Sort by decreasing count, ties by name; soft labels count by their share, so amounts may be fractions."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {name: amount if isinstance(amount, int) else round(amount, 3) for name, amount in ranked}


def _entropy(amounts: Iterable[float]) -> float:
    given = [amount for amount in amounts if amount > 0]
    total = math.fsum(given)
    return math.fsum(a / total * math.log2(total / a) for a in given)


def ambiguity(pairs: Counter[tuple[str, str]]) -> float:
    """Return H(frame | predicate) in bits over labelled events: Σ_p p(p) · H(frame | p).

    Args:
        pairs: The number of events of each predicate and frame.
    """
    by_predicate: dict[str, list[float]] = defaultdict(list)
    for (pred, _), amount in pairs.items():
        by_predicate[pred].append(amount)
    total = math.fsum(pairs.values())
    return math.fsum(math.fsum(own) * _entropy(own) for own in by_predicate.values()) / total if total else 0.0


def table_accuracy(pairs: Counter[tuple[str, str]]) -> float | None:
    """Return how often a table of predicates names an event's frame, with the event itself left out of the table.

    The table names the most frequent frame of the predicate, of equally frequent ones the one that is more frequent
    overall; a predicate that no other event has gets the most frequent frame of all. Counted with the events
    themselves, rare predicates would all look unambiguous.

    Args:
        pairs: The number of labelled events of each predicate and frame; a soft label counts by its shares.
    """
    overall: dict[str, float] = defaultdict(float)
    by_predicate: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for (pred, frame), amount in pairs.items():
        overall[frame] += amount
        by_predicate[pred].append((amount, frame))
    commonest = heapq.nlargest(2, ((amount, frame) for frame, amount in overall.items()))
    right = 0.0
    for own in by_predicate.values():
        ranked = heapq.nlargest(2, ((amount, overall[frame], frame) for amount, frame in own))
        for count, frame in own:
            event = min(count, 1.0)
            left = count - event, overall[frame] - event
            rival = next((rank[:2] for rank in ranked if rank[2] != frame), (0.0, 0.0))
            if rival[0] == left[0] == 0:  # no other event has this predicate
                rival = 0.0, next((total for total, name in commonest if name != frame), 0.0)
            right += count if left > rival else 0.0
    return share(right, math.fsum(overall.values()))


# ---- as text ---------------------------------------------------------------------------------------------


def render_statistics(statistics: dict[str, Any]) -> str:
    """Return statistics as text for a terminal.

    Args:
        statistics: What `prepare` returns or statistics.json holds.
    """
    s = statistics
    covered = _percent(s["token_coverage"], ", ", " of the text")
    rows = [
        ("documents", f"{s['documents']:,}"),
        ("events", f"{s['events']:,}"),
        ("with a frame", f"{s['events_with_frame']:,}{_percent(s['share_with_frame'], ' (', ')')}"),
        *(("window", why) for why in _window(s)),
        *(("unused", f"{part} {why}: --window all or more --events use them") for part, why in _unused(s)),
        ("frames", f"{s['frames']:,}" if s["named_frames"] else f"none: {s['frames']} unnamed classes"),
        ("words", f"{s['words'] - len(SPECIAL):,} of {s['distinct_words']:,}{covered}"),
        ("predicates", f"{s['distinct_predicates']:,}"),
    ]
    if s["named_frames"]:
        left = f"H(frame|predicate) {s['ambiguity_bits']:.2f} bits, H(frame) {s['frame_entropy_bits']:.2f} bits"
        rows.append(("ambiguity", left + _percent(s["table_accuracy"], "; ", " named by a table of the others")))
    if s.get("vectors"):
        own = s["vectors"]
        share = _percent(own["share_of_words"], ", ") + _percent(own["share_of_tokens"], "; ", " of the text")
        rows.append(("vectors", f"{own['words']:,} words{share}"))
    if s.get("lexicon"):
        rows.append(("dictionary", f"{s['lexicon']['entries']:,} entries; {_listed(s):,} training events have one"))
    rows.append(("duplicates", f"{s['duplicates']:,}"))
    if s["repeated_ids"]:
        rows.append(("repeated ids", f"{s['repeated_ids']:,} (their events share one draw of observed labels)"))
    rows.append(("skipped", f"{s.get('skipped', 0):,}"))
    rows += [("", f"{count:,} × {why}") for why, count in s.get("skipped_reasons", {}).items()]
    rows += [("", f"e.g. {example}") for example in s.get("skipped_examples", [])[:1]]
    text = [f"{name:<14}{value}" for name, value in rows]
    return "\n".join([*text, "", *_split_table(s), *_distributions(s)])


def notes(statistics: dict[str, Any]) -> list[str]:
    """Return what a user should know: much unused data, splits without a window, a dictionary that finds nothing.

    Args:
        statistics: What `prepare` returns or statistics.json holds.
    """
    without = {
        "valid": "early stopping and calibration need it; without it the last weights are kept",
        "test": "`revup evaluate` needs it, or another dataset",
    }
    splits = statistics["splits"]
    found = []
    if (share(statistics["events_unused"], statistics["events"]) or 0.0) > MUCH_UNUSED:
        found += [f"{part} are not used, {why}: --window all uses them" for part, why in _unused(statistics)]
    found += [f"the split {name} is empty: {why}" for name, why in without.items() if not splits[name]["windows"]]
    if statistics.get("lexicon") and not _listed(statistics):
        found.append("the dictionary has no predicate of the training documents: frames are guessed without it")
    return found


def _listed(s: dict[str, Any]) -> int:
    """How many training events have an entry in the dictionary."""
    return int(s["agreement"]["events"].get("lexicon", 0))


def _unused(s: dict[str, Any]) -> list[tuple[str, str]]:
    """How many events no window holds, and which they are."""
    if not s["events_unused"]:
        return []
    part = f"{s['events_unused']:,} events{_percent(share(s['events_unused'], s['events']), ' (', ')')}"
    why = "after the first few of a document"
    if s["window"] == "framed" and s["events_with_frame"]:
        why = "without a frame or after the first few of a document that have one"
    elif s["window"] == "framed" and s["named_frames"]:
        why = "not in the dictionary or after the first few of a document that are"
    return [(part, why)]


def _window(s: dict[str, Any]) -> list[str]:
    """Why all events are used though nobody asked for it."""
    if (left := s.get("window_by_corpus")) is None:
        return []
    count = "events with a frame" if s["events_with_frame"] else "events"
    return [f"all: --window framed would leave {100 * left:.0f}% of the {count} unused"]


def _percent(share: float | None, before: str = "", after: str = "") -> str:
    return "" if share is None else f"{before}{100 * share:.1f}%{after}"


def _split_table(s: dict[str, Any]) -> list[str]:
    names = ("documents", "events", "windows", "duplicates", "no events", "no frame", "in train", "unseen frames")
    lines = [" " * 6 + "".join(f"{name:>14}" for name in (*names, "known words"))]
    for split, own in s["splits"].items():
        cells = [own["documents"], own["events"], own["windows"], own["duplicates"]]
        cells += [own["documents_without_events"], own["documents_without_frame"], own["also_in_train"]]
        numbers = [f"{cell:,}" for cell in [*cells, len(own["unseen_frames"])]]
        lines.append(f"{split:<6}" + "".join(f"{n:>14}" for n in [*numbers, _percent(own["token_coverage"]) or "–"]))
    return lines


def _distributions(s: dict[str, Any], most: int = 8) -> list[str]:
    lines = []
    for title, counts in (("frames", s["frame_counts"]), ("predicates", s["predicate_counts"])):
        if counts:
            first = [f"{name} {amount:,.0f}" for name, amount in list(counts.items())[:most]]
            lines += ["", f"most frequent {title}: " + ", ".join(first)]
    return lines
