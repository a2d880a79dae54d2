"""Settings that explain themselves: meaning, range and choices as metadata of dataclass fields.

`setting` declares a field, `check` validates an instance, `parse` reads a value from text. Command-line help, error
messages and the reference page of settings are made from the same metadata.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import Field, field, fields
from numbers import Integral, Real
from typing import Any, TypeVar

from revup.errors import RevupError, did_you_mean

T = TypeVar("T")
LARGEST = 2**63 - 1  # whole number
TRUE, FALSE = ("true", "yes", "1", "on"), ("false", "no", "0", "off")


def setting(
    default: T,
    help: str,
    *,
    choices: Iterable[str] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> T:
    """Declare a field of a settings dataclass. Its type is one of int, float, bool and str, or one of them or None.

    Args:
        default: The value where none is given.
        help: The meaning, in a sentence without a capital at its beginning or a full stop at its end.
        choices: The allowed values of a string.
        minimum, maximum: The smallest and largest allowed number.
        above, below: Numbers that the value must exceed and stay below.
    """
    limits = {"minimum": minimum, "maximum": maximum, "above": above, "below": below}
    return field(default=default, metadata={"help": help, "choices": tuple(choices), **limits})


def check(settings: Any, section: str = "") -> None:
    """Validate every field of a settings dataclass that was declared with `setting`; its numbers become Python's own.

    Args:
        settings: An instance of the dataclass.
        section: What precedes a field's name in the error message, such as "training".

    Raises:
        RevupError: `section.name: expected …, found …`, for the first value that is not allowed.
    """
    for item in fields(settings):
        value = getattr(settings, item.name)
        if isinstance(value, Real) and not isinstance(value, int | float):  # a number of NumPy's, such as a seed
            value = int(value) if isinstance(value, Integral) else float(value)
            object.__setattr__(settings, item.name, value)
        if item.metadata and not _allowed(item, value):
            raise _wrong(item, section, value)


def made(dataclass: type[T], values: Mapping[str, Any]) -> T:
    """An instance of a settings dataclass.

    Args:
        dataclass: The dataclass, which checks its values.
        values: Names and values of its fields; those left out have their defaults.

    Raises:
        RevupError: There is no such setting, or a value is not allowed.
    """
    known = [item.name for item in fields(dataclass)]  # type: ignore[arg-type]
    unknown = next((name for name in values if name not in known), None)
    if unknown is not None:
        hint = did_you_mean(unknown, known) or f": one of {', '.join(known)}"
        raise RevupError(f"no setting '{unknown}'{hint}")
    return dataclass(**values)


def parse(item: Field[Any], section: str, text: str) -> Any:
    """Read the value of a field from text, such as a command-line argument. The range is left to `check`."""
    lower = text.lower()
    try:
        match kind(item):
            case "bool":
                return (*TRUE, *FALSE).index(lower) < len(TRUE)
            case "int":
                return int(text)
            case "float":
                return float(text)
    except ValueError:
        raise _wrong(item, section, text) from None
    return text


def kind(item: Field[Any]) -> str:
    """The name of a field's type without `None`: int, float, bool or str."""
    return str(item.type).removesuffix(" | None")


def option_name(item: Field[Any], section: str = "") -> str:
    """A field's name as users write it: `training.batch-size`."""
    return f"{section}.{item.name}".lstrip(".").replace("_", "-")


def expected(item: Field[Any]) -> str:
    """The allowed values of a field in words: `a number from 0 to below 1`."""
    limits, choices = item.metadata, item.metadata["choices"]
    if kind(item) == "bool":
        return "true or false"
    if choices:
        return " or ".join(choices) if len(choices) == 2 else f"one of {', '.join(choices)}"
    if kind(item) == "str":
        return "text"
    number = "a whole number" if kind(item) == "int" else "a number"
    low, high = limits["minimum"], limits["maximum"]
    if limits["above"] is not None:
        number += f" above {limits['above']}"
    if low is not None:
        number += f" from {low}" if high is not None or limits["below"] is not None else f" of {low} or more"
    if high is not None:
        number += f" to {high}"
    if limits["below"] is not None:
        number += f" to below {limits['below']}"
    return number


def _allowed(item: Field[Any], value: Any) -> bool:
    limits, wanted = item.metadata, kind(item)
    if value is None:
        return str(item.type).endswith(" | None")
    if wanted == "bool":
        return isinstance(value, bool)
    if wanted == "str":
        return isinstance(value, str) and (not limits["choices"] or value in limits["choices"])
    if isinstance(value, bool) or not isinstance(value, int if wanted == "int" else (int, float)):
        return False
    return (
        (math.isfinite(value) if isinstance(value, float) else abs(value) <= LARGEST)
        and (limits["minimum"] is None or value >= limits["minimum"])
        and (limits["maximum"] is None or value <= limits["maximum"])
        and (limits["above"] is None or value > limits["above"])
        and (limits["below"] is None or value < limits["below"])
    )


def _wrong(item: Field[Any], section: str, value: Any) -> RevupError:
    found = f"'{value}'" if isinstance(value, str) else value
    if isinstance(value, int) and abs(value) > LARGEST:
        found = "too large a number"
    return RevupError(f"{option_name(item, section)}: expected {expected(item)}, found {found}")
