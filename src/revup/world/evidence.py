"""Evidence about the frames of events beside their words: true frames that are given, and labels of noisy sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from revup.data.events import Document, json_kind
from revup.errors import RevupError
from revup.world.annotators import statements
from revup.world.exact import Floats

Given = Mapping[int, str]  # event index → true frame


class Evidence:
    """p(evidence of event m|t), up to a factor, for all frames t of all events of some documents.

    A true frame that is given leaves no other; labels y_s of sources with known confusion multiply in, Π_s p(y_s|t).

    Args:
        columns: Frame → its number.
        documents: The documents.
        given: For each document, the true frames that are given; None where none are.
        confusions: p(y|t) [K, K] (rows t) of each source whose statements are used.

    Raises:
        RevupError: A given event or frame does not exist, or a statement is not a label of this world.
    """

    def __init__(
        self,
        columns: Mapping[str, int],
        documents: Sequence[Document],
        given: Sequence[Given | None] | None,
        confusions: Mapping[str, Floats],
    ) -> None:
        if given is not None and len(given) != len(documents):
            raise RevupError(f"given: expected an entry for each of {len(documents)} documents, found {len(given)}")
        self.columns, self.documents, self.given = columns, documents, given
        # log p(y|t) with rows y, so that a label picks one
        with np.errstate(divide="ignore"):
            self.logs = {name: np.log(matrix.T) for name, matrix in confusions.items()}

    @property
    def empty(self) -> bool:
        """Whether there can't be any evidence."""
        return self.given is None and not self.logs

    def factors(self, chosen: Sequence[int], length: int) -> Floats:
        """Return the evidence of some documents of one length, [n, length, K]; its maximum over frames is 1."""
        logs = np.zeros((len(chosen), length, len(self.columns)))
        for row, index in enumerate(chosen):
            self._add_labels(self.documents[index], logs[row])
            if self.given is not None:
                self._add_given(self.documents[index], self.given[index] or {}, logs[row])
        top = logs.max(axis=-1, keepdims=True)
        return np.asarray(np.exp(logs - np.where(np.isneginf(top), 0.0, top)))

    def _add_labels(self, document: Document, logs: Floats) -> None:
        for place, event in enumerate(document.events) if self.logs else ():
            for name, said in statements(event).items():
                if name in self.logs:
                    logs[place] += self.logs[name][self._label(document, place, name, said)]

    def _label(self, document: Document, place: int, name: str, said: object) -> int:
        if isinstance(said, Mapping) and said.get("kind") == "label" and said.get("confidence") in (None, 1):
            said = said.get("value")
        field = f"{document.id}: events[{place}].sources.{name}"
        if not isinstance(said, str):
            raise RevupError(f"{field}: expected the label of an annotator, found {json_kind(said)}")
        return self._column(said, field)

    def _add_given(self, document: Document, given: Given, logs: Floats) -> None:
        for place, frame in given.items():
            if isinstance(place, bool) or not isinstance(place, (int, np.integer)) or not 0 <= place < len(logs):
                wanted = f"an event from 0 to {len(logs) - 1}" if len(logs) else "nothing, as there are no events"
                raise RevupError(f"{document.id}: given: expected {wanted}, found {place!r}")
            column = self._column(frame, f"{document.id}: given[{place}]")
            logs[place, np.arange(logs.shape[1]) != column] = -np.inf

    def _column(self, frame: object, field: str) -> int:
        if not isinstance(frame, str) or frame not in self.columns:
            raise RevupError(f"{field}: expected a frame of this world, found {frame!r}")
        return self.columns[frame]
