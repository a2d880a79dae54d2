"""Training on a terminal: a bar for the epoch, loss terms, validation scores and speed."""

from __future__ import annotations

import time

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from revup.training.checkpoint import State
from revup.training.loop import Progress


class Screen:
    """Shows the latest figures in place; leaves the last ones standing."""

    def __init__(self) -> None:
        self.live = Live(console=Console(stderr=True), refresh_per_second=4)
        self.since = time.monotonic()
        self.speed = 0.0
        self.scores: dict[str, float] = {}

    def __enter__(self) -> Screen:
        self.live.__enter__()
        return self

    def __exit__(self, *details: object) -> None:
        self.live.__exit__(None, None, None)

    def update(self, progress: Progress, state: State) -> None:
        now = time.monotonic()
        if progress.documents:
            self.speed = progress.documents / max(now - self.since, 1e-9)
        self.since = now
        self.scores = progress.scores or self.scores
        self.live.update(self._table(progress, state))

    def _table(self, progress: Progress, state: State) -> Table:
        table = Table.grid(padding=(0, 2))
        table.add_row("epoch", str(progress.epoch), ProgressBar(total=1.0, completed=progress.share, width=30))
        table.add_row("step", str(progress.step), f"{self.speed:,.0f} documents/s, {state.seconds:.0f} s")
        table.add_row("loss", "", "  ".join(f"{name} {value:.4g}" for name, value in progress.terms.items()))
        stale = f"  (best at step {state.best_step})" if state.best is not None else ""
        table.add_row("valid", "", "  ".join(f"{n} {v:.4g}" for n, v in self.scores.items()) + stale)
        return table
