"""What the latents of a trained model mean, and whether they are used: words and followers of each frame, attention,
unused frames, active units of z, usage of codes. As JSON, as text, and as a page with plots.

    words         p(first predicate = w | t = k): what the decoder writes first, given that one frame and nothing else
    predicates    p(w | argmax r = k): the predicates of the split's events that are taken to be of this frame
    followers     Σ r_m(k) r_{m+1}(j) / Σ r_m(k): the frames that the split's next events are taken to have
    active units  those of z with Var_x(μ) > 0.01 over the split's events; the others say nothing about the text
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from revup.data.batches import Batch, Batches
from revup.data.corpus import Corpus, Split
from revup.data.encode import BOS, TOKENS
from revup.data.events import SLOTS
from revup.data.knowledge import Observation
from revup.errors import RevupError
from revup.inference.decoding import grammar
from revup.inference.measures import BATCH
from revup.models.base import Model

if TYPE_CHECKING:
    from revup.inference.trained import Trained
    from revup.reporting.pages import Page

PLACES = (*SLOTS, "<tup>")
Floats = NDArray[np.float64]


def inspect(model: Trained, corpus: Corpus | None = None, split: str = "test", top: int = 10) -> dict[str, Any]:
    """Everything that can be said of a model's latents on a split (by default of the corpus it was trained on)."""
    from revup.inference.evaluate import trained_on, translate

    module = model.module
    if not (module.predicts_frames or module.has_latents):
        raise RevupError(f"the model {model.config.model} has no frames and no latents to inspect")
    corpus = corpus or trained_on(model)
    part = corpus.split(split)
    if not len(part):
        raise RevupError(f"the {split} split is empty")
    part = translate(part, corpus, model)
    module.eval()
    found: dict[str, Any] = {
        "model": model.config.model,
        "preset": model.config.preset,
        "split": split,
        "documents": len(part),
        "events": part.events,
    }
    if module.predicts_frames:
        found |= _frames(model, part, top)
    if module.has_latents:
        found["attention"] = _attention(model, part)
    with torch.no_grad():
        return found | module.inspect_latents(_batches(model, part))


def _batches(model: Trained, split: Split) -> list[Batch]:
    return list(Batches(split, Observation(0.0), BATCH, model.device).ordered())


# ---- frames ------------------------------------------------------------------------------------------------------


@torch.no_grad()
def _frames(model: Trained, split: Split, top: int) -> dict[str, Any]:
    names, words = model.frames, model.vocabulary.words
    counts, mass = np.zeros(len(names), np.int64), np.zeros(len(names))
    follow = np.zeros((len(names), len(names)))
    predicates: list[Counter[int]] = [Counter() for _ in names]
    for batch in _batches(model, split):
        r = model.module.frame_probabilities(batch).double()
        there = batch.mask
        chosen = r.argmax(-1)[there].cpu().numpy()
        counts += np.bincount(chosen, minlength=len(names))
        mass += r[there].sum(0).cpu().numpy()
        both = there[:, 1:] & there[:, :-1]
        follow += (r[:, :-1][both].T @ r[:, 1:][both]).cpu().numpy()
        for frame, word in zip(chosen.tolist(), batch.tokens[:, ::TOKENS][there].tolist(), strict=True):
            predicates[frame][word] += 1
    favoured = favoured_words(model.module) if model.module.has_latents else None
    rows = []
    for k, name in enumerate(names):
        row: dict[str, Any] = {
            "frame": name,
            "events": int(counts[k]),
            "share": float(mass[k] / mass.sum()),
            "predicates": [
                {"word": words[word], "probability": count / int(counts[k])}
                for word, count in predicates[k].most_common(top)
            ],
            "followers": _best(names, follow[k] / follow[k].sum() if follow[k].sum() else follow[k], top, "frame"),
        }
        if favoured is not None:
            row["words"] = _best(words, favoured[k], top, "word")
        rows.append(row)
    return {
        "frames": rows,
        "unused_frames": [name for name, count in zip(names, counts, strict=True) if not count],
        "frame_perplexity": float(np.exp(-(mass / mass.sum() * np.log(np.maximum(mass / mass.sum(), 1e-30))).sum())),
        "transitions": (follow / np.maximum(follow.sum(1, keepdims=True), 1e-30)).round(6).tolist(),
    }


