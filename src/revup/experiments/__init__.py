"""Experiments: raw runs, the sweep that makes them, tables with their uncertainty, the comparison of all systems."""

from revup.experiments.suite import NAMES, experiment

__all__ = ["NAMES", "experiment"]
