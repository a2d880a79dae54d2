"""Scores of an exact posterior against reference frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from revup.data.events import Document
from revup.world.evidence import Given
from revup.world.exact import Floats


class Score:
    """Accuracy and mean −log p of the reference frames, summed over parts of the documents."""

    def __init__(self, columns: Mapping[str, int]) -> None:
        self.columns, self.events, self.right, self.nll = columns, 0, 0, 0.0

    def add(self, posterior: Floats, documents: Sequence[Document], given: Sequence[Given | None]) -> None:
        """Add documents of one length.

        Args:
            posterior: p(t_m|x) [n, M, K].
            documents: The documents; events without a reference frame are not scored.
            given: Their given frames, whose events are not scored either.
        """
        names = [
            None if index in (told or ()) else event.frame
            for document, told in zip(documents, given, strict=True)
            for index, event in enumerate(document.events)
        ]
        rows = np.array([row for row, name in enumerate(names) if name is not None], dtype=np.int64)
        truth = np.array([self.columns.get(name, -1) for name in names if name is not None], dtype=np.int64)
        probs = posterior.reshape(len(names), -1)[rows]
        self.events += len(rows)
        self.right += int((probs.argmax(axis=1) == truth).sum())
        of_truth = np.where(truth >= 0, probs[np.arange(len(truth)), truth], 0.0)
        with np.errstate(divide="ignore"):
            self.nll -= float(np.log(of_truth).sum())

    def means(self) -> dict[str, float | None]:
        """Return `accuracy` of the argmax and `nll`; None where no event was scored."""
        if not self.events:
            return {"accuracy": None, "nll": None}
        return {"accuracy": self.right / self.events, "nll": self.nll / self.events}
