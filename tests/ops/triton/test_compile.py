"""Every kernel compiles for a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_every_kernel_compiles_for_a_gpu() -> None:
    program = Path(__file__).with_name("compile_kernels.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TRITON_INTERPRET": "0"}
    done = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "not compiled: []", done.stdout + done.stderr[-3000:]
