"""Loading a run directory: what is damaged, unfinished or no run is one clear error."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import revup
import revup.inference.loading as loading_module
from revup.cli import run as run_verb
from revup.data.corpus import Corpus
from revup.data.events import Document, Event
from revup.errors import InputError
from revup.inference.run_directory import FILES
from revup.io.digests import write_digest
from revup.io.tensors import load_tensors, save_tensors
from revup.reporting.progress import Progress


@pytest.fixture(scope="module")
def finished(tiny_corpus: Corpus, tiny_network: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory that no test changes."""
    out = tmp_path_factory.mktemp("finished") / "run"
    training = {"epochs": 1, "batch_size": 60, "settle": 0.0}
    revup.train(tiny_corpus, network=tiny_network, training=training, device="cpu", out=out)
    return out


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A run directory to spoil."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    about = json.loads(path.read_text("utf-8"))
    change(about)
    path.write_text(json.dumps(about), "utf-8")


def not_a_number(path: Path) -> None:
    tensors, meta = load_tensors(path)
    next(tensor for tensor in tensors.values() if tensor.is_floating_point()).view(-1)[0] = float("nan")
    save_tensors(path, tensors, meta)


def swapped(path: Path) -> None:
    """A table with more entries than it has keys."""
    tensors, meta = load_tensors(path)
    save_tensors(path, {**tensors, "counts.lemma.value": tensors["counts.lemma.value"].repeat(2)}, meta)