@torch.no_grad()
def favoured_words(module: Model) -> Floats:
    """p(first predicate | frame), [K, V]: the decoder's first word given one frame, among those a predicate may be."""
    frames = torch.arange(module.sizes.classes, device=module.device)
    memory = module.memory_of_frames(frames.unsqueeze(1))  # a document of one event, for each frame
    log_probabilities, _ = module.step(torch.full_like(frames, BOS), module.start(memory))
    allowed = grammar(module.sizes.words, module.device)[0]
    return torch.softmax((log_probabilities + allowed).double(), dim=-1).cpu().numpy()


def _best(names: Sequence[str], probabilities: Floats, top: int, what: str) -> list[dict[str, Any]]:
    order = np.argsort(-probabilities, kind="stable")[:top]
    return [{what: names[i], "probability": float(probabilities[i])} for i in order if probabilities[i] > 0]


# ---- attention ---------------------------------------------------------------------------------------------------


@torch.no_grad()
def _attention(model: Trained, split: Split) -> dict[str, Any]:
    """Where the decoder looks while it writes, as means over the split's tokens: from each slot of each event to each
    latent [M, 5, M], the share on the event's own latent by slot [5], and the share that equal looks would give it."""
    module, m = model.module, model.events
    total, count = np.zeros((m, TOKENS, m)), np.zeros((m, 1, 1))
    own, chance = np.zeros(TOKENS), 0.0
    for batch in _batches(model, split):
        memory = module.memory(batch)
        weights = module.text_attention(batch.tokens, memory).view(len(batch.tokens), m, TOKENS, -1)
        weights = weights * batch.mask[:, :, None, None]
        total += weights.double().sum(0).cpu().numpy()
        count += batch.mask.double().sum(0).cpu().numpy()[:, None, None]
        own += torch.einsum("bmtm->t", weights.double()).cpu().numpy()
        chance += float((batch.mask.sum(1) / memory.mask.sum(1).clamp_min(1)).sum())
    events = float(count.sum())
    return {
        "slots": list(PLACES),
        "to_latents": (total / np.maximum(count, 1)).round(6).tolist(),
        "own_event": {slot: float(value) for slot, value in zip(PLACES, own / events, strict=True)},
        "own_event_by_chance": chance / events,
    }


# ---- showing it --------------------------------------------------------------------------------------------------


def summary(found: dict[str, Any]) -> str:
    """What the terminal shows."""
    from revup.reporting.pages import text_table

    parts = [f"{found['model']} on {found['documents']:,} documents ({found['split']}), {found['events']:,} events"]
    if "frames" in found:
        parts += [text_table(_frame_rows(found, 4)), _unused(found)]
    if "z" in found:
        z = found["z"]
        parts.append(f"{z['active']} of {z['units']} units of z are active; KL {sum(z['kl']):.1f} nats an event")
    if "codes" in found:
        parts.append(text_table(_code_rows(found)))
    if "attention" in found:
        looks = ", ".join(f"{slot} {share:.2f}" for slot, share in found["attention"]["own_event"].items())
        parts.append(
            f"share of the decoder's attention on the event's own latent: {looks} "
            f"({found['attention']['own_event_by_chance']:.2f} if it looked everywhere alike)"
        )
    return "\n\n".join(parts)


def _unused(found: dict[str, Any]) -> str:
    unused, total = found["unused_frames"], len(found["frames"])
    shown = f": {', '.join(unused[:20])}{' …' if len(unused) > 20 else ''}" if unused else ""
    return f"{len(unused)} of {total} frames are never the most probable{shown}"


def _frame_rows(found: dict[str, Any], top: int) -> list[dict[str, Any]]:
    def shown(row: dict[str, Any], part: str, what: str) -> str:
        return ", ".join(item[what] for item in row.get(part, [])[:top])

    rows = sorted(found["frames"], key=lambda row: -row["events"])
    columns = [("predicates", "word"), ("words", "word"), ("followers", "frame")]
    titles = {"predicates": "predicates", "words": "the decoder writes", "followers": "followed by"}
    return [
        {
            "frame": row["frame"],
            "events": row["events"],
            **{titles[part]: shown(row, part, what) for part, what in columns if part in row},
        }
        for row in rows
    ]


def _code_rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    codes = found["codes"]
    pairs = zip(codes["codes_used"], codes["code_perplexity"], strict=True)
    return [
        {"latent": number, "share of codes in use": used, "code perplexity": perplexity}
        for number, (used, perplexity) in enumerate(pairs, 1)
    ]


