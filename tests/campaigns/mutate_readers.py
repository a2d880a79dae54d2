"""Feed readers with random mutations of valid files: each must give documents or an InputError.

    export PYTHONPATH=tests
    python tests/campaigns/mutate_readers.py [--count 100000] [--reader NAME ...] [--seed 0] [--save DIR]

Prints a table; an input that gives anything else is saved, and the exit status is 1. The n-th input of a reader
follows from the seed and n alone. A document must also be one that can be written again.
"""

from __future__ import annotations

import argparse
import atexit
import gzip
import io
import json
import os
import random
import shutil
import sys
import tarfile
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import samples
from campaigns.limits import BeyondLimits, watching
from revup.data.events import Document, document_to_json
from revup.data.readers import read
from revup.errors import RevupError


class Seed(NamedTuple):
    """A valid file to mutate, the unchanged files beside it, and the options of the reader."""

    name: str
    data: bytes
    options: dict[str, Any] = {}  # noqa: RUF012  (nobody changes it)
    beside: dict[str, bytes] = {}  # noqa: RUF012
    path: str = ""  # where it is not the file itself: relative to the folder that holds it


def jsonl() -> list[Seed]:
    event = {"pred": "said", "subj": "he", "frame": "Statement", "frames": {"A": 0.5, "B": 1}, "confidence": 0.5}
    text = "".join(json.dumps({"id": f"é{n}", "events": [event] * n, "x": [None]}) + "\n" for n in (1, 2)).encode()
    return [Seed("a.jsonl", text), Seed("a.jsonl.gz", gzip.compress(text, mtime=0))]


def released() -> list[Seed]:
    document = {"abstract": [samples.released(), samples.released(candid=False)], "headline": [samples.released("win")]}
    return [Seed("r.jsonl", (json.dumps(document) + "\n").encode() * 2)]


def tuples() -> list[Seed]:
    text, frames = b"a b c d <TUP> e _NULL_ f g\nh i j k\n", b"Motion __NOFRAME__\nA\n"
    return [
        Seed("t.txt", text),
        Seed("t.txt", text, {"frames": "f.txt"}, {"f.txt": frames}),
        Seed("f.txt", frames, {"frames": "f.txt"}, {"t.txt": text}, "t.txt"),
    ]


def cloze() -> list[Seed]:
    return [Seed("c.txt", (samples.ITEM + "\n").encode() * 2)]


def concrete() -> list[Seed]:
    data = samples.as_bytes(samples.jury())
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        member = tarfile.TarInfo("a.comm")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return [
        Seed("a.comm", data),
        Seed("a.comm", data, {"tool": "semafor", "frame_tool": "Semafor"}),
        Seed("a.tar", raw.getvalue().rstrip(b"\0") + b"\0" * 1024),
    ]


def framenet() -> list[Seed]:
    units = samples.UNITS.encode()
    given, handed = (samples.fulltext(sentence).encode() for sentence in (samples.GIVEN, samples.HANDED))
    return [
        Seed("fn/fulltext/a.xml", given, {}, {"fn/luIndex.xml": units}, "fn"),
        Seed("fn/fulltext/a.xml", handed, {"words": "lemma"}, {"fn/luIndex.xml": units}, "fn"),
        Seed("fn/luIndex.xml", units, {}, {"fn/fulltext/a.xml": handed}, "fn"),
    ]


def conllu() -> list[Seed]:
    rows = [
        "1\tThe\tthe\tDET\tDT\t_\t2\tdet\t_\t_",
        "2\tman\tman\tNOUN\tNN\t_\t4\tnsubj:pass\t_\t_",
        "3\twas\tbe\tAUX\tVBD\t_\t4\taux:pass\t_\t_",
        "4\tconvicted\tconvict\tVERB\tVBN\t_\t0\troot\t_\t_",
        "5-6\tby the\t_\t_\t_\t_\t_\t_\t_\t_",
        "5\tby\tby\tADP\tIN\t_\t6\tcase\t_\t_",
        "6\tjury\tjury\tNOUN\tNN\t_\t4\tobl:agent\t_\t_",
        "6.1\tx\tx\tX\tX\t_\t_\t_\t_\t_",
        "7\tand\tand\tCCONJ\tCC\t_\t8\tcc\t_\t_",
        "8\tled\tlead\tVERB\tVBN\t_\t4\tconj\t_\t_",
        "9\taway\taway\tADP\tRP\t_\t8\tcompound:prt\t_\t_",
    ]
    text = "# newdoc id = a\n# sent_id = 1\n" + "\n".join(rows) + "\n\n# newdoc\n" + "\n".join(rows[:4]) + "\n\n"
    return [Seed("a.conllu", text.encode()), Seed("a.conllu", text.encode(), {"words": "lemma"})]


