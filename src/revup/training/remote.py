"""Processes that train on a Ray cluster. Each has an actor beside it on its node, which passes lines on.

Data and output directory must be visible on every node under the same path: checkpoints are written there by the
process that trains, so that another one can continue on another node.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from revup.data.cluster import connected
from revup.errors import RevupError
from revup.io.files import write_text
from revup.training.workers import GRACE, LocalProcess, Start

SHARED = "shared-by-all-nodes"


class _Host:
    """Beside the process, on its node."""

    def __init__(self, module: str, threads: int, log: str) -> None:
        self.process = LocalProcess(module, threads, Path(log))

    def send(self, line: str) -> None:
        self.process.send(line)

    def receive(self) -> str:
        return self.process.receive()

    def ended(self) -> bool:
        return self.process.ended()

    def terminate(self) -> None:
        self.process.terminate()

    def bury(self) -> str:
        return self.process.bury()


class RemoteProcess:
    """A process on a node of the cluster.

    Args:
        ray: The module `ray`.
        actor: The actor beside it.
    """

    def __init__(self, ray: Any, actor: Any) -> None:
        self.ray, self.actor = ray, actor

    def _call(self, name: str, *arguments: Any, timeout: float | None = None) -> Any:
        try:
            return self.ray.get(getattr(self.actor, name).remote(*arguments), timeout=timeout)
        except self.ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, (OSError, ValueError)):
                raise error.cause from None
            raise
        except self.ray.exceptions.GetTimeoutError as error:
            raise OSError(str(error)) from None
        except self.ray.exceptions.RayError as error:  # the actor or its node has died, and the process with it
            raise EOFError(str(error).strip().splitlines()[0][:200]) from None

    def send(self, line: str) -> None:
        self._call("send", line)

    def receive(self) -> str:
        return str(self._call("receive"))

    def ended(self) -> bool:
        try:
            return bool(self._call("ended"))
        except EOFError:
            return True

    def terminate(self) -> None:
        with suppress(OSError, EOFError):
            self._call("terminate", timeout=GRACE)

    def bury(self) -> str:
        try:
            how = str(self._call("bury", timeout=2 * GRACE))
        except (OSError, EOFError) as error:
            how = f"its node or its actor died: {error}"
        with suppress(Exception):  # it may be gone already
            self.ray.kill(self.actor)
        return how


@contextmanager
def processes_on_cluster(folder: Path, jobs: int | None, device: str) -> Iterator[tuple[Start, int]]:
    """Start processes on a Ray cluster instead of here.

    Args:
        folder: The directory of checkpoints, which all nodes must share.
        jobs: Processes at a time; None: one for each processor of the cluster.
        device: cpu or cuda. The GPUs of the cluster are shared evenly.

    Yields:
        What `Worker` starts processes with, and how many there should be.

    Raises:
        RevupError: There is no cluster, it has no GPU, or its nodes do not share the directory.
    """
    with connected(jobs) as ray:
        resources = ray.cluster_resources()
        count = jobs or max(1, int(resources.get("CPU", 1)))
        needs: dict[str, Any] = {"num_cpus": 1}
        if device.startswith("cuda"):
            if not resources.get("GPU"):
                raise RevupError("device: cuda was asked for, but no node of the cluster has a GPU")
            needs["num_gpus"] = min(1.0, resources["GPU"] / count)
        _require_shared(ray, folder)
        host = ray.remote(**needs, max_concurrency=4, max_restarts=0)(_Host)  # calls overlap: it waits for a line

        def start(module: str, threads: int, log: Path) -> RemoteProcess:
            return RemoteProcess(ray, host.remote(module, threads, str(log.absolute())))

        yield start, count


def _require_shared(ray: Any, folder: Path) -> None:
    """Refuse a cluster with a node that does not see the directory: its checkpoints would be lost."""
    token, path = uuid.uuid4().hex, folder.absolute() / SHARED
    write_text(path, token)

    def sees(path: str, token: str) -> bool:
        with suppress(OSError), open(path, encoding="utf-8") as file:
            return file.read() == token
        return False

    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    look = ray.remote(num_cpus=0)(sees)
    seen = [look.options(scheduling_strategy=strategy(node["NodeID"], soft=True)) for node in nodes]
    answers = ray.get([each.remote(str(path), token) for each in seen])
    path.unlink(missing_ok=True)
    blind = [node["NodeManagerAddress"] for node, sees_it in zip(nodes, answers, strict=True) if not sees_it]
    if blind:
        raise RevupError(f"{folder}: not visible on node {blind[0]}: it must be on storage that all nodes share")
