"""Write docs/reference/settings.md from the metadata of the settings: `python docs/make_reference.py`."""

from __future__ import annotations

from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from revup.cli.options import show
from revup.data.dataset import Settings
from revup.data.knowledge import Observation
from revup.data.readers import Options
from revup.fields import expected, option_name
from revup.models import CLASSES, model_module
from revup.models.base import SIZES, Network
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
        "\n## Network (`train`, `compare`, `experiment`)\n\nPresets of `revup`. Named sizes:\n",
        table(["`--network.size`", *SIZES["small"]], sizes),
        "",
        nested("network", Network, "revup"),
        "\n## Training (`train`, `compare`, `experiment`)\n\nPresets of `revup`.\n",
        nested("training", Training, "revup"),
        "\n## Objective (`train`, `compare`, `experiment`)\n\nEach model has its own.",
    ]
    for model in CLASSES:
        objective = model_module(model).Objective
        found = nested("objective", objective, model) if fields(objective) else "No settings."
        parts.append(f"\n### `{model}`\n\n{found}")
    parts += ["\n## Datasets (`prepare`)\n", plain(Settings, leave_out=("duplicates",))]
    parts += ["\n## Reading documents (`prepare`, `predict`, `embed`, `generate`)\n", plain(Options)]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
