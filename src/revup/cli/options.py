"""What verbs share: the parser, common options, nested settings as options, reading documents, printing figures."""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import Field, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import revup
from revup.cli import VERBS
from revup.errors import InputError, RevupError, did_you_mean
from revup.fields import kind, option_name, parse
from revup.io.files import is_special

if TYPE_CHECKING:
    from revup.data.events import Document
    from revup.inference.trained import Trained

SETTINGS = "settings.json"  # of this package, written by docs/make_reference.py
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


def probability(text: str) -> float:
    """The type of an option that is a probability."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"expected a probability from 0 to 1, found '{text}'")
    return value


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
        "help": "bf16 is faster where the processor has it",
    },
    "--allow-unfinished": {"action": "store_true", "help": "accept a run whose training has not finished"},
    "--engine": {
        "default": "local",
        "choices": ("local", "ray"),
        "help": "where to compute: here, or on the Ray cluster that RAY_ADDRESS names",
    },
    "--workers": {
        "type": whole(1),
        "metavar": "N",
        "help": "with --engine ray and no RAY_ADDRESS: processes here (default: one for each core)",
    },
    "--lexicon": {"metavar": "FILE", "help": "a dictionary for a run that was trained without one"},
    "--no-lexicon": {"action": "store_true", "help": "leave out the dictionary that the run was trained with"},
    "--event-vectors": {
        "metavar": "X.npz",
        "help": "vectors of the events, in the form that revup embed writes, for a run that was trained with such",
    },
    "--encoder": {
        "metavar": "NAME",
        "help": "in their place: the transformer that the run was trained with, which reads the events' sentences",
    },
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
        self._outputs: list[str] = []

    def output(self, name: str, *, help: str, **how: Any) -> None:
        """Add an option that names a file to write. It is refused at once where it exists, or is an input."""
        self.add(name, help=help, **how)
        self._outputs.append(name.removeprefix("--"))

    def add(self, name: str, *, help: str, **how: Any) -> None:
        """Add an argument as argparse does. A default is added to the help, unless it is empty or the help names it."""
        if how.get("default") and "(default" not in help and help is not argparse.SUPPRESS:
            help += f" (default: {show(how['default'])})"
        self.add_argument(name, help=help, **how)

    def error(self, message: str) -> NoReturn:
        """Raise wrong usage as an error like any other."""
        raise RevupError(message.removeprefix("argument "))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse what is not among the choices of an argument, with the one that was probably meant."""
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            meant = did_you_mean(str(value), known)
            raise argparse.ArgumentError(action, f"expected one of {', '.join(known)}, found '{value}'{meant}")

    def parse_args(self, arguments: list[str]) -> argparse.Namespace:  # type: ignore[override]
        """Parse the command line; an option that does not exist is named, with the one that was probably meant."""
        given, others = self.parse_known_args(arguments)
        if others:
            unknown = next((word for word in others if word.startswith("--")), others[0]).partition("=")[0]
            if not unknown.startswith("-"):
                self.error(f"unexpected argument '{unknown}'")
            self.error(f"unknown option {unknown}{did_you_mean(unknown, self._option_string_actions)}")
        self._refuse_outputs(given)
        return given

    def _refuse_outputs(self, given: argparse.Namespace) -> None:
        """Refuse an output before anything is computed: one that exists without --force, and any input."""
        from revup.io.folders import refuse_existing

        named = {name: getattr(given, name) for name in self._outputs}
        files = {name: path for name, path in named.items() if path not in (None, "-") and not is_special(Path(path))}
        if len({Path(path).resolve() for path in files.values()}) < len(files):
            self.error(f"{' and '.join(f'--{name}' for name in files)}: expected different files")
        words = [value for name, value in vars(given).items() if name not in self._outputs]
        reads = [word for word in _texts(words) if os.path.exists(word)]
        for path in files.values():
            refuse_existing(path, given.force, reads=reads)

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

    def format(self, what: str) -> None:
        """Add the format of documents, which the names of most files tell."""
        from revup.data.readers import BY_SUFFIX, FORMATS

        known = ", ".join(BY_SUFFIX)
        self.add("--format", choices=FORMATS, help=f"format of {what} (default: by the name: {known}; else jsonl)")

    def reading(self, leave_out: Collection[str] = ()) -> None:
        """Add the options of reading documents; `documents` uses them."""
        from revup.data.readers import Options

        self.format("FILE")
        self.common("--skip-bad")
        self.fields(Options, leave_out)

    def settings(self, arguments: list[str], first: Collection[str] = ()) -> None:
        """Add every nested setting; `--help` shows those named in `first`, `--help-all` all of them."""
        self.add("--help-all", action="help", help="show all settings, with the models that use them")
        shows_help = bool({"-h", "--help", "--help-all"}.intersection(arguments))
        if shows_help and not first and "--help-all" not in arguments:
            return
        show_all, group, section = "--help-all" in arguments, None, ""
        for each in _written_settings() if shows_help else _settings():
            if group is None or (show_all and each.section != section):
                section = each.section
                group = self.add_argument_group(f"{section} settings" if show_all else "first settings to change")
            help: str | None = None
            if show_all or option_name(each.item, section=each.section) in first:
                help = each.help + (f" ({', '.join(each.models)})" if show_all and each.models else "")
            _add(group, each.item, each.section, each.value if help else None, help)


