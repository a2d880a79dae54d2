"""What identifies a run, and the file of raw runs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from revup.errors import InputError, RevupError
from revup.experiments import runs
from revup.experiments.runs import Condition, Run, RunFile, System, existing, read_lines
from revup.models import CLASSES, model_module
from revup.models.count_prior import CountSettings

Settings = dict[str, dict[str, Any]]


def test_run_name_depends_on_everything_that_determines_it(tiny: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run.of("revup", overrides=tiny)
    assert run.name("data") == Run.of("revup:default", Condition(1), overrides=tiny).name("data")
    different = [
        Run.of("revup:paper", overrides=tiny),
        Run.of("revup", Condition(0.5), overrides=tiny),
        Run.of("revup", Condition(1, 0.5), overrides=tiny),
        Run.of("revup", Condition(1, 0.5, "confusable"), overrides=tiny),
        Run.of("revup", Condition(sources="0.1,0.3"), overrides=tiny),
        Run.of("revup", Condition(variant="dictionary=none"), overrides=tiny),
        Run.of("revup", Condition(text=True), overrides=tiny),
        Run.of("revup", Condition(changed=(("objective", "anchor", 0.0),)), overrides=tiny),
        Run.of("revup", seed=1, overrides=tiny),
        Run.of("revup"),
        Run.of("ssdvae", overrides=tiny),
    ]
    names = {run.name("data"), run.name("other data"), *(other.name("data") for other in different)}
    assert len(names) == len(different) + 2
    monkeypatch.setattr(runs, "COUNTS_MATHS", 0)
    assert run.name("data") not in names


def test_version_of_the_counts_is_that_of_runs_that_fit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of the count model leaves the runs of published networks and of plain counting as they are."""
    systems = [System(model, preset) for model in CLASSES for preset in model_module(model).PRESETS]
    each = {system: Run.of(system) for system in systems}
    before = {system: run.name("data") for system, run in each.items()}
    monkeypatch.setattr(runs, "COUNTS_MATHS", runs.COUNTS_MATHS + 1)
    changed = {system for system, run in each.items() if run.name("data") != before[system]}
    objectives = {system: run.config().objective for system, run in each.items()}
    assert changed == {s for s, o in objectives.items() if isinstance(o, CountSettings) and o.needs_counts}
    assert {"revup:default", "ssdvae:default", "tagger:default", "counts:default"} <= {s.name for s in changed}
    kept = {system.name for system in systems} - {system.name for system in changed}
    assert {"revup:paper", "revup:released", "ssdvae:paper", "tagger:plain", "haqae:default", "lookup:lemma"} <= kept


