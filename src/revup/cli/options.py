"""What verbs share: the parser, common options, nested settings as options, reading documents, printing figures."""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import Field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import revup
from revup.cli import VERBS
from revup.errors import InputError, RevupError
from revup.fields import kind, option_name, parse

if TYPE_CHECKING:
    from revup.data.events import Document
    from revup.inference.trained import Trained

GC_THRESHOLD = 50_000  # new objects before a collection; Python's default is for programs with fewer


def whole(minimum: int = 0, maximum: int | None = None) -> Callable[[str], int]:
    """The type of an option that is a whole number in a range."""
    shown = f"a whole number of {minimum} or more" if maximum is None else f"a whole number from {minimum} to {maximum}"

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = minimum - 1
        if value < minimum or (maximum is not None and value > maximum):
            raise argparse.ArgumentTypeError(f"expected {shown}, found '{text}'")
        return value

    return convert


COMMON: dict[str, dict[str, Any]] = {
    "run": {"metavar": "RUN", "help": "a run directory"},
    "data": {"metavar": "DATA", "nargs": "?", "help": "a dataset (default: the one that the run was trained on)"},
    "file": {"metavar": "FILE", "help": "documents; - is standard input"},
    "--split": {"default": "test", "choices": ("train", "valid", "test"), "help": "part of the dataset"},
    "--seed": {"type": whole(0, 2**63 - 1), "default": 0, "help": "seed of all randomness (default: 0)"},
    "--device": {"help": "cpu or cuda (default: cuda where there is one)"},
    "--precision": {
        "default": "float32",
        "choices": ("float32", "bf16"),
        "help": "bf16 is faster where supported",
    },
    "--allow-unfinished": {"action": "store_true", "help": "accept a run whose training has not finished"},
    "--skip-bad": {"action": "store_true", "help": "skip invalid lines and count them"},
    "--force": {"action": "store_true", "help": "replace the output if it exists"},
    "--json": {"action": "store_true", "help": "print JSON"},
}


