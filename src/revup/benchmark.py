"""Speed on this machine: training beside the step-by-step reference, prediction, and peak memory.

Systems compute the same model on the same random documents, taking turns, so that whatever else runs here slows all:
`fast` is RevUp as it trains (the decoder in one call, the loss over the vocabulary in chunks), `bf16` the same with
`training.precision` bf16, `reference` is `revup.reference` (a loop over tokens with input feeding, all logits held at
once, Adam a parameter at a time, float32). All have the published sizes of weights and objective; the first two clip
their gradient besides. Figures are medians.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch

import revup
from revup.data.batches import Batch, Batches
from revup.data.corpus import Corpus, Split
from revup.data.dataset import ARRAYS, Settings
from revup.data.encode import SPECIAL, TOKENS, TUP
from revup.data.events import Document, Event, write
from revup.data.knowledge import Observation, event_keys
from revup.data.told import CONTEXT
from revup.data.vocabulary import Vocabulary
from revup.errors import RevupError
from revup.inference.measures import BATCH
from revup.inference.streaming import computing_threads
from revup.inference.trained import Trained
from revup.io.files import commit
from revup.models.network import Sizes
from revup.models.randomness import Draws, step_seed
from revup.ops.device import choose_device
from revup.ops.precision import precision
from revup.reference import Reference, reference_optimiser, reference_step
from revup.settings import Config, build_module
from revup.training.optimiser import make_optimiser
from revup.training.processes import Processes
from revup.training.step import EAGER_STEPS, Step

SYSTEMS = ("fast", "bf16", "reference")
WARM_UP = 1  # steps not counted; on a GPU also those in which a step is captured
SEED = 1


@dataclass(frozen=True)
class Size:
    """How large the model, its data and a batch are."""

    words: int = 20_000
    frames: int = 600
    hidden: int = 128
    batch: int = 500
    events: int = 5
    network: str = "small"  # the sizes that are not named here

    def __post_init__(self) -> None:
        least = {"words": len(SPECIAL) + 1, "frames": 2, "hidden": 1, "batch": 1, "events": 1}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise RevupError(f"{name}: expected {low} or more, found {getattr(self, name)}")

    @property
    def sizes(self) -> Sizes:
        return Sizes(self.words, self.frames, self.events)

    def config(self, preset: str = "default", **overrides: dict[str, Any]) -> Config:
        """Settings of a run of this size."""
        network = {"size": self.network, "hidden": self.hidden, **overrides.get("network", {})}
        training = {"batch_size": self.batch, **overrides.get("training", {})}
        return Config.make("revup", preset, seed=SEED, overrides={"network": network, "training": training})


@dataclass(frozen=True)
class Plan:
    """What `revup bench` measures."""

    size: Size = Size()
    steps: int = 3  # counted, of each system
    memory: Size = Size(words=150_000, batch=100)
    documents: int = 10_000  # to predict, end to end

    @classmethod
    def quick(cls) -> Plan:
        """Small enough to try it out in a few seconds; its ratio says little."""
        return cls(Size(2_000, 50, 32, 50), 3, Size(10_000, 50, 32, 20), 500)


# ---- random data ------------------------------------------------------------------------------------------------


class RandomCorpus(Corpus):
    """Documents of random words, frequent ones first (p(rank) ∝ 1/rank), their frames following from the predicates.

    It lives in memory, and all three splits are one.
    """

    def __init__(self, size: Size, documents: int) -> None:
        words = [*SPECIAL, *(f"word{n}" for n in range(size.words - len(SPECIAL)))]
        frames = [f"Frame{n:05d}" for n in range(size.frames)]
        meta = {"settings": asdict(Settings(events=size.events)), "named_frames": True, "fingerprint": "random"}
        super().__init__(Path(os.devnull), meta, Vocabulary(words), frames)
        rng = np.random.default_rng(SEED)
        shape = (documents, size.events)
        ranks = np.exp(rng.random((*shape, TOKENS)) * np.log(size.words - len(SPECIAL))).astype(np.int32) - 1
        tokens = ranks + len(SPECIAL)
        tokens[..., -1] = TUP
        reference = (tokens[..., 0] % size.frames).astype(np.int32)
        keys = event_keys(np.arange(documents, dtype=np.uint64)[:, None], np.arange(size.events)[None, :])
        self._arrays = {
            "tokens": tokens,
            "read": tokens,
            "lengths": np.full(documents, size.events, np.int32),
            "reference": reference,
            "knowledge_frames": reference[..., None],
            "knowledge_weights": np.ones((*shape, 1), np.float32),
            "knowledge_kind": np.zeros(shape, np.int8),
            "lemma": tokens[..., 0],
            "lemma_read": tokens[..., 0],
            "entry": np.full(shape, -1, np.int32),
            "context": np.zeros((*shape, len(CONTEXT)), np.uint32),
            **{name: np.zeros((*shape, 0), kind) for name, (kind, axes) in ARRAYS.items() if axes[-1] == "R"},
            "confidence": np.ones(shape, np.float32),
            "keys": keys,
            "document": np.arange(documents),
        }

    def split(self, name: str) -> Split:
        return Split(name, self._arrays, lambda: [str(n) for n in self._arrays["document"]], len(self.frames))

    def vectors(self) -> None:
        return None

    def documents(self) -> Iterator[Document]:
        """The same as documents outside the corpus would be, without their frames."""
        words = self.vocabulary.words
        for number, events in enumerate(self._arrays["tokens"][..., :-1].tolist()):
            yield Document(str(number), [Event(*(words[token] for token in event)) for event in events])


def batches(size: Size, device: torch.device, count: int = 4) -> list[Batch]:
    """A few batches of random documents, everything seen."""
    corpus = RandomCorpus(size, count * size.batch)
    return list(Batches(corpus.split("train"), Observation(), size.batch, device).ordered())


# ---- the two systems --------------------------------------------------------------------------------------------


def fast_steps(config: Config, sizes: Sizes, device: torch.device) -> Callable[[Batch, int], Any]:
    """RevUp as `revup train` takes its steps."""
    module = build_module(config, sizes).to(device)
    module.train()
    return Step(module, make_optimiser(module, config.training, device), config.training, Processes(), SEED)


def reference_steps(config: Config, sizes: Sizes, device: torch.device) -> Callable[[Batch, int], Any]:
    """The published way."""
    torch.manual_seed(SEED)
    module = Reference(sizes, config.network.resolve(sizes.classes)).to(device)
    optimiser = reference_optimiser(module, config.training.learning_rate)
    return lambda batch, number: reference_step(
        module, optimiser, batch, Draws.seeded(step_seed(SEED, number), batch.documents, device)
    )


def make_steps(system: str, size: Size, device: torch.device) -> Callable[[Batch, int], Any]:
    """The published model of this size, trained by either system."""
    training = {"clip": 5.0, "precision": "bf16" if system == "bf16" else "float32"}
    config = size.config("released", network={"input_feeding": system == "reference"}, training=training)
    return (reference_steps if system == "reference" else fast_steps)(config, size.sizes, device)


def compare_training(size: Size, steps: int, device: torch.device) -> dict[str, list[float]]:
    """Seconds of each step of each system, which take turns."""
    data = batches(size, device)
    systems = {name: make_steps(name, size, device) for name in SYSTEMS}
    spent: dict[str, list[float]] = {name: [] for name in SYSTEMS}
    warm_up = WARM_UP + (EAGER_STEPS + 1 if device.type == "cuda" else 0)
    for number in range(warm_up + steps):
        for name, take_step in systems.items():
            took = seconds(device, take_step, data[number % len(data)], number)
            if number >= warm_up:
                spent[name].append(took)
    return spent


def seconds(device: torch.device, work: Callable[..., Any], *arguments: Any) -> float:
    """How long something takes, until the device has done it."""
    wait(device)
    start = time.perf_counter()
    work(*arguments)
    wait(device)
    return time.perf_counter() - start


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# ---- peak memory ------------------------------------------------------------------------------------------------

_MEMORY = "import sys; from revup.benchmark import print_peak_memory as p; p(*sys.argv[1:])"


def peak_memory(system: str, size: Size, device: torch.device) -> float:
    """MiB that training takes at its peak, in a process of its own: on a CPU all of the process, libraries included."""
    command = [sys.executable, "-c", _MEMORY, system, json.dumps(asdict(size)), str(device)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise RevupError(f"memory of {system} at {size.words} words could not be measured: {reason}")
    return float(done.stdout)


def print_peak_memory(system: str, size: str, device: str) -> None:
    """Take two steps (Adam's moments are there from the second on) and print the peak."""
    chosen, where = Size(**json.loads(size)), torch.device(device)
    take_step = make_steps(system, chosen, where)
    for number in range(2):
        take_step(batches(chosen, where, 1)[0], number)
    print(torch.cuda.max_memory_allocated(where) / 2**20 if where.type == "cuda" else _peak_mib())


def _peak_mib() -> float:
    try:  # ru_maxrss would count the process that started this one
        status = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) / 2**10 for line in status if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (2**20 if sys.platform == "darwin" else 2**10)