def test_version_of_noise_is_that_of_counts_under_uniform_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other runs outlive a change of how labels are corrected that may be replaced by any frame."""
    conditions = [
        Condition(),
        Condition(0.1),
        Condition(0.5, 0.2),
        Condition(1, 0.4, "confusable"),
        Condition(sources="0.1,0.3"),
        Condition(variant="sources=parser"),
    ]
    runs_of = [Run.of(system, c) for system in ("counts", "revup", "tagger:gce", "tagger:plain") for c in conditions]
    before = [run.name("data") for run in runs_of]
    monkeypatch.setattr(runs, "NOISE_MATHS", runs.NOISE_MATHS + 1)
    changed = [run.name("data") != name for run, name in zip(runs_of, before, strict=True)]
    assert changed == [*[False, False, True, False, False, False] * 3, *[False] * 6]


def test_version_of_sources_is_that_of_counts_of_several_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    variants = ("sources=dictionary+parser+people", "sources=parser+dictionary", "sources=people+parser|vote")
    conditions = [Condition(1.0, 0.2), *(Condition(1.0, 0.2, sources=rates) for rates in ("0.1", "0.1,0.3", "3"))]
    conditions += [Condition(variant=variant) for variant in variants]
    runs_of = [Run.of(system, c) for system in ("counts", "revup", "tagger:plain") for c in conditions]
    before = [run.name("data") for run in runs_of]
    monkeypatch.setattr(runs, "SOURCES_MATHS", runs.SOURCES_MATHS + 1)
    changed = [run.name("data") != name for run, name in zip(runs_of, before, strict=True)]
    assert changed == [*[False, False, True, True, True, False, False] * 2, *[False] * 7]


def test_changed_preset_is_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Run.of("revup").name("data")
    changed = {**model_module("revup").PRESETS, "default": {"objective": {"alpha": 0.123}}}
    monkeypatch.setattr(model_module("revup"), "PRESETS", changed)
    assert Run.of("revup").name("data") != before


def test_settings_without_effect_are_left_out_of_a_run(tiny: Settings) -> None:
    """RNNLM and HAQAE know no frames; the lookup table has no network; without anything seen nothing is wrong."""
    for model in ("rnnlm", "haqae"):
        assert Run.of(model, Condition(0.1)) == Run.of(model, Condition(1.0, 0.5, variant="dictionary=none"))
    assert Run.of("lookup", overrides=tiny) == Run.of("lookup", Condition(text=True))
    assert Run.of("lookup", Condition(0.1)) != Run.of("lookup", Condition(0.3))
    assert Run.of("revup", Condition(0, 0.5, "confusable")) == Run.of("revup", Condition(0))
    assert Run.of("tagger", overrides={"objective": {"alpha": 3.0}}) == Run.of("tagger")
    with pytest.raises(RevupError, match=r"objective\.nonsense"):
        Run.of("tagger", overrides={"objective": {"nonsense": 3.0}})


def test_decoder_phase_only_where_perplexity_is_shown() -> None:
    assert Run.of("revup", Condition(text=True)).config().training.settle > 0
    assert Run.of("revup").config().training.settle == 0
    assert Run.of("revup", overrides={"training": {"settle": 0.25}}).config().training.settle == 0.25
    assert Run.of("revup:paper", Condition(text=True)) == Run.of("revup:paper")  # it has none: the runs are shared


def test_run_survives_the_journey_to_a_process(tiny: Settings) -> None:
    changed = (("objective", "anchor", 0.0),)
    run = Run.of("revup", Condition(0.3, changed=changed), 2, tiny, data="wiki", tests=("maven",), revealed=(0.2,))
    again = Run.from_json(json.loads(json.dumps(run.to_json())))
    assert (again, again.tests, again.revealed) == (run, run.tests, run.revealed)
    assert Condition.from_json(json.loads(json.dumps(run.condition.to_json()))) == run.condition


def test_systems_by_name() -> None:
    assert existing(["revup", " revup:paper", "lookup", "revup", "nonsense", "revup:nonsense"]) == (
        System("revup"),
        System("revup", "paper"),
        System("lookup"),
    )
    assert [System.named(name).label for name in ("lookup", "tagger", "revup:paper")] == [
        "Lookup",
        "Tagger default",
        "RevUp paper",
    ]
    for text, match in (("nonsense", "unknown model"), ("revup:nonsense", "no preset")):
        with pytest.raises(RevupError, match=match):
            System.named(text)


def _line(name: str, **more: Any) -> dict[str, Any]:
    return {"maths": runs.MATHS, "name": name, "config": {"objective": {}}, "score": "ä", **more}


def test_killed_writer_loses_at_most_its_last_line(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl.gz"
    file = RunFile(path)
    for name in "abc":
        file.add(_line(name))
    whole = path.read_bytes()
    sizes = [len(gzip.compress(runs._encoded(_line(name)), mtime=0)) for name in "abc"]
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        kept = RunFile(path)
        expected = sum(sum(sizes[: n + 1]) <= cut for n in range(3))
        assert sorted(kept.results) == [*"abc"][:expected]
        kept.add(_line("z"))
        assert sorted(RunFile(path).results) == [*[*"abc"][:expected], "z"]


def test_runs_of_another_version_of_the_maths_are_not_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RunFile(tmp_path / "runs.jsonl.gz")
    file.add(_line("a"))
    file.add({**_line("b"), "maths": runs.MATHS + 1})
    stands_on_counts = {"config": {"objective": {"prior": "pooled"}}}
    monkeypatch.setattr(runs, "COUNTS_MATHS", runs.MATHS + 1)
    file.add(_line("c", **stands_on_counts))
    file.add({**_line("d", **stands_on_counts), "maths": runs.COUNTS_MATHS})
    noisy = {"config": {**stands_on_counts["config"], "observation": {"eta": 0.1, "noise": "uniform"}}}
    file.add({**_line("e", **noisy), "maths": runs.COUNTS_MATHS})
    file.add({**_line("f", **noisy), "maths": runs.NOISE_MATHS})
    assert [*RunFile(file.path).results] == ["a", "d", "f"]


def test_compact_file_does_not_depend_on_the_order_of_runs(tmp_path: Path) -> None:
    files = [RunFile(tmp_path / name) for name in ("one", "two")]
    lines = [{"dataset": "d", "fingerprint": "f"}, _line("b"), _line("a"), _line("a", more=1)]
    for file, order in zip(files, ([0, 1, 2, 3], [2, 3, 0, 1]), strict=True):
        for number in order:
            file.add(lines[number])
        file.compact()
    assert files[0].path.read_bytes() == files[1].path.read_bytes()
    assert read_lines(files[0].path)[0] == [lines[0], lines[3], lines[1]]  # the later line of a name counts


def test_bad_lines_are_named(tmp_path: Path) -> None:
    (tmp_path / "runs.jsonl").write_text('{"a": 1}\nnonsense\n')
    with pytest.raises(InputError, match=r"runs\.jsonl: line 2: expected a line of JSON"):
        read_lines(tmp_path / "runs.jsonl")
    with pytest.raises(InputError, match="can't be read"):
        read_lines(tmp_path / "absent")
