"""What `revup.inspect` found, as text for a terminal and as a page with figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from revup.reporting.figures import BLUE, GREY, ORANGE, WIDTH, canvas, heatmaps
from revup.reporting.pages import Page
from revup.reporting.tables import text_table


def summary(found: dict[str, Any]) -> str:
    """The text for a terminal.

    Args:
        found: What `revup.inspect` returns.
    """
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
            f"({found['attention']['own_event_by_chance']:.2f} with uniform attention)"
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
    """The same as a page with figures.

    Args:
        found: What `revup.inspect` returns.
        title: Title of the page.
    """
    made = Page(title)
    made.add_text(
        f"A `{found['model']}` model (preset `{found['preset']}`), evaluated on {found['documents']:,} documents with "
        f"{found['events']:,} events of the {found['split']} split, without the labels of that split."
    )
    if "frames" in found:
        _add_frames(made, found)
    if "z" in found:
        z = found["z"]
        made.add_heading("Units of z")
        made.add_figure(
            _bars(z["variance"], z["kl"], z["threshold"]),
            f"{z['active']} of {z['units']} units are active: the variance of their mean over events is above "
            f"{z['threshold']:g}. Units are sorted by that variance; on the right the KL of each.",
        )
    if "codes" in found:
        made.add_heading("Codes")
        made.add_table(
            _code_rows(found), "For each latent: the share of its codes in use, and the perplexity exp H of their use."
        )
    if "attention" in found:
        made.add_heading("Attention of the decoder")
        weights = np.array(found["attention"]["to_latents"])
        rows = [f"{slot} {m}" for m in range(1, len(weights) + 1) for slot in found["attention"]["slots"]]
        columns = [f"latent {m}" for m in range(1, weights.shape[2] + 1)]
        made.add_figure(
            heatmaps(rows, columns, {"": weights.reshape(-1, weights.shape[2])}, top=None),
            "Mean attention from each slot of each event to each latent. Blocks on the diagonal: an event is written "
            "from its own latent.",
        )
    return made


def _add_frames(made: Page, found: dict[str, Any]) -> None:
    made.add_heading("Frames")
    made.add_table(
        _frame_rows(found, 6),
        "`predicates`: of the events whose most probable frame this is. `the decoder writes`: its first word given "
        "this frame alone. `followed by`: the frames of the events that follow.",
    )
    made.add_text(f"{_unused(found)}. The perplexity of their use is {found['frame_perplexity']:.1f}.")
    events = {row["frame"]: row["events"] for row in found["frames"]}
    frames = found["transition_frames"]
    rows = sorted(range(len(frames)), key=lambda k: -events[frames[k]])[:40]
    names = [frames[k] for k in rows]
    transitions = np.array(found["transitions"])[np.ix_(rows, rows)]
    made.add_figure(
        heatmaps(names, names, {"": transitions}, top=None),
        "Which frame (column) follows which (row), as the model predicts them; a row sums to 1 over all frames"
        + (", of which the 40 most frequent are shown." if len(found["frames"]) > 40 else "."),
    )


def _bars(variance: Sequence[float], divergence: Sequence[float], threshold: float) -> Any:
    order = np.argsort(-np.asarray(variance), kind="stable")
    figure, ((left, right),) = canvas(WIDTH, 2.6, 1, 2)
    for ax, values, colour, label in (
        (left, variance, BLUE, "variance of μ"),
        (right, divergence, ORANGE, "KL, nats an event"),
    ):
        ax.bar(np.arange(len(order)), np.asarray(values)[order], color=colour, width=0.8)
        ax.set_xlabel("unit", fontsize=9)
        ax.set_ylabel(label, fontsize=9)
    left.axhline(threshold, color=GREY, linewidth=1, linestyle="--")
    left.set_yscale("log")
    return figure
