"""Feed run and dataset directories, lexicons and vectors with random changes: each must load or give one clear error.

    export PYTHONPATH=tests
    python tests/campaigns/mutate_directories.py [--count 10000] [--kind NAME ...] [--seed 0] [--save DIR] [--out FILE]

A change is one to six changed bytes, a missing, empty, swapped or foreign file, a link or a pipe in place of a file, or
a value of a JSON file or a tensor that no honest run has. Digests are made to fit in most cases, as an enemy would do.
What loads is used: a model predicts, embeds and is evaluated, a dataset is batched. Anything but a result or a
RevupError is a failure, as is an input that takes 10 seconds of processor time or lets the process grow above 1 GB.
The n-th input of a kind follows from the seed and n alone. Prints a table; the exit status is 1 where anything failed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import revup
from campaigns.limits import BeyondLimits, memory_used, watching
from campaigns.mutate_readers import TOKENS, _folder, mutate
from revup.data.batches import Batches
from revup.data.event_vectors import EventVectors
from revup.data.events import Document, Event
from revup.data.knowledge import Observation
from revup.data.lexicon import Lexicon
from revup.data.vectors import read_beyond, read_vectors
from revup.errors import Interrupted, RevupError
from revup.inference.embed import embed
from revup.io.digests import DIGEST, write_digest
from revup.io.files import commit, write_json
from revup.io.tensors import load_tensors, save_tensors
from revup.models import CLASSES
from revup.world.world import World

TINY = {"hidden": 8, "embedding": 8, "latent": 4, "frame": 8, "layers": 1}
STOPPED: dict[str, Any] = {"network": TINY, "training": {"epochs": 2, "batch_size": 20}, "device": "cpu"}
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 64, 1000, 65536, 10**6, 10**9, 2**63, 10**30, 0.5, -0.5, 1e308, 1e-320),
    *("", " ", "x", "revup", "tagger", "default", "../../etc", "/etc/passwd", "\0", "é", "9" * 400, "nan"),
    *([], {}, [1], [[]], {"a": 1}, {"": None}, [None] * 50),
)

Change = Callable[[Path, random.Random], None]


# ---- what is changed -----------------------------------------------------------------------------------------


@cache
def originals() -> Path:
    """A dataset, a run of every model trained on it, lexicons and vectors; removed at the end of the process."""
    import atexit

    place = Path(tempfile.mkdtemp(prefix="revup-originals-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    world = World(frames=5, seed=1, words=70, events=4)
    vectors = place / "vectors.txt"
    words = sorted({event.pred for document in world.sample(60) for event in document.events})
    numbers = np.random.default_rng(1).normal(size=(len(words), 8)).round(3)
    rows = (f"{word} {' '.join(map(str, row))}\n" for word, row in zip(words, numbers.tolist(), strict=True))
    vectors.write_text("".join(rows), "utf-8")
    corpus = revup.Corpus.build(
        world.sample(60), out=place / "dataset", events=4, split=(0.7, 0.15, 0.15), vectors=vectors
    )
    for model in CLASSES:
        training = {"epochs": 1, "batch_size": 40, "settle": 0.0}
        revup.train(corpus, model=model, network=TINY, training=training, device="cpu", out=place / "runs" / model)
    with suppress(Interrupted):
        revup.train(corpus, progress=_interrupt, out=place / "stopped", **STOPPED)
    embed(revup.load(place / "runs" / "counts"), world.sample(20)).save(place / "events.npz")
    (place / "lexicon.csv").write_text(
        'predicate,pos,frame,weight\narrest,v,Arrest,3\narrest,v,Holding,1\ntry,v,Trial,0.5\n"go on",v,A,2\n', "utf-8"
    )
    verbnet = (
        '<VNCLASS ID="give-13.1"><MEMBERS><MEMBER name="give" wn="give%2:40:00" grouping="give.01"/></MEMBERS>'
        '<SUBCLASSES><VNSUBCLASS ID="give-13.1-1"><MEMBERS><MEMBER name="lend"/></MEMBERS><SUBCLASSES/></VNSUBCLASS>'
        "</SUBCLASSES></VNCLASS>"
    )
    with zipfile.ZipFile(place / "verbnet.zip", "w") as packed:
        packed.writestr("verbnet3/give-13.1.xml", verbnet)
    return place


def _interrupt(progress: Any) -> None:
    raise Interrupted(signal.SIGTERM)


def _bytes(folder: Path, chance: random.Random) -> None:
    file = _some_file(folder, chance)
    data = file.read_bytes()
    if len(data) > 4096 and chance.random() < 0.7:  # the header of an array, where most of its meaning is
        data = mutate(data[:400], chance) + data[400:]
    else:
        data = mutate(data, chance)
    file.write_bytes(data)


def _missing(folder: Path, chance: random.Random) -> None:
    _some_file(folder, chance).unlink()


def _empty(folder: Path, chance: random.Random) -> None:
    _some_file(folder, chance).write_bytes(
        chance.choice((b"", b"\n", b"\0" * 100, b"{}", b"[]", chance.choice(TOKENS)))
    )


def _swapped(folder: Path, chance: random.Random) -> None:
    first, second = _some_file(folder, chance), _some_file(folder, chance)
    one, two = first.read_bytes(), second.read_bytes()
    first.write_bytes(two)
    second.write_bytes(one)


def _foreign(folder: Path, chance: random.Random) -> None:
    """A file of the same name from another run."""
    other = originals() / "runs" / chance.choice(list(CLASSES))
    file = _some_file(folder, chance)
    if (other / file.name).is_file():
        shutil.copy(other / file.name, file)


def _no_file(folder: Path, chance: random.Random) -> None:
    """A link, a directory or a pipe in place of a file."""
    file = _some_file(folder, chance)
    file.unlink()
    match chance.randrange(5):
        case 0:
            file.symlink_to("/etc/passwd")
        case 1:
            file.symlink_to(file.name)
        case 2:
            file.mkdir()
        case 3:
            os.mkfifo(file)
        case 4:
            file.symlink_to("/dev/zero")


def _lines(folder: Path, chance: random.Random) -> None:
    """Lines of a list are exchanged, doubled or left out."""
    files = [file for file in _files(folder) if file.suffix in (".txt", ".csv", ".jsonl")]
    file = chance.choice(files) if files else _some_file(folder, chance)
    lines = file.read_bytes().splitlines(keepends=True) or [b"x\n"]
    at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    match chance.randrange(4):
        case 0:
            lines[at], lines[other] = lines[other], lines[at]
        case 1:
            lines.insert(other, lines[at])
        case 2:
            del lines[at]
        case 3:
            lines[at] = chance.choice((b"\n", b" \n", b"x" * 5000 + b"\n", "é\n".encode(), b"\xff\n", b"<pad>\n"))
    file.write_bytes(b"".join(lines))


def _json(folder: Path, chance: random.Random) -> None:
    """A value somewhere in a JSON file is replaced, removed or added."""
    files = [file for file in _files(folder) if file.suffix == ".json"]
    if not files:
        return
    file = chance.choice(files)
    data = json.loads(file.read_bytes())
    holders = [part for part in _parts(data) if isinstance(part, (dict, list)) and part]
    if holders:
        holder: Any = chance.choice(holders)
        key: Any = chance.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        if isinstance(holder, dict) and chance.random() < 0.25:
            holder.pop(key)
        elif isinstance(holder, dict) and chance.random() < 0.2:
            holder[f"{key}_x"] = chance.choice(VALUES)
        else:
            holder[key] = chance.choice(VALUES)
    file.write_text(json.dumps(data), "utf-8")


def _parts(data: Any) -> Iterator[Any]:
    yield data
    for part in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        yield from _parts(part)


def _tensors(folder: Path, chance: random.Random) -> None:
    """A tensor of the weights or counts, or an array, gets other values, another shape or another type."""
    held = [file for file in _files(folder) if file.suffix == ".safetensors"]
    arrays = [file for file in _files(folder) if file.suffix == ".npy"]
    if held:
        weights = chance.choice(held)
        tensors, meta = load_tensors(weights)
        name = chance.choice(sorted(tensors))
        match chance.randrange(6):
            case 0:
                tensors.pop(name)
            case 1:
                tensors["extra"] = torch.zeros(3)
            case 2:
                meta["model"] = chance.choice((*CLASSES, "x", None, 5))  # type: ignore[arg-type]
            case _:
                tensors[name] = torch.from_numpy(_changed(tensors[name].numpy(), chance))
        save_tensors(weights, tensors, meta)
    elif arrays:
        file = chance.choice(arrays)
        np.save(file, _changed(np.load(file), chance))


def _changed(array: Any, chance: random.Random) -> Any:
    array = np.array(array)
    match chance.randrange(6):
        case 0:
            array = array[: chance.randrange(len(array) + 1)] if array.ndim and len(array) else array
        case 1:
            array = np.concatenate([array, array]) if array.ndim else array[None]
        case 2:
            array = array[..., None] if chance.random() < 0.5 else array.reshape(-1)
        case 3:
            array = array.astype(chance.choice(("<f8", "<i8", "<f2", "<u1", "?", "<i4", "<f4")))
        case _:
            if array.size and array.dtype != bool:
                values = (np.nan, np.inf, -np.inf, -1, -(2**31), 2**31 - 1, 1e38, 0, 10**6)
                with np.errstate(all="ignore"), suppress(OverflowError, ValueError):
                    value = chance.choice(values if array.dtype.kind == "f" else values[3:])
                    array.reshape(-1)[chance.randrange(array.size)] = value
    return np.ascontiguousarray(array)


CHANGES: tuple[Change, ...] = (_bytes, _bytes, _missing, _empty, _swapped, _foreign, _no_file, _lines, _json, _tensors)
CHANGES += (_json, _tensors, _lines)


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


def _some_file(folder: Path, chance: random.Random) -> Path:
    files = _files(folder)
    if not files:
        (folder / "x").write_bytes(b"x")
        return folder / "x"
    return chance.choice(files)


def _seal(folder: Path) -> None:
    """Make the digest fit, as far as the files are files."""
    if not (folder / DIGEST).is_file():
        return
    try:
        names = json.loads((folder / DIGEST).read_bytes())["files"]
        write_digest(folder, [name for name in names if (folder / name).is_file()])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass


# ---- what is done with it ----------------------------------------------------------------------------------------

DOCUMENTS = [
    Document("a", [Event("arrested", "police", "man", frame="Arrest"), Event("x", mod="of")]),
    Document("b", [Event("said", frames={"Trial": 0.5, "Nonsense": 1.0}, confidence=2.0)] * 6),
]


def use_run(folder: Path, chance: random.Random) -> None:
    model = revup.load(folder, allow_unfinished=chance.random() < 0.5)
    if model.module.predicts_frames:
        model.predict(DOCUMENTS, top=3, revise=chance.random() < 0.5)
    with suppress(RevupError):
        model.embed(DOCUMENTS)
    if model.module.writes_text and chance.random() < 0.2:
        model.generate(1, method="greedy")
    if chance.random() < 0.1:
        revup.evaluate(model, revup.Corpus.load(originals() / "dataset"))


def use_stopped(folder: Path, chance: random.Random) -> None:
    """An unfinished run is resumed."""
    revup.train(revup.Corpus.load(originals() / "dataset"), out=folder, resume=True, **STOPPED)


def use_event_vectors(folder: Path, chance: random.Random) -> None:
    (file,) = folder.iterdir()
    vectors = EventVectors.load(file)
    assert np.isfinite(vectors.of_keys(np.arange(3, dtype=np.uint64))[0]).all()


def use_dataset(folder: Path, chance: random.Random) -> None:
    corpus = revup.Corpus.load(folder, verify=chance.random() < 0.3)
    corpus.vectors()
    assert isinstance(corpus.statistics, dict)
    for split in corpus.splits.values():
        assert len(split.ids) >= 0
        if len(split):
            batches = Batches(split, Observation(0.5, 0.5), 16, torch.device("cpu"))
            for batch in batches.ordered():
                assert int(batch.tokens.max()) < len(corpus.vocabulary)
    if chance.random() < 0.1:
        revup.train(corpus, model="lookup")


def use_lexicon(folder: Path, chance: random.Random) -> None:
    (file,) = folder.iterdir()
    lexicon = Lexicon.load(file)
    assert isinstance(lexicon, Lexicon)


def use_vectors(folder: Path, chance: random.Random) -> None:
    (file,) = folder.iterdir()
    found, _ = read_vectors(file, {"arrested": 0, "said": 1})
    read_beyond(file, {"arrested"}, 50, found.shape[1])


@dataclass(frozen=True)
class Kind:
    """Something to change: where its original is (relative to `originals`), and what is done with a changed one."""

    original: str
    use: Callable[[Path, random.Random], None]


KINDS: dict[str, Kind] = {
    **{f"run of {model}": Kind(f"runs/{model}", use_run) for model in CLASSES},
    "stopped run": Kind("stopped", use_stopped),
    "dataset": Kind("dataset", use_dataset),
    "lexicon (csv)": Kind("lexicon.csv", use_lexicon),
    "lexicon (zip)": Kind("verbnet.zip", use_lexicon),
    "vectors": Kind("vectors.txt", use_vectors),
    "event vectors": Kind("events.npz", use_event_vectors),
}


@dataclass
class Tally:
    """What became of the inputs; failures as number and traceback."""

    inputs: int = 0
    used: int = 0
    refused: int = 0
    failures: list[tuple[int, str]] = field(default_factory=list)
    seconds: float = 0.0
    longest: float = 0.0  # seconds of processor time for one input


def campaign(
    name: str, count: int, seed: int = 0, save: Path | None = None, stop_after: int = 5, first: int = 0
) -> Tally:
    """Load `count` changed copies of one kind, from the one with the number `first` on."""
    tally, kind, began = Tally(), KINDS[name], time.process_time()
    with _folder() as place, watching() as watch:
        for number in range(first, first + count):
            folder = place / "changed"
            chance = random.Random(f"{seed} {name} {number}")
            make(kind, folder, chance)
            tally.inputs += 1
            started = time.process_time()
            try:
                with watch.one_input():
                    kind.use(folder, chance)
                tally.used += 1
            except RevupError as error:
                text = str(error)
                assert text.isprintable(), f"not one line to print: {text!r}"
                assert len(text) < 1300, f"too long a message: {text!r}"
                tally.refused += 1
            except (Exception, BeyondLimits):  # whatever it is, it is the finding
                tally.failures.append((number, traceback.format_exc()))
                if save is not None:
                    shutil.copytree(folder, save / f"changed-{kind.original.replace('/', '-')}-{number}", symlinks=True)
            tally.longest = max(tally.longest, time.process_time() - started)
            if len(tally.failures) >= stop_after:
                break
            shutil.rmtree(folder)
    tally.seconds = time.process_time() - began
    return tally


def make(kind: Kind, folder: Path, chance: random.Random) -> None:
    """A changed copy of an original."""
    original = originals() / kind.original
    if original.is_dir():
        shutil.copytree(original, folder)
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            with suppress(
                OSError, ValueError, IndexError, RecursionError, RevupError
            ):  # of a file that an earlier change has broken
                chance.choice(CHANGES)(folder, chance)
        if chance.random() < 0.8:
            _seal(folder)
    else:
        folder.mkdir()
        name = original.name + (".gz" if chance.random() < 0.05 else "")
        (folder / name).write_bytes(mutate(original.read_bytes(), chance))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=int, default=10_000, help="inputs of each kind")
    parser.add_argument("--kind", nargs="+", choices=sorted(KINDS), default=list(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, help="where to put an offending input")
    parser.add_argument("--out", type=Path, help="where to write the result as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tallies = {}
    print(f"{'kind':<16}{'inputs':>9}{'used':>8}{'refused':>9}{'failures':>10}{'per second':>12}{'longest, s':>12}")
    for name in options.kind:
        tallies[name] = tally = campaign(name, options.count, options.seed, options.save)
        rate = tally.inputs / max(tally.seconds, 1e-9)
        row = f"{tally.inputs:>9}{tally.used:>8}{tally.refused:>9}{len(tally.failures):>10}{rate:>12.0f}"
        print(f"{name:<16}{row}{tally.longest:>12.2f}", flush=True)
        for number, trace in tally.failures:
            print(f"\n{name}, input {number}:\n{trace}", file=sys.stderr, flush=True)
    if options.out is not None:
        about = {"date": date.today().isoformat(), "commit": commit(), "version": revup.__version__}
        memory = {"largest_bytes": memory_used(), "seed": options.seed}
        write_json(options.out, {**about, **memory, "kinds": {name: asdict(t) for name, t in tallies.items()}})
    return int(any(tally.failures for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