# ---- prediction -------------------------------------------------------------------------------------------------


def trained(corpus: RandomCorpus, size: Size, device: torch.device) -> Trained:
    """A model with the default settings that has learned nothing: as fast as one that has."""
    config = size.config()
    module = build_module(config, size.sizes)
    module.prepare(corpus, config.observation)
    module.to(device).eval()
    return Trained(module, config, corpus.vocabulary, corpus.frames, size.events, corpus.meta)


def predict_alone(model: Trained, corpus: Corpus, repetitions: int, batch: int = BATCH) -> float:
    """Documents a second of the model itself, from numbers on the device to probabilities on the device.

    On a CPU in threads as `Trained.predict_documents` has them.
    """
    on_cpu, device = model.device.type == "cpu", model.device
    data = list(model.module.batches(corpus.split("test"), Observation(0.0), batch).ordered())
    workers = torch.get_num_threads() if on_cpu else 1
    work = data[: max(2 * workers, 4)]

    @torch.no_grad()
    def predict(part: Batch) -> None:
        with precision(model.precision, device):
            model.module.frame_probabilities(part)

    with computing_threads(workers, on_cpu) as pool:
        times = [seconds(device, lambda: list(pool.map(predict, work))) for _ in range(WARM_UP + repetitions)]
    return sum(part.documents for part in work) / statistics.median(times[WARM_UP:])


