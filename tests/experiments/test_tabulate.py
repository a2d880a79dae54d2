"""Experiments as cells, and the tables made from lines of runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from revup.bottleneck import expected_reliance
from revup.data.corpus import Corpus
from revup.errors import RevupError
from revup.experiments import reliance
from revup.experiments.catalogue import EXPERIMENTS, ORDER
from revup.experiments.datasets import describe
from revup.experiments.ingredients import changes
from revup.experiments.plan import Plan
from revup.experiments.runs import Condition, Line, Run, System, existing
from revup.experiments.suite import make_sections
from revup.experiments.tabulate import MEASURES
from revup.models import model_module
from revup.reporting.tables import judge
from revup.settings import Config

ID = "f"
SEVERAL_SEEDS = (("counts", [1, 1]), ("tagger", [2, 2]))


def dataset(**more: Any) -> Line:
    counts = {"train": 4, "valid": 2, "test": 2}
    line = {"dataset": "d", "fingerprint": ID, "documents": counts, "windows": counts, "events": counts, "view": None}
    line |= {"scored": 8, "soft": 0, "frames": 3, "verbatim_events": 1, "repeated_windows": 0, "lexicon": True}
    return {**line, "optimum": None, "revealed": None, "tests": {}, **more}


def run_line(system: str, condition: Condition, seed: int, right: list[int], **more: Any) -> Line:
    run = Run.of(system, condition, seed)
    accuracy = sum(right) / 8
    return {
        "maths": 1,
        "name": run.name(ID),
        "data": "d",
        "fingerprint": ID,
        "system": run.system.name,
        "seed": seed,
        "condition": run.condition.to_json(),
        "settings": [],
        "config": run.config().to_json(),
        "scores": {"test": {"accuracy": accuracy, "macro_f1": accuracy, "unlabelled": {"events": 2, "accuracy": 0.5}}},
        "documents": {"events": [4, 4], "right": right, "nll": [4000, 4000]},
        "figures": {"noise_rate": 0.4},
        **{"seconds": 1.0, "version": "1", "commit": None, "device": "cpu", "torch": "2"},
        **more,
    }


def test_every_experiment_has_cells_that_tables_can_show() -> None:
    systems = existing(ORDER)
    line = dataset(soft=3, revealed={"0.2": {"accuracy": 0.9, "nll": 0.1}}, tests={"other": 0.9})
    for name, experiment in EXPERIMENTS.items():
        assert not experiment.lacks(line), name
        assert set(experiment.measures) <= MEASURES.keys()
        whole, quick = (experiment.cells(line, systems, few) for few in (False, True))
        assert whole
        assert set(quick) <= set(whole)  # tables are made of all cells
        places = [(cell.part, cell.row, cell.column) for cell in whole]
        assert len(places) == len(set(places)), name
    assert EXPERIMENTS["soft"].lacks(dataset())
    assert EXPERIMENTS["dictionary"].lacks(dataset(lexicon=False))
    assert EXPERIMENTS["transfer"].lacks(dataset())


def test_experiments_share_their_runs(tmp_path: Path) -> None:
    plan = Plan(("incomplete", "ablation", "transfer"), None, (0, 1), {}, False)
    plan.add(dataset(tests={"other": 0.9, "foreign": 0.1}), tmp_path)
    planned = [run for runs in plan.runs().values() for run in runs]
    clean = [run for run in planned if run == Run.of("revup", data="d")]
    assert len(clean) == 3
    assert {run.tests for run in clean} == {(), ("other",)}
    assert not any("foreign" in run.tests for run in planned)  # hardly a frame in common
    other = Plan(("transfer",), None, (0,), {}, False)
    other.add(dataset(tests={"foreign": 0.1}), tmp_path)
    assert other.notes == ["transfer leaves out d: it has too few frames in common with the datasets to test on"]


def test_documents_that_training_shares_are_left_out_of_a_table_of_its_own() -> None:
    """The first document occurs in training; without it the tagger is at 0.5, RevUp at 0.2 nats."""
    soft = {"soft_events": [2, 1], "agreement": [2, 1]}
    lines = [dataset(soft=3, ids=["a", "b"], shared_documents=[0])]
    for system, nats in (("tagger", [0, 5000]), ("revup", [8000, 2000])):
        line = run_line(system, Condition(), 0, [1, 2], documents={**soft, "cross_entropy": nats})
        line["scores"]["test"] |= {"soft_cross_entropy": sum(nats) / 3e4}
        lines.append(line)
    (section,) = make_sections(["soft"], lines, None)
    tables = {table.name: {row.label: row for row in table.rows} for table in section.tables}
    whole, apart = tables["soft-soft-cross-entropy"], tables["soft-soft-apart"]
    assert whole["RevUp default"].cells == ((pytest.approx(1 / 3),),)
    assert apart["Tagger default"].cells == ((0.5,),)
    assert apart["RevUp default"].cells == ((0.2,),)
    assert tables["soft-soft-apart-differences"]["− Tagger default"].cells == ((pytest.approx(-0.3),),)
    del lines[0]["shared_documents"]  # a line that an older version wrote
    (section,) = make_sections(["soft"], lines, None)
    assert "soft-soft-apart" not in {table.name for table in section.tables}


def test_scores_differences_and_marks() -> None:
    """RevUp is right once more in either document than the tagger, and in one document only than counts."""
    e = Condition(0.1)
    lines = [dataset()]
    for seed in (0, 1):
        lines += [
            run_line("counts", e, seed, [1, 3]),
            run_line("tagger", e, seed, [1, 2]),
            run_line("revup", e, seed, [2, 3]),
        ]
    (section,) = make_sections(["incomplete"], lines, None)
    assert "2 test documents (2 windows)" not in section.text
    assert "1 occur word for word in training" in section.text
    accuracy, differences, f1, unlabelled = section.tables
    assert [row.label for row in accuracy.rows[:3]] == ["Counts", "Tagger default", "RevUp default"]
    assert accuracy.columns == ("0.1",)
    cells = judge(accuracy)
    assert cells[2][0].best
    assert not cells[2][0].marked  # a sample of the second document alone has no difference to counts
    assert cells[2][0].interval == (0.5, 0.75)
    by_row = {row.label: row for row in differences.rows}
    assert by_row["− Tagger default"].cells == ((0.25, 0.25),)
    assert by_row["− Tagger default"].marked == (True,)
    assert by_row["− Counts"].cells == ((0.125, 0.125),)
    assert by_row["− Counts"].marked == (False,)
    assert by_row["− Tagger default"].unsure == (False,)
    assert "2 test documents: intervals of so few are too narrow." in differences.caption
    assert not any(row.intervals[0] for row in f1.rows if not row.quoted)
    assert unlabelled.rows[-1].cells == ((2.0, 2.0),)
    assert "RevUp, printed in the paper (its Wiki)" in {row.label for row in f1.rows}


def test_a_row_that_lacks_seeds_of_others_is_neither_bold_nor_marked() -> None:
    e = Condition(0.1)
    lines = [dataset(), run_line("revup", e, 0, [4, 4])]
    lines += [run_line(system, e, seed, right) for seed in (0, 1) for system, right in SEVERAL_SEEDS]
    (section,) = make_sections(["incomplete"], lines, None)
    cells = {row.label: found[0] for row, found in zip(section.tables[0].rows, judge(section.tables[0]), strict=True)}
    assert (cells["RevUp default"].best, cells["RevUp default"].marked) == (False, False)
    assert (cells["Tagger default"].best, cells["Tagger default"].marked) == (True, True)


def test_columns_are_in_order_where_the_first_row_lacks_some() -> None:
    lines = [dataset(), run_line("counts", Condition(0.5), 0, [1, 1])]
    lines += [run_line("revup", Condition(epsilon), 0, [2, 2]) for epsilon in (1.0, 0.1)]
    (section,) = make_sections(["incomplete"], lines, None)
    assert all(table.columns == ("0.1", "0.5", "1") for table in section.tables)
    (unlabelled,) = (table for table in section.tables if table.name == "incomplete-unlabelled")
    assert unlabelled.rows[-1].cells == ((2.0,),) * 3  # numbers of events, from whichever row has them


def test_noise_has_a_table_for_each_shape_of_errors() -> None:
    lines = [dataset()]
    for noise, eta in (("uniform", 0.5), ("confusable", 0.4)):
        lines += [run_line(system, Condition(1, eta, noise), 0, [2, 2]) for system in ("counts", "tagger:plain")]
    (section,) = make_sections(["noise"], lines, None)
    titles = [table.title for table in section.tables]
    assert "Accuracy by η: uniform errors" in titles
    assert "Accuracy by η: confusable errors" in titles
    (estimates,) = (t for t in section.tables if t.title == "Estimated share of wrong labels by η: uniform errors")
    assert [row.label for row in estimates.rows] == ["Counts"]  # the plain tagger estimates nothing


def test_runs_that_differ_in_settings_are_not_mixed() -> None:
    other = Run.of("tagger", overrides={"network": {"hidden": 8}})
    lines = [dataset(), run_line("tagger", Condition(), 0, [1, 1]), run_line("tagger", Condition(), 0, [2, 2])]
    lines[2] |= {"name": "other", "settings": [list(setting) for setting in other.settings]}
    with pytest.raises(RevupError, match="different settings"):
        make_sections(["incomplete"], lines, None)
    for overrides, accuracy in (({}, 0.25), ({"network": {"hidden": 8}}, 0.5)):
        (section,) = make_sections(["incomplete"], lines, overrides)
        assert section.tables[0].rows[0].cells == ((accuracy,),)


def test_several_datasets_have_a_folder_each() -> None:
    lines = [dataset(), dataset(dataset="e", fingerprint="g")]
    lines += [run_line("counts", Condition(), 0, [1, 1])]
    lines += [{**run_line("counts", Condition(), 0, [2, 2]), "fingerprint": "g", "name": "x"}]
    assert [section.folder for section in make_sections(["incomplete"], lines, None)] == ["d", "e"]
    assert [section.folder for section in make_sections(["incomplete"], lines[:3], None)] == [""]


def test_description_of_a_dataset(tiny_corpus: Corpus) -> None:
    line = describe("tiny", tiny_corpus, {"tiny": tiny_corpus, "other": tiny_corpus})
    assert line["documents"] == {"train": 184, "valid": 35, "test": 41}
    assert line["tests"] == {"other": 1.0}
    assert len(line["ids"]) == 41
    train, test = (
        [tuple(row[:4]) for window, n in zip(a["read"], a["lengths"], strict=True) for row in window[:n].tolist()]
        for a in (tiny_corpus.split(name).arrays for name in ("train", "test"))
    )
    assert line["verbatim_events"] == sum(event in set(train) and 3 not in event for event in test)


def test_ablation_follows_the_presets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is one setting away from the default, and none is the default itself."""
    default = Config.make("revup").to_json()
    for label, changed in changes():
        overrides: dict[str, dict[str, Any]] = {}
        for section, name, value in changed:
            overrides.setdefault(section, {})[name] = value
        config = Config.make("revup", overrides=overrides).to_json()
        different = {(s, n) for s in overrides for n in config[s] if config[s][n] != default[s][n]}
        assert different
        assert label == "the paper's weights" or len(different) == 1
    labels = [label for label, _ in changes()]
    assert "objective.prior = none" in labels
    assert "network.attention = full" in labels
    module = model_module("revup")
    monkeypatch.setattr(module, "PRESETS", {**module.PRESETS, "default": {"network": {"dropout": 0.0}}})
    assert "network.dropout = 0.0" not in [label for label, _ in changes()]


