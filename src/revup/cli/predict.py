"""`revup predict`."""

from __future__ import annotations

import json
from collections.abc import Sequence

import revup
from revup.cli.options import Parser, documents, whole


def run(arguments: Sequence[str]) -> None:
    """Run the verb with these arguments."""
    parser = Parser(
        "predict",
        "revup predict run docs.jsonl --top 3 > labelled.jsonl",
        "revup predict run news.txt --format text --spacy-model en_core_web_sm --out labelled.jsonl.gz",
    )
    parser.common("run", "file")
    parser.add("--out", default="-", metavar="FILE", help="where to write (default: standard output)")
    parser.add("--top", type=whole(1), default=5, metavar="N", help="frames for each event (default: 5)")
    parser.add("--revise", action="store_true", help="use the frames in the input as side knowledge")
    parser.reading()
    parser.common("--force", "--device", "--allow-unfinished", "--precision")
    given = parser.parse_args(arguments)
    from revup.data.events import document_to_json
    from revup.io.files import open_output

    model = revup.load(given.run, given.device, given.precision, allow_unfinished=given.allow_unfinished)
    with documents(given) as stream, open_output(given.out, given.force) as out:
        for document in revup.predict(model, stream, given.top, given.revise):
            out.write(json.dumps(document_to_json(document), ensure_ascii=False) + "\n")
