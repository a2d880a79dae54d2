"""A Ray cluster of several nodes on this machine, each a set of processes, for tests of the engine `ray`.

Tests share one cluster per test process and one connection to it (the fixture `ray_cluster`): to start a cluster, and
to import torch in its workers, takes longer than what most of them do on it. Workers of one connection serve one test
after the other; a test of connecting closes it first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def nodes(count: int = 2) -> Iterator[Any]:
    """A cluster of so many nodes with one processor each; RAY_ADDRESS names it.

    Yields:
        The cluster (`ray.cluster_utils.Cluster`).
    """
    pytest.importorskip("ray", reason="the extra 'cluster' is not installed")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # 15 otherwise: on a busy machine its workers would starve
    # workers import the module of the test whose classes they are sent, and with it this one
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    import ray
    from ray.cluster_utils import Cluster

    assert not ray.is_initialized()
    small = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    for attempt in range(3):
        cluster = Cluster()
        try:
            cluster.add_node(**small, include_dashboard=False)
            for _ in range(count - 1):
                cluster.add_node(**small)
            break
        except Exception:  # a node has 30 seconds to start, which a busy machine may not give it
            cluster.shutdown()
            if attempt == 2:
                raise
    try:
        os.environ["RAY_ADDRESS"] = cluster.address
        yield cluster
    finally:
        os.environ.pop("RAY_ADDRESS", None)
        if ray.is_initialized():
            ray.shutdown()
        cluster.shutdown()


def connect() -> None:
    """Connect this process to the cluster that RAY_ADDRESS names, unless it is connected."""
    import ray

    if not ray.is_initialized():
        ray.init(log_to_driver=False, logging_level="ERROR")


def workers(cluster: Any, name: str) -> list[Any]:
    """Processes of this cluster that compute a task (`psutil.Process`).

    Args:
        cluster: The cluster.
        name: The task's function.
    """
    import psutil

    found = []
    for node in cluster.list_all_nodes():
        raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
        for process in raylet.children(recursive=True):
            try:
                found += [process] if process.name().startswith(f"ray::{name}"[:15]) else []
            except psutil.NoSuchProcess:
                continue
    return found
