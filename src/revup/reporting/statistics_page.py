"""What `prepare` found, as one self-contained HTML page with plots (extra `report`)."""

from __future__ import annotations

import base64
import io
from html import escape
from pathlib import Path
from typing import Any

from revup.data.statistics import render_statistics
from revup.errors import missing_extra
from revup.io.files import open_output

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "pre{background:#f5f5f2;padding:1rem;overflow-x:auto;font-size:13px}img{max-width:100%}"
    "figure{margin:1.5rem 0}figcaption{color:#555}"
)


def statistics_page(statistics: dict[str, Any], path: str | Path, title: str = "What is in this corpus") -> None:
    """Write the page; it needs nothing beside itself."""
    figures = "".join(
        f'<figure><img alt="{escape(caption)}" src="data:image/png;base64,{data}"><figcaption>{escape(caption)}'
        "</figcaption></figure>"
        for caption, data in _figures(statistics)
    )
    text = escape(render_statistics(statistics))
    with open_output(path) as out:
        out.write(
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
            f"<style>{_STYLE}</style><h1>{escape(title)}</h1><pre>{text}</pre>{figures}</html>\n"
        )


def _figures(statistics: dict[str, Any]) -> list[tuple[str, str]]:
    figures = []
    for name in ("frame", "predicate"):
        counts = statistics[f"{name}_counts"]
        if counts:
            caption = f"The most frequent {name}s of the training events, and how they fall with their rank"
            figures.append((caption, _distribution(counts, name)))
    sizes = {int(size): count for size, count in statistics["events_per_document"].items()}
    return [*figures, ("Events in a document, before windows are cut", _histogram(sizes))]


def _distribution(counts: dict[str, float], name: str, most: int = 25) -> str:
    figure, (left, right) = _canvas(2, 5.4)
    first = list(counts.items())[:most]
    left.barh(range(len(first)), [amount for _, amount in first], color="#3b6ea5")
    left.set_yticks(range(len(first)), [label[:32] for label, _ in first])
    left.invert_yaxis()
    left.set_xlabel("events")
    right.loglog(range(1, len(counts) + 1), list(counts.values()), ".-", color="#3b6ea5", markersize=3, linewidth=0.8)
    right.set_xlabel(f"rank of the {name}")
    right.set_ylabel("events")
    return _png(figure)


def _histogram(sizes: dict[int, int]) -> str:
    figure, (axes,) = _canvas(1, 3.2)
    longest = max(sizes, default=1)
    width = max(1, longest // 60)  # events in a bar
    bars: dict[int, int] = {}
    for size, count in sizes.items():
        bars[size // width * width] = bars.get(size // width * width, 0) + count
    axes.bar(
        list(bars), list(bars.values()), width=0.9 * width, align="edge" if width > 1 else "center", color="#3b6ea5"
    )
    axes.set_xlabel("events")
    axes.set_ylabel("documents")
    return _png(figure)


def _canvas(columns: int, height: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise missing_extra("report", "a page of statistics") from None
    figure = Figure(figsize=(10, height), layout="constrained")
    return figure, figure.subplots(1, columns, squeeze=False)[0]


def _png(figure: Any) -> str:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=110)
    return base64.b64encode(stream.getvalue()).decode("ascii")