def predict_end_to_end(model: Trained, corpus: RandomCorpus, device: torch.device) -> dict[str, float]:
    """`revup predict` as a process, from a file to a file: its start, and documents a second after it."""
    with tempfile.TemporaryDirectory() as folder:
        run, out = Path(folder) / "run", Path(folder) / "out.jsonl"
        model.save(run)
        whole, one = Path(folder) / "whole.jsonl", Path(folder) / "one.jsonl"
        write([next(corpus.documents())], one)
        count = write(corpus.documents(), whole)
        start, total = (_predict(run, source, out, device, model.precision) for source in (one, whole))
        written = out.read_bytes().count(b"\n")
    if written != count:
        raise RevupError(f"revup predict wrote {written} documents of {count}")
    return {"start": start, "rate": (count - 1) / max(total - start, 1e-9)}


def _predict(run: Path, source: Path, out: Path, device: torch.device, kind: str) -> float:
    options = ["--out", str(out), "--force", "--device", device.type, "--precision", kind]
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "revup", "predict", str(run), str(source), *options],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RevupError(f"revup predict failed: {done.stderr.strip()}")
    return time.perf_counter() - begin


# ---- all of it ----------------------------------------------------------------------------------------------------


def bench(plan: Plan | None = None, device: str | None = None) -> dict[str, Any]:
    """Measure the speed and memory of training and prediction on this machine, beside the stepwise reference.

    Args:
        plan: Sizes and number of steps; by default those of a usual run.
        device: cpu or cuda; by default cuda where there is one.

    Returns:
        `ratio` (how many times faster than the reference training is), `documents_per_second`, `peak_mib`,
        `predict_documents_per_second` and more; with date, commit, hardware, versions and the plan.
    """
    plan, where = plan or Plan(), choose_device(device)
    around = surroundings(where)
    spent = compare_training(plan.size, plan.steps, where)
    middle = {name: statistics.median(times) for name, times in spent.items()}
    memory = {name: peak_memory(name, plan.memory, where) for name in SYSTEMS}
    corpus = RandomCorpus(plan.size, plan.documents)
    model = trained(corpus, plan.size, where)
    predicted: dict[str, float] = {}
    for model.precision, name in (("float32", ""), ("bf16", "_bf16")):
        predicted[f"model{name}"] = predict_alone(model, corpus, max(plan.steps, 5))
        end_to_end = predict_end_to_end(model, corpus, where)
        predicted[f"end_to_end{name}"] = end_to_end["rate"]
    return {
        "benchmark": "bench",
        **around,
        "load_after": os.getloadavg()[0],
        "config": asdict(plan),
        "ratio": middle["reference"] / middle["fast"],
        "ratio_bf16": middle["reference"] / middle["bf16"],
        "documents_per_second": {name: plan.size.batch / took for name, took in middle.items()},
        "step_seconds": spent,
        "peak_mib": memory,
        "memory_ratio": memory["fast"] / memory["reference"],
        "predict_documents_per_second": predicted,
        "predict_start_seconds": end_to_end["start"],
    }


