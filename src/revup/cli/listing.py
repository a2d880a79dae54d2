"""What `revup audit` and `revup suggest` have in common: documents in, a list of events for `revup review` out."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from revup.cli.options import COMMON, Parser, chosen, documents, load


class Found(Protocol):
    """What was found: the list, and figures."""

    rows: list[dict[str, Any]]
    summary: dict[str, Any]


def add_input(parser: Parser, metavar: str, first: str) -> None:
    """Add the model, the documents and the list.

    Args:
        parser: The verb's.
        metavar: Stands for the list.
        first: Which events come first in it.
    """
    parser.model()
    parser.add("file", metavar="FILE", help="documents or a dataset directory; - is standard input")
    parser.output("--out", required=True, metavar=metavar, help=f"the list to write, {first} first")


def add_reading(parser: Parser) -> None:
    """Add how documents are read, and what is printed."""
    parser.add("--split", **{**COMMON["--split"], "default": "train"})
    parser.common("--no-lexicon", "--event-vectors", "--encoder")
    parser.reading()
    parser.common("--force", "--json")


def written(given: argparse.Namespace, find: Callable[[Any, Any], Found]) -> dict[str, Any] | None:
    """Write the list and return its figures; None where they were printed as JSON.

    Args:
        given: The options.
        find: Makes the list from a model and documents or a dataset.
    """
    from revup.auditing.issues import About, write_issues
    from revup.auditing.page import write_page
    from revup.auditing.parts import is_dataset
    from revup.data.corpus import Corpus
    from revup.data.readers import Options
    from revup.io.digests import content_digest

    model = load(given)
    if is_dataset(given.file):
        found = find(model, Corpus.load(given.file))
    else:
        with documents(given) as stream:
            found = find(model, stream)
    reading = {"format": given.format, **{k: v for k, v in chosen(given, Options).items() if v is not None}}
    file = None if _is_no_file(given) else str(given.file)
    about = About(file, file and content_digest(file), model.frames, found.summary, reading)
    write_issues(given.out, found.rows, about, given.force)
    if getattr(given, "page", None):
        write_page(given.page, given.out, about.file, force=given.force)
    if given.json:
        print(json.dumps(found.summary))
        return None
    return found.summary


def review_command(given: argparse.Namespace) -> str:
    """The command that shows the list."""
    return f"revup review {given.out}" + ("" if _is_no_file(given) else f" {given.file}")


def _is_no_file(given: argparse.Namespace) -> bool:
    """Whether the documents are no file that `revup review` could read again: a dataset, a folder of FrameNet's."""
    return bool(given.file == "-" or Path(given.file).is_dir())
