"""A sweep on a terminal: how many runs are done, what is at work, and how long the rest will take."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from revup.experiments.sweep import Status


class Screen:
    """Shows the latest status in place, and leaves the last one standing."""

    def __init__(self) -> None:
        self.status: Status | None = None
        self.live = Live(console=Console(stderr=True), refresh_per_second=2, get_renderable=self._render)

    def __enter__(self) -> Screen:
        self.live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.live.__exit__(kind, error, at)

    def __call__(self, status: Status) -> None:
        self.status = status

    def _render(self) -> Group | Text:
        status = self.status
        if status is None:
            return Text("looking for finished runs")
        line = Table.grid(padding=(0, 2))
        failed = f", {status.failed} failed" if status.failed else ""
        spent = time.monotonic() - status.started
        left = "" if status.seconds_left is None else f", about {clock(status.seconds_left)} left"
        line.add_row(
            ProgressBar(total=max(status.total, 1), completed=status.done, width=30),
            f"{status.done} of {status.total} runs{failed}",
            f"{clock(spent)}{left}",
        )
        return Group(line, *(Text(f"  {name}", style="dim") for name in status.running))


def clock(seconds: float) -> str:
    """A duration for people."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