def text() -> list[Seed]:
    lines = "The jury convicted the man. He won’t appeal.\nShe sang, and they left for Paris!\n".encode()
    line, file = ({"spacy_model": rule_model(), "document": kind} for kind in ("line", "file"))
    return [
        Seed("a.txt", lines, line),
        Seed("a.txt", lines, file),
        Seed("a.txt.gz", gzip.compress(lines, mtime=0), line),
    ]


def csv() -> list[Seed]:
    table = (
        "story,pred,subj,frame,frames,candidates,confidence,span_start,span_end,extra\r\n"
        'a,said,"he, too",Statement,"{""A"": 0.5, ""B"": 1}","[""A""]",0.5,3,7,"{""x"": [null]}"\r\n'
        'a,left,"line\nbreak",,,,,,,\r\nb,said,é,A,,,1,,,\r\n'
    ).encode()
    plain = b"document\tpred\tsubj\nx\tsaid\the\nx\tleft\t\ny\tcame\tshe\n"
    return [
        Seed("a.csv", table, {"columns": "document=story"}),
        Seed("a.tsv", plain),
        Seed("a.csv.gz", gzip.compress(table, mtime=0), {"columns": "document=story"}),
    ]


def parquet() -> list[Seed]:
    import pyarrow
    from pyarrow import parquet as files

    columns = {
        "document": ["a", "a", "b"],
        "pred": ["said", "left", "said"],
        "frames": [{"A": 0.5, "B": 1.0}, None, {"A": 1.0}],
        "candidates": [["A"], None, ["A", "B"]],
        "confidence": [0.5, None, 1.0],
        "note": [1, 2, None],
    }
    out = io.BytesIO()
    files.write_table(pyarrow.table(columns), out, compression="NONE", use_dictionary=False)
    return [Seed("a.parquet", out.getvalue())]


def _by_line_and_file(name: str, data: bytes) -> list[Seed]:
    return [Seed(name, data * 2), Seed(name, data * 2, {"document": "file"})]


def allennlp() -> list[Seed]:
    verbs = [
        {"verb": "was", "tags": ["O", "B-V", "O", "O", "O"]},
        {"verb": "seen", "tags": ["B-ARG1", "O", "B-V", "B-ARG0", "I-ARG0"], "frame": "see.01", "frame_score": 0.5},
    ]
    return _by_line_and_file(
        "a.jsonl", json.dumps({"words": ["He", "was", "seen", "by", "her"], "verbs": verbs}).encode() + b"\n"
    )


def hanlp() -> list[Seed]:
    roles = [["She", "ARG0", 0, 1], ["saw", "PRED", 1, 2], ["him", "ARG1", 2, 3], ["not", "ARGM-NEG", 3, 4]]
    sentence = {"tok": ["She", "saw", "him", "not"], "pos": ["PRON", "VERB", "PRON", "PART"], "srl": [roles]}
    many = {"id": "é", "tok/fine": [sentence["tok"]], "lem": [["she", "see", "he", "not"]], "srl": [[roles]]}
    return _by_line_and_file("a.jsonl", json.dumps(sentence).encode() + b"\n" + json.dumps(many).encode() + b"\n")


def omnievent() -> list[Seed]:
    arguments = [{"mention": "Troops", "offset": [0, 6], "role": "Attacker"}]
    event = {"type": "attack", "trigger": "attacked", "offset": [7, 15], "arguments": arguments}
    result = [{"text": "Troops attacked at dawn.", "events": [event, {**event, "type": "NA"}]}]
    return _by_line_and_file("a.jsonl", json.dumps(result).encode() + b"\n")


