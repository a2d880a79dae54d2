"""The paper's numbers."""

from __future__ import annotations

import itertools
import re

import pytest

from paths import SHARED
from revup.experiments import paper

SPEC = SHARED / "SPEC.md"


def _spec_table(after: str) -> dict[float, list[tuple[float, ...]]]:
    lines = SPEC.read_text("utf-8").split(after, 1)[1].split("\n")
    rows = [line for line in itertools.takewhile(lambda line: line.startswith("|") or not line, lines[1:]) if line]
    return {
        float(cells[0]): [tuple(float(value) for value in cell.split("/")) for cell in cells[1:]]
        for line in rows[2:]
        if (cells := [cell.strip() for cell in line.strip("|").split("|")])
    }


@pytest.mark.skipif(not SPEC.exists(), reason="the specification is not beside the checkout")
def test_paper_numbers_match_the_specification() -> None:
    order = [("ssdvae", "Wiki"), ("revup", "Wiki"), ("ssdvae", "NYT"), ("revup", "NYT")]
    for ours, after in (
        (paper.INCOMPLETE, "Accuracy / macro-F1 / macro-precision, by ε:"),
        (paper.NOISE, "By η (ε = 1):"),
    ):
        theirs = _spec_table(after)
        assert len(theirs) == 6
        assert ours == {system: {at: row[i] for at, row in theirs.items()} for i, system in enumerate(order)}
    text = SPEC.read_text("utf-8").split("Test perplexity (appendix columns):", 1)[1].split("\n")[0]
    numbers = [float(number) for number in re.findall(r"\d+\.\d+", text)]
    flat = [paper.PERPLEXITY[model, corpus][0.0] for model in ("rnnlm", "haqae") for corpus in paper.CORPORA]
    for epsilon in (0.0, 0.1, 0.7, 1.0):
        by_corpus = [[paper.PERPLEXITY[m, c][epsilon] for m in ("ssdvae", "revup")] for c in paper.CORPORA]
        flat += [epsilon, *by_corpus[0], *by_corpus[1]]
    assert numbers == flat
