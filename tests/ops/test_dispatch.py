"""Which version of an operation runs, and that nothing else switches it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from revup import ops
from revup.ops.dispatch import OPERATIONS, Operation


@pytest.fixture
def doubled() -> Operation[[float], float]:
    def doubled(x: float) -> float:
        """Twice x."""
        return x + x

    operation = Operation(doubled)
    operation.register(lambda x: True)(lambda x: 2.001 * x)
    operation.register(lambda x: x > 10)(lambda x: 2.002 * x)
    yield operation
    del OPERATIONS["doubled"]


def test_the_latest_version_that_applies_runs(doubled: Operation[[float], float]) -> None:
    assert doubled(1.0) == 2.001
    assert doubled(100.0) == pytest.approx(200.2)


def test_using_plain_runs_the_equation(doubled: Operation[[float], float]) -> None:
    with ops.using("plain"):
        assert doubled(1.0) == 2.0
        with ops.using("auto"):
            assert doubled(1.0) == 2.001
    assert doubled(1.0) == 2.001


def test_using_plain_for_some_operations_leaves_the_others(doubled: Operation[[float], float]) -> None:
    with ops.using("plain", "gru"):
        assert doubled(1.0) == 2.001
    with ops.using("plain", "doubled", "gru"):
        assert doubled(1.0) == 2.0


@pytest.mark.parametrize("wrong", [("fastest",), ("plain", "no_such_operation")])
def test_unknown_modes_and_names_are_refused(wrong: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="expected one of auto, plain, fused"), ops.using(*wrong):
        pass


def test_an_operation_keeps_its_documentation(doubled: Operation[[float], float]) -> None:
    assert doubled.__doc__ == "Twice x."
    assert all(operation.__doc__ for operation in OPERATIONS.values())


def test_a_cpu_never_imports_triton() -> None:
    code = (
        "import sys, torch; from revup import ops; ops.masked_mean(torch.ones(1, 2, 3), torch.ones(1, 2).bool()); "
        "print('triton' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
