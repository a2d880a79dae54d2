"""Small valid documents, and pieces of every format, for tests and fuzzing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from revup.data.corpus import Corpus
from revup.data.events import Document, Event
from revup.data.readers import read
from revup.errors import InputError

GOOD = '{"id": "a", "events": [{"pred": "say"}]}'
ITEM = "a b c d <TUP> e f g _NULL_ " + "".join(f"<DIST> x{n} y z _NULL_ " for n in range(5))
SEMAFOR = "Semafor v2.1 (concrete-semafor)"


def released(pred: Any = "say", candid: bool = True, frame: Any = "http://framenet/Statement", **slots: Any) -> Any:
    event: dict[str, Any] = {"pred": pred, "arg0": "he", "arg1": None, "mod": "", **slots}
    if frame is not None:
        event["semantic_parses"] = {SEMAFOR: {"frame": frame}}
    return {"candid": {"event_tuple": event}} if candid else {"event_tuple": event}


def communication(name: str, *texts: str, parsed: bool = False, tagged: bool = True) -> Any:
    """A communication of sentences written `word/TAG …`, made with Concrete's library; the second word is the head."""
    from concrete import AnnotationMetadata, Dependency, DependencyParse, TaggedToken, TokenTagging
    from concrete.util import create_comm, generate_UUID

    words = [[word.rsplit("/", 1) for word in text.split()] for text in texts]
    text = "\n".join(" ".join(word for word, _ in sentence) for sentence in words)
    comm = create_comm(name, text, metadata_timestamp=1)
    sentences = [sentence for section in comm.sectionList for sentence in section.sentenceList]
    for sentence, pairs in zip(sentences, words, strict=True):
        metadata = AnnotationMetadata(tool="tagger", timestamp=1)
        tags = [TaggedToken(index, pair[1].split("+")[0]) for index, pair in enumerate(pairs)]
        if tagged:
            sentence.tokenization.tokenTaggingList = [TokenTagging(generate_UUID(), metadata, tags, "POS")]
        if parsed:
            edges = [pair[1].split("+")[1].split(":", 1) for pair in pairs]
            dependencies = [Dependency(int(gov), dep, label) for dep, (gov, label) in enumerate(edges)]
            sentence.tokenization.dependencyParseList = [DependencyParse(generate_UUID(), metadata, dependencies)]
    return comm


def situations(comm: Any, tool: str, *mentions: tuple[int, int, str | None, dict[str, Any]]) -> Any:
    """Add a tool's situations: sentence, predicate's token, kind, and role → tokens (or a pointer to a mention)."""
    from concrete import (
        AnnotationMetadata,
        MentionArgument,
        SituationMention,
        SituationMentionSet,
        TokenRefSequence,
    )
    from concrete.util import generate_UUID

    ids = [sentence.tokenization.uuid for section in comm.sectionList for sentence in section.sentenceList]
    made = []
    for sentence, at, kind, roles in mentions:
        arguments = []
        for role, tokens in roles.items():
            if isinstance(tokens, list):
                arguments.append(MentionArgument(role=role, tokens=TokenRefSequence(tokens, -1, ids[sentence])))
            else:
                arguments.append(MentionArgument(role=role, **tokens))
        place = TokenRefSequence([at], -1, ids[sentence])
        made.append(SituationMention(generate_UUID(), situationKind=kind, argumentList=arguments, tokens=place))
    metadata = AnnotationMetadata(tool=tool, timestamp=1)
    found = SituationMentionSet(generate_UUID(), metadata, made)
    comm.situationMentionSetList = [*(comm.situationMentionSetList or ()), found]
    return found


def as_bytes(comm: Any) -> bytes:
    """The communication's bytes, with numbers for random UUIDs so that equal calls give equal bytes."""
    from concrete.util import write_communication_to_buffer

    numbers: dict[bytes, bytes] = {}
    return re.sub(
        rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        lambda found: numbers.setdefault(found[0], b"%036d" % len(numbers)),
        bytes(write_communication_to_buffer(comm)),
    )


JURY = "The/DT jury/NN convicted/VBD a/DT man/NN of/IN murder/NN ./."


def jury(name: str = "nyt-1", tool: str = SEMAFOR) -> Any:
    comm = communication(
        name, JURY, "He/PRP was/VBD sentenced/VBN by/IN a/DT judge/NN in/IN May/NNP with/IN a/DT gun/NN"
    )
    situations(
        comm,
        tool,
        (1, 2, "http://framenet/Sentencing", {"Convict": [0], "Court": [3, 4, 5], "Time": [6, 7]}),
        (0, 2, "Verdict", {"Charges": [5, 6], "Judge": [0, 1], "Defendant": [3, 4]}),
        (1, 10, "Weapon", {"Weapon": [10]}),
        (1, 3, "Adjacent", {}),
    )
    return comm


NAMESPACE = 'xmlns="http://framenet.icsi.berkeley.edu"'
UNITS = f"""<luIndex {NAMESPACE}><lu name="give.v" frameName="Giving" ID="1"/>
<lu name="gift.n" frameName="Giving" ID="2"/><lu name="gun.n" frameName="Weapon" ID="3"/></luIndex>"""