def _texts(values: Any) -> Iterator[str]:
    """The texts among the values of arguments, and what stands behind the first = of each."""
    for value in values if isinstance(values, list | tuple) else [values]:
        if isinstance(value, str):
            yield from filter(None, (value, value.partition("=")[2]))
        elif isinstance(value, list | tuple):
            yield from _texts(value)


class _Setting(NamedTuple):
    """A nested setting as an option."""

    section: str
    item: Field[Any]
    models: Sequence[str]  # models that have it; empty: all
    help: str
    value: Any  # in the preset default


def _settings() -> list[_Setting]:
    from revup.settings import every_setting

    return [_Setting(*each, each.value()) for each in every_setting()]


def _written_settings() -> list[_Setting]:
    """The nested settings from a file of this package: help is shown without importing torch, which takes seconds."""
    found = []
    for each in json.loads((Path(__file__).with_name(SETTINGS)).read_text("utf-8")):
        item: Any = field(default=each["default"], metadata=each["metadata"])
        item.name, item.type = each["name"], each["type"]
        found.append(_Setting(each["section"], item, each["models"], each["help"], each["value"]))
    return found


def settings_as_json() -> str:
    """What the file that `_written_settings` reads should hold; `docs/make_reference.py` writes it."""
    found = [
        {
            "section": each.section,
            "name": each.item.name,
            "type": str(each.item.type),
            "default": each.item.default,
            "metadata": dict(each.item.metadata),
            "models": list(each.models),
            "help": each.help,
            "value": each.value,
        }
        for each in _settings()
    ]
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def _add(parser: Any, item: Field[Any], section: str, default: Any, help: str | None, absent: bool = True) -> None:
    """Add the option of a field: hidden without help, absent unless it is given if asked for."""
    choices = item.metadata["choices"] or (("true", "false") if kind(item) == "bool" else ())
    if help is not None and default not in (None, ""):
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
    model = revup.load(given.run, given.device, precision, allow_unfinished=given.allow_unfinished)
    if getattr(given, "no_lexicon", False):
        model.use_lexicon(None)
    elif getattr(given, "lexicon", None):
        model.use_lexicon(given.lexicon)
    _use_vectors(model, getattr(given, "event_vectors", None), getattr(given, "encoder", None))
    return model


def _use_vectors(model: Trained, path: str | None, encoder: str | None) -> None:
    if path is not None and encoder is not None:
        raise RevupError("give either --event-vectors or --encoder, not both")
    if path is not None:
        model.use_event_vectors(path)
    elif encoder is not None:
        model.use_encoder(encoder)


@contextmanager
def documents(
    given: argparse.Namespace, check: Callable[[Document], None] | None = None
) -> Iterator[Iterator[Document]]:
    """The documents of FILE; none at all is an error, and skipped lines are reported at the end.

    Args:
        given: The command line.
        check: Called with every document; its errors are those of the document's line.
    """
    from revup.data.readers import Options, read

    bad = Skipped()

    def stream() -> Iterator[Document]:
        count = 0
        note = bad.add if given.skip_bad else None
        for document in read(given.file, given.format, note, check, **chosen(given, Options)):
            count += 1
            yield document
        if not count:
            raise InputError("no documents in it", given.file)

    with _many_objects():
        yield stream()
    bad.report()


class Skipped:
    """Counts the lines that `--skip-bad` leaves out and keeps the first, however many there are."""

    def __init__(self) -> None:
        self.count, self.first = 0, ""

    def add(self, error: InputError) -> None:
        """Count a bad line."""
        self.count += 1
        self.first = self.first or str(error)

    def report(self) -> None:
        """Say how many lines were skipped."""
        if self.count:
            print(f"revup: note: skipped {self.count} bad lines, the first: {self.first}", file=sys.stderr)


def refuse_on_cluster(given: argparse.Namespace) -> None:
    """Refuse options that work in this process only, and name those that only a cluster has."""
    if given.engine == "ray" and (given.event_vectors or given.encoder):
        raise RevupError("--event-vectors and --encoder need --engine local")
    if given.engine == "local" and given.workers:
        print("revup: note: --workers is for --engine ray; without it one process computes", file=sys.stderr)


def report_cluster(report: dict[str, Any], out: str) -> None:
    """Say what a cluster skipped, and which documents it had to set aside."""
    if report["skipped"]:
        first = report["first_skipped"]
        print(f"revup: note: skipped {report['skipped']} bad lines, the first: {first}", file=sys.stderr)
    if aside := report["set_aside"]:
        first = f"{aside[0]['path']}: line {aside[0]['line']}: {aside[0]['reason']}"
        kept = f"{out}.set-aside.jsonl"
        print(f"revup: note: set aside {len(aside)} that ended their worker, in {kept}: {first}", file=sys.stderr)


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
