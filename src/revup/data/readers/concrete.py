"""Format "concrete": HLTCOE Concrete communications; events come from the SituationMentions of an annotation tool.

A source is a `.comm` (one communication or several concatenated), plain or .gz, or a .tar, .tar.gz, .tar.bz2 or .zip
of them. `options.tool` names the tool whose situations become events; their frames are its own (`situationKind`), or,
with `options.frame_tool`, those that another tool gives the same predicate token. So predicates and arguments may
come from PredPatt and frames from Semafor. A name may be shortened as long as it matches one tool. Without a name, the
tool is the only one, or the only Semafor.

A predicate is a verb, or a noun that has another argument; any word where words have no tags. An argument's slot
follows from its role (`ARG0`, `nsubj` …), else from its dependency on the predicate, else from its position.
"""

from __future__ import annotations

import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from functools import cache
from typing import IO, Any, NamedTuple

from revup.data.events import Document, Event
from revup.data.readers import Options, Record
from revup.data.readers.spans import TaggedWords
from revup.errors import InputError, missing_extra, reason
from revup.io.files import display_name, open_binary

LARGEST = 256 * 2**20  # bytes of one file inside or outside an archive
_TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError)
# Thrift's decoder recurses in C without a limit; a long run of such bytes would nest deeper than the stack holds
_NESTING = bytes(byte for byte in range(256) if 9 <= byte & 15 <= 12)  # the headers of lists, sets, maps and structs
_ABYSS = re.compile(b"[" + re.escape(_NESTING) + b"]{5000}")
_SUBJECT = frozenset(("arg0", "a0", "agent", "subj", "subject", "nsubj", "csubj"))
_OBJECT = frozenset(("arg1", "a1", "patient", "obj", "object", "dobj", "nsubjpass", "nsubj:pass", "csubjpass"))
_BY_AGENT = frozenset(("agent", "obl:agent", "nmod:agent"))
_CASED = re.compile(r"(?:prep|prepc|nmod|obl)[_:]([a-z_]+)")


# ---- records ---------------------------------------------------------------------------------------------


def records(path: str, options: Options) -> Iterator[Record]:
    """Yield one record a file: the bytes of its communications."""
    _thrift()
    name, ending = display_name(path), path.lower()
    parts = _from_tar if ending.endswith(_TAR) else _from_zip if ending.endswith(".zip") else _from_file
    with open_binary(path) as raw:
        try:
            for part, data in parts(raw):
                message = f"larger than {LARGEST // 2**20} MiB: put the communications into a .tar.gz, one a file"
                yield Record(name + part, 0, data if len(data) <= LARGEST else InputError(message, name + part))
        except _DAMAGED as error:
            what = "compressed file" if parts is _from_file else "archive"
            yield Record(name, 0, InputError(f"the {what} is damaged: {error}", name))