def test_ablation_has_the_counts_and_an_oracle() -> None:
    cells = EXPERIMENTS["ablation"].cells(dataset(), (System("counts"), System("revup")), False)
    assert {"Counts", "RevUp default", "oracle: given η"} <= {cell.row for cell in cells}
    rates = {cell.condition.eta: cell.condition.changed[0][2] for cell in cells if cell.row == "oracle: given η"}
    assert rates == {0.0: 0.0, 0.5: 0.5}


def test_reliance_is_the_formula() -> None:
    section = reliance.section()
    (table,) = section.tables
    for row, strength in zip(table.rows, reliance.STRENGTHS, strict=True):
        share = 1.0 if math.isinf(strength) else strength / (1 + strength)
        for cell, epsilon in zip(row.cells, reliance.EPSILONS, strict=True):
            assert cell[0] == pytest.approx(1 - epsilon * share)
            assert cell[0] == expected_reliance(epsilon, strength)
    (ax,) = section.figures[0][1]().axes
    for line, strength in zip(ax.lines, reliance.STRENGTHS, strict=True):
        assert list(line.get_ydata()) == [1.0, expected_reliance(1.0, strength)]


def test_sampled_prediction_of_published_settings_has_rows_of_its_own() -> None:
    sampled = {"accuracy": 0.25, "macro_f1": 0.1, "documents": {"events": [4, 4], "right": [1, 1], "nll": [0, 0]}}
    lines = [dataset(), run_line("revup:paper", Condition(0.1), 0, [2, 4], sampled=sampled)]
    (section,) = make_sections(["incomplete"], lines, None)
    accuracy, differences, *_ = section.tables
    rows = {row.label: row for row in accuracy.rows if not row.quoted}
    assert list(rows) == ["RevUp paper", "RevUp paper, sampled prediction"]
    assert rows["RevUp paper, sampled prediction"].cells == ((0.25,),)
    assert rows["RevUp paper, sampled prediction"].intervals == ((0.25, 0.25),)
    assert "RevUp paper minus each other row" in differences.title


def test_provenance_is_of_the_runs_that_are_shown() -> None:
    lines = [
        {**run_line("counts", condition, 0, [2, 2]), "commit": commit}
        for condition, commit in ((Condition(0.1), "a"), (Condition(1.0, 0.5), "b"))
    ]
    made = make_sections(["incomplete", "noise"], [dataset(), *lines], None)
    assert [(each.about["runs"], each.about["commits"]) for each in made] == [(1, ["a"]), (1, ["b"])]
