"""Errors: one line each, and whole across process boundaries."""

from __future__ import annotations

import pickle

from revup.errors import InputError, missing_extra, reason


def test_reason_has_no_text_of_python() -> None:
    assert reason(KeyError("uuid")) == "'uuid' is missing"
    assert reason(EOFError()) == "it ends too early"
    assert reason(PermissionError(13, "Permission denied", "x")) == "Permission denied"
    assert reason(AttributeError("'NoneType' object has no attribute 'x'")) == ""
    assert reason(ValueError("no\nid")) == "no id"
    assert len(reason(ValueError("x" * 999))) == 201


def test_input_error_can_be_pickled() -> None:
    error = InputError("wrong", "file", 3, "id")
    back = pickle.loads(pickle.dumps(error))
    assert (str(back), back.path, back.line, back.field) == ("file: line 3: id: wrong", "file", 3, "id")
    assert str(missing_extra("text", "the format 'text'")) == (
        "the format 'text' needs the extra 'text': pip install 'revup[text]'"
    )


def test_error_message_is_one_line() -> None:
    assert str(InputError("found 'a\nb\x00\ud800'", "file\n")) == "file\\n: found 'a\\nb\\x00\\ud800'"
    assert str(InputError("é 😀", "ü")) == "ü: é 😀"
    assert len(str(InputError("x" * 10**6))) == 1001