def _from_file(raw: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    yield "", raw.read(LARGEST + 1)


def _from_tar(raw: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=raw, mode="r|*") as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.isfile() else None
            if stream is not None:
                yield f": {member.name}", stream.read(LARGEST + 1)
            archive.members = []  # type: ignore[attr-defined]  # it would keep every member in memory


def _from_zip(raw: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(raw) as archive:
        for member in archive.infolist():
            if not member.is_dir():
                with archive.open(member) as stream:
                    yield f": {member.filename}", stream.read(LARGEST + 1)


# ---- decoding --------------------------------------------------------------------------------------------


@cache
def _thrift() -> tuple[Any, Any, Any]:
    try:
        from concrete import Communication
        from thrift.protocol.TCompactProtocol import TCompactProtocolAcceleratedFactory  # type: ignore[import-untyped]
        from thrift.transport.TTransport import TMemoryBuffer  # type: ignore[import-untyped]
    except ImportError:
        raise missing_extra("concrete", "the format 'concrete'") from None
    return Communication, TMemoryBuffer, TCompactProtocolAcceleratedFactory


def parse(record: Record, options: Options) -> Iterator[Document]:
    """Yield the communications of a file as documents."""
    for communication in _communications(record.data, record.path):
        yield Document(communication.id, _events(communication, options, record.path))


def _communications(data: bytes, path: str) -> Iterator[Any]:
    """Yield the communications of a file, checking what Thrift does not."""
    (make_communication, make_buffer, make_factory), at = _thrift(), 0
    if _ABYSS.search(data):
        raise InputError("not a Concrete communication: nested too deep", path)
    buffer = make_buffer(data)
    protocol = make_factory(string_length_limit=len(data), container_length_limit=len(data)).getProtocol(buffer)
    while at < len(data) or at == 0:
        if data[at : at + 1] != b"\x18":  # a communication begins with its id: field 1, text
            found = f"{len(data) - at} other bytes at byte {at}" if data else "an empty file"
            raise InputError(f"expected a Concrete communication, found {found}", path)
        communication = make_communication()
        try:
            communication.read(protocol)
            if communication.uuid is None or not communication.id:
                raise ValueError("no id or uuid")
        except Exception as error:  # Thrift's decoder raises anything, even bare Exception
            message = f"not a Concrete communication: {reason(error) or 'damaged'}"
            raise InputError(message, path, 0, f"byte {at}") from None
        yield communication
        at = buffer.cstringio_buf.tell()


# ---- situations ------------------------------------------------------------------------------------------


def _events(communication: Any, options: Options, path: str) -> list[Event]:
    place = f"communication {communication.id}"
    sets = [each for each in communication.situationMentionSetList or () if each is not None]
    chosen = _tool(sets, options.tool, path, place)
    sentences = {sentence.id: sentence for sentence in _sentences(communication)}
    mentions = _mentions(communication)
    frames: dict[tuple[str, int], str | None] | None = None
    if options.frame_tool is not None:
        named = [_situation(each, sentences) for each in _tool(sets, options.frame_tool, path, place).mentionList or ()]
        frames = {each.key: _frame(each.mention) for each in reversed(named) if each is not None}
    found = [_situation(mention, sentences) for mention in chosen.mentionList or ()]
    events = []
    for situation in sorted((each for each in found if each is not None), key=lambda each: each.order):
        event = _event(situation, sentences, mentions)
        if event is not None:
            event.frame = _frame(situation.mention) if frames is None else frames.get(situation.key)
            events.append(event)
    return events


def _tool(sets: list[Any], wanted: str | None, path: str, place: str) -> Any:
    """Return the set of situation mentions by the chosen tool."""
    names = [(each.metadata.tool if each.metadata is not None else None) or "" for each in sets]
    if wanted is None:
        fits = range(len(sets)) if len(sets) == 1 else [i for i, name in enumerate(names) if "semafor" in name.lower()]
    else:
        fits = [i for i, name in enumerate(names) if name == wanted] or [
            i for i, name in enumerate(names) if wanted.lower() in name.lower()
        ]
    if len(fits) == 1:
        return sets[fits[0]]
    there = "; there are: " + ", ".join(f"'{name}'" for name in names) if names else "; there are none"
    if wanted is None:
        problem = "expected the option tool: several have situations" if names else "no situation mentions"
    else:
        problem = f"{'no' if not fits else 'more than one set of'} situation mentions by the tool '{wanted}'"
    raise InputError(problem + (there if names or wanted else ""), path, 0, place)


def _frame(mention: Any) -> str | None:
    """Return the frame's name; some tools write it as the last part of a path."""
    return (mention.situationKind or "").rsplit("/", 1)[-1].strip() or None


class _Sentence:
    """The words of a tokenization with their tags and the dependencies of its parses."""

    def __init__(self, order: int, tokenization: Any, text: str) -> None:
        self.order, self.id = order, _uuid(tokenization.uuid)
        tokens = (tokenization.tokenList.tokenList if tokenization.tokenList is not None else None) or ()
        tagged = [each for each in tokenization.tokenTaggingList or () if (each.taggingType or "").upper() == "POS"]
        by_index = {tag.tokenIndex: tag.tag or "" for each in tagged[:1] for tag in each.taggedTokenList or ()}
        self.words = TaggedWords(
            [_token_text(token, text) for token in tokens],
            [by_index.get(index, "") for index in range(len(tokens))] if by_index else None,
        )
        self.parses = [
            {edge.dep: (edge.gov, (edge.edgeType or "").lower()) for edge in parse.dependencyList or ()}
            for parse in tokenization.dependencyParseList or ()
        ]

    def span(self, tokens: Any) -> list[int]:
        known = range(len(self.words.words))
        return sorted({index for index in tokens.tokenIndexList or () if index in known})

    def head(self, tokens: Any) -> int | None:
        """The head of a span: as its tool says, else the word that depends on one outside, else by its tags."""
        span = self.span(tokens)
        if tokens.anchorTokenIndex is not None and tokens.anchorTokenIndex in span:
            return int(tokens.anchorTokenIndex)
        for parse in self.parses[:1]:
            tops = [index for index in span if index in parse and parse[index][0] not in span]
            if len(tops) == 1 and not self.words.is_preposition(tops[0]):
                return tops[0]
        return self.words.head(span)

    def relation(self, head: int, governor: int) -> str:
        """How one word depends on another, in the first parse that says so."""
        edges = (parse.get(head, (-1, "")) for parse in self.parses)
        return next((label for above, label in edges if above == governor), "")


class _Situation(NamedTuple):
    mention: Any
    sentence: _Sentence
    at: int  # the predicate's token

    @property
    def key(self) -> tuple[str, int]:
        return self.sentence.id, self.at

    @property
    def order(self) -> tuple[int, int]:
        return self.sentence.order, self.at


def _situation(mention: Any, sentences: dict[str, _Sentence]) -> _Situation | None:
    """A mention and the token of its predicate; None where it points at no words."""
    sentence = sentences.get(_uuid(mention.tokens.tokenizationId)) if mention.tokens is not None else None
    at = None
    if sentence is not None:
        span = sentence.span(mention.tokens)
        verbs = [index for index in span if sentence.words.is_verb(index)]
        at = sentence.head(mention.tokens) if len(verbs) != 1 else verbs[0]
    return _Situation(mention, sentence, at) if sentence is not None and at is not None else None


def _event(situation: _Situation, sentences: dict[str, _Sentence], mentions: dict[str, Any]) -> Event | None:
    mention, sentence, at = situation
    words = sentence.words
    event = Event(words.words[at].lower())
    fallback, arguments = None, 0
    for argument in mention.argumentList or ():
        tokens = _argument_tokens(argument, mentions)
        home = sentences.get(_uuid(tokens.tokenizationId)) if tokens is not None else None
        head = home.head(tokens) if home is not None else None
        if home is None or head is None or (home is sentence and head == at):
            continue
        arguments += 1
        word = home.words.words[head].lower()
        slot, preposition = _slot(argument.role, situation, home, home.span(tokens), head)
        if slot == "mod":
            if event.mod is None:
                event.mod, fallback = preposition, word
        elif slot == "subj":
            event.subj = event.subj or word
        else:
            event.obj = event.obj or word
    event.obj = event.obj or fallback
    tagged = words.tags[at] != ""
    return event if not tagged or words.is_verb(at) or (words.is_noun(at) and arguments) else None


def _slot(role: str | None, situation: _Situation, home: _Sentence, span: list[int], head: int) -> tuple[str, str]:
    """Which slot an argument fills, and with which preposition: by its role, its dependency, or its place."""
    words, at = home.words, situation.at
    name = (role or "").strip().lower()
    inside = home is situation.sentence
    relation = home.relation(head, at) if inside else ""
    for label in (name, relation):
        if label in _SUBJECT or label in _BY_AGENT:
            return "subj", ""
        if label in _OBJECT:
            return "obj", ""
    passive = inside and words.is_passive(at)
    cased = _CASED.match(relation)
    preposition = cased[1] if cased else words.words[span[0]].lower() if words.is_preposition(span[0]) else ""
    if preposition and (cased or len(span) > 1):
        return ("subj", "") if passive and preposition == "by" else ("mod", preposition)
    before = inside and head < at
    return ("subj" if before != passive else "obj"), ""


def _argument_tokens(argument: Any, mentions: dict[str, Any]) -> Any:
    if argument.tokens is not None:
        return argument.tokens
    for pointer in (argument.entityMentionId, argument.situationMentionId):
        if pointer is not None and _uuid(pointer) in mentions:
            return mentions[_uuid(pointer)]
    return None


def _mentions(communication: Any) -> dict[str, Any]:
    """The tokens of every mention that an argument may point at."""
    sets = [*(communication.entityMentionSetList or ()), *(communication.situationMentionSetList or ())]
    return {_uuid(mention.uuid): mention.tokens for each in sets for mention in each.mentionList or ()}


def _sentences(communication: Any) -> Iterator[_Sentence]:
    sentences = (sentence for section in communication.sectionList or () for sentence in section.sentenceList or ())
    tokenized = (sentence.tokenization for sentence in sentences if sentence.tokenization is not None)
    return (_Sentence(order, tokens, communication.text or "") for order, tokens in enumerate(tokenized))


def _token_text(token: Any, text: str) -> str:
    if token.text is None and token.textSpan is not None:
        return text[token.textSpan.start or 0 : token.textSpan.ending or 0] or "?"
    return token.text or "?"


def _uuid(uuid: Any) -> str:
    return (uuid.uuidString if uuid is not None else None) or ""
