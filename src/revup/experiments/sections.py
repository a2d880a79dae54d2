"""A section of results: text, tables and figures, which `revup.experiments.output` writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from revup.reporting.tables import Table


@dataclass
class Section:
    """An experiment on a dataset.

    Attributes:
        name: Its name on the command line and of its files.
        title: Its heading.
        text: What was done.
        tables: Its tables.
        figures: For each figure the file's name without ending, a function that draws it, and its caption.
        folder: Where its files are written, in the output directory; empty: there itself.
        about: What it was made from and by.
    """

    name: str
    title: str
    text: str
    tables: list[Table] = field(default_factory=list)
    figures: list[tuple[str, Callable[[], Any], str]] = field(default_factory=list)
    folder: str = ""
    about: dict[str, Any] = field(default_factory=dict)
