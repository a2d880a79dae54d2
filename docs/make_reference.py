"""Write docs/reference/settings.md, and the settings that `--help` shows, from the metadata of the settings.

    python docs/make_reference.py

The site (conf.py) also takes the pages of commands and of the Python interface from here.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import Field, fields
from importlib import import_module
from pathlib import Path
from typing import Any

import revup
import revup.cli
from revup.cli.options import SETTINGS, Parser, settings_as_json, show
from revup.data.dataset import Settings
from revup.data.knowledge import Observation
from revup.data.readers import Options
from revup.fields import expected, option_name
from revup.models import CLASSES, model_module
from revup.models.network import SIZES, Network
from revup.settings import Config, Training

PAGE = Path(__file__).parent / "reference" / "settings.md"
PRESETS = ("default", "paper", "released")
INTRODUCTION = """# Settings

Every setting with its meaning, the values it accepts, and its value in each preset. On the command line they are
options (`revup train data --out run --training.batch-size 500`), in Python dictionaries by section
(`revup.train(corpus, training={"batch_size": 500})`). A dash stands for a value that is derived or absent.

`python docs/make_reference.py` writes this page from the code.
"""


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [" | ".join(cells).replace("<", "&lt;") for cells in (header, ["---"] * len(header), *rows)]
    return "\n".join(f"| {line} |" for line in lines)


def plain(dataclass: Any, leave_out: tuple[str, ...] = ()) -> str:
    """The table of a settings dataclass that has no presets."""
    chosen = [item for item in fields(dataclass) if item.metadata and item.name not in leave_out]
    rows = [[*explained(item), value(item.default)] for item in chosen]
    return table(["option", "meaning", "values", "default"], rows)


def nested(section: str, dataclass: Any, model: str) -> str:
    """The table of a section, with the values of each preset of a model."""
    presets = [getattr(Config.make(model, preset), section) for preset in PRESETS]
    rows = [
        [*explained(item, section), *(value(getattr(preset, item.name)) for preset in presets)]
        for item in fields(dataclass)
    ]
    return table(["option", "meaning", "values", *PRESETS], rows)


def explained(item: Field[Any], section: str = "") -> list[str]:
    """Name, meaning and allowed values of a field."""
    return [f"`--{option_name(item, section)}`", item.metadata["help"], expected(item)]


def value(found: Any) -> str:
    """A value as a cell."""
    return "–" if found is None else show(found)


def page() -> str:
    """The whole page."""
    sizes = [[name, *(value(size) for size in chosen.values())] for name, chosen in SIZES.items()]
    parts = [
        INTRODUCTION,
        "## Labels and seed (`train`)\n",
        plain(Observation),
        "\n## Network (`train`, `tune`, `compare`, `experiment`)\n\nPresets of `revup`. Named sizes:\n",
        table(["`--network.size`", *SIZES["small"]], sizes),
        "",
        nested("network", Network, "revup"),
        "\n## Training (`train`, `tune`, `compare`, `experiment`)\n\nPresets of `revup`.\n",
        nested("training", Training, "revup"),
        "\n## Objective (`train`, `tune`, `compare`, `experiment`)\n\nEach model has its own.",
    ]
    for model in CLASSES:
        objective = model_module(model).Objective
        found = nested("objective", objective, model) if fields(objective) else "No settings."
        parts.append(f"\n### `{model}`\n\n{found}")
    parts += ["\n## Datasets (`prepare`)\n", plain(Settings, leave_out=("duplicates",))]
    parts += ["\n## Reading documents (`prepare`, `predict`, `embed`, `generate`)\n", plain(Options)]
    return "\n".join(parts) + "\n"


ROOMS = {
    "data": "Documents and datasets",
    "world": "The built-in world",
    "training": "Training",
    "inference": "Trained models",
    "auditing": "Labels",
    "serving": "Serving",
    "integrations": "Integrations",
    "experiments": "Experiments",
}  # packages that have a section of their own on the page of the Python interface

MODULES = ("bottleneck", "reliability")  # public modules, documented as a whole


def commands() -> str:
    """Every verb with its arguments and examples, in Markdown."""
    return "\n".join(_command(verb) for verb in revup.cli.VERBS)


def interface() -> str:
    """The directives that document every public name, by package, in Markdown."""
    homes: dict[str, list[str]] = {}
    for name in revup.__all__:
        homes.setdefault(revup._HOMES[name].split(".")[0], []).append(name)
    parts = []
    for room in [*ROOMS, *sorted(set(homes) - set(ROOMS))]:
        names = homes.get(room, [])
        directives = [_directive(name) for name in names]
        if room == "inference":
            directives.append(_directive("inference.trained.Trained"))
        parts.append(f"## {ROOMS.get(room, room.capitalize())}\n\n" + _rst(directives))
    modules = [f"## revup.{name}\n\n" + _rst([f".. automodule:: revup.{name}\n   :members:\n"]) for name in MODULES]
    return "\n".join([*parts, *modules])


def _directive(name: str) -> str:
    found = revup
    *path, last = name.split(".")
    if path:
        found = import_module("revup." + ".".join(path))
    kind = getattr(found, last)
    if not isinstance(kind, type):
        return f".. autofunction:: revup.{name}\n"
    if issubclass(kind, Exception):
        return f".. autoexception:: revup.{name}\n"
    routed = ", ".join(each for each in dir(kind) if each.startswith("set_") and each.endswith("_request"))
    return f".. autoclass:: revup.{name}\n   :members:\n" + f"   :exclude-members: {routed}\n" * bool(routed)


def _rst(directives: list[str]) -> str:
    return "\n".join(["```{eval-rst}", *directives, "```\n"])


class _Found(Exception):
    """Carries the parser of a verb out of it."""


def _command(verb: str) -> str:
    parser = _parser(verb)
    rows = list(_arguments(parser))
    nested = any("." in action.dest for action in parser._actions)
    more = "\nAnd every setting of [network, objective and training](settings.md).\n" if nested else ""
    examples = "\n".join(line.strip() for line in (parser.epilog or "").splitlines()[1:])
    return (
        f"## revup {verb}\n\n{parser.description}\n\n{table(['', 'meaning'], rows)}\n{more}\n```bash\n{examples}\n```\n"
    )


def _parser(verb: str) -> Parser:
    def caught(self: Parser, arguments: list[str]) -> argparse.Namespace:
        raise _Found(self)

    original, Parser.parse_args = Parser.parse_args, caught  # type: ignore[method-assign,assignment]
    try:
        import_module(f"revup.cli.{verb}").run([])
    except _Found as found:
        return found.args[0]
    finally:
        Parser.parse_args = original  # type: ignore[method-assign]
    raise AssertionError(f"revup {verb} parses nothing")


def _arguments(parser: Parser) -> Iterator[list[str]]:
    for action in parser._actions:
        if action.help is argparse.SUPPRESS or "." in action.dest or action.dest == "help":
            continue
        choices = "|".join(map(str, action.choices)) if action.choices is not None else ""
        value = "" if action.nargs == 0 else action.metavar or choices or action.dest.upper()
        value = value if isinstance(value, str) else " ".join(value)
        shown = ", ".join(f"{option} {value}".strip() for option in action.option_strings) or value
        help = (action.help or "").replace("%%", "%")
        yield [f"`{shown}`".replace("|", "\\|"), help.replace("|", "\\|")]


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    Path(revup.cli.__file__).with_name(SETTINGS).write_text(settings_as_json(), encoding="utf-8")
