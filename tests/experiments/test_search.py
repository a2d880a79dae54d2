"""The small search: candidates of each row, and the choice by observed validation labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from revup.experiments import aggregate, experiment, search
from revup.experiments.catalogue import ALL_SOURCES, EXPERIMENTS
from revup.experiments.plan import Plan
from revup.experiments.runs import Condition, Line, Run, System, read_lines, write_lines
from revup.experiments.suite import make_sections

from .test_tabulate import dataset, run_line

NOISE = EXPERIMENTS["noise"]
GCE = System("tagger", "gce")
POWERS = [(), *((("objective", "power", value),) for value in (0.3, 0.5, 0.9))]


def test_rows_of_each_table_are_searched_at_one_column() -> None:
    cells = NOISE.cells(dataset(), [GCE, System("counts"), System("revup", "paper")], False)
    found = search.trials(NOISE, cells)
    assert set(found) == {("uniform errors", GCE.label), ("confusable errors", GCE.label)}  # the others have none
    uniform = found["uniform errors", GCE.label]
    assert [cell.condition for cell in uniform] == [Condition(1.0, 0.5, changed=powers) for powers in POWERS]
    assert {cell.condition.eta for cell in found["confusable errors", GCE.label]} == {0.4}


def test_every_experiment_with_a_search_has_its_columns() -> None:
    systems = [System("tagger"), System("revup")]
    for name, each in EXPERIMENTS.items():
        parts = {}
        for few in (True, False):
            cells = each.cells(dataset(soft=3, tests={"other": 0.9}, revealed={}), systems, few)
            parts[few] = set(search.trials(each, cells))
            if each.searched:
                assert parts[few] == {(cell.part, cell.row) for cell in cells}, name
        assert parts[True] <= parts[False]


def candidates(accuracies: list[float], **more: Any) -> list[Line]:
    made = []
    for powers, accuracy in zip(POWERS, accuracies, strict=True):
        line = run_line("tagger:gce", Condition(1.0, 0.5, changed=powers), 0, [2, 2], **more)
        made.append({**line, "observed": {"accuracy": accuracy, "label_nll": 1.0}})
    return made


def test_choice_is_made_by_observed_labels_alone() -> None:
    lines = candidates([0.2, 0.3, 0.4, 0.1])
    lines[3]["scores"]["test"]["accuracy"] = lines[3]["scores"]["valid"] = 1.0  # references choose nothing
    chosen = run_line("tagger:gce", Condition(1.0, 0.5, changed=POWERS[2]), 1, [4, 4])
    (section,) = make_sections(["noise"], [dataset(), *lines, chosen], None)
    assert section.tables[0].rows[0].cells == ((0.5, 1.0),)
    assert "uniform errors: Tagger gce objective.power = 0.5." in section.text
    assert section.about["runs"] == 5  # the search is a part of where the table comes from


def test_ties_keep_the_preset_and_an_unfinished_search_changes_nothing() -> None:
    for lines in (candidates([0.3, 0.3, 0.3, 0.3]), candidates([0.2, 0.3, 0.4, 0.1])[:3]):
        lines[0] = run_line("tagger:gce", Condition(1.0, 0.5), 0, [4, 4]) | {"observed": lines[0]["observed"]}
        (section,) = make_sections(["noise"], [dataset(), *lines], None)
        assert section.tables[0].rows[0].cells == ((1.0,),)


def test_soft_labels_choose_by_cross_entropy() -> None:
    cells = EXPERIMENTS["soft"].cells(dataset(soft=3), [GCE], True)
    found = search.trials(EXPERIMENTS["soft"], cells)
    scores = iter([{"accuracy": 0.9, "label_nll": 2.0}, *({"accuracy": 0.1, "label_nll": nll} for nll in (1.5, 1, 3))])
    chosen = search.choices("soft_cross_entropy", found, lambda cell: {"observed": next(scores)})
    assert chosen == {("", GCE.label): POWERS[2]}


def test_plan_uses_the_choice_in_all_columns_and_seeds(tmp_path: Path) -> None:
    plan = Plan(("noise",), (GCE,), (0, 1), {}, False, searching=True)
    plan.add(dataset(), tmp_path)
    trials = plan.first()
    assert len(trials) == 8
    assert {run.seed for run in trials} == {0}
    beside = Plan(("noise",), (GCE, System("counts")), (0, 1), {}, False, searching=True)
    beside.add(dataset(), tmp_path)
    assert len(beside.first()) == 8 + 2 * 9  # counts have no search to wait for
    told = {
        run: {"observed": {"accuracy": float(run.condition.changed == POWERS[3]), "label_nll": 1}} for run in trials
    }
    runs = plan.runs(told)["noise"]
    assert len(runs) == 2 * 9
    assert {run.condition.changed for run in runs} == {POWERS[3]}
    assert {run.condition.changed for run in replace(plan, searching=False).runs()["noise"]} == {()}


def test_rows_without_a_wanted_column_are_not_searched(tmp_path: Path) -> None:
    for columns, searched in (
        (("0.5", "0.1"), {"uniform"}),
        (("0.4",), {"confusable"}),
        (("0.2",), {"uniform", "confusable"}),
    ):
        plan = Plan(("noise",), (GCE,), (0,), {}, False, columns, searching=True)
        plan.add(dataset(), tmp_path)
        assert {run.condition.noise for run in plan.first()} == searched


def test_systems_can_be_left_out(tmp_path: Path) -> None:
    plan = Plan(("noise",), None, (0,), {}, True, without=(System("revup", "paper"), GCE))
    plan.add(dataset(), tmp_path)
    named = {run.system.name for run in plan.runs()["noise"]}
    assert not named & {"revup:paper", "tagger:gce"}
    assert named > {"revup:default", "tagger:default"}


def test_columns_choose_among_conditions(tmp_path: Path) -> None:
    plan = Plan(("noise", "incomplete"), (GCE,), (0,), {}, False, ("0.2", "1"))
    plan.add(dataset(), tmp_path)
    conditions = [run.condition for runs in plan.runs().values() for run in runs]
    assert conditions == [Condition(1.0, 0.2), Condition(1.0, 0.2, "confusable"), Condition(1.0)]


def test_aggregated_labels_are_left_out_where_they_are_lacking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregate, "find_spec", lambda library: None)
    line = dataset(lexicon=True)
    kept = f"sources={ALL_SOURCES}|dawid-skene"
    write_lines(aggregate.kept(tmp_path, f"{line['fingerprint']}/{kept}/0"), [])
    plan = Plan(("sources",), (System("tagger"),), (0,), {}, False)
    plan.add(line, tmp_path)
    variants = {run.condition.variant for run in plan.runs()["sources"]}
    assert kept in variants
    assert "annotators=0.1,0.3|vote" in variants
    assert not {v for v in variants if "snorkel" in v or ("dawid" in v and v != kept)}
    assert len(plan.notes) == 2  # one for each row
    named = Plan(("sources",), (System("tagger"),), (0,), {}, False, ("1",))
    named.add(line, tmp_path)
    assert not named.notes  # what is not wanted is not missed


def test_verb_searches_and_makes_the_same_tables_from_runs(tmp_path: Path, tiny_path: Path, tiny: Any) -> None:
    about: dict[str, Any] = {"systems": "lookup,logistic", "overrides": tiny, "few": True, "jobs": 1}
    found = experiment("incomplete", tiny_path, tmp_path / "out", seeds=2, search=True, **about)
    assert found["complete"]
    lines = [line for line in read_lines(tmp_path / "out" / "runs.jsonl.gz")[0] if "system" in line]
    assert all(line["observed"]["label_nll"] > 0 for line in lines)
    tried = {str(line["condition"].get("changed")) for line in lines if line["condition"].get("epsilon") == 0.1}
    assert len(tried) == 2 * 4 - 1  # four candidates each; both have a preset
    page = (tmp_path / "out" / "incomplete.md").read_text()
    assert "Small search: 2 rows had four candidates each" in page
    experiment("incomplete", None, tmp_path / "again", from_runs=tmp_path / "out" / "runs.jsonl.gz")
    assert (tmp_path / "again" / "incomplete.md").read_text() == page
    assert Run.of("lookup").condition.changed == ()
