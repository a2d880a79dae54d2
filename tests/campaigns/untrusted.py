"""Open directories made by an enemy under an audit hook: no code runs, nothing is written, nobody is connected to.

    export PYTHONPATH=tests
    python tests/campaigns/untrusted.py [--count 2000] [--seed 0] [--out result.json]

Python reports what it does to the hook: files opened for writing or removed, processes and connections started, modules
imported, pickled classes looked up. After one honest use of everything none of these may happen again, whatever a
directory holds. `ENEMIES` are made by hand (pickles as weights and as arrays, names of modules as names of models,
headers that lie); random ones come from `mutate_directories`. Memory may grow by a small multiple of what is on disk.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import pickle
import random
import shutil
import struct
import sys
import tempfile
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch

import revup
from campaigns.limits import memory_used
from campaigns.mutate_directories import KINDS, make, originals, use_dataset, use_run
from revup.errors import RevupError
from revup.io.digests import DIGEST, write_digest
from revup.io.files import commit, write_json
from revup.models import CLASSES

FORBIDDEN = {  # events of Python's audit hooks
    *("pickle.find_class", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn"),
    *("subprocess.Popen", "socket.connect", "socket.bind", "socket.sendto", "urllib.Request", "webbrowser.open"),
    *("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.chmod", "os.truncate", "os.utime"),
    *("shutil.rmtree", "shutil.copyfile", "shutil.move", "shutil.unpack_archive", "ctypes.dlopen", "tempfile.mkstemp"),
}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
GROWTH = 200 * 2**20  # bytes beyond four times what is on disk: what torch and numpy need to work


class Hook:
    """Notes forbidden events while it is on."""

    def __init__(self) -> None:
        self.on, self.seen = False, list[str]()
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        wrong = event in FORBIDDEN or (event == "import" and arguments[0] not in sys.modules)
        if event == "open":
            mode, flags = arguments[1], arguments[2]
            wrong = bool(set(mode or "") & set("wax+")) or (isinstance(flags, int) and bool(flags & WRITES))
        if wrong and len(self.seen) < 20:
            self.seen.append(f"{event} {str(arguments)[:200]}")


class Bomb:
    """Its pickle makes a file when it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


# ---- made by hand ------------------------------------------------------------------------------------------------


def pickled_weights(folder: Path, trap: Path) -> None:
    """model.safetensors is a pickle, as torch.save would write it."""
    torch.save({"bomb": Bomb(trap)}, folder / "model.safetensors")


def plain_pickle(folder: Path, trap: Path) -> None:
    (folder / "model.safetensors").write_bytes(pickle.dumps(Bomb(trap)))


def pickled_array(folder: Path, trap: Path) -> None:
    """An array of objects, which numpy opens by pickle if it is allowed to."""
    for file in folder.rglob("*.npy"):
        out = io.BytesIO()
        np.save(out, np.array([Bomb(trap)], dtype=object), allow_pickle=True)
        file.write_bytes(out.getvalue())


def huge_array(folder: Path, trap: Path) -> None:
    """The header of each array promises a hundred billion rows."""
    for file in folder.rglob("*.npy"):
        header = {"descr": "<i4", "fortran_order": False, "shape": (10**11, 4, 5)}
        out = io.BytesIO()
        np.lib.format.write_array_header_1_0(out, header)
        file.write_bytes(out.getvalue() + b"\0" * 100)


def long_header(folder: Path, trap: Path) -> None:
    """The header of the weights is said to be 2^60 bytes long."""
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2**60) + data[8:])


def huge_tensor(folder: Path, trap: Path) -> None:
    """The header promises a tensor that the file does not hold."""
    header = {"words.weight": {"dtype": "F32", "shape": [2**31, 2**20], "data_offsets": [0, 2**53]}}
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"\0" * 64)


def module_as_model(name: str) -> Callable[[Path, Path], None]:
    """The name of a module as the name of the model."""

    def change(folder: Path, trap: Path) -> None:
        data = json.loads((folder / "config.json").read_bytes())
        (folder / "config.json").write_text(json.dumps({**data, "model": name}))

    return change


def huge_sizes(folder: Path, trap: Path) -> None:
    """Layers of the largest allowed size."""
    data = json.loads((folder / "config.json").read_bytes())
    data["network"].update(hidden=65536, embedding=65536, latent=65536, frame=65536, layers=64)
    (folder / "config.json").write_text(json.dumps(data))


def many_events(folder: Path, trap: Path) -> None:
    data = json.loads((folder / "config.json").read_bytes())
    data["events"] = 1000
    data["network"]["shared"] = False
    (folder / "config.json").write_text(json.dumps(data))


