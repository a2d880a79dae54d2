"""Reliability of knowledge sources: labels in, posterior over the true frame and error rates out; no network.

from revup.reliability import Source, estimate, single_source
"""

from revup.data.label_noise import SingleSource, single_source
from revup.data.reliability import Estimate, Reliability, Source, Table, estimate, shared_predicates

__all__ = [
    "Estimate",
    "Reliability",
    "SingleSource",
    "Source",
    "Table",
    "estimate",
    "shared_predicates",
    "single_source",
]
