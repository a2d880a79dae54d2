"""Runs: what determines one, its name, and the file of raw runs that every table is made from.

A run is a system under a condition with a seed, on a dataset. Its name is a digest of the full settings (those of the
preset included, so a changed preset is another run), the data's fingerprint and the version of the maths, which is
that of the counts where it stands on counts; counts under uniform noise, and of several simulated sources, have
versions of their own. So published networks outlive a change of the count model, and other runs one of how that noise
or those sources are treated. The file
`runs.jsonl.gz` holds one line of JSON for each dataset (`dataset`: sizes, test document ids) and one for each finished
run. Lines are appended one by one, each as a gzip member of its own: a kill loses at most the line being written.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from revup.data.knowledge import Observation
from revup.errors import InputError, RevupError
from revup.io.files import atomic_file
from revup.models import CLASSES, model_class, model_module
from revup.settings import SECTIONS, Config, Overrides

FILE = "runs.jsonl.gz"
MATHS = 3  # to be raised when the same settings compute something else: runs of another version are not taken up
COUNTS_MATHS = 4  # likewise for what stands on fitted counts; to be raised with every change of the count model
NOISE_MATHS = 5  # likewise for counts of labels of which some are replaced by any frame
SOURCES_MATHS = 6  # likewise for counts of several simulated sources
DICTIONARY = "dictionary"  # the source of a variant (`revup.experiments.variants`) that has no labels
ONE_FORM = {"lookup", "counts", "logistic", "rnnlm", "haqae"}  # shown without the preset's name where it is the default

Line = dict[str, Any]
Settings = tuple[tuple[str, str, Any], ...]  # section, name, value


@dataclass(frozen=True)
class System:
    """A model with a preset: a row of a table."""

    model: str
    preset: str = "default"

    @classmethod
    def named(cls, name: str) -> System:
        """A system by its name, `model` or `model:preset`.

        Raises:
            RevupError: There is no such model or preset.
        """
        model, _, preset = name.strip().partition(":")
        if model not in CLASSES:
            raise RevupError(f"--models: unknown model '{model}': expected one of {', '.join(CLASSES)}")
        presets = model_module(model).PRESETS
        if (preset or "default") not in presets:
            raise RevupError(f"--models: {model} has no preset '{preset}': expected one of {', '.join(presets)}")
        return cls(model, preset or "default")

    @property
    def name(self) -> str:
        """Its name on the command line and in files."""
        return f"{self.model}:{self.preset}"

    @property
    def label(self) -> str:
        """Its name in tables."""
        title = CLASSES.get(self.model, self.model)
        return title if self.model in ONE_FORM and self.preset == "default" else f"{title} {self.preset}"


def existing(names: Iterable[str]) -> tuple[System, ...]:
    """The systems of these names that there are, each once: `model` or `model:preset`."""
    found = []
    for name in names:
        try:
            found.append(System.named(name))
        except RevupError:
            continue
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Condition:
    """What training is given.

    Attributes:
        epsilon, eta, noise, sources: As in `revup train`.
        variant: Which variant of the dataset (`revup.experiments.variants`); the dataset itself where empty.
        text: Whether perplexity is shown. Where it is not, training ends when the frames have converged: the decoder
            phase leaves the frames as they are, and takes a third of the time.
        changed: Settings that differ from the preset.
    """

    epsilon: float = 1.0
    eta: float = 0.0
    noise: str = "uniform"
    sources: str = ""
    variant: str = ""
    text: bool = False
    changed: Settings = ()

    def normal(self, system: System) -> Condition:
        """The same condition without what makes no difference to a system, so that equal runs are equal."""
        kind = model_class(system.model)
        numbers = {"epsilon": float(self.epsilon), "eta": float(self.eta)}
        values = asdict(self) | {"changed": self.changed} | numbers
        if not kind.predicts_frames:
            values |= {"epsilon": 0.0, "eta": 0.0, "sources": "", "variant": ""}
        if not values["epsilon"] or values["sources"]:
            values["eta"] = 0.0
        if not values["eta"] and not values["sources"]:
            values["noise"] = "uniform"
        settles = model_module(system.model).PRESETS[system.preset].get("training", {}).get("settle", 0.0)
        values["text"] = self.text and kind.writes_text and settles > 0
        return Condition(**values)

    def to_json(self) -> dict[str, Any]:
        """What differs from a condition of all labels, all correct."""
        plain = Condition()
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != getattr(plain, f.name)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Condition:
        """The condition that `to_json` wrote."""
        return cls(**{**data, "changed": tuple((s, n, v) for s, n, v in data.get("changed", ()))})


@dataclass(frozen=True)
class Run:
    """A system under a condition with a seed. Made by `Run.of`, which leaves out what makes no difference.

    Attributes:
        data: The dataset's name.
        system, condition, seed: What is run.
        settings: Settings of the whole sweep.
        tests: Further datasets that it is tested on.
        revealed: Shares of true frames that are given at prediction.
    """

    data: str
    system: System
    condition: Condition
    seed: int = 0
    settings: Settings = ()
    tests: tuple[str, ...] = field(default=(), compare=False)
    revealed: tuple[float, ...] = field(default=(), compare=False)

    @classmethod
    def of(
        cls,
        system: System | str,
        condition: Condition | None = None,
        seed: int = 0,
        overrides: Overrides | None = None,
        data: str = "data",
        **evaluation: Any,
    ) -> Run:
        """A run of a system.

        Args:
            system: The system, or its name.
            condition: What training is given; by default all labels.
            seed: Determines weights, order of documents, and which labels are observed or replaced.
            overrides: Settings by section and name; those that the model does not have are left out.
            data: The dataset's name.
            **evaluation: `tests` and `revealed`.

        Returns:
            The run.

        Raises:
            RevupError: A setting is unknown, or its value is not allowed.
        """
        system = System.named(system) if isinstance(system, str) else system
        given = overrides or {}
        config = Config.make(system.model, system.preset, overrides=given)
        sections = SECTIONS if model_class(system.model).learns else ("objective",)  # counts have no size and epochs
        settings = sorted(
            (section, name, value)
            for section in sections
            for name, value in given.get(section, {}).items()
            if hasattr(getattr(config, section), name)
        )
        return cls(data, system, (condition or Condition()).normal(system), seed, tuple(settings), **evaluation)

    def config(self) -> Config:
        """All its settings."""
        overrides: dict[str, dict[str, Any]] = {} if self.condition.text else {"training": {"settle": 0.0}}
        for section, name, value in (*self.settings, *self.condition.changed):
            overrides.setdefault(section, {})[name] = value
        c = self.condition
        observed: dict[str, Any] = {
            "epsilon": c.epsilon,
            "eta": c.eta,
            "noise": c.noise,
            "sources": c.sources,
            "seed": self.seed,
        }
        return Config.make(self.system.model, self.system.preset, overrides=overrides, **observed)

    def name(self, fingerprint: str) -> str:
        """Its name on data with this fingerprint."""
        config = self.config().to_json()
        about = {"config": config, "data": fingerprint, "variant": self.condition.variant}
        return content_name(about, maths_of(config, self.condition.variant))

    def __str__(self) -> str:
        given = "".join(f" {name}={value}" for name, value in self.condition.to_json().items() if name != "changed")
        extra = "".join(f" {s}.{n}={value}" for s, n, value in (*self.settings, *self.condition.changed))
        return f"{self.data}: {self.system.name}{given} seed {self.seed}{extra}"

    def to_json(self) -> dict[str, Any]:
        """As it is sent to a process."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Run:
        """The run that `to_json` wrote, also after a journey as JSON."""
        return cls(
            data["data"],
            System(**data["system"]),
            Condition.from_json(data["condition"]),
            data["seed"],
            tuple((s, n, v) for s, n, v in data["settings"]),
            tuple(data["tests"]),
            tuple(data["revealed"]),
        )