def escapes(folder: Path, trap: Path) -> None:
    """Names that a terminal or a page would obey."""
    lines = (folder / "frames.txt").read_text("utf-8").splitlines()
    lines[0] = "\x1b]0;owned\x07<script>alert(1)</script>"
    (folder / "frames.txt").write_text("\n".join(lines) + "\n", "utf-8")


RUN_ENEMIES: tuple[Callable[[Path, Path], None], ...] = (
    *(pickled_weights, plain_pickle, long_header, huge_tensor, huge_sizes, many_events, escapes),
    *map(module_as_model, ("os", "antigravity", "__main__", "..errors", "base", "layers", "this", "revup.cli.demo")),
)
DATASET_ENEMIES: tuple[Callable[[Path, Path], None], ...] = (pickled_array, huge_array, escapes)


def by_hand(hook: Hook, place: Path) -> list[str]:
    """Open every enemy that was made by hand; returns what went wrong."""
    found, trap = [], place / "trap"
    cases = [("run", enemy, use_run) for enemy in RUN_ENEMIES] + [("data", e, use_dataset) for e in DATASET_ENEMIES]
    for number, (kind, enemy, use) in enumerate(cases):
        folder = place / f"enemy-{number}"
        shutil.copytree(originals() / ("runs/revup" if kind == "run" else "dataset"), folder)
        enemy(folder, trap)
        names = json.loads((folder / DIGEST).read_bytes())["files"]
        write_digest(folder, [name for name in names if (folder / name).is_file()])
        found += _opened(hook, f"{kind}: {enemy.__name__} {number}", folder, use, random.Random(number))
        if trap.exists():
            found.append(f"{enemy.__name__}: its code ran")
        shutil.rmtree(folder)
    return found


def at_random(hook: Hook, place: Path, count: int, seed: int) -> list[str]:
    """Open directories with random changes; returns what went wrong."""
    found = []
    kinds = [kind for kind in KINDS.values() if kind.use in (use_run, use_dataset)]  # a resume may write
    for number in range(count):
        kind, chance = kinds[number % len(kinds)], random.Random(f"{seed} untrusted {number}")
        folder = place / "changed"
        make(kind, folder, chance)
        found += _opened(hook, f"{kind.original}, input {number}", folder, kind.use, chance)
        shutil.rmtree(folder)
        if len(found) > 10:
            break
    return found


def _opened(
    hook: Hook, name: str, folder: Path, use: Callable[[Path, random.Random], None], chance: random.Random
) -> list[str]:
    before = memory_used()
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
    hook.seen, hook.on = [], True
    problem = ""
    try:
        use(folder, chance)
    except RevupError as error:
        problem = "" if str(error).isprintable() else f"not one line to print: {error!s:.200}"
    except Exception as error:
        problem = f"{type(error).__name__}: {error!s:.200}"
    finally:
        hook.on = False
    found = [f"{name}: {event}" for event in hook.seen] + ([f"{name}: {problem}"] if problem else [])
    if memory_used() - before > 4 * size + GROWTH:
        found.append(f"{name}: {size} bytes on disk, and memory grew by {memory_used() - before}")
    return found


def warm_up() -> None:
    """Use everything once, so that all modules are imported."""
    for number in range(12):
        for model in CLASSES:
            use_run(originals() / "runs" / model, random.Random(number))
        use_dataset(originals() / "dataset", random.Random(number))
    for wrong in ("missing", "wrong"):
        try:
            revup.load(originals() / wrong)
        except RevupError as error:
            str(error)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=int, default=2000, help="directories with random changes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="where to write the result as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    hook = Hook()
    warm_up()
    with tempfile.TemporaryDirectory(prefix="revup-untrusted-") as place:
        found = {
            "by hand": by_hand(hook, Path(place)),
            "at random": at_random(hook, Path(place), options.count, options.seed),
        }
    made = len(RUN_ENEMIES) + len(DATASET_ENEMIES)
    print(f"{made} directories made by hand: {len(found['by hand'])} failures")
    print(f"{options.count} with random changes: {len(found['at random'])} failures")
    for problem in (*found["by hand"], *found["at random"]):
        print(f"  {problem}", file=sys.stderr)
    if options.out is not None:
        about = {"date": date.today().isoformat(), "commit": commit(), "seed": options.seed, "count": options.count}
        write_json(options.out, {**about, "made_by_hand": made, "failures": found, "largest_bytes": memory_used()})
    return int(any(found.values()))


if __name__ == "__main__":
    sys.exit(main())
