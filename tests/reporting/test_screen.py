"""What training shows on a terminal."""

from __future__ import annotations

import io

from rich.console import Console

from revup.reporting.training_screen import Screen
from revup.settings import Course
from revup.training.checkpoint import State
from revup.training.loop import Progress

COURSE = Course(epochs=2, every=1, patience=3, settled_epochs=0)


def test_a_terminal_shows_terms_scores_and_speed() -> None:
    screen = Screen()
    shown = io.StringIO()
    with screen:
        screen.update(Progress(20, 0, 0.5, {"loss": 3.25, "update": 0.5}, 4000, COURSE), State(step=20, seconds=2.0))
        last = Progress(40, 1, 1.0, {"loss": 2.5}, 4000, COURSE, {"accuracy": 0.75})
        screen.update(last, State(step=40, best=0.75, best_step=40))
        Console(file=shown, width=120).print(screen._table(last, State(step=40, best=0.75, best_step=40)))
    text = shown.getvalue()
    for expected in ("loss 2.5", "accuracy 0.75", "best at step 40", "documents/s", "epoch"):
        assert expected in text
    assert screen.speed > 0
