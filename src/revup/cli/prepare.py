"""`revup prepare`."""

import json
from importlib.util import find_spec
from pathlib import Path

import revup
from revup.cli.options import Parser, chosen, pick, whole
from revup.errors import RevupError
from revup.reporting.progress import counter


def run(arguments: list[str]) -> None:
    """Run the verb with these arguments."""
    from revup.data.dataset import Settings
    from revup.data.readers import FORMATS, Options
    from revup.data.statistics import render_statistics

    parser = Parser(
        "prepare",
        "revup prepare docs.jsonl.gz --out data --vectors glove.txt.gz",
        "revup prepare --train a.jsonl --valid b.jsonl --test c.jsonl --out data",
    )
    add = parser.add
    add("files", nargs="*", metavar="FILE", help="documents, to be split by id; - is standard input")
    add("--out", required=True, metavar="DATA", help="the dataset directory to write")
    add("--format", default="jsonl", choices=FORMATS, help="format of the files")
    for split in ("train", "valid", "test"):
        add(f"--{split}", action="append", metavar="FILE", help=f"documents of the {split} split (may be repeated)")
    add("--split", default="0.9,0.05,0.05", metavar="A,B,C", help="shares of train, valid, test")
    parser.fields(Settings, leave_out=("duplicates",))
    add("--keep-duplicates", action="store_true", help="keep documents with the same events as an earlier one")
    add("--vectors", metavar="FILE", help="word vectors in the text form of GloVe, word2vec or fastText")
    add("--lexicon", metavar="FILE", help="FrameNet, VerbNet, PropBank or a CSV file: labels events without a frame")
    add("--lexicon-mode", default="hard", choices=("hard", "soft"), help="label with one sense, or a distribution")
    add("--frames", action="append", default=[], metavar="FILE", help="tuples: the parallel file of frames")
    parser.fields(Options, leave_out=("frames",))
    add("--workers", type=whole(1), default=1, metavar="N", help="processes that read documents")
    add("--engine", default="local", choices=("local", "ray"), help="where they run")
    parser.common("--skip-bad", "--force", "--json")
    given = parser.parse_args(arguments)
    duplicates = "keep" if given.keep_duplicates else "drop"
    settings = {**chosen(given, Settings), "duplicates": duplicates, "split": _shares(given.split)}
    statistics = revup.prepare(
        settings=Settings(**settings),
        options=Options(**{**chosen(given, Options), "frames": None}),
        progress=counter("documents"),
        **pick(given, "files", "out", "format", "train", "valid", "test", "frames", "vectors", "lexicon"),
        **pick(given, "lexicon_mode", "workers", "engine", "skip_bad", "force"),
    )
    print(json.dumps(statistics) if given.json else render_statistics(statistics))
    if find_spec("matplotlib") is not None:
        from revup.reporting.statistics_page import statistics_page

        statistics_page(statistics, Path(given.out) / "statistics.html")


def _shares(text: str) -> tuple[float, float, float]:
    try:
        a, b, c = (float(part) for part in text.split(","))
    except ValueError:
        raise RevupError(f"--split: expected three numbers such as 0.9,0.05,0.05, found '{text}'") from None
    return a, b, c