def circular(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "truncated": (
        lambda p: (p / "model.safetensors").write_bytes((p / "model.safetensors").read_bytes()[:-9]),
        "model",
    ),
    "empty": (lambda p: (p / "model.safetensors").write_bytes(b""), "not a safetensors file"),
    "tampered": (lambda p: flip(p / "model.safetensors", -100), "do not match their digest"),
    "header": (lambda p: flip(p / "model.safetensors", 3), "model.safetensors"),
    "foreign": (lambda p: save_file({"w": torch.zeros(3)}, p / "model.safetensors"), "not one that revup wrote"),
    "pickled": (lambda p: torch.save({"w": torch.zeros(3)}, p / "model.safetensors"), "not a safetensors file"),
    "missing": (lambda p: (p / "model.safetensors").unlink(), "there are no weights yet"),
    "counts gone": (lambda p: (p / "counts.safetensors").unlink(), r"counts\.safetensors is missing"),
    "counts cut": (lambda p: (p / "counts.safetensors").write_bytes(b"x"), r"counts\.safetensors: not a safetensors"),
    "no counts": (lambda p: save_tensors(p / "counts.safetensors", {}, {"model": "revup"}), "don't fit together"),
    "counts swapped": (lambda p: swapped(p / "counts.safetensors"), "don't fit together"),
    "words": (lambda p: (p / "vocabulary.txt").write_text("a\nb\n"), "vocabulary.txt: expected"),
    "no words": (lambda p: (p / "vocabulary.txt").unlink(), "vocabulary.txt is missing"),
    "no text": (lambda p: (p / "frames.txt").write_bytes(b"\xff\xfe\n"), "damaged"),
    "frames": (lambda p: (p / "frames.txt").write_text("One\n"), "do not fit"),
    "config gone": (lambda p: (p / "config.json").unlink(), "not a run directory: config.json is missing"),
    "config cut": (lambda p: (p / "config.json").write_text('{"format": 1, "mod'), "not valid JSON"),
    "config list": (lambda p: (p / "config.json").write_text("[1]"), "expected a JSON object"),
    "format": (
        lambda p: edit(p / "config.json", lambda a: a.update(format=99)),
        "a run of format 99, expected 5: train it again",
    ),
    "model": (lambda p: edit(p / "config.json", lambda a: a.update(model="gpt")), "unknown model 'gpt'"),
    "model type": (lambda p: edit(p / "config.json", lambda a: a.update(model=["revup"])), "damaged"),
    "other model": (
        lambda p: edit(p / "config.json", lambda a: a.update(model="rnnlm", objective={})),
        "expected a rnnlm",
    ),
    "setting": (lambda p: edit(p / "config.json", lambda a: a["network"].update(size="vast")), "network.size"),
    "new setting": (
        lambda p: edit(p / "config.json", lambda a: a["network"].update(wings=2)),
        r"no setting network\.wings",
    ),
    "no network": (lambda p: edit(p / "config.json", lambda a: a.pop("network")), "damaged"),
    "hidden": (lambda p: edit(p / "config.json", lambda a: a["network"].update(hidden=12)), "do not fit"),
    "too wide": (lambda p: edit(p / "config.json", lambda a: a["network"].update(hidden=65_536)), "do not fit"),
    "far too wide": (lambda p: edit(p / "config.json", lambda a: a["network"].update(hidden=10**12)), "65536"),
    "too deep": (lambda p: edit(p / "config.json", lambda a: a["network"].update(layers=9)), "do not fit"),
    "far too deep": (lambda p: edit(p / "config.json", lambda a: a["network"].update(layers=10**6)), "1 to 64"),
    "too many events": (
        lambda p: edit(p / "config.json", lambda a: (a["network"].update(shared=False), a.update(events=1000))),
        "1000 layers or events",
    ),
    "far too many events": (lambda p: edit(p / "config.json", lambda a: a.update(events=10**9)), "'events'"),
    "seed": (lambda p: edit(p / "config.json", lambda a: a.update(seed=-1)), "'seed'"),
    "huge seed": (lambda p: edit(p / "config.json", lambda a: a.update(seed=2**70)), "seed: expected"),
    "nested config": (lambda p: (p / "config.json").write_bytes(b'{"a":' * 10**5), "config.json: .*nested too deeply"),
    "nested state": (lambda p: (p / "state.json").write_bytes(b"[" * 10**5), "state.json: .*nested too deeply"),
    "long number": (lambda p: (p / "config.json").write_text("9" * 5000), "a number with too many digits"),
    "state": (lambda p: (p / "state.json").write_text('{"finished": "no"}'), "state.json: damaged: 'finished'"),
    "no number": (lambda p: not_a_number(p / "model.safetensors"), "no finite numbers"),
    "cut list": (lambda p: (p / "frames.txt").write_bytes(b"One"), "the last line has no line break"),
    "frame twice": (
        lambda p: (p / "frames.txt").write_text("\n".join(["One"] * 6) + "\n"),
        r"frames.txt: line 2: 'One' stands there twice",
    ),
    "no frames": (lambda p: (p / "frames.txt").write_bytes(b""), "frames.txt: expected a list of 1 or more"),
    "word twice": (
        lambda p: (p / "vocabulary.txt").write_text(
            (p / "vocabulary.txt").read_text("utf-8").replace("\n", "\n<unk>\n", 9), "utf-8"
        ),
        "vocabulary.txt: line .* stands there twice",
    ),
    "hidden type": (lambda p: edit(p / "config.json", lambda a: a["network"].update(hidden=1.5)), "damaged"),
    "no hidden": (lambda p: edit(p / "config.json", lambda a: a["network"].update(hidden=None)), "damaged"),
    "events": (lambda p: edit(p / "config.json", lambda a: a.update(events="many")), "damaged"),
    "data": (lambda p: edit(p / "config.json", lambda a: a.update(data=3)), "damaged"),
    "circular link": (lambda p: circular(p / "frames.txt"), r"frames\.txt: can't be read"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damaged_run_is_one_clear_error(copy: Path, what: str) -> None:
    """Whether or not its digest was made to fit."""
    spoil, message = DAMAGE[what]
    spoil(copy)
    with pytest.raises(InputError) as caught:
        revup.load(copy)
    assert "\n" not in str(caught.value)
    write_digest(copy, [name for name in FILES if (copy / name).exists()])
    with pytest.raises(InputError, match=message) as caught:
        revup.load(copy)
    assert "\n" not in str(caught.value)
    assert str(copy) in str(caught.value)


@pytest.mark.parametrize("name", FILES)
def test_digest_covers_every_file_that_is_read(copy: Path, name: str) -> None:
    """Also a lexicon or event vectors that the run did not have."""
    content = (copy / name).read_bytes() if (copy / name).exists() else b"lemma,frame"
    (copy / name).write_bytes(content.replace(b"e", b"a", 1) if b"e" in content else b"x\n")
    with pytest.raises(InputError):
        revup.load(copy)


def test_swapped_frames_are_noticed(copy: Path) -> None:
    first, second, *rest = (copy / "frames.txt").read_text("utf-8").splitlines(keepends=True)
    (copy / "frames.txt").write_text("".join([second, first, *rest]), "utf-8")
    with pytest.raises(InputError, match=r"damaged: frames\.txt was changed"):
        revup.load(copy)


def test_vectors_that_are_too_few_for_the_vocabulary_are_refused(
    tiny_documents: list[Document], tiny_network: Any, tmp_path: Path
) -> None:
    words = sorted({event.pred for document in tiny_documents for event in document.events})
    (tmp_path / "v.txt").write_text("".join(f"{word} {' '.join(['0.5'] * 16)}\n" for word in [*words, "elsewhere"]))
    corpus = Corpus.build(tiny_documents, events=4, vectors=tmp_path / "v.txt")
    assert corpus.vocabulary.beyond
    revup.train(corpus, network=tiny_network, training={"epochs": 0}, device="cpu", out=tmp_path / "run")
    lines = (tmp_path / "run" / "beyond.txt").read_text("utf-8")
    (tmp_path / "run" / "beyond.txt").write_text(lines + "further\n", "utf-8")
    write_digest(tmp_path / "run", [name for name in FILES if (tmp_path / "run" / name).exists()])
    with pytest.raises(InputError, match=r"model\.safetensors: the weights do not fit the vocabulary: \d+ vectors for"):
        revup.load(tmp_path / "run")


def test_unfinished_run_is_refused_unless_allowed(tiny_corpus: Corpus, tiny_network: Any, tmp_path: Path) -> None:
    def stop(report: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        revup.train(tiny_corpus, network=tiny_network, training={"epochs": 9}, out=tmp_path / "run", progress=stop)
    with pytest.raises(InputError, match=r"training has not finished; continue it with: revup train --out .* --resume"):
        revup.load(tmp_path / "run")
    model = revup.load(tmp_path / "run", allow_unfinished=True)
    assert not model.state.finished
    model.save(tmp_path / "copy")
    with pytest.raises(InputError, match="training has not finished"):
        revup.load(tmp_path / "copy")
    documents, out = tmp_path / "docs.jsonl", tmp_path / "labelled.jsonl"
    revup.write([Document("d", [Event("arrest")])], documents)
    predict = ["predict", str(tmp_path / "copy"), str(documents), "--out", str(out)]
    with pytest.raises(InputError, match="training has not finished"):
        run_verb(predict)
    assert not out.exists()
    run_verb([*predict, "--allow-unfinished"])
    assert out.exists()


@pytest.mark.parametrize("what", ["absent", "a file", "a dataset", "an empty folder"])
def test_what_is_no_run_is_refused(tmp_path: Path, tiny_path: Path, what: str) -> None:
    (tmp_path / "a file").write_text("hello")
    (tmp_path / "an empty folder").mkdir()
    with pytest.raises(InputError, match=r"not a run directory: config\.json is missing"):
        revup.load(tiny_path if what == "a dataset" else tmp_path / what)


@pytest.mark.parametrize("sizes", [{"hidden": 9000}, {"latent": 65_536}, {"layers": 3}])
def test_lying_config_is_refused_by_the_header_alone(
    copy: Path, sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(copy / "config.json", lambda about: about["network"].update(sizes))
    write_digest(copy, [name for name in FILES if (copy / name).exists()])

    def read(path: Path) -> Any:
        raise AssertionError(f"{path} was read")

    monkeypatch.setattr("revup.inference.loading.load_tensors", read)
    with pytest.raises(InputError, match=r"model\.safetensors: .*(do not fit config\.json|config\.json describes)"):
        revup.load(copy)


def test_weight_of_no_part_is_refused(copy: Path) -> None:
    tensors, meta = load_tensors(copy / "model.safetensors")
    save_tensors(copy / "model.safetensors", {**tensors, "more": torch.zeros(3)}, meta)
    write_digest(copy, [name for name in FILES if (copy / name).exists()])
    with pytest.raises(InputError, match="'more' is not of this model"):
        revup.load(copy)


def test_weight_of_another_type_is_refused(copy: Path) -> None:
    tensors, meta = load_tensors(copy / "model.safetensors")
    save_tensors(copy / "model.safetensors", {**tensors, "words.weight": tensors["words.weight"].byte()}, meta)
    write_digest(copy, [name for name in FILES if (copy / name).exists()])
    with pytest.raises(InputError, match=r"'words\.weight' has numbers of another type than float32"):
        revup.load(copy)


def test_long_windows_are_predicted_in_small_batches(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = revup.load(finished)
    documents = [Document(str(number), [Event(word) for word in model.vocabulary.words[5:11]]) for number in range(50)]
    expected = model.predict(documents)
    seen = []
    batches = model.module.batches
    monkeypatch.setattr(model.module, "batches", lambda *given: seen.append(given[2]) or batches(*given))
    monkeypatch.setattr("revup.inference.event_values.PLACES_AT_ONCE", 1)
    assert model.predict(documents) == expected
    assert set(seen) == {16}


def test_run_that_is_replaced_while_it_is_read_is_refused(
    copy: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its words and its weights could be of two runs."""
    read, other = loading_module.read_vocabulary, Path(shutil.copytree(finished, copy.with_name("other")))

    def and_replace(folder: Path) -> Any:
        found = read(folder)
        shutil.rmtree(folder)
        other.rename(folder)
        return found

    monkeypatch.setattr(loading_module, "read_vocabulary", and_replace)
    with pytest.raises(InputError, match="was replaced while it was read"):
        revup.load(copy)
    monkeypatch.undo()
    assert revup.load(copy).frames
