"""`counts`: pooled counts of predicates, neighbours, arguments and a dictionary as a model of its own; no network.

For an event with predicate form f, lemma l and words w_j in its slots (C: counts of labels, N: their sums):

    near_l(t)  = (Σ_n k_n·M_n(t) + c·base(t))/(Σ_n k_n·N_n + c),   k_n = e^{τ(cos(l,n) − 1)}/(N_n + 1),   M = C + D
    entry_l(t) ∝ D_l(t)^α · (F_{−l}(t) + ½)^β · near_l(t)^γ        over the frames of the lemma's dictionary entry D_l
    G_l        = (1 − μ)·entry_l + μ·near_l                        μ: how often an entry lacks the true frame; 1 without
    θ_l        = (C_l + a·G_l)/(N_l + a),    θ_f = (C_f + a_f·θ_l)/(N_f + a_f)
    p(t|event) ∝ θ_f(t) · Π_j [p(w_j|t, l)/p(w_j)]^{v_j}
    p(w|t)     = (C_w(t) + b·p(w))/(F(t) + b),    p(w|t, l) = (C_{w,l}(t) + b'·p(w|t))/(C_l(t) + b')

n runs over the labelled or listed lemmas of the training documents, without l itself; F_{−l}: labels of all other
lemmas. The scalars a, a_f, α, β, γ, μ, c, v_j maximise the likelihood of the observed labels, each predicted from the
other documents only, under Gaussian priors at their defaults; without labels the defaults stand. Events without a label
then count with a weight u by their own prediction, in F and in the slots only. Frames are stored sparsely: a lemma has
a support (its labels, its entry, the first frames of near), and the other frames share one remainder in proportion to
base. Labels of one source pass through `label_noise.single_source`, those of several through `reliability.estimate`,
with G as the prior of the true frame.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import expit

from label_noise import single_source
from reliability import Reliability, Source, Table, estimate, shared_predicates

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NEIGHBOURS, SHARPNESS = 60, 10.0  # n, τ
NEAR_FRAMES = 200  # frames of near_l in a lemma's support
COMPONENTS = 2  # principal directions taken out of the word vectors: they tell frequency, not meaning
SLOT_SMOOTHING, LEMMA_SMOOTHING = 40.0, 10.0  # b, b'
UNLABELLED = 0.3  # u
NEGLIGIBLE = 0.1  # error rate below which labels are taken as they are
SAMPLE = 2000  # labelled events that the scalars are estimated from
DEFAULTS = {"a_entry": 1.0, "a": 0.0, "a_form": 0.7, "alpha": 0.5, "beta": 0.3, "gamma": 0.3, "mu": -3.0, "c": -6.2}
SLOT_WEIGHT = 0.15
PRUNE = 1e-4  # of the largest probability: frames below go into the remainder at prediction


@dataclass(frozen=True)
class Events:
    """form, lemma: the predicates; document [n]: number of the document; slots: the words of each slot."""

    form: Sequence[str]
    lemma: Sequence[str]
    document: Ints
    slots: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Labels:
    """event, frame, weight [rows]: observed labels; of a distribution one row for each frame."""

    event: Ints
    frame: Ints
    weight: Floats


def entries(start: Ints, rows: Ints) -> tuple[Ints, Ints, Ints]:
    """All entries of the given rows of a ragged table: entry, position in `rows`, where each begins."""
    size = start[rows + 1] - start[rows]
    first = np.cumsum(size) - size
    position = np.repeat(np.arange(len(rows)), size)
    return np.arange(int(size.sum())) - first[position] + start[rows][position], position, first


@dataclass
class Counts:
    """A fitted model; `fit` makes it, `predict` uses it."""

    frames: list[str]
    senses: Callable[[str], Mapping[str, float]] | None
    vectors: Callable[[Sequence[str]], tuple[NDArray[Any], NDArray[np.bool_]]] | None
    lemma_number: dict[str, int] = field(default_factory=dict)
    form_number: dict[str, int] = field(default_factory=dict)
    word_number: list[dict[str, int]] = field(default_factory=list)
    forms_of: dict[str, set[str]] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)
    reliability: dict[str, Reliability] = field(default_factory=dict)

    # ---- tables --------------------------------------------------------------------------------------------

    def read(self, events: Events, grow: bool) -> None:
        number = lambda table, words: np.fromiter(
            (table.setdefault(w, len(table)) for w in words), np.int64, len(words)
        )
        if grow:
            self.word_number = [{} for _ in events.slots]
        self.lemma, self.form = number(self.lemma_number, events.lemma), number(self.form_number, events.form)
        self.words = [number(table, words) for table, words in zip(self.word_number, events.slots, strict=True)]
        for form, lemma in set(zip(events.form, events.lemma, strict=True)):
            self.forms_of.setdefault(lemma, set()).add(form)
        self.document = np.unique(events.document, return_inverse=True)[1].astype(np.int64)

    def list_lemmas(self, names: Sequence[str]) -> None:
        """Dictionary entries and word vectors of lemmas; those of the training documents come first."""
        self.names, width = list(names), len(self.frames)
        place = {name: number for number, name in enumerate(self.frames)}
        rows: list[tuple[int, int, float]] = []
        if self.senses is not None:
            for number, name in enumerate(self.names):
                listed = {place[f]: w for f, w in self.senses(name).items() if f in place and w > 0}
                total = sum(listed.values())
                rows += [(number, frame, weight / total) for frame, weight in listed.items()]
        table = np.array(rows, float).reshape(-1, 3)
        self.entry = Table(table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2], width)
        self.listed = np.bincount(self.entry.row, minlength=len(self.names)) > 0
        if self.vectors is not None:
            vector, found = self.vectors(self.names)
            for number in np.flatnonzero(~found):  # a lemma without a vector takes that of its forms
                forms, there = self.vectors(sorted(self.forms_of.get(self.names[number], ())) or [""])
                if there.any():
                    vector[number], found[number] = forms[there].mean(0), True
            known = self.known if hasattr(self, "known") else len(self.names)
            if not hasattr(self, "centre"):
                usable = vector[:known][found[:known]]
                self.centre = usable.mean(0)
                self.directions = np.linalg.svd(usable - self.centre, full_matrices=False)[2][:COMPONENTS]
            vector = (vector - self.centre) * found[:, None]
            vector = vector - vector @ self.directions.T @ self.directions
            self.unit = (vector / np.maximum(np.linalg.norm(vector, axis=1, keepdims=True), 1e-9)).astype(np.float32)
            self.has_vector = found

    def pool(self, labels: Labels, extra: Labels | None = None) -> None:
        """Count labels; `extra` are expected labels of unlabelled events, for F and the slots only."""
        width, known = len(self.frames), self.known
        event, frame, weight = labels.event, labels.frame, labels.weight
        lemma, form = self.lemma[event], self.form[event]
        self.by_lemma, self.by_form = Table(lemma, frame, weight, width), Table(form, frame, weight, width)
        self.of_lemma = np.bincount(lemma, weight, minlength=known)
        self.of_form = np.bincount(form, weight, minlength=len(self.form_number) + 1)
        self.in_slot = [
            Table(self.lemma[event] * (len(t) + 1) + w[event], frame, weight, width)
            for w, t in zip(self.words, self.word_number, strict=True)
        ]
        if extra is not None:
            event, frame, weight = (
                np.concatenate([getattr(labels, k), getattr(extra, k)]) for k in ("event", "frame", "weight")
            )
        self.of_frame = np.bincount(frame, weight, minlength=width).astype(float)
        self.by_lemma_all = Table(self.lemma[event], frame, weight, width)
        self.by_word = [Table(w[event], frame, weight, width) for w in self.words]
        self.of_word = [
            np.bincount(w[event], weight, minlength=len(t) + 1)
            for w, t in zip(self.words, self.word_number, strict=True)
        ]
        mine = self.entry.row < known
        row = np.concatenate([self.by_lemma.row, self.entry.row[mine]])
        column = np.concatenate([self.by_lemma.column, self.entry.column[mine]])
        value = np.concatenate([self.by_lemma.value, self.entry.value[mine]])
        self.mass = csr_array((value, (row, column)), (known, width))  # M
        base = np.bincount(column, np.minimum(value, 1.0), minlength=width) + 1.0 / width
        self.base = base / base.sum()

    def supports(self) -> None:
        """Supports of all lemmas, with near_l, D_l and F_{−l} on them."""
        width, lemmas, known = len(self.frames), len(self.names), self.known
        keys = [self.by_lemma.key, self.entry.key]
        near = csr_array((lemmas, width))
        if self.vectors is not None:
            total = np.asarray(self.mass.sum(1)).ravel()
            near = self.neighbours(total) @ self.mass
        near_total = np.asarray(near.sum(1)).ravel()
        coo = near.tocoo()
        row, column, value = coo.coords[0].astype(np.int64), coo.coords[1].astype(np.int64), coo.data
        order = np.lexsort((-value, row))
        rank = np.arange(len(row)) - np.searchsorted(row[order], np.arange(lemmas))[row[order]]
        chosen = order[rank < NEAR_FRAMES]
        keys.append(row[chosen] * width + column[chosen])
        key = np.unique(np.concatenate(keys))
        bare = np.flatnonzero(np.bincount(key // width, minlength=lemmas) == 0)
        key = np.unique(np.concatenate([key, (bare[:, None] * width + np.argsort(-self.base)[:NEAR_FRAMES]).ravel()]))
        self.owner, self.frame = key // width, key % width
        self.start = np.searchsorted(self.owner, np.arange(lemmas + 1))
        self.near = Table(row, column, value, width)(self.owner, self.frame)
        self.near_total = near_total
        self.near_lost = np.maximum(near_total - np.bincount(self.owner, self.near, minlength=lemmas), 0.0)
        self.count = self.by_lemma(self.owner, self.frame)
        self.listed_weight = self.entry(self.owner, self.frame)
        self.elsewhere = self.of_frame[self.frame] - self.by_lemma_all(self.owner, self.frame)
        self.labels_of = np.append(self.of_lemma, np.zeros(max(lemmas - known, 0)))[:lemmas]

    def neighbours(self, total: Floats) -> csr_array:
        """k_n of the nearest lemmas of the training documents, [lemmas, known]."""
        use = np.flatnonzero((total > 1e-6) & self.has_vector[: self.known])
        number, lemmas = min(NEIGHBOURS, len(use) - 1), len(self.names)
        if number < 1:
            return csr_array((lemmas, self.known))
        rows, columns, values = [], [], []
        for begin in range(0, lemmas, 1024):
            part = np.arange(begin, min(begin + 1024, lemmas))
            cosine = self.unit[part] @ self.unit[use].T
            cosine[part[:, None] == use[None, :]] = -2.0
            top = np.argpartition(-cosine, number - 1, axis=1)[:, :number]
            found = np.take_along_axis(cosine, top, 1)
            weight = np.exp(SHARPNESS * (found - 1.0)) / (total[use[top]] + 1.0) * self.has_vector[part][:, None]
            rows.append(np.repeat(part, number)), columns.append(use[top].ravel()), values.append(weight.ravel())
        return csr_array(
            (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), (lemmas, self.known)
        )

    # ---- equations -----------------------------------------------------------------------------------------

    def back_off(self, x: Mapping[str, float]) -> tuple[Floats, Floats]:
        """G_l on the supports, and the mass of the remainder [lemmas]."""
        c, owner, lemmas = np.exp(x["c"]), self.owner, len(self.names)
        total = (self.near_total + c)[owner]
        near = (self.near + c * self.base[self.frame]) / total
        rest = (self.near_lost + c) / (self.near_total + c)
        listed = self.listed_weight > 0
        score = (
            x["alpha"] * np.log(np.maximum(self.listed_weight, 1e-9))
            + x["beta"] * np.log(self.elsewhere + 0.5)
            + x["gamma"] * np.log(near + 1e-4)
        )
        value = np.where(listed, np.exp(np.minimum(score, 50.0)), 0.0)
        entry = value / np.maximum(np.bincount(owner, value, minlength=lemmas), 1e-300)[owner]
        missing = np.where(self.listed, expit(x["mu"]), 1.0)
        return (1 - missing)[owner] * entry + missing[owner] * near, missing * rest

    def theta(self, x: Mapping[str, float], q: Mapping[str, Any], back: Floats, rest: Floats) -> tuple[Floats, Floats]:
        """θ_f at the entries of events (or predicates) q, and the mass of the remainder."""
        lemma, form, position = q["lemma"], q["form"], q["position"]
        a, a_form = np.exp(np.where(self.listed[lemma], x["a_entry"], x["a"])), np.exp(x["a_form"])
        n, n_form = self.labels_of[lemma] - q["own_n"], self.of_form[form] - q["own_n_form"]
        by_lemma = (np.maximum(self.count[q["entry"]] - q["own"], 0.0) + a[position] * back[q["entry"]]) / (n + a)[
            position
        ]
        by_form = (np.maximum(q["form_count"] - q["own_form"], 0.0) + a_form * by_lemma) / (n_form + a_form)[position]
        return by_form, rest[lemma] * a / (n + a) * a_form / (n_form + a_form)

    def slot(self, j: int, word: Ints, frame: Ints, lemma: Ints, count: Floats, own: Sequence[Any]) -> Floats:
        """log p(w|t, l)/p(w) at entries; own: what is left out of (C_w, N_w, F, N, C_{w,l})."""
        seen = np.maximum(self.of_word[j][word] - own[1], 0.0)
        share = seen / (self.of_frame.sum() - own[3] + 1.0) + 1e-12
        p = (np.maximum(self.by_word[j](word, frame) - own[0], 0.0) + SLOT_SMOOTHING * share) / (
            np.maximum(self.of_frame[frame] - own[2], 0.0) + SLOT_SMOOTHING
        )
        own_lemma = np.maximum(self.in_slot[j](lemma * (len(self.word_number[j]) + 1) + word, frame) - own[4], 0.0)
        p = (own_lemma + LEMMA_SMOOTHING * p) / (np.maximum(count, 0.0) + LEMMA_SMOOTHING)
        return np.where(seen < 1e-6, 0.0, np.log(p / share))

    def normalised(
        self, x: Mapping[str, float], q: Mapping[str, Any], theta: Floats, rest: Floats
    ) -> tuple[Floats, Floats]:
        score = np.log(theta + 1e-12)
        for j, ratio in enumerate(q["slots"]):
            score = score + x[f"slot{j}"] * ratio
        left = np.log(rest + 1e-12)
        top = np.maximum(np.maximum.reduceat(score, q["first"]), left)
        total = top + np.log(np.add.reduceat(np.exp(score - top[q["position"]]), q["first"]) + np.exp(left - top))
        return score - total[q["position"]], left - total

    # ---- estimation ----------------------------------------------------------------------------------------

    def left_out(self, labels: Labels, events: Ints) -> dict[str, Any]:
        """The given events with the labels of their own documents left out of every count."""
        lemma, form, width = self.lemma[events], self.form[events], len(self.frames)
        entry, position, first = entries(self.start, lemma)
        frame, document = self.frame[entry], self.document

        def own(group: Ints) -> tuple[Floats, Floats]:
            size = int(group.max()) + 1
            both, place = np.unique(document[labels.event] * size + group[labels.event], return_inverse=True)
            wanted = document[events] * size + group[events]
            row = np.minimum(np.searchsorted(both, wanted), len(both) - 1)
            there = both[row] == wanted
            value = Table(place, labels.frame, labels.weight, width)(row[position], frame) * there[position]
            return value, np.bincount(place, labels.weight)[row] * there

        own_lemma, own_n = own(self.lemma)
        own_form, own_n_form = own(self.form)
        own_all, own_n_all = own(np.zeros(len(self.lemma), np.int64))
        slots = []
        for j, word in enumerate(self.words):
            own_word, own_n_word = own(word)
            own_both = own(self.lemma * (len(self.word_number[j]) + 1) + word)[0]
            left = (own_word, own_n_word[position], own_all, own_n_all[position], own_both)
            slots.append(
                self.slot(j, word[events][position], frame, lemma[position], self.count[entry] - own_lemma, left)
            )
        q = {"lemma": lemma, "form": form, "entry": entry, "position": position, "first": first, "slots": slots}
        q |= {"own": own_lemma, "own_n": own_n, "own_form": own_form, "own_n_form": own_n_form}
        return q | {"form_count": self.by_form(form[position], frame), "frame": frame}

    def estimate(self, labels: Labels, seed: int = 0) -> None:
        """The scalars that maximise the likelihood of observed labels, each predicted from the other documents."""
        events = np.unique(labels.event)
        if len(events) > SAMPLE:
            events = np.sort(np.random.default_rng(seed).choice(events, SAMPLE, replace=False))
        q, width = self.left_out(labels, events), len(self.frames)
        target = Table(labels.event, labels.frame, labels.weight, width)(events[q["position"]], q["frame"])
        chosen = np.isin(labels.event, events)
        where, frame, weight = (
            np.searchsorted(events, labels.event[chosen]),
            labels.frame[chosen],
            labels.weight[chosen],
        )
        inside = Table(q["position"], q["frame"], np.ones(len(q["frame"])), width)(where, frame) > 0
        where, weight = where[~inside], weight[~inside]
        fixed = set() if self.listed.any() else {"a_entry", "alpha", "beta", "gamma", "mu"}
        names = [name for name in self.scalars if name not in fixed]
        centre = np.array([self.scalars[name] for name in names])
        spread = np.array([0.5 if name.startswith("slot") else 1.0 for name in names])
        bounds = [
            (0.0, 3.0) if name in ("alpha", "beta", "gamma") or name.startswith("slot") else (-9.0, 9.0)
            for name in names
        ]

        def loss(values: Floats) -> float:
            x = {**self.scalars, **dict(zip(names, values, strict=True))}
            inner, outer = self.normalised(x, q, *self.theta(x, q, *self.back_off(x)))
            penalty = float((((values - centre) / spread) ** 2).sum()) / 2
            return (penalty - float((target * inner).sum() + (weight * outer[where]).sum())) / len(events)

        found = minimize(loss, centre, method="L-BFGS-B", bounds=bounds, options={"maxiter": 25, "ftol": 1e-5})
        self.scalars |= dict(zip(names, map(float, found.x), strict=True))

    def expected(self, labels: Labels) -> Labels:
        """Predictions of the training events without a label, as labels of weight u."""
        rest = np.setdiff1d(np.arange(len(self.lemma)), labels.event)
        q = self.query(self.lemma[rest], self.form[rest], [word[rest] for word in self.words])
        inner, _ = self.normalised(self.scalars, q, *self.theta(self.scalars, q, *self.back_off(self.scalars)))
        weight = np.exp(inner)
        keep = weight > 0.01
        return Labels(rest[q["position"][keep]], q["frame"][keep], UNLABELLED * weight[keep])

    def query(self, lemma: Ints, form: Ints, words: Sequence[Ints]) -> dict[str, Any]:
        entry, position, first = entries(self.start, lemma)
        frame, nothing = self.frame[entry], (0.0,) * 5
        slots = [
            self.slot(j, word[position], frame, lemma[position], self.count[entry], nothing)
            for j, word in enumerate(words)
        ]
        q = {
            "lemma": lemma,
            "form": form,
            "entry": entry,
            "position": position,
            "first": first,
            "frame": frame,
            "slots": slots,
        }
        return q | {
            "own": 0.0,
            "own_n": 0.0,
            "own_form": 0.0,
            "own_n_form": 0.0,
            "form_count": self.by_form(form[position], frame),
        }

    # ---- prediction ----------------------------------------------------------------------------------------

    def compile(self) -> None:
        """log θ_f of every predicate (form and lemma) of the training documents, small frames in the remainder."""
        self.cache: dict[tuple[str, str], int] = {}
        self.parts: list[tuple[Ints, Ints, Floats, Floats]] = []
        self.size = 0
        pairs = np.unique(self.lemma * (len(self.form_number) + 1) + self.form)
        names, forms = self.names, list(self.form_number)
        lemma, form = pairs // (len(forms) + 1), pairs % (len(forms) + 1)
        self.add([(forms[f], names[n]) for f, n in zip(form, lemma, strict=True)], lemma, form)

    def add(self, pairs: Sequence[tuple[str, str]], lemma: Ints, form: Ints) -> None:
        q = self.query(lemma, form, [])
        theta, rest = self.theta(self.scalars, q, *self.back_off(self.scalars))
        top = np.maximum.reduceat(theta, q["first"])
        keep = theta > PRUNE * top[q["position"]]
        rest = rest + np.bincount(q["position"], theta * ~keep, minlength=len(rest))
        number = np.bincount(q["position"][keep], minlength=len(rest))
        block = (
            number,
            q["frame"][keep],
            np.log(theta[keep]),
            np.log(rest + 1e-12),
            lemma,
            self.count[q["entry"]][keep],
        )
        self.parts = [tuple(map(np.concatenate, zip(*self.parts, block, strict=True)))] if self.parts else [block]
        self.cache |= {pair: self.size + i for i, pair in enumerate(pairs)}
        self.size += len(pairs)
        sizes = self.parts[0][0]
        self.pair_start = np.concatenate([[0], np.cumsum(sizes)])

    def predict(self, events: Events) -> tuple[Ints, Ints, Floats, Floats]:
        """Where each event's rows begin, their frames and probabilities, and the remainder's probability [events]."""
        pairs = list(zip(events.form, events.lemma, strict=True))
        new = sorted({pair for pair in pairs if pair not in self.cache})
        if new:
            self._learn(new)
        row = np.fromiter((self.cache[pair] for pair in pairs), np.int64, len(pairs))
        _, frames, log_theta, log_rest, lemma, count = self.parts[0]
        entry, position, first = entries(self.pair_start, row)
        frame, owner = frames[entry], lemma[row][position]
        slots = []
        for j, (table, words) in enumerate(zip(self.word_number, events.slots, strict=True)):
            if self.scalars[f"slot{j}"] < 1e-3:
                slots.append(0.0)
                continue
            word = np.fromiter((table.get(w, len(table)) for w in words), np.int64, len(words))
            slots.append(self.slot(j, word[position], frame, owner, count[entry], (0.0,) * 5))
        q = {"position": position, "first": first, "slots": slots}
        inner, outer = self.normalised(self.scalars, q, np.exp(log_theta[entry]), np.exp(log_rest[row]))
        return first, frame, np.exp(inner), np.exp(outer)

    def _learn(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Rows for predicates that training did not have: their dictionary entry and neighbours."""
        fresh = [name for name in dict.fromkeys(lemma for _, lemma in pairs) if name not in self.lemma_number]
        if fresh:
            for form, lemma in pairs:
                self.forms_of.setdefault(lemma, set()).add(form)
            for name in fresh:
                self.lemma_number[name] = len(self.lemma_number)
            self.list_lemmas([*self.names, *fresh])
            self.supports()
        lemma = np.array([self.lemma_number[name] for _, name in pairs], np.int64)
        form = np.array([self.form_number.get(name, len(self.form_number)) for name, _ in pairs], np.int64)
        self.add(pairs, lemma, form)


