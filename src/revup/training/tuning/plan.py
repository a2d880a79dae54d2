"""What a search is defined by, and the settings of its trials."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from revup.data.corpus import Corpus
from revup.data.knowledge import Observation
from revup.errors import InputError, RevupError
from revup.io.files import read_json, write_json
from revup.models import model_class
from revup.settings import MEASURES, SECTIONS, Config, Overrides
from revup.training.tuning.space import Dimension, default_space, parse_space

PLAN = "tune.json"
SAMPLERS = ("tpe", "random")
CHECKPOINT_MINUTES = 1.0  # of a trial: what a kill costs at most

Values = Mapping[str, Any]  # settings of a trial, by the names that users write


@dataclass(frozen=True)
class Plan:
    """Everything that determines a search but its length; kept in its directory, which only continues the same.

    Attributes:
        data: The fingerprint of the dataset.
        model: The model.
        measure: What is optimised: a measure of the validation split against *observed* labels, or its perplexity.
        epsilon, eta: Observation probability and noise rate of the labels.
        seed: Seed of the trials; the comparison with `default` uses the seeds after it.
        fixed: Settings that all trials have in common, by section and name.
        space: The settings that are searched.
        sampler: How values are chosen: tpe, or random.
        prune: Whether trials that fall behind are stopped.
    """

    data: str
    model: str
    measure: str
    epsilon: float
    eta: float
    seed: int
    fixed: Overrides
    space: tuple[Dimension, ...]
    sampler: str = "tpe"
    prune: bool = True
    sign: int = field(init=False, default=1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sign", MEASURES[self.measure])

    @classmethod
    def make(
        cls,
        corpus: Corpus,
        model: str,
        measure: str | None,
        observation: Observation,
        fixed: Overrides,
        search: str | None,
        sampler: str,
        prune: bool,
    ) -> Plan:
        """A search on a corpus.

        Args:
            corpus: The dataset.
            model: The model.
            measure: What to optimise; None: `label_nll` where labels are observed, else `perplexity`.
            observation: Which labels are observed, which of them are wrong, and the seed.
            fixed: Settings that are given, by section and name.
            search: The settings to search, as `parse_space` reads them; None: the usual ones.
            sampler: tpe or random.
            prune: Whether trials that fall behind are stopped.

        Raises:
            RevupError: A request that makes no sense for this model or corpus.
        """
        kind = model_class(model)
        if not kind.learns:
            raise RevupError(f"the model {model} is not trained by steps: there is nothing to tune")
        valid = corpus.split("valid")
        if not len(valid):
            raise InputError("has no validation split, which settings are compared on", str(corpus.path))
        labels = kind.predicts_frames and bool(valid.seen(observation).observed.any())
        chosen = measure or ("label_nll" if labels else "perplexity")
        if chosen not in MEASURES:
            raise RevupError(f"--measure: expected one of {', '.join(MEASURES)}, found '{chosen}'")
        if chosen != "perplexity" and not labels:
            raise RevupError(f"--measure: no label is observed that {chosen} could be measured by; use perplexity")
        if chosen == "perplexity" and not kind.writes_text:
            raise RevupError(f"--measure: the model {model} writes no text, so it has no perplexity")
        if sampler not in SAMPLERS:
            raise RevupError(f"--sampler: expected one of {', '.join(SAMPLERS)}, found '{sampler}'")
        if "measure" in fixed.get("training", {}):
            raise RevupError("training.measure: tune sets it; give --measure")
        given = {f"{section}.{name}".replace("_", "-") for section in fixed for name in fixed[section]}
        space = parse_space(search, model) if search else default_space(model, chosen, given)
        if both := [dimension.name for dimension in space if dimension.name in given]:
            raise RevupError(f"{both[0]} can't be both given and searched")
        if not space:
            raise RevupError("every setting that could be searched is given")
        plan = cls(
            corpus.fingerprint,
            model,
            chosen,
            observation.epsilon,
            observation.eta,
            observation.seed,
            {section: dict(fixed[section]) for section in SECTIONS if fixed.get(section)},
            space,
            sampler,
            prune,
        )
        plan.to_train({})  # a wrong setting is refused now
        return plan

    def values(self, chosen: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of a trial, from what the sampler chose."""
        return {each.name: each.value(chosen[each.name]) for each in self.space if each.name in chosen}

    def to_train(self, values: Values, seed: int | None = None) -> Config:
        """The settings of the run that a user would train with these values; {} makes it `default`.

        Args:
            values: Settings by name.
            seed: Another seed than the search's.
        """
        return self._config(values, seed, {})

    def trial(self, values: Values, seed: int | None = None) -> Config:
        """The settings that a trial is trained with: those of `to_train` without the decoder phase.

        The decoder phase leaves the frames as they are. It is kept where perplexity is measured.
        """
        training: dict[str, Any] = {"checkpoint_minutes": CHECKPOINT_MINUTES}
        if self.measure != "perplexity":
            training["settle"] = 0.0
        given = self.fixed.get("training", {})
        return self._config(values, seed, {name: value for name, value in training.items() if name not in given})

    def _config(self, values: Values, seed: int | None, training: Mapping[str, Any]) -> Config:
        merged: dict[str, dict[str, Any]] = {section: dict(self.fixed.get(section, {})) for section in SECTIONS}
        places = {each.name: each.place for each in self.space}
        for name, value in values.items():
            section, setting = places[name]
            merged[section][setting] = value
        merged["training"] |= {"measure": self.measure, **training}
        seed = self.seed if seed is None else seed
        return Config.make(self.model, "default", self.epsilon, self.eta, seed, overrides=merged)

    def defaults(self, corpus: Corpus) -> dict[str, Any]:
        """The values that the searched settings have in `default`."""
        vectors = corpus.vectors()
        config = self.to_train({}).resolve(len(corpus.frames), None if vectors is None else vectors[0].shape[1])
        return {each.name: getattr(getattr(config, each.place[0]), each.place[1]) for each in self.space}

    def to_json(self) -> dict[str, Any]:
        """As it is kept in the search's directory."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        del plain["sign"]
        return plain

    def keep(self, folder: Path) -> None:
        """Write the plan to a new search directory; in one that exists, refuse to continue another search.

        Raises:
            InputError: The directory is that of another search, or of something else; the message says what differs.
        """
        if not (folder / PLAN).exists():
            others = (
                [path.name for path in folder.iterdir() if not path.name.startswith(".")] if folder.exists() else []
            )
            if others:
                raise InputError("exists already and is not the directory of a search", str(folder))
            write_json(folder / PLAN, self.to_json())
            return
        known, now = read_json(folder, PLAN, "search"), self.to_json()
        for item in fields(self):
            before = known.get(item.name)
            if item.init and before != now[item.name]:
                if item.name == "data":
                    raise InputError("was started on other data; choose another directory", str(folder))
                shown = (json.dumps(before)[:80], json.dumps(now[item.name])[:80])
                what = f"was started with {item.name} {shown[0]}, not {shown[1]}; choose another directory"
                raise InputError(what, str(folder))