def label_sources(name: str) -> list[str]:
    """The sources whose labels stand beside each other in a variant; none where they are aggregated or the corpus's."""
    kind, _, which = name.partition("=")
    if kind != "sources" or "|" in which:
        return []
    return [source for source in which.split("+") if source != DICTIONARY]


def maths_of(config: Mapping[str, Any], variant: str = "") -> int:
    """The version of the maths that a run stands on.

    Args:
        config: Its settings, of any version.
        variant: Of the dataset.
    """
    objective, observed = config["objective"], config.get("observation", {})
    if objective.get("prior", "none") == "none" and objective.get("noise") != "estimated":
        return MATHS
    annotators = Observation(eta=observed.get("eta", 0.0), sources=observed.get("sources", "")).annotators()
    if max(len(annotators), len(label_sources(variant))) > 1:
        return SOURCES_MATHS
    return NOISE_MATHS if observed.get("eta") and observed.get("noise") == "uniform" else COUNTS_MATHS


def curve_maths(task: str) -> int:
    """The version of the maths that a learning curve stands on: of labels that are checked some are wrong."""
    return NOISE_MATHS if task == "check" else COUNTS_MATHS


def content_name(content: Mapping[str, Any], maths: int) -> str:
    """The name of a result that is computed from this content alone, by this version of the maths."""
    canonical = json.dumps({"maths": maths, **content}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:20]