def fit(
    events: Events,
    frames: Sequence[str],
    sources: Mapping[str, Labels],
    senses: Callable[[str], Mapping[str, float]] | None = None,
    vectors: Callable[[Sequence[str]], tuple[NDArray[Any], NDArray[np.bool_]]] | None = None,
    *,
    soft: bool = False,
    noise: bool = True,
    unlabelled: bool = True,
) -> Counts:
    """Fit the model. sources: name → labels; senses: lemma → frame → weight of a dictionary; vectors: words → vectors and
    which words have one; soft: labels are distributions, taken as they are; noise: estimate error rates."""
    model = Counts(list(frames), senses, vectors)
    model.read(events, grow=True)
    model.known = len(model.lemma_number)
    model.list_lemmas(list(model.lemma_number))
    model.scalars = {**DEFAULTS, **{f"slot{j}": SLOT_WEIGHT for j in range(len(events.slots))}}
    labels, honest = combine(model, sources, soft, noise)
    model.pool(labels)
    model.supports()
    if honest and len(np.unique(labels.event)) >= 20:
        model.estimate(labels)
    if unlabelled and len(np.unique(labels.event)) < len(model.lemma) and model.listed.any():
        model.pool(labels, model.expected(labels))
        model.supports()
    model.compile()
    return model