def spans(text: str, *labels: tuple[str, str]) -> str:
    """Labels for pieces of a text."""
    found = []
    for piece, name in labels:
        start = text.index(piece)
        found.append(f'<label start="{start}" end="{start + len(piece) - 1}" name="{name}"/>')
    return "".join(found)


def annotated(
    unit: str, frame: str, text: str, target: list[str], *arguments: tuple[str, str, str], status: str = "MANUAL"
) -> str:
    layers = {
        "Target": [(piece, "Target") for piece in target],
        "FE": [(piece, "Some") for piece, _, _ in arguments],
        "GF": [(piece, function) for piece, function, _ in arguments],
        "PT": [(piece, phrase) for piece, _, phrase in arguments],
    }
    inner = "".join(f'<layer rank="1" name="{name}">{spans(text, *labels)}</layer>' for name, labels in layers.items())
    return (
        f'<annotationSet luID="1" luName="{unit}" frameID="398" frameName="{frame}" status="{status}" ID="9">'
        f'{inner}<layer rank="1" name="Verb"/></annotationSet>'
    )


def sentence(tagged: str, *sets: Callable[[str], str]) -> str:
    pairs = [pair.rsplit("/", 1) for pair in tagged.split()]
    text = " ".join(word for word, _ in pairs)
    labels, at = "", 0
    for word, tag in pairs:
        labels += f'<label start="{at}" end="{at + len(word) - 1}" name="{tag}"/>'
        at += len(word) + 1
    tags = f'<annotationSet status="UNANN" ID="8"><layer rank="1" name="PENN">{labels}</layer></annotationSet>'
    return f'<sentence ID="7"><text>{text}</text>{tags}{"".join(each(text) for each in sets)}</sentence>'


def fulltext(*sentences: str) -> str:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<fullTextAnnotation {NAMESPACE}><header/>\n' + (
        "".join(sentences) + "</fullTextAnnotation>"
    )


GIVEN = sentence(
    "A/dt gun/nn was/vbd given/vvn to/to people/nns who/wp ask/vvp by/in the/dt old/jj Man/np",
    lambda text: annotated(
        "give.v",
        "Giving",
        text,
        ["given"],
        ("A gun", "Ext", "NP"),
        ("to people who", "Dep", "PP"),
        ("by the old Man", "Dep", "PP"),
    ),
    lambda text: annotated("gun.n", "Weapon", text, ["gun"]),
    lambda text: annotated("may.v", "Likelihood", text, ["was"]),
    lambda text: annotated("ask.v", "Request", text, ["ask"], ("who", "Ext", "NP"), ("people", "Ext", "NP")),
    lambda text: annotated("old.a", "Age", text, ["old"]),
    lambda text: annotated("ask.v", "Request", text, ["ask"], status="UNANN"),
)
HANDED = sentence(
    "Her/pp$ gifts/nns of/in money/nn to/to him/pp handed/vvd him/pp power/nn over/rp",
    lambda text: annotated(
        "hand over.v",
        "Giving",
        text,
        ["handed", "over"],
        ("Her gifts", "Ext", "NP"),
        ("power", "Obj", "NP"),
        ("to him", "Dep", "VPto"),
    ),
    lambda text: annotated(
        "gift.n",
        "Giving",
        text,
        ["gifts"],
        ("Her", "Gen", "Poss"),
        ("of money", "Dep", "PP"),
        ("to him", "Dep", "PP"),
    ),
)


def document(identity: str, *frames: str | None, pred: str = "p") -> Document:
    """A document of events with these frames and distinct subjects."""
    return Document(identity, [Event(f"{pred}{i}", f"{identity}.{i}", frame=f) for i, f in enumerate(frames)])


def many(count: int, prefix: str = "d") -> list[Document]:
    return [document(f"{prefix}{n}", *[f"F{(n + i) % 7}" for i in range(1 + n % 6)]) for n in range(count)]


def texts(corpus: Corpus, split: str = "train") -> list[list[str]]:
    """The windows of a split as the subjects of their events."""
    part = corpus.split(split)
    return [
        [corpus.vocabulary.words[event[1]] for event in tokens[:length]]
        for tokens, length in zip(part.arrays["tokens"], part.arrays["lengths"], strict=True)
    ]


def put(path: Path, *texts: str) -> Path:
    """Write lines to a file."""
    path.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    return path


def complaint(path: Path, format: str, **options: Any) -> str:
    """The error that reading raises, without the file's directory."""
    with pytest.raises(InputError) as caught:
        list(read(path, format=format, **options))
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(f"{path.parent}/", "")


def release(path: Path, *documents: Any) -> Path:
    return put(path, *(json.dumps(document) for document in documents))


def framenet_at(root: Path, *documents: str) -> Path:
    (root / "fulltext").mkdir(parents=True)
    put(root / "luIndex.xml", UNITS)
    for number, document in enumerate(documents):
        (root / "fulltext" / f"Corpus__doc{number}.xml").write_text(document, encoding="utf-8")
    return root
