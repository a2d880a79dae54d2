"""A faster `import torch`, for verbs that should answer soon after their start.

A quarter of torch's import time goes into a module that describes operations to its compiler and to tensors without
values. Neither is used for prediction, so a placeholder takes its place, which imports the module once something of it
is used after all.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

POSTPONED = "torch._meta_registrations"


def postpone_compiler() -> None:
    """Let `import torch` leave out the part of its compiler; does nothing where torch is imported already."""
    if "torch" not in sys.modules:
        sys.modules[POSTPONED] = _Postponed(POSTPONED)


class _Postponed(ModuleType):
    """A module that is imported when something of it is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system looks for these
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)