class Parser(argparse.ArgumentParser):
    """The parser of a verb, with what verbs share."""

    def __init__(self, verb: str, *examples: str) -> None:
        super().__init__(
            prog=f"revup {verb}",
            description=VERBS[verb],
            epilog="\n  ".join(["examples:" if examples[1:] else "example:", *examples]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def add(self, name: str, *, help: str, **how: Any) -> None:
        """Add an argument as argparse does. A default is added to the help, unless it is empty or the help names it."""
        if how.get("default") and "(default" not in help:
            help += f" (default: {show(how['default'])})"
        self.add_argument(name, help=help, **how)

    def error(self, message: str) -> NoReturn:
        """Raise wrong usage as an error like any other."""
        raise RevupError(message.removeprefix("argument "))

    def common(self, *names: str) -> None:
        """Add options that several verbs have."""
        for name in names:
            self.add(name, **COMMON[name])

    def model(self, precision: bool = False) -> None:
        """Add RUN and the options of loading it; `load` uses them."""
        self.common("run", "--device", "--allow-unfinished", *(["--precision"] if precision else []))

    def fields(self, dataclass: Any, leave_out: Collection[str] = (), absent: bool = False) -> None:
        """Add an option for each field of a settings dataclass, explained by its metadata.

        Args:
            dataclass: The dataclass.
            leave_out: Fields that are no options.
            absent: Options that are not given have no value, instead of the default.
        """
        for item in fields(dataclass):
            if item.metadata and item.name not in leave_out:
                _add(self, item, "", item.default, item.metadata["help"], absent)

    def reading(self, leave_out: Collection[str] = ()) -> None:
        """Add the options of reading documents; `documents` uses them."""
        from revup.data.readers import FORMATS, Options

        self.add("--format", default="jsonl", choices=FORMATS, help="format of FILE")
        self.common("--skip-bad")
        self.fields(Options, leave_out)

    def settings(self, arguments: list[str], first: Collection[str] = ()) -> None:
        """Add every nested setting; `--help` shows those named in `first`, `--help-all` all of them."""
        self.add("--help-all", action="help", help="show all settings, with the models that use them")
        if {"-h", "--help"}.intersection(arguments) and not first:
            return
        from revup.settings import every_setting

        show_all, group, section = "--help-all" in arguments, None, ""
        for each in every_setting():
            if group is None or (show_all and each.section != section):
                section = each.section
                group = self.add_argument_group(f"{section} settings" if show_all else "first settings to change")
            help: str | None = None
            if show_all or each.name in first:
                help = each.help + (f" ({', '.join(each.models)})" if show_all and each.models else "")
            _add(group, each.item, each.section, each.value() if help else None, help)


def _add(parser: Any, item: Field[Any], section: str, default: Any, help: str | None, absent: bool = True) -> None:
    """Add the option of a field: hidden without help, absent unless it is given if asked for."""
    choices = item.metadata["choices"] or (("true", "false") if kind(item) == "bool" else ())
    if help is not None and default is not None:
        help += f" (default: {show(default)})"
    parser.add_argument(
        f"--{option_name(item, section)}",
        dest=f"{section}.{item.name}".lstrip("."),
        type=partial(parse, item, section),
        default=argparse.SUPPRESS if absent else default,
        metavar="|".join(choices) if choices else {"int": "N", "float": "X"}.get(kind(item), "TEXT"),
        help=argparse.SUPPRESS if help is None else help.replace("%", "%%"),
    )


def show(value: Any) -> str:
    """A setting's value as it is written on the command line."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def overrides(given: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The nested settings that were given: section → name → value."""
    found: dict[str, dict[str, Any]] = {}
    for name, value in vars(given).items():
        section, dot, setting = name.partition(".")
        if dot:
            found.setdefault(section, {})[setting] = value
    return found


def pick(given: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Options that a function has as parameters of the same names."""
    return {name: getattr(given, name) for name in names}


def chosen(given: argparse.Namespace, dataclass: Any) -> dict[str, Any]:
    """The options that are fields of a settings dataclass."""
    names = {item.name for item in fields(dataclass)}
    return {name: value for name, value in vars(given).items() if name in names}


def load(given: argparse.Namespace) -> Trained:
    """The model of RUN."""
    precision = getattr(given, "precision", "float32")
    return revup.load(given.run, given.device, precision, allow_unfinished=given.allow_unfinished)


@contextmanager
def documents(given: argparse.Namespace) -> Iterator[Iterator[Document]]:
    """The documents of FILE; none at all is an error, and skipped lines are reported at the end."""
    from revup.data.readers import Options, read

    bad: list[InputError] = []

    def stream() -> Iterator[Document]:
        count = 0
        for document in read(
            given.file, given.format, bad.append if given.skip_bad else None, **chosen(given, Options)
        ):
            count += 1
            yield document
        if not count:
            raise InputError("no documents in it", given.file)

    with _many_objects():
        yield stream()
    report_skipped(bad)


def report_skipped(bad: Sequence[InputError]) -> None:
    """Say how many lines were skipped."""
    if bad:
        print(f"revup: note: skipped {len(bad)} bad lines, the first: {bad[0]}", file=sys.stderr)


@contextmanager
def _many_objects() -> Iterator[None]:
    """Freeze existing objects and collect garbage less often while documents come and go."""
    first, *others = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, *others)
    try:
        yield
    finally:
        gc.set_threshold(first, *others)
        gc.unfreeze()


def print_figures(figures: dict[str, Any], as_json: bool, optimum: dict[str, Any] | None = None) -> None:
    """Print named figures as a table, beside those of the exact optimum if it is known, or as JSON."""
    if as_json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        if isinstance(value, (dict, list)):
            continue
        shown = "–" if value is None else f"{value:.4f}" if isinstance(value, float) else value
        best = (optimum or {}).get(name)
        beside = f"   (exact optimum {best:.4f})" if best is not None and value is not None else ""
        print(f"{name.replace('_', ' '):<26}{shown}{beside}")
