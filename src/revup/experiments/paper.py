"""The paper's own numbers: test scores, means of three runs, on its own Wikipedia and New York Times corpora.

They are shown beside ours to compare shapes, not levels: the corpora differ. Perplexities are those of the appendix,
whose columns are named (the body has the two corpora swapped), and are of soft frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CORPORA = ("Wiki", "NYT")

Scores = dict[float, tuple[float, float, float]]  # condition → accuracy, macro-F1, macro-precision
Printed = tuple[Mapping[tuple[str, str], Mapping[float, Any]], int | None]  # a table, and which score of a condition


def _table(text: str) -> dict[tuple[str, str], Scores]:
    """A table as the paper prints it: a row for each condition, a column for each model and corpus."""
    found: dict[tuple[str, str], Scores] = {(model, corpus): {} for corpus in CORPORA for model in ("ssdvae", "revup")}
    for line in text.strip().splitlines():
        condition, *cells = line.split()
        for scores, cell in zip(found.values(), cells, strict=True):
            accuracy, f1, precision = map(float, cell.split("/"))
            scores[float(condition)] = (accuracy, f1, precision)
    return found


# (model, corpus) → ε → scores
INCOMPLETE = _table("""
    0.1  0.02/0.01/0.02  0.06/0.02/0.04  0.02/0.00/0.01  0.05/0.02/0.04
    0.3  0.10/0.05/0.08  0.23/0.11/0.13  0.11/0.06/0.09  0.17/0.07/0.09
    0.5  0.23/0.11/0.14  0.44/0.22/0.21  0.25/0.15/0.18  0.36/0.22/0.22
    0.7  0.52/0.28/0.28  0.84/0.65/0.65  0.56/0.40/0.39  0.76/0.61/0.57
    0.9  0.84/0.61/0.62  0.86/0.72/0.73  0.83/0.77/0.78  0.85/0.81/0.82
    1  0.85/0.68/0.69  0.87/0.75/0.76  0.84/0.81/0.82  0.85/0.82/0.83
""")
# (model, corpus) → η, at ε = 1 → scores
NOISE = _table("""
    0.1  0.77/0.43/0.41  0.85/0.58/0.56  0.76/0.55/0.52  0.83/0.71/0.69
    0.2  0.69/0.35/0.33  0.82/0.52/0.49  0.67/0.44/0.41  0.80/0.63/0.60
    0.3  0.60/0.28/0.27  0.79/0.45/0.42  0.58/0.36/0.34  0.77/0.58/0.55
    0.5  0.41/0.17/0.18  0.72/0.36/0.34  0.41/0.23/0.23  0.71/0.48/0.45
    0.7  0.23/0.09/0.11  0.64/0.29/0.28  0.22/0.11/0.13  0.63/0.37/0.35
    0.9  0.02/0.00/0.01  0.41/0.09/0.11  0.02/0.00/0.01  0.25/0.06/0.09
""")

_EVERY = (0.0, 0.1, 0.7, 1.0)
PERPLEXITY: dict[tuple[str, str], dict[float, float]] = {  # (model, corpus) → ε → perplexity; without frames: any ε
    ("rnnlm", "Wiki"): dict.fromkeys(_EVERY, 64.57),
    ("rnnlm", "NYT"): dict.fromkeys(_EVERY, 56.96),
    ("haqae", "Wiki"): dict.fromkeys(_EVERY, 50.10),
    ("haqae", "NYT"): dict.fromkeys(_EVERY, 39.47),
    ("ssdvae", "Wiki"): {0.0: 47.50, 0.1: 45.91, 0.7: 44.79, 1.0: 36.96},
    ("revup", "Wiki"): {0.0: 45.36, 0.1: 44.87, 0.7: 41.74, 1.0: 34.85},
    ("ssdvae", "NYT"): {0.0: 39.75, 0.1: 39.73, 0.7: 36.79, 1.0: 30.69},
    ("revup", "NYT"): {0.0: 39.48, 0.1: 33.34, 0.7: 33.20, 1.0: 28.33},
}
