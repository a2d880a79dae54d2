"""Signals that stop training: noted while a step runs, acted on after it."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from revup.errors import Interrupted

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class SignalWatch:
    """Notes SIGINT, SIGTERM and SIGHUP while its block runs; after one of them, SIGINT raises `Interrupted` at once.

    Only Ctrl-C is taken as impatience: a terminal that closes sends SIGHUP more than once, a scheduler SIGTERM too.
    Outside the main thread this does nothing. A signal that is ignored (SIGHUP under nohup) stays ignored. Earlier
    handlers are back in place after the block.

    Args:
        resume: The command that continues the work, for the message.
    """

    def __init__(self, resume: str) -> None:
        self.resume = resume
        self.received: int | None = None
        self._earlier: dict[int, Any] = {}

    def __enter__(self) -> SignalWatch:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if signal.getsignal(number) not in (None, signal.SIG_IGN):
                    self._earlier[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        while self._earlier:
            signal.signal(*self._earlier.popitem())

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise Interrupted(number, self.resume)
        self.received = self.received or number
