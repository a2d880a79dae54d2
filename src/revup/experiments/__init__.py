"""Experiments: the sweep engine, a module for each table or figure of the paper, and the comparison of all systems."""

from revup.experiments.suite import PARTS, experiment

__all__ = ["PARTS", "experiment"]
