"""The files that pages of the documentation take for granted: documents, datasets, runs, dictionaries, parses.

They are made of a small world when a page first asks for them, and copied from then on. A name may carry a remark in
parentheses, `train.jsonl (released)`, where the same name means different files on different pages.
"""

from __future__ import annotations

import gzip
import json
import random
import shutil
import tarfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import revup
from revup import cli
from revup.data.events import Document
from revup.world import World
from samples import GIVEN, HANDED, as_bytes, framenet_at, fulltext, jury, released

Maker = Callable[[Path, Path], None]  # writes the file to the first path; further files are beside it, in the second
FILES: dict[str, Maker] = {}
TINY = {"embedding": 16, "hidden": 16, "latent": 8, "frame": 16, "layers": 1}
VERBS = {
    "arrested": "arrest",
    "convicted": "convict",
    "sentenced": "sentence",
    "robbed": "rob",
    "began": "begin",
    "appealed": "appeal",
}
STORY = (
    "Police arrested two men near the station on Monday. The men robbed a bank in March.\n"
    "The trial began in June. A jury convicted the men of robbery. The judge sentenced them to nine years.\n"
)
CONLLU = """# newdoc id = trial
1\tThe\tthe\tDET\tDT\t_\t2\tdet\t_\t_
2\tjury\tjury\tNOUN\tNN\t_\t3\tnsubj\t_\t_
3\tconvicted\tconvict\tVERB\tVBD\t_\t0\troot\t_\t_
4\tmen\tman\tNOUN\tNNS\t_\t3\tobj\t_\t_

# newdoc id = arrest
1\tPolice\tpolice\tNOUN\tNN\t_\t2\tnsubj\t_\t_
2\tarrested\tarrest\tVERB\tVBD\t_\t0\troot\t_\t_
3\tmen\tman\tNOUN\tNNS\t_\t2\tobj\t_\t_

"""


def put(name: str, folder: Path, cache: Path) -> None:
    """Put a file into a folder.

    Args:
        name: One of FILES.
        folder: Where it goes.
        cache: Files that were made before.
    """
    made = cache / name.replace("/", "_")
    file = name.partition(" (")[0]
    if not made.exists():
        made.mkdir()
        FILES[name](made / file, cache)
    shutil.copytree(made, folder, dirs_exist_ok=True)


def file(*names: str) -> Callable[[Maker], Maker]:
    """Register what makes these files."""

    def register(maker: Maker) -> Maker:
        FILES.update(dict.fromkeys(names, maker))
        return maker

    return register


def world() -> World:
    return World(frames=12, seed=1, words=200)


def documents(count: int = 150) -> list[Document]:
    return world().sample(count)


def unlabelled(found: list[Document], events: int | None = None) -> list[Document]:
    return [replace(d, events=[replace(e, frame=None) for e in d.events[:events]]) for d in found]


@file("docs.jsonl", "docs.jsonl.gz", "stories.jsonl")
def _documents(path: Path, cache: Path) -> None:
    revup.write(documents(), path)


@file("train.jsonl", "valid.jsonl", "test.jsonl", "parsed.jsonl")
def _split(path: Path, cache: Path) -> None:
    found = documents()
    parts = {"train.jsonl": found[:110], "valid.jsonl": found[110:130], "test.jsonl": found[130:]}
    revup.write(parts.get(path.name, found), path)


@file("new.jsonl")
def _new(path: Path, cache: Path) -> None:
    revup.write(unlabelled(documents(160)[150:]), path)


@file("unlabelled.jsonl", "labelled.jsonl")
def _half_labelled(path: Path, cache: Path) -> None:
    """Documents without labels, or of which some two in five have labels."""
    found = documents()
    labelled = found[:60] if path.name == "labelled.jsonl" else []
    revup.write([*labelled, *unlabelled(found[len(labelled) :])], path)


@file("beginnings.jsonl")
def _beginnings(path: Path, cache: Path) -> None:
    revup.write(unlabelled(documents(3), events=2), path)


