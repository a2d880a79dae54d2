"""The public names of `revup`: each is there, and documents its parameters."""

from __future__ import annotations

import inspect

import pytest

import revup

FUNCTIONS = sorted(name for name in revup.__all__ if inspect.isfunction(getattr(revup, name)))


def test_what_a_verb_does_is_a_function() -> None:
    verbs = {"prepare", "train", "evaluate", "predict", "embed", "generate", "inspect", "cloze", "compare"}
    assert verbs | {"experiment", "bench", "demo", "read", "write", "load"} <= set(FUNCTIONS)
    assert {"World", "Corpus", "Event", "Document", "InputError", "RevupError"} <= set(revup.__all__)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_documents_every_parameter(name: str) -> None:
    function = getattr(revup, name)
    text = inspect.getdoc(function) or ""
    missing = [each for each in inspect.signature(function).parameters if f"{each}:" not in text]
    assert not [each for each in missing if f"{each}, " not in text], f"{name} does not explain {missing}"
