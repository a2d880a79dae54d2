"""The documentation: links resolve, commands and files exist, code blocks parse."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import revup
from paths import ROOT
from revup import ops
from revup.cli import VERBS

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """A page without its fenced code blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, by GitHub's rule."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower().replace("`", "")).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_relative_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{name(page)}: {target}"
        if anchor:
            assert anchor in anchors(found), f"{name(page)}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_named_verbs_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    commands = re.findall(r"^(?:    |\$ )?revup ([a-z]\w*)", text, re.M) + re.findall(r"`revup ([a-z]\w*)", text)
    assert set(commands) <= set(VERBS), name(page)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_named_files_exist(page: Path) -> None:
    """Paths such as `tests/…` and `benchmarks/….py` that a page names in code are there."""
    text = page.read_text("utf-8")
    for path in re.findall(r"\b((?:tests|benchmarks|src/revup)/[\w/.-]+\.(?:py|json))\b", text):
        assert (ROOT / path).exists(), f"{name(page)}: {path}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_named_modules_import(page: Path) -> None:
    """`revup.a.b` in a page is a module, or an attribute of one."""
    for dotted in set(re.findall(r"`(revup(?:\.\w+)+)`", page.read_text("utf-8"))):
        parts = dotted.split(".")
        found: Any = revup
        for depth, part in enumerate(parts[1:], start=2):
            if not hasattr(found, part):
                found = importlib.import_module(".".join(parts[:depth]))
            else:
                found = getattr(found, part)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_python_blocks_parse_and_import(page: Path) -> None:
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "revup":
                module = importlib.import_module(node.module or "")
                assert all(hasattr(module, alias.name) for alias in node.names), f"{name(page)}: {ast.unparse(node)}"


def test_architecture_names_every_package_and_operation() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    rooms = [path.name for path in (ROOT / "src" / "revup").iterdir() if not path.name.startswith("_")]
    missing = [room for room in rooms if room != "py.typed" and f"../src/revup/{room}" not in page]
    public = [name for name, each in ops.OPERATIONS.items() if each.__module__ == "revup.ops.operations"]
    missing += [name for name in public if f"`{name}`" not in page]
    assert not missing


def test_changelog_and_citation_name_the_version() -> None:
    assert f"## [{revup.__version__}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f"version: {revup.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
