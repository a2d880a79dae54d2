"""A count model as tensors, and back. Tensors come from files that nobody vouches for: every array is checked."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from revup.data.reliability import Reliability
from revup.data.sparse_table import Floats, Ints, Table
from revup.errors import InputError
from revup.models.count_correction import Channel
from revup.models.count_features import ARGUMENTS, COMPONENTS, CONTEXT, CountInputs, Space
from revup.models.count_fit import DEFAULTS
from revup.models.count_tables import Compiled, Counts, SlotTable

LARGEST = 2**21  # rows of compiled predicates that are stored; more are computed when they are loaded


def table_tensors(name: str, table: Table, kind: Any = np.float64) -> dict[str, Tensor]:
    """Return a table as two tensors, its values in the given type."""
    return {f"{name}.key": torch.from_numpy(table.key), f"{name}.value": torch.from_numpy(table.value.astype(kind))}


def counts_tensors(counts: Counts) -> dict[str, Tensor]:
    """Return counts as tensors."""
    out = {"forms": torch.from_numpy(counts.forms), "of_frame": torch.from_numpy(counts.of_frame)}
    out["base"] = torch.from_numpy(counts.base)
    for name in ("lemma", "form", "mass"):
        out |= table_tensors(name, getattr(counts, name))
    if counts.lemma_all is not counts.lemma:
        out |= table_tensors("lemma_all", counts.lemma_all)
    for j, slot in enumerate(counts.slots):
        out |= {f"slot{j}.values": torch.from_numpy(slot.values), f"slot{j}.pairs": torch.from_numpy(slot.pairs)}
        out |= table_tensors(f"slot{j}.by_word", slot.by_word, np.float32)
        out |= table_tensors(f"slot{j}.by_pair", slot.by_pair, np.float32)
    return out


def compiled_tensors(compiled: Compiled) -> dict[str, Tensor]:
    """Return compiled predicates as tensors: their keys alone where the rows are many."""
    out = {"compiled.key": torch.from_numpy(compiled.key)}
    if len(compiled.frame) <= LARGEST:
        for name in ("lemma", "labels", "log_rest", "start", "frame", "log_theta", "count"):
            out[f"compiled.{name}"] = torch.from_numpy(getattr(compiled, name))
    return out


def channel_tensors(channels: Mapping[str, Channel]) -> dict[str, Tensor]:
    """Return channels as tensors, by the source's name."""
    out = {}
    for name, channel in channels.items():
        out[f"channel.{name}.rates"] = torch.tensor([channel.rho, channel.kappa], dtype=torch.float64)
        out[f"channel.{name}.labels"] = torch.from_numpy(channel.labels.key)
    return out


def reliability_tensor(reliability: Mapping[str, Reliability]) -> Tensor:
    """Return reliabilities as the bytes of a JSON object."""
    rows = {
        name: [r.error_rate, r.confusable, r.identified, r.items, list(r.interval) if r.interval else None]
        for name, r in reliability.items()
    }
    return torch.tensor(list(json.dumps(rows).encode()), dtype=torch.uint8)


