"""Every code block of the documentation runs, or says why it does not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from documentation.blocks import Block, Runner, blocks, problem
from paths import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_CODE = [page for page in PAGES if any(block.language in ("python", "bash") for block in blocks(page))]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that pages share, such as a trained run."""
    return tmp_path_factory.mktemp("made")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_blocks_name_their_language(page: Path) -> None:
    assert not [found for block in blocks(page) if (found := problem(block, page))]


@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_blocks_run(page: Path, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Runner(page, tmp_path, made, monkeypatch).run_all()


@pytest.mark.parametrize(
    "page", [ROOT / "docs" / "quickstart.md", *sorted((ROOT / "docs" / "tutorials").glob("*.md"))], ids=name
)
def test_a_reader_who_runs_all_blocks_in_one_directory_overwrites_nothing(page: Path) -> None:
    text = "\n".join(block.text for block in blocks(page) if block.language == "bash")
    outputs = re.findall(r"--(?:out|table) (\S+)", text)
    assert len(outputs) == len(set(outputs)), outputs


@pytest.mark.parametrize(
    "text",
    [
        "```bash\nrevup evaluate nothing-here\n```",
        "```bash\nfalse | true\n```",
        "```python\nassert False\n```",
        "<!-- not run: the reason is of the first block only -->\n```bash\nfalse\n```\n\n```bash\nfalse\n```",
    ],
)
def test_blocks_that_fail_are_found(text: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    runner = Runner(page, tmp_path, made, monkeypatch)
    with pytest.raises(AssertionError):
        runner.run_all()


def test_blocks_without_language_or_reason_are_found() -> None:
    page = ROOT / "docs" / "README.md"
    assert "without a language" in (problem(Block("", "revup", 1, None, None), page) or "")
    assert "nothing is known" in (problem(Block("bsh", "revup", 1, None, None), page) or "")
    assert "reason" in (problem(Block("bash", "revup", 1, "slow", None), page) or "")