def combine(model: Counts, sources: Mapping[str, Labels], soft: bool, noise: bool) -> tuple[Labels, bool]:
    """One set of labels from all sources, and whether the scalars can be estimated from them: corrected labels depend on
    each other, so leaving one out says nothing."""
    given = {name: labels for name, labels in sources.items() if len(labels.event)}
    nothing = Labels(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    if not given:
        return nothing, False
    first = next(iter(given.values()))
    if soft or not noise:
        return Labels(
            *(np.concatenate([getattr(v, k) for v in given.values()]) for k in ("event", "frame", "weight"))
        ), True
    width = len(model.frames)
    if len(given) == 1:
        # an error rate first, then the correction with G of the labels corrected so far
        labels, name = first, next(iter(given))
        for _ in range(2):
            prior = None
            if model.listed.any() or labels is not first:
                model.pool(labels)
                model.supports()
                back, _ = model.back_off(model.scalars)
                prior = Table(model.owner, model.frame, back, width)
            found = single_source(model.lemma[first.event], first.frame, width, prior)
            model.reliability[name] = found.reliability
            rate = found.reliability.error_rate
            if rate is None or rate < NEGLIGIBLE:
                return first, True
            labels = spread(model, first, found)
        return labels, rate * (found.reliability.confusable or 0.0) < NEGLIGIBLE
    model.pool(nothing if model.listed.any() else first)
    model.supports()
    back, _ = model.back_off(model.scalars)
    evidence = {name: Source("label", v.event, v.frame) for name, v in given.items()}
    items = np.unique(np.concatenate([v.event for v in given.values()]))
    place = np.zeros(len(model.lemma), np.int64)
    place[items] = np.arange(len(items))
    evidence = {name: Source("label", place[v.event], v.frame) for name, v in given.items()}
    entry, position, _ = entries(model.start, model.lemma[items])
    keep = back[entry] > 1e-4
    prior_rows = (position[keep], model.frame[entry][keep], back[entry][keep])
    seen = np.concatenate([model.entry.row, *(model.lemma[v.event] for v in given.values())])
    graph = shared_predicates(seen, np.concatenate([model.entry.column, *(v.frame for v in given.values())]), width)
    found = estimate(evidence, len(items), width, prior_rows, graph)
    model.reliability = found.sources
    keep = found.probability > 0.01
    return Labels(items[found.item[keep]], found.frame[keep], found.probability[keep]), False


def spread(model: Counts, labels: Labels, found: Any) -> Labels:
    """Each label replaced by the posterior over the true frame."""
    width = len(model.frames)
    key = found.predicate * width + found.label
    order = np.argsort(key, kind="stable")
    cells = np.unique(key)
    start = np.searchsorted(key[order], np.append(cells, np.iinfo(np.int64).max))
    entry, position, _ = entries(start, np.searchsorted(cells, model.lemma[labels.event] * width + labels.frame))
    entry = order[entry]
    return Labels(labels.event[position], found.frame[entry], found.probability[entry])


def ending(form: str, lemma: str) -> str:
    """Inflection as a slot: it tells verbs from nouns where no part of speech is given."""
    return "base" if form == lemma else next((end for end in ("ing", "ed", "s", "en") if form.endswith(end)), "other")


def word_classes(
    words: Sequence[str], vectors: NDArray[Any], number: int = 64, rounds: int = 10, seed: int = 0
) -> dict[str, str]:
    """Words → classes by spherical k-means on their vectors: arguments that were never seen share counts with similar ones."""
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    centre = unit[np.random.default_rng(seed).choice(len(unit), min(number, len(unit)), replace=False)]
    for _ in range(rounds):
        nearest = np.concatenate([(unit[i : i + 8192] @ centre.T).argmax(1) for i in range(0, len(unit), 8192)])
        total = np.zeros_like(centre)
        np.add.at(total, nearest, unit)
        centre = total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1e-9)
    return {word: f"class{k}" for word, k in zip(words, nearest, strict=True)}


def split_words(name: str) -> list[str]:
    return [part for part in re.split(r"[-_ ]", name) if part]