class Reader:
    """Checked arrays of a dictionary of tensors.

    Args:
        tensors: The tensors.
        inputs: What they have to fit.
    """

    def __init__(self, tensors: Mapping[str, Tensor], inputs: CountInputs) -> None:
        self.tensors, self.inputs = tensors, inputs

    def ints(self, name: str, low: int, high: int, kind: torch.dtype = torch.int64, ascending: bool = False) -> Ints:
        """Return whole numbers from low to high − 1."""
        array = self._array(name, kind)
        if len(array) and (int(array.min()) < low or int(array.max()) >= high):
            raise _wrong(name, f"expected numbers from {low} to {high - 1}")
        if ascending and (array[1:] <= array[:-1]).any():
            raise _wrong(name, "expected ascending numbers")
        return array

    def floats(
        self, name: str, size: int | None = None, kind: torch.dtype = torch.float64, least: float = 0.0
    ) -> Floats:
        """Return finite numbers of `least` or more."""
        array = self._array(name, kind)
        if size is not None and len(array) != size:
            raise _wrong(name, f"expected {size} numbers, found {len(array)}")
        if not np.isfinite(array).all() or (array < least).any():
            raise _wrong(name, f"expected finite numbers of {least:g} or more")
        return array

    def _array(self, name: str, kind: torch.dtype, dimensions: int = 1) -> NDArray[Any]:
        tensor = self.tensors.get(name)
        if tensor is None:
            raise _wrong(name, "expected a tensor, found none")
        if tensor.dtype != kind or tensor.dim() != dimensions:
            raise _wrong(name, f"expected {dimensions} dimension(s) of {kind}, found {tensor.dim()} of {tensor.dtype}")
        array: NDArray[Any] = tensor.detach().cpu().contiguous().numpy()
        return array

    def table(self, name: str, rows: int, kind: torch.dtype = torch.float64) -> Table:
        """Return a table [rows, K]."""
        width = self.inputs.frames
        key = self.ints(f"{name}.key", 0, rows * width, ascending=True)
        value = self.floats(f"{name}.value", len(key), kind)
        return Table(key // width, key % width, value.astype(np.float64), width)

    def counts(self, slots: int) -> Counts:
        """Return the counts."""
        inputs = self.inputs
        numbers = inputs.words + len(inputs.endings) + 1
        forms = self.ints("forms", 0, numbers, ascending=True)
        lemma, form = self.table("lemma", inputs.lemmas), self.table("form", len(forms))
        base = self.floats("base", inputs.frames)
        if abs(base.sum() - 1) > 1e-6:
            raise _wrong("base", "expected probabilities")
        return Counts(
            lemma=lemma,
            of_lemma=lemma.sums(inputs.lemmas),
            forms=forms,
            form=form,
            of_form=form.sums(len(forms)),
            of_frame=self.floats("of_frame", inputs.frames),
            lemma_all=self.table("lemma_all", inputs.lemmas) if "lemma_all.key" in self.tensors else lemma,
            mass=self.table("mass", inputs.lemmas),
            base=base,
            bases=1.0,
            slots=[self._slot(f"slot{j}") for j in range(slots)],
        )

    def _slot(self, name: str) -> SlotTable:
        limit = np.iinfo(np.int64)
        values = self.ints(f"{name}.values", limit.min + 1, limit.max, ascending=True)
        pairs = self.ints(f"{name}.pairs", 0, self.inputs.lemmas * max(len(values), 1), ascending=True)
        by_word = self.table(f"{name}.by_word", len(values), torch.float32)
        by_pair = self.table(f"{name}.by_pair", len(pairs), torch.float32)
        return SlotTable(values, by_word.sums(len(values)), by_word, pairs, by_pair)

    def scalars(self) -> dict[str, float]:
        """Return the scalars of the equations."""
        values = self.floats("scalars", None, least=-math.inf)
        slots = len(values) - len(DEFAULTS)
        if slots not in (len(ARGUMENTS), len(ARGUMENTS) + len(CONTEXT)):
            raise _wrong("scalars", f"found {len(values)} numbers")
        if (np.abs(values) > 50).any():
            raise _wrong("scalars", "expected numbers from -50 to 50")
        return dict(zip([*DEFAULTS, *(f"slot{j}" for j in range(slots))], values.tolist(), strict=True))

    def frequency(self) -> Floats:
        """Return how frequent frames are [K]."""
        found = self.floats("frequency", self.inputs.frames)
        if abs(found.sum() - 1) > 1e-6 or (found <= 0).any():
            raise _wrong("frequency", "expected probabilities above 0")
        return found

    def space(self) -> Space | None:
        """Return the space of vectors, where there is one."""
        if "space.centre" not in self.tensors:
            return None
        if self.inputs.vectors is None:
            raise _wrong("space.centre", "found, but there are no word vectors")
        size, lemmas = self.inputs.vectors.shape[1], self.inputs.lemmas
        centre = self._array("space.centre", torch.float32)
        directions = self._array("space.directions", torch.float32, 2)
        lemma = self._array("space.lemma", torch.float32, 2)
        has = self._array("space.has", torch.bool)
        shapes = centre.shape == (size,) and directions.shape[1] == size and len(directions) <= COMPONENTS
        if not (shapes and lemma.shape == (lemmas, size) and has.shape == (lemmas,)):
            raise _wrong("space", "the shapes don't fit the word vectors")
        if not all(np.isfinite(array).all() for array in (centre, directions, lemma)):
            raise _wrong("space", "expected finite numbers")
        return Space(centre, directions, lemma, has)

    def classes(self) -> NDArray[np.int16] | None:
        """Return the classes of words, where there are any."""
        if "classes" not in self.tensors:
            return None
        array = self.ints("classes", -1, 2**15, torch.int16)
        if len(array) != len(self.inputs.endings):
            raise _wrong("classes", f"expected {len(self.inputs.endings)} numbers, found {len(array)}")
        return array.astype(np.int16)

    def compiled(self) -> Compiled | Ints:
        """Return compiled predicates, or their keys where the rows are not stored."""
        inputs = self.inputs
        key = self.ints("compiled.key", 0, np.iinfo(np.int64).max, ascending=True)
        if "compiled.frame" not in self.tensors:
            return key
        start = self.ints("compiled.start", 0, 2**62)
        frame = self.ints("compiled.frame", 0, inputs.frames, torch.int32)
        if len(start) != len(key) + 1 or start[0] or start[-1] != len(frame) or (np.diff(start) < 1).any():
            raise _wrong("compiled.start", "expected where the rows of each predicate begin")
        rows, pairs, single = len(frame), len(key), torch.float32
        return Compiled(
            key=key,
            lemma=self._sized(self.ints("compiled.lemma", 0, inputs.lemmas), pairs, "compiled.lemma"),
            labels=self.floats("compiled.labels", pairs),
            log_rest=self.floats("compiled.log_rest", pairs, single, least=-100.0),
            start=start,
            frame=frame,
            log_theta=self.floats("compiled.log_theta", rows, single, least=-1000.0),
            count=self.floats("compiled.count", rows, single),
        )

    def _sized(self, array: Ints, size: int, name: str) -> Ints:
        if len(array) != size:
            raise _wrong(name, f"expected {size} numbers, found {len(array)}")
        return array

    def channels(self, names: list[str]) -> dict[str, Channel]:
        """Return how sources err that were corrected."""
        out, width = {}, self.inputs.frames
        for name in names:
            if f"channel.{name}.rates" in self.tensors:
                rates = self.floats(f"channel.{name}.rates", 2)
                key = self.ints(f"channel.{name}.labels", 0, self.inputs.lemmas * width, ascending=True)
                if (rates > 1).any():
                    raise _wrong(f"channel.{name}.rates", "expected numbers from 0 to 1")
                labels = Table(key // width, key % width, np.ones(len(key)), width)
                out[name] = Channel(float(rates[0]), float(rates[1]), labels)
        return out

    def joint_error(self) -> float | None:
        """Return how often several sources together are wrong, None where it is absent."""
        if "joint_error" not in self.tensors:
            return None
        (rate,) = self.floats("joint_error", 1)
        if rate > 1:
            raise _wrong("joint_error", "expected a share from 0 to 1")
        return float(rate)

    def reliability(self) -> dict[str, Reliability]:
        """Return how far each source is right."""
        text = bytes(self._array("reliability", torch.uint8))
        try:
            rows = json.loads(text)
            return {str(name): _reliability(row) for name, row in rows.items()}
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise _wrong("reliability", "expected a JSON object of reliabilities") from None


def _reliability(row: Any) -> Reliability:
    rate, confusable, identified, items, interval = row
    for value in (rate, confusable, *(interval or ())):
        if value is not None and not 0 <= float(value) <= 1:
            raise ValueError
    if not isinstance(identified, bool) or not isinstance(items, int):
        raise ValueError
    span = (float(interval[0]), float(interval[1])) if interval else None
    return Reliability(rate, confusable, identified, items, span)


def _wrong(name: str, message: str) -> InputError:
    return InputError(message, field=f"counts.{name}")
