"""The statistics that `revup prepare` computes, as one HTML page with figures (extra `report`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from revup.data.statistics import render_statistics
from revup.reporting.figures import BLUE, WIDTH, canvas, require_extra
from revup.reporting.pages import Page

SHOWN = 25  # most frequent names in a bar chart
BARS = 60  # in a histogram


def statistics_page(statistics: dict[str, Any], path: str | Path, title: str = "Corpus statistics") -> None:
    """Write the page.

    Args:
        statistics: What `revup.prepare` returns.
        path: The HTML file to write.
        title: Title of the page.
    """
    require_extra("a page of statistics")
    page = Page(title)
    page.add_preformatted(render_statistics(statistics))
    for name in ("frame", "predicate"):
        if counts := statistics[f"{name}_counts"]:
            page.add_figure(
                _frequencies(counts, name),
                f"The most frequent {name}s of the training events, and the number of events by rank.",
            )
    sizes = {int(size): count for size, count in statistics["events_per_document"].items()}
    page.add_figure(_sizes(sizes), "Events per document, before windows are cut.")
    page.save(path)


def _frequencies(counts: dict[str, float], name: str) -> Any:
    figure, ((left, right),) = canvas(WIDTH, 5.4, 1, 2)
    first = list(counts.items())[:SHOWN]
    left.barh(range(len(first)), [amount for _, amount in first], color=BLUE)
    left.set_yticks(range(len(first)), [label[:32] for label, _ in first])
    left.invert_yaxis()
    left.set_xlabel("events")
    right.loglog(range(1, len(counts) + 1), list(counts.values()), ".-", color=BLUE, markersize=3, linewidth=0.8)
    right.set(xlabel=f"rank of the {name}", ylabel="events")
    return figure


def _sizes(sizes: dict[int, int]) -> Any:
    figure, ((ax,),) = canvas(WIDTH, 3.2)
    width = max(1, max(sizes, default=1) // BARS)  # events in a bar
    bars: dict[int, int] = {}
    for size, count in sizes.items():
        bars[size // width * width] = bars.get(size // width * width, 0) + count
    ax.bar(list(bars), list(bars.values()), 0.9 * width, align="edge" if width > 1 else "center", color=BLUE)
    ax.set(xlabel="events", ylabel="documents", xlim=(0, max(sizes, default=1) + width))
    return figure