@file("shards")
def _shards(path: Path, cache: Path) -> None:
    path.mkdir()
    found = documents()
    for number in range(3):
        revup.write(found[number::3], path / f"{number}.jsonl.gz")


@file("data")
def _data(path: Path, cache: Path) -> None:
    revup.Corpus.build(documents(), out=path, split=(0.8, 0.1, 0.1))


@file("run")
def _run(path: Path, cache: Path) -> None:
    put("data", path.parent, cache)
    corpus = revup.Corpus.load(path.parent / "data")
    revup.train(corpus, out=path, network=TINY, training={"epochs": 1}, device="cpu")


@file("crowd.jsonl")
def _crowd(path: Path, cache: Path) -> None:
    """Every event with the votes of ten annotators who are wrong three times in ten."""
    frames, draw = world().frames, random.Random(1)

    def voted(event: Any) -> Any:
        votes = Counter(event.frame if draw.random() < 0.7 else draw.choice(frames) for _ in range(10))
        return replace(event, frame=None, frames={name: count / 10 for name, count in votes.items()})

    revup.write([replace(d, events=[voted(e) for e in d.events]) for d in documents()], path)


@file("annotators.jsonl")
def _annotators(path: Path, cache: Path) -> None:
    revup.write(world().annotate(documents(), {"ann": 0.1, "bob": 0.2, "parser": 0.3}, seed=1), path)


@file("noisy.jsonl")
def _noisy(path: Path, cache: Path) -> None:
    """A tenth of the labels is wrong."""
    frames, draw = world().frames, random.Random(1)
    wrong = [
        replace(d, events=[replace(e, frame=draw.choice(frames)) if draw.random() < 0.1 else e for e in d.events])
        for d in documents()
    ]
    revup.write(wrong, path)


@file("issues.jsonl")
def _issues(path: Path, cache: Path) -> None:
    """The list of an audit, and the file that was audited."""
    put("docs.jsonl", path.parent, cache)
    put("data", cache / "counts", cache)
    corpus = revup.Corpus.load(cache / "counts" / "data")
    model = revup.train(corpus, "counts", out=cache / "counts" / "run", device="cpu", force=True)
    cli.run(["audit", str(model.path), str(path.parent / "docs.jsonl"), "--out", str(path)])


@file("issues.decisions.jsonl")
def _decisions(path: Path, cache: Path) -> None:
    put("issues.jsonl", path.parent, cache)
    digest = json.loads((path.parent / "issues.about.json").read_text("utf-8"))["digest"]
    with (path.parent / "issues.jsonl").open(encoding="utf-8") as lines:
        issues = [json.loads(next(lines)) for _ in range(3)]
    decided = [
        {"id": i["id"], "event": i["event"], "given": i["given"], "decision": "accept", "frame": i["proposed"]}
        for i in issues
    ]
    path.write_text("".join(json.dumps({**each, "digest": digest}) + "\n" for each in decided), encoding="utf-8")


@file("events.csv", "stories.csv", "stories.parquet")
def _tables(path: Path, cache: Path) -> None:
    import pandas

    names = ("pred", "subj", "obj", "mod", "frame")
    rows = [{"document": d.id, **{n: getattr(e, n) for n in names}} for d in documents(40) for e in d.events]
    frame = pandas.DataFrame(rows)
    if path.name == "stories.csv":
        frame = frame.rename(columns={"document": "story", "pred": "verb", "subj": "agent"})
    frame.to_parquet(path) if path.suffix == ".parquet" else frame.to_csv(path, index=False)