def frame_semantic_transformer() -> list[Seed]:
    elements = [{"name": "Self_mover", "text": "He"}, {"name": "Goal", "text": "to the sea"}]
    frames = [{"name": "Self_motion", "trigger_location": 3, "frame_elements": elements}]
    result = {"sentence": "He went to the sea.", "trigger_locations": [3], "frames": frames}
    return _by_line_and_file("a.jsonl", json.dumps(result).encode() + b"\n")


def open_sesame() -> list[Seed]:
    words = [
        ("He", "PRP", "_", "_", "S-Self_mover"),
        ("went", "VBD", "go.v", "Self_motion", "O"),
        (".", ".", "_", "_", "O"),
    ]
    block = "".join(
        "\t".join([str(n), word, "_", word.lower(), "x", tag, "0", *"_____", unit, frame, role]) + "\n"
        for n, (word, tag, unit, frame, role) in enumerate(words, 1)
    )
    return _by_line_and_file("a.conll", (block + "\n" + block.replace("\t0\t", "\t1\t") + "\n").encode())


@lru_cache(maxsize=1)
def rule_model() -> str:
    """A spaCy model on disk that makes trees by rule: real tokens and any shape of tree, without parsing."""
    import spacy
    from spacy.language import Language
    from spacy.tokens import Doc

    @Language.component("made_up_trees")
    def made_up_trees(doc: Doc) -> Doc:
        kinds = (("VBD", "ROOT"), ("NN", "nsubj"), ("NN", "obj"), ("IN", "case"), ("NN", "obl"), ("VBN", "conj"))
        picked = [kinds[0 if i == 0 else len(token.text) % len(kinds)] for i, token in enumerate(doc)]
        return Doc(
            doc.vocab,
            words=[token.text for token in doc],
            spaces=[bool(token.whitespace_) for token in doc],
            tags=[tag for tag, _ in picked],
            lemmas=[token.lower_ for token in doc],
            heads=[i // 2 for i in range(len(doc))],
            deps=["ROOT" if i == 0 else dep for i, (_, dep) in enumerate(picked)],
        )

    pipeline = spacy.blank("en")
    pipeline.add_pipe("made_up_trees")
    folder = tempfile.mkdtemp(prefix="revup-model-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    pipeline.to_disk(folder)
    return folder


SEEDS: dict[str, Callable[[], list[Seed]]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        *(jsonl, released, tuples, cloze, concrete, framenet, conllu, text, csv, parquet),
        *(frame_semantic_transformer, open_sesame, hanlp, allennlp, omnievent),
    )
}

TOKENS = (
    *(b"\n", b"\r", b"\t", b" ", b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xf0\x9f\x98\x80"),
    *(b"null", b"true", b"NaN", b"-1", b"0", b"1e999", b"9" * 400, b"9" * 5000, b"1e-999", b"\\ud800", b"\\u0000"),
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"[]", b"{}", b'""', b"[" * 2000, b'{"a":' * 200),
    *(b"<", b">", b"&", b"&amp;", b"&#0;", b"&x;", b"<a>", b"</a>", b"<!--", b"]]>", b"<!DOCTYPE a>", b"<?xml"),
    *(b"<TUP>", b"<DIST>", b"_NULL_", b"__NOFRAME__", b"#", b"# newdoc", b"_", b"1-2", b"1.1", b"\xe2\x80\xa8"),
    *(b"<!ENTITY", b"\x1c" * 50, b"\x19" * 50, b"\x18"),
)


def mutate(data: bytes, random: random.Random) -> bytes:
    """One to six small changes."""
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        at = random.randrange(len(data) + 1)
        size = random.choice((1, 2, 4, 16, 100))
        piece = data[at : at + size]
        match random.randrange(8):
            case 0:  # flip a bit
                data = data[:at] + bytes(byte ^ 1 << random.randrange(8) for byte in piece[:1]) + data[at + 1 :]
            case 1:  # another byte
                data = data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]
            case 2:  # delete
                data = data[:at] + data[at + size :]
            case 3:  # duplicate
                data = data[:at] + piece * random.choice((1, 1, 5)) + data[at:]
            case 4:  # insert or overwrite with something telling
                data = data[:at] + random.choice(TOKENS) + data[at + random.choice((0, 0, size)) :]
            case 5:  # put a piece elsewhere
                to = random.randrange(len(data) + 1)
                data = data[:to] + piece + data[to:]
            case 6:  # overwrite a piece with another
                to = random.randrange(len(data) + 1)
                data = data[:to] + piece + data[to + size :]
            case 7:  # cut off, now and then
                data = data[:at] if random.random() < 0.3 else data
    return data


