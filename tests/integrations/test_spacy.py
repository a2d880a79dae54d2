"""The spaCy component: events and spans, equal to `revup predict`, saved with the pipeline, exact through DocBin."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import revup
from paths import DATA as SHARED
from paths import ROOT
from revup import cli
from revup.data.corpus import Corpus
from revup.data.readers import text as text_reader
from revup.errors import RevupError

spacy = pytest.importorskip("spacy")

from spacy.language import Language  # noqa: E402
from spacy.tokens import Doc, DocBin, Span  # noqa: E402

from revup.integrations.spacy import FrameLabeller, register_extensions  # noqa: E402

PARSES = {  # sentence: (head, relation, tag) of each word
    "The jury convicted the man.": "2 det DT|3 nsubj NN|3 ROOT VBD|5 det DT|3 obj NN|3 punct .",
    "He left and they sang songs in Paris.": (
        "2 nsubj PRP|2 ROOT VBD|5 cc CC|5 nsubj PRP|2 conj VBD|5 obj NNS|8 case IN|5 obl NNP|2 punct ."
    ),
    "Yes.": "1 ROOT UH|1 punct .",
    "The jury convicted him.": "2 det DT|3 nsubj NN|3 ROOT VBD|3 obj PRP|3 punct .",  # on which readers try a pipeline
}
TEXTS = [
    *PARSES,
    "The jury convicted the man. Yes. He left and they sang songs in Paris.",
    "He left and they sang songs in Paris. Yes.",
]


@Language.component("revup_test_trees")
def revup_test_trees(doc: Any) -> Any:
    """Set heads by hand, as a parser would."""
    words = [token.text for token in doc]
    heads: list[int] = []
    rows: list[str] = []
    while len(rows) < len(doc):
        start = len(rows)
        rest = doc[start:].text
        parse = next(parse for sentence, parse in PARSES.items() if rest.startswith(sentence))
        for row in parse.split("|"):
            heads.append(start + int(row.split()[0]) - 1)
            rows.append(row)
    return Doc(
        doc.vocab,
        words=words,
        spaces=[bool(token.whitespace_) for token in doc],
        tags=[row.split()[2] for row in rows],
        deps=[row.split()[1] for row in rows],
        heads=heads,
        lemmas=[word.lower() for word in words],
    )


@pytest.fixture(scope="module")
def run(tiny_corpus: Corpus, tiny_network: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("spacy") / "run"
    revup.train(tiny_corpus, device="cpu", network=tiny_network, training={"epochs": 1}, out=out)
    return out


@pytest.fixture(autouse=True)
def _fresh_models() -> Iterator[None]:
    text_reader.load_model.cache_clear()
    yield
    text_reader.load_model.cache_clear()


def parser() -> Any:
    nlp = spacy.blank("en")
    nlp.add_pipe("revup_test_trees")
    return nlp


def pipeline(run: Path, **config: Any) -> Any:
    nlp = parser()
    nlp.add_pipe("revup", config={"model": str(run), **config})
    return nlp


def contents(doc: Any) -> dict[str, Any]:
    """Everything that the component sets."""
    spans = [
        (span.start, span.end, span.label_, span._.frame, span._.frame_probability) for span in doc.spans["frames"]
    ]
    return {"text": doc.text, "events": doc._.events, "spans": spans}


def test_events_and_spans_of_a_document(run: Path) -> None:
    doc = pipeline(run, top=2)(TEXTS[4])
    shown = [(event["pred"], event.get("subj"), event.get("obj"), event.get("mod")) for event in doc._.events]
    assert shown == [("convicted", "jury", "man", None), ("left", "he", None, None), ("sang", "they", "songs", "in")]
    assert [span.text for span in doc.spans["frames"]] == ["convicted", "left", "sang"]
    for event, span in zip(doc._.events, doc.spans["frames"], strict=True):
        best, second = event["predicted"]
        assert best["probability"] >= second["probability"]
        assert (span.label_, span._.frame, span._.frame_probability) == (
            best["frame"],
            best["frame"],
            best["probability"],
        )
    assert doc[0:1]._.frame is None
    assert doc[2:3]._.frame == doc.spans["frames"][0].label_


@pytest.mark.parametrize("words", ["form", "lemma"])
def test_component_table_and_command_give_equal_answers(
    run: Path, tmp_path: Path, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser().to_disk(tmp_path / "parser")
    (tmp_path / "news.txt").write_text("\n".join(TEXTS) + "\n")
    source = ["--format", "text", "--spacy-model", str(tmp_path / "parser"), "--words", words]
    cli.run(["predict", str(run), str(tmp_path / "news.txt"), *source])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    docs = list(pipeline(run, words=words).pipe(TEXTS))
    assert [doc._.events for doc in docs] == [line["events"] for line in lines]
    pytest.importorskip("pyarrow")
    read = revup.read(tmp_path / "news.txt", "text", spacy_model=str(tmp_path / "parser"), words=words)
    rows = revup.load(run).predict_table(read).to_pylist()
    flat = [
        (index, each["frame"], each["probability"])
        for doc in docs
        for index, event in enumerate(doc._.events)
        for each in event["predicted"]
    ]
    assert [(row["event"], row["frame"], row["probability"]) for row in rows] == flat


@pytest.mark.parametrize("batch_size", [1, 3, 1000])
def test_pipe_gives_what_single_calls_give(run: Path, batch_size: int) -> None:
    nlp = pipeline(run)
    expected = [contents(nlp(text)) for text in TEXTS * 3]
    assert [contents(doc) for doc in nlp.pipe(TEXTS * 3, batch_size=batch_size)] == expected


def test_pipe_reads_no_more_than_a_batch_ahead(run: Path) -> None:
    nlp = pipeline(run)
    component, read = nlp.get_pipe("revup"), 0

    def docs() -> Iterator[Any]:
        nonlocal read
        with nlp.select_pipes(disable="revup"):
            for doc in map(nlp, TEXTS * 8):
                read += 1
                yield doc

    found = component.pipe(docs(), batch_size=2)
    next(found)
    assert read <= 4
    assert 1 + len(list(found)) == read == 8 * len(TEXTS)


def test_empty_text_has_no_events(run: Path) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("revup", config={"model": str(run)})
    doc = nlp("")
    assert doc._.events == []
    assert list(doc.spans["frames"]) == []


def test_docbin_round_trip_is_exact(run: Path) -> None:
    docs = list(pipeline(run).pipe(TEXTS))
    packed = DocBin(store_user_data=True, docs=docs).to_bytes()
    again = list(DocBin(store_user_data=True).from_bytes(packed).get_docs(spacy.blank("en").vocab))
    assert [contents(doc) for doc in again] == [contents(doc) for doc in docs]
    assert DocBin(store_user_data=True, docs=again).to_bytes() == packed
    copied = Doc(spacy.blank("en").vocab).from_bytes(docs[4].to_bytes())
    assert contents(copied) == contents(docs[4])


def test_saved_pipeline_holds_its_model(run: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    shutil.copytree(run, own)
    nlp = pipeline(own, top=3)
    expected = [contents(doc) for doc in nlp.pipe(TEXTS)]
    nlp.to_disk(tmp_path / "saved")
    nlp.to_disk(tmp_path / "saved")  # again, over the first
    shutil.rmtree(own)
    shutil.move(tmp_path / "saved", tmp_path / "moved")
    loaded = spacy.load(tmp_path / "moved")
    assert [contents(doc) for doc in loaded.pipe(TEXTS)] == expected
    fresh = pipeline(tmp_path / "nowhere", top=3)
    fresh.from_bytes(loaded.to_bytes())
    assert [contents(doc) for doc in fresh.pipe(TEXTS)] == expected
    assert not list((tmp_path / "moved").rglob("*.pkl"))


def test_model_is_loaded_when_first_needed(tmp_path: Path) -> None:
    nlp = pipeline(tmp_path / "nowhere")
    with pytest.raises(RevupError, match="nowhere"):
        nlp(TEXTS[0])


def test_unsure_predictions_have_no_span(run: Path) -> None:
    doc = pipeline(run, at_least=1.0)(TEXTS[0])
    assert [event["predicted"] for event in doc._.events] == [[]]
    assert list(doc.spans["frames"]) == []


def test_text_without_trees_or_tags_is_refused(run: Path) -> None:
    nlp = spacy.blank("en")
    component = nlp.add_pipe("revup", config={"model": str(run)})
    with pytest.raises(RevupError, match="the component 'revup' needs a parser before it"):
        nlp("The jury convicted the man.")
    untagged = Doc(nlp.vocab, words=["He", "left"], heads=[1, 1], deps=["nsubj", "ROOT"])
    with pytest.raises(RevupError, match="needs a tagger before it"):
        component(untagged)
    failed: list[str] = []
    nlp.set_error_handler(lambda name, component, docs, error: failed.extend(doc.text for doc in docs))
    assert [doc.text for doc in nlp.pipe(["The jury.", "", "He left."], batch_size=1)] == [""]
    assert failed == ["The jury.", "He left."]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"words": "stem"}, "words: expected form or lemma, found 'stem'"),
        ({"top": 0}, "top: expected 1 or more, found 0"),
        ({"at_least": 2.0}, "at_least: expected a probability"),
    ],
)
def test_wrong_settings_are_refused_when_the_component_is_made(config: dict[str, Any], message: str) -> None:
    with pytest.raises(RevupError, match=message):
        pipeline(Path("run"), **config)


def test_extensions_of_others_are_kept() -> None:
    register_extensions()
    before = Doc.get_extension("events"), Span.get_extension("frame")
    register_extensions()
    assert (Doc.get_extension("events"), Span.get_extension("frame")) == before


def test_displacy_shows_the_frames(run: Path) -> None:
    doc = pipeline(run, spans_key="story")(TEXTS[0])
    page = spacy.displacy.render(doc, style="span", options={"spans_key": "story"}, jupyter=False)
    assert doc._.events[0]["predicted"][0]["frame"] in page


def test_several_processes_give_the_same(run: Path) -> None:
    nlp = pipeline(run)
    expected = [contents(doc) for doc in nlp.pipe(TEXTS * 2)]
    assert [contents(doc) for doc in nlp.pipe(TEXTS * 2, n_process=2, batch_size=3)] == expected


WITHOUT_TORCH = """
import sys
class Blocked:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError("torch is blocked")
sys.meta_path.insert(0, Blocked)
import spacy
import revup.integrations.spacy
nlp = spacy.blank("en")
nlp.add_pipe("revup", config={"model": "run"})
print(*sorted(name for name in sys.modules if name.startswith("revup.")))
"""


def test_making_a_pipeline_imports_neither_torch_nor_models() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["revup.errors", "revup.integrations", "revup.integrations.spacy"]


def test_entry_point_is_the_factory() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    module, _, name = project["entry-points"]["spacy_factories"]["revup"].partition(":")
    assert getattr(sys.modules[module], name)(None, "revup", "run", 5, 0.0, "form", "cpu", "frames").source == "run"
    assert Language.get_factory_meta("revup").factory == "revup"


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.exists(), reason="the shared data is not here")
def test_real_pipeline_gives_the_answers_of_the_command(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import gzip
    from itertools import islice

    from revup.io.archives import unpacked

    archive = SHARED / "text" / "en_ud_small.tar.xz"
    with gzip.open(SHARED / "text" / "wiki.txt.gz", "rt", encoding="utf-8") as file:
        texts = [" ".join(line.split()) for line in islice(file, 8)]
    with unpacked(archive) as folder:
        nlp = spacy.load(next(folder.rglob("config.cfg")).parent)
    nlp.add_pipe("revup", config={"model": str(run)})
    docs = list(nlp.pipe(texts, batch_size=32))
    (tmp_path / "wiki.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    cli.run(["predict", str(run), str(tmp_path / "wiki.txt"), "--format", "text", "--spacy-model", str(archive)])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [doc._.events for doc in docs] == [line["events"] for line in lines]
    assert sum(len(doc._.events) for doc in docs) > 100
    again = DocBin(store_user_data=True).from_bytes(DocBin(store_user_data=True, docs=docs).to_bytes())
    assert [contents(doc) for doc in again.get_docs(nlp.vocab)] == [contents(doc) for doc in docs]
    assert isinstance(nlp.get_pipe("revup"), FrameLabeller)