@file("items.txt.gz", "held-out-items.txt", "inverse_cloze.txt.gz")
def _items(path: Path, cache: Path) -> None:
    def shown(document: Document, first: int) -> str:
        slots = ([e.pred, e.subj, e.obj, e.mod] for e in document.events[first:])
        return " <TUP> ".join(" ".join(slot or "_NULL_" for slot in event) for event in slots)

    found = documents(60)
    lines = [
        " <DIST> ".join([shown(found[n], 0), *(shown(found[(n + k) % 60], 1) for k in range(1, 6))]) + "\n"
        for n in range(60)
    ]
    text = "".join(lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


@file("events.txt", "frames.txt")
def _tuples(path: Path, cache: Path) -> None:
    lines = []
    for document in documents(60):
        slots = ([e.pred, e.subj, e.obj, e.mod] for e in document.events)
        text = " <TUP> ".join(" ".join(slot or "_NULL_" for slot in event) for event in slots)
        lines.append(text if path.name == "events.txt" else " ".join(e.frame or "" for e in document.events))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@file("train.jsonl (released)", "new.jsonl (released)")
def _released(path: Path, cache: Path) -> None:
    found = documents(60)
    lines = [
        {"abstract": [released(e.pred, frame=f"framenet/{e.frame}", arg0=e.subj, arg1=e.obj) for e in d.events]}
        for d in found
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


@file("lexicon.csv", "framenet.csv")
def _lexicon(path: Path, cache: Path) -> None:
    """The frames of the world's predicates, with how often each has them, and those of a few English verbs."""
    pairs = Counter((e.pred, e.frame) for d in documents(400) for e in d.events)
    english = {"arrest": "Arrest", "convict": "Verdict", "sentence": "Sentencing", "begin": "Trial", "rob": "Robbery"}
    rows = [f"{pred},{frame},v,{count}" for (pred, frame), count in sorted(pairs.items())]
    rows += [f"{pred},{frame},v,1" for pred, frame in english.items()]
    path.write_text("\n".join(["predicate,frame,pos,weight", *rows]) + "\n", encoding="utf-8")


@file("glove.txt.gz", "glove.6B.300d.txt.gz")
def _vectors(path: Path, cache: Path) -> None:
    draw = random.Random(1)
    words = sorted({w for d in documents() for e in d.events for w in (e.pred, e.subj, e.obj, e.mod) if w})
    with gzip.open(path, "wt") as out:
        out.writelines(f"{word} {' '.join(f'{draw.gauss(0, 1):.3f}' for _ in range(12))}\n" for word in words)


@file("parses.conllu", "corpus.conllu.gz", "news.conllu")
def _parses(path: Path, cache: Path) -> None:
    text = "".join(CONLLU.replace("newdoc id = ", f"newdoc id = {n}-") for n in range(30))
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


@file("articles.txt", "articles.txt.gz", "news.txt")
def _text(path: Path, cache: Path) -> None:
    text = STORY * 15
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


@file("en_core_web_sm")
def _pipeline(path: Path, cache: Path) -> None:
    """A pipeline of rules that know a few verbs, in place of spaCy's own, which would have to be downloaded."""
    import spacy

    made = spacy.blank("en")
    ruler = made.add_pipe("attribute_ruler")
    ruler.add([[{"IS_ALPHA": True}]], {"TAG": "NN", "POS": "NOUN", "DEP": "dep"})
    for verb, lemma in VERBS.items():
        ruler.add([[{"LOWER": verb}]], {"TAG": "VBD", "POS": "VERB", "DEP": "ROOT", "LEMMA": lemma})
    made.add_pipe("sentencizer")
    made.to_disk(path)


@file("labelled.spacy")
def _labelled(path: Path, cache: Path) -> None:
    import spacy
    from spacy.tokens import DocBin

    DocBin(store_user_data=True, docs=[spacy.blank("en")(STORY)]).to_disk(path)


@file("nyt")
def _concrete(path: Path, cache: Path) -> None:
    path.mkdir()
    with tarfile.open(path / "1.tar.gz", "w:gz") as archive:
        for number in range(30):
            member = path / f"{number}.comm"
            member.write_bytes(as_bytes(jury(f"nyt-{number}")))
            archive.add(member, member.name)
            member.unlink()


@file("fndata-1.7", "framenet_v17")
def _framenet(path: Path, cache: Path) -> None:
    framenet_at(path, *(fulltext(GIVEN, HANDED) for _ in range(30)))