def surroundings(device: torch.device) -> dict[str, Any]:
    """Date, commit, hardware, versions, and how busy the machine is before anything is measured."""
    on_gpu = device.type == "cuda"
    models = [line for line in _read("/proc/cpuinfo").splitlines() if line.startswith("model name")]
    return {
        "date": date.today().isoformat(),
        "commit": commit(),
        "hardware": {
            "device": torch.cuda.get_device_name(device) if on_gpu else "cpu",
            "processor": models[0].partition(":")[2].strip() if models else platform.processor(),
            "cores": os.cpu_count(),
        },
        "versions": {
            "revup": revup.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "cuda": torch.version.cuda if on_gpu else None,
            "cudnn": torch.backends.cudnn.version() if on_gpu else None,
        },
        "threads": torch.get_num_threads(),
        "load_before": os.getloadavg()[0],
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def table(result: dict[str, Any]) -> str:
    """The figures as text."""
    size, memory = result["config"]["size"], result["config"]["memory"]
    rate, peak, predict = result["documents_per_second"], result["peak_mib"], result["predict_documents_per_second"]
    shape = f"hidden {size['hidden']}, {size['words']:,} words, {size['frames']} frames"
    rows = [
        (f"training ({shape}, batch {size['batch']})", "", ""),
        ("  RevUp", f"{rate['fast']:,.0f}", "documents/s"),
        ("  RevUp in bf16", f"{rate['bf16']:,.0f}", "documents/s"),
        ("  step-by-step reference", f"{rate['reference']:,.0f}", "documents/s"),
        ("  ratio", f"{result['ratio']:.2f}", ""),
        ("  ratio in bf16", f"{result['ratio_bf16']:.2f}", ""),
        (f"peak memory ({memory['words']:,} words, batch {memory['batch']})", "", ""),
        ("  RevUp", f"{peak['fast']:,.0f}", "MiB"),
        ("  step-by-step reference", f"{peak['reference']:,.0f}", "MiB"),
        ("  ratio", f"{result['memory_ratio']:.2f}", ""),
        (f"prediction ({shape})", "", ""),
        ("  the model alone", f"{predict['model']:,.0f}", "documents/s"),
        ("  the model alone in bf16", f"{predict['model_bf16']:,.0f}", "documents/s"),
        ("  revup predict, file to file", f"{predict['end_to_end']:,.0f}", "documents/s"),
        ("  revup predict in bf16", f"{predict['end_to_end_bf16']:,.0f}", "documents/s"),
        ("  its start", f"{result['predict_start_seconds']:.1f}", "s"),
    ]
    where = result["hardware"]
    load = f"load {result['load_before']:.1f} before, {result['load_after']:.1f} after"
    versions = f"torch {result['versions']['torch']}, commit {result['commit']}"
    lines = [f"{name:<44}{value:>12} {unit}".rstrip() if value else name for name, value, unit in rows]
    return "\n".join(
        [f"{where['device']}, {where['cores']} cores, {result['threads']} threads, {load}; {versions}", *lines]
    )
