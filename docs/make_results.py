"""Write the tables that compare systems across experiments, in the README and docs/results, from the raw runs.

    python docs/make_results.py

A table stands in its page between `<!-- made by docs/make_results.py: NAME -->` and `<!-- end -->`. A test compares the
pages with what this program writes. Which rows there are: `comparisons/places.py`.
"""

from __future__ import annotations

import re
from pathlib import Path

from comparisons.places import RESULTS
from comparisons.tables import TABLES

PAGES = (Path(__file__).parent.parent / "README.md", RESULTS / "evidence.md", RESULTS / "runs.md")
START = "<!-- made by docs/make_results.py: "
TABLE = re.compile(rf"({re.escape(START)}(\S+) -->\n)((?:(?!{re.escape(START)}).)*?)(<!-- end -->)", re.S)


def written(text: str) -> str:
    """A page with its tables made anew."""
    if text.count(START) != len(TABLE.findall(text)):
        raise ValueError("a table lacks its <!-- end -->")
    return TABLE.sub(lambda match: f"{match[1]}\n{TABLES[match[2]]()}\n{match[4]}", text)


def main() -> None:
    for page in PAGES:
        page.write_text(written(page.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
