"""Every module imports only from its own room and from earlier ones, so that the package can be read in one order."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from paths import ROOT

ROOMS = (
    "errors",
    "fields",
    "io",
    "bottleneck",
    "data",
    "reliability",
    "world",
    "ops",
    "models",
    "settings",
    "reporting",
    "inference",
    "training",
    "auditing",
    "serving",
    "integrations",
    "experiments",
    "reference",
    "benchmark",
    "cli",
)

PACKAGE = ROOT / "src" / "revup"


def module_name(path: Path) -> str:
    """A file's dotted name within the package: `data/corpus.py` is `data.corpus`."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[str]:
    """The modules of this package that a file imports, wherever in the file the import stands."""
    package = ["revup", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            whole = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{whole}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            first = node.args[0] if node.args else None
            names = [first.value] if isinstance(first, ast.Constant) and isinstance(first.value, str) else []
        else:
            continue
        yield from (_existing(name) for name in names if name.split(".")[0] == "revup")


def _existing(name: str) -> str:
    """The module in which an imported name lies: `revup.data.corpus.Corpus` lies in `data.corpus`."""
    parts = name.split(".")[1:]
    while parts and not ((PACKAGE / Path(*parts)).is_dir() or (PACKAGE / Path(*parts)).with_suffix(".py").exists()):
        parts.pop()
    return ".".join(parts)


def room(module: str) -> str:
    return module.split(".")[0]


def refused(importer: str, imported: str) -> bool:
    """Whether an import points to a later room; the package itself (its version) may be imported anywhere."""
    own, other = room(importer), room(imported)
    return bool(imported) and ROOMS.index(other) > ROOMS.index(own)


def modules() -> list[Path]:
    front = (PACKAGE / "__init__.py", PACKAGE / "__main__.py")  # what users import and run: they name every room
    return sorted(path for path in PACKAGE.rglob("*.py") if path not in front)


def violations() -> set[tuple[str, str]]:
    pairs = ((module_name(path), imported) for path in modules() for imported in imports(path))
    return {pair for pair in pairs if refused(*pair)}


def test_every_module_is_in_a_known_room() -> None:
    assert {room(module_name(path)) for path in modules()} <= set(ROOMS)


def test_imports_only_point_to_earlier_rooms() -> None:
    found = sorted(violations())
    assert not found, "\n".join(f"{importer} imports {imported}, a later room" for importer, imported in found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import revup.cli", {"cli"}),
        ("from revup.data import corpus", {"data.corpus"}),
        ("from revup.data.corpus import Corpus", {"data.corpus"}),
        ("from . import corpus", {"data.corpus"}),
        ("from ..io.files import lines", {"io.files"}),
        ("def f():\n    import revup.training.loop as loop", {"training.loop"}),
        ("if TYPE_CHECKING:\n    from revup.world import World", {"world"}),
        ("import_module('revup.cli')", {"cli"}),
        ("import torch, os.path\nfrom revup import __version__", {""}),
    ],
)
def test_imports_are_found_wherever_they_stand(text: str, expected: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = PACKAGE / "data" / "example.py"
    monkeypatch.setattr(Path, "read_text", lambda self, *_: text)
    assert set(imports(path)) == expected