# ---- the file ------------------------------------------------------------------------------------------------------


def read_lines(path: str | Path) -> tuple[list[Line], int]:
    """The lines of a file of runs, and the number of bytes that hold them: a line cut off at the end is left out.

    Raises:
        InputError: The file is absent, or a line is not a JSON object.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror}", str(path)) from None
    text, size = (_decompressed(data, path)) if data[:2] == b"\x1f\x8b" else (data, data.rfind(b"\n") + 1)
    found = []
    for number, line in enumerate(text[: text.rfind(b"\n") + 1].splitlines(), 1):
        try:
            found.append(json.loads(line))
        except ValueError:
            found.append(None)
        if not isinstance(found[-1], dict):
            raise InputError("expected a line of JSON, an object", str(path), number)
    return found, size


def _decompressed(data: bytes, path: str | Path) -> tuple[bytes, int]:
    """The content of the gzip members that are whole, and how many bytes they are."""
    parts: list[bytes] = []
    place = 0
    while place < len(data):
        member = zlib.decompressobj(31)
        try:
            part = member.decompress(data[place:])
        except zlib.error as error:
            if not parts:
                raise InputError(f"damaged: {error}", str(path)) from None
            break
        if not member.eof:
            break
        parts.append(part)
        place = len(data) - len(member.unused_data)
    return b"".join(parts), place


class RunFile:
    """The file of raw runs of an output directory: read at once, then appended to.

    Attributes:
        path: The file.
        results: The lines of runs of this version of the maths, by their names.
        datasets: The lines of datasets, by their fingerprints.
        examples: The lines of the small example and of learning curves, by their names.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results: dict[str, Line] = {}
        self.datasets: dict[str, Line] = {}
        self.examples: dict[str, Line] = {}
        if path.exists():
            lines, size = read_lines(path)
            with open(path, "r+b") as stream:
                stream.truncate(size)  # what a kill cut off
            for line in lines:
                self._take(line)

    def _take(self, line: Line) -> None:
        if "dataset" in line:
            self.datasets[line["fingerprint"]] = line
        elif "config" not in line:
            if line["maths"] == curve_maths(line.get("labelling", {}).get("task", "")):
                self.examples[line["name"]] = line
        elif line["maths"] == maths_of(line["config"], line.get("condition", {}).get("variant", "")):
            self.results[line["name"]] = line

    def add(self, line: Line) -> None:
        """Append a line, and see it on the disk before going on."""
        with open(self.path, "ab") as stream:
            stream.write(gzip.compress(_encoded(line), mtime=0))
            stream.flush()
            os.fsync(stream.fileno())
        self._take(line)

    def add_dataset(self, line: Line) -> None:
        """Append what is known about a dataset, unless it is there."""
        if self.datasets.get(line["fingerprint"]) != line:
            self.add(line)

    def lines(self) -> list[Line]:
        """All lines, in an order that does not depend on when they were written."""
        return ordered([*self.datasets.values(), *self.examples.values(), *self.results.values()])

    def compact(self) -> None:
        """Write the file anew: ordered, without what was replaced, compressed as one."""
        write_lines(self.path, self.lines())


def ordered(lines: Iterable[Line]) -> list[Line]:
    """Lines of datasets first, then those of runs, each by their names."""
    return sorted(lines, key=lambda line: (line.get("name") is not None, line.get("dataset") or "", line.get("name")))


def write_lines(path: str | Path, lines: Iterable[Line]) -> None:
    """Write a file of runs; equal lines are equal bytes."""
    text = b"".join(_encoded(line) for line in lines)
    with atomic_file(path) as stream:
        stream.write(gzip.compress(text, mtime=0))


def _encoded(line: Line) -> bytes:
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