def page(found: dict[str, Any], title: str = "What the latents mean") -> Page:
    """The same as a page with plots."""
    from revup.reporting.pages import Page

    made = Page(title)
    made.add_text(
        f"A `{found['model']}` model (preset `{found['preset']}`), looked at on {found['documents']:,} documents with "
        f"{found['events']:,} events of the {found['split']} split. It was given no frames."
    )
    if "frames" in found:
        _add_frames(made, found)
    if "z" in found:
        z = found["z"]
        made.add_heading("Units of z")
        made.add_figure(
            _bars(z["variance"], z["kl"], z["threshold"]),
            f"{z['active']} of {z['units']} units are active: their mean varies over events by more than "
            f"{z['threshold']:g}. Units are sorted by that variance; on the right what each costs in KL.",
        )
    if "codes" in found:
        made.add_heading("Codes")
        made.add_table(_code_rows(found), "Of each latent: the share of its codes that is picked at all, and exp H.")
    if "attention" in found:
        made.add_heading("Where the decoder looks")
        weights = np.array(found["attention"]["to_latents"])
        rows = [f"{slot} {m}" for m in range(1, len(weights) + 1) for slot in found["attention"]["slots"]]
        columns = [f"latent {m}" for m in range(1, weights.shape[2] + 1)]
        made.add_figure(
            _heatmap(rows, columns, weights.reshape(-1, weights.shape[2])),
            "Mean attention from each slot of each event to each latent. Blocks on the diagonal mean that an event is "
            "written from its own latent.",
        )
    return made


def _add_frames(made: Page, found: dict[str, Any]) -> None:
    made.add_heading("Frames")
    made.add_table(
        _frame_rows(found, 6),
        "`predicates`: of the events taken to be of this frame. `the decoder writes`: the first word it writes given "
        "this frame alone. `followed by`: the frames of the events that follow.",
    )
    made.add_text(f"{_unused(found)}. The frames in use are worth {found['frame_perplexity']:.1f} equally used ones.")
    rows = sorted(range(len(found["frames"])), key=lambda k: -found["frames"][k]["events"])[:40]
    names = [found["frames"][k]["frame"] for k in rows]
    transitions = np.array(found["transitions"])[np.ix_(rows, rows)]
    made.add_figure(
        _heatmap(names, names, transitions),
        "Which frame (column) follows which (row), as the model reads the split; a row sums to 1 over all frames"
        + (", of which the 40 most frequent are shown." if len(found["frames"]) > 40 else "."),
    )


def _heatmap(rows: Sequence[str], columns: Sequence[str], values: Floats) -> Any:
    from matplotlib.figure import Figure

    from revup.reporting.figures import WIDTH

    figure = Figure(figsize=(min(WIDTH, 3.0 + 0.3 * len(columns)), 1.4 + 0.22 * len(rows)), layout="constrained")
    ax = figure.subplots()
    image = ax.pcolormesh(values, cmap="Blues", vmin=0, edgecolors="#eeeeea", linewidth=0.3)
    ax.set_xticks(np.arange(len(columns)) + 0.5, columns, rotation=50, ha="right", rotation_mode="anchor", fontsize=8)
    ax.set_yticks(np.arange(len(rows)) + 0.5, rows, fontsize=8)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.invert_yaxis()
    bar = figure.colorbar(image, ax=ax, shrink=0.5, aspect=18, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, length=2)
    return figure


def _bars(variance: Sequence[float], divergence: Sequence[float], threshold: float) -> Any:
    from matplotlib.figure import Figure

    from revup.reporting.figures import BLUE, ORANGE, WIDTH

    order = np.argsort(-np.asarray(variance), kind="stable")
    figure = Figure(figsize=(WIDTH, 2.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for ax, values, colour, label in (
        (left, variance, BLUE, "variance of μ"),
        (right, divergence, ORANGE, "KL, nats an event"),
    ):
        ax.bar(np.arange(len(order)), np.asarray(values)[order], color=colour, width=0.8)
        ax.set_xlabel("unit", fontsize=9)
        ax.set_ylabel(label, fontsize=9)
        ax.tick_params(labelsize=9, length=3)
        ax.spines[["top", "right"]].set_visible(False)
    left.axhline(threshold, color="#8a8a86", linewidth=1, linestyle="--")
    left.set_yscale("log")
    return figure
