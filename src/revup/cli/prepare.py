"""`revup prepare`."""

import argparse
import json
import sys
from importlib.util import find_spec
from pathlib import Path

import revup
from revup.cli.options import Parser, chosen, pick, whole
from revup.errors import RevupError
from revup.reporting.progress import counter


def run(arguments: list[str]) -> None:
    """Run the verb with these arguments."""
    from revup.data.dataset import Settings, as_given
    from revup.data.readers import Options
    from revup.data.statistics import notes, render_statistics

    parser = Parser(
        "prepare",
        "revup prepare docs.jsonl.gz --out data --vectors glove.txt.gz",
        "revup prepare --train a.jsonl --valid b.jsonl --test c.jsonl --out data",
        "revup prepare story.txt --format text --spacy-model en_core_web_sm --lexicon frames.csv --out data",
    )
    add = parser.add
    add("files", nargs="*", metavar="FILE", help="documents, to be split by id; - is standard input")
    add("--out", required=True, metavar="DATA", help="the dataset directory to write")
    parser.format("the files")
    for split in ("train", "valid", "test"):
        add(f"--{split}", action="append", metavar="FILE", help=f"documents of the {split} split (may be repeated)")
    add("--split", default="0.9,0.05,0.05", metavar="A,B,C", help="shares of train, valid, test")
    parser.fields(Settings, leave_out=("duplicates",), absent=True)  # `as_given` asks what was given
    add("--keep-duplicates", action="store_true", help="keep documents with the same events as an earlier one")
    add("--vectors", metavar="FILE", help="word vectors in the text form of GloVe, word2vec or fastText")
    add(
        "--lexicon",
        metavar="FILE",
        help="FrameNet, VerbNet, PropBank or a CSV file: frames of predicates, for training and prediction",
    )
    add("--lexicon-mode", help=argparse.SUPPRESS)
    add("--event-vectors", metavar="X.npz", help="vectors of the events, in the form that revup embed writes")
    add(
        "--encoder",
        metavar="NAME",
        help="in their place: a pretrained transformer that reads the events' sentences (extra encoder)",
    )
    add("--reduce-like", metavar="DIR", help="reduce event vectors as this dataset or run does, to evaluate it here")
    add(
        "--frames-from",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="what a further source says: JSONL with the same document ids (may be repeated)",
    )
    add("--frame-map", metavar="FILE", help="JSON object of old frame: new frame (null: leave it out)")
    add("--frames", action="append", default=[], metavar="FILE", help="tuples: the parallel file of frames")
    parser.fields(Options, leave_out=("frames",))
    add("--workers", type=whole(1), default=1, metavar="N", help="processes that read documents")
    add("--engine", default="local", choices=("local", "ray"), help="where they run")
    parser.common("--skip-bad", "--force", "--json")
    given = parser.parse_args(arguments)
    if given.lexicon_mode is not None:
        raise RevupError(
            "--lexicon-mode is gone: --lexicon FILE alone makes the lexicon a source of candidates for every event"
        )
    duplicates = "keep" if given.keep_duplicates else "drop"
    settings = {**chosen(given, Settings), "duplicates": duplicates, "split": _shares(given.split)}
    statistics = revup.prepare(
        settings=Settings(**as_given(settings)),
        options=Options(**{**chosen(given, Options), "frames": None}),
        progress=counter("documents"),
        **pick(given, "files", "out", "format", "train", "valid", "test", "frames", "vectors", "lexicon"),
        **pick(given, "event_vectors", "encoder", "reduce_like"),
        **pick(given, "frame_map", "workers", "engine", "skip_bad", "force"),
        frames_from=_named_files(given.frames_from),
    )
    print(json.dumps(statistics) if given.json else render_statistics(statistics))
    for note in notes(statistics):
        print(f"revup: note: {note}", file=sys.stderr)
    if find_spec("matplotlib") is not None:
        from revup.reporting.statistics_page import statistics_page

        statistics_page(statistics, Path(given.out) / "statistics.html")


def _named_files(texts: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not (name.strip() and equals and path):
            raise RevupError(f"--frames-from: expected NAME=FILE, found '{text}'")
        if name in found:
            raise RevupError(f"--frames-from: the source {name} is given twice")
        found[name] = path
    return found


def _shares(text: str) -> tuple[float, float, float]:
    try:
        a, b, c = (float(part) for part in text.split(","))
    except ValueError:
        raise RevupError(f"--split: expected three numbers such as 0.9,0.05,0.05, found '{text}'") from None
    return a, b, c