@dataclass
class Tally:
    inputs: int = 0
    documents: int = 0
    refused: int = 0  # inputs with at least one clear error
    failures: list[tuple[int, str, bytes, str]] = field(default_factory=list)  # number, file, input, traceback
    seconds: float = 0.0


def campaign(name: str, count: int, seed: int = 0, stop_after: int = 5, first: int = 0) -> Tally:
    """Read `count` mutations with one reader, from the one with the number `first` on."""
    tally, started = Tally(), time.perf_counter()
    with _folder() as folder, watching() as watch:
        seeds = SEEDS[name]()
        for number in range(first, first + count):
            chosen = seeds[number % len(seeds)]
            data = mutate(chosen.data, random.Random(f"{seed} {name} {number}"))
            tally.inputs += 1
            try:
                with watch.one_input():
                    documents, refused = _read(name, chosen, data, folder)
                tally.documents += documents
                tally.refused += refused
            except (Exception, BeyondLimits):  # whatever it is, it is the finding
                tally.failures.append((number, chosen.name, data, traceback.format_exc()))
                if len(tally.failures) == stop_after:
                    break
    tally.seconds = time.perf_counter() - started
    return tally


def _read(name: str, seed: Seed, data: bytes, folder: Path) -> tuple[int, bool]:
    for file, content in {**seed.beside, seed.name: data}.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content)
    options = {key: str(folder / value) if key == "frames" else value for key, value in seed.options.items()}
    errors: list[RevupError] = []
    documents = 0
    try:
        for document in read(folder / (seed.path or seed.name), name, errors.append, **options):
            _check(document)
            documents += 1
    except RevupError as error:
        errors.append(error)
    for error in errors:
        text = str(error)
        assert text.isprintable(), f"not one line to print: {text!r}"
        assert len(text) < 1100, f"too long a message: {text!r}"
    return documents, bool(errors)


def _check(document: object) -> None:
    """Check that a document is complete and can be written."""
    assert isinstance(document, Document)
    assert isinstance(document.id, str)
    assert all(isinstance(event.pred, str) and event.pred.strip() for event in document.events)
    json.dumps(document_to_json(document), ensure_ascii=False, allow_nan=False).encode("utf-8")


@contextmanager
def _folder() -> Iterator[Path]:
    """A directory for small files, in memory where the system has one."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=int, default=100_000, help="mutations per reader")
    parser.add_argument("--reader", nargs="+", choices=sorted(SEEDS), default=list(SEEDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, default=Path(), help="where to put an offending input")
    options = parser.parse_args()
    failed = False
    print(f"{'reader':<28}{'inputs':>10}{'documents':>12}{'refused':>10}{'failures':>10}{'per second':>12}")
    for name in options.reader:
        tally = campaign(name, options.count, options.seed)
        rate = tally.inputs / max(tally.seconds, 1e-9)
        print(
            f"{name:<28}{tally.inputs:>10}{tally.documents:>12}{tally.refused:>10}{len(tally.failures):>10}{rate:>12.0f}",
            flush=True,
        )
        for number, file, data, trace in tally.failures:
            failed = True
            saved = options.save / f"fuzz-{name}-{options.seed}-{number}-{Path(file).name}"
            saved.write_bytes(data)
            print(f"\n{trace}the input is in {saved}\n", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
