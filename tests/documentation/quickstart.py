"""Writes the blocks of the quickstart that need no spaCy as a shell script, and the files that they read.

    python -m documentation.quickstart docs/quickstart.md DIRECTORY

`.ci/wheel` runs the script where nothing but the wheel is installed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from documentation.blocks import blocks


def write_script(page: Path, folder: Path) -> None:
    """Write `quickstart.sh` and its files.

    Args:
        page: The quickstart.
        folder: Where to.
    """
    lines = []
    for number, block in enumerate(blocks(page)):
        if block.file is not None:
            (folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.reason is None and block.language == "python":
            (folder / f"block{number}.py").write_text(block.text, encoding="utf-8")
            lines.append(f"python block{number}.py\n")
        elif block.reason is None and block.language == "bash" and "spacy" not in block.text:
            lines.append(block.text)
    assert len(lines) >= 2, f"{page}: no commands and no Python in it"
    (folder / "quickstart.sh").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    write_script(*map(Path, sys.argv[1:]))
