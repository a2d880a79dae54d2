"""How fast RevUp trains and predicts, how much memory it takes, and where its time goes.

    python benchmarks/train.py throughput            # paper and small size, several batches
    python benchmarks/train.py operations            # what each fused operation gains, switched off alone
    python benchmarks/train.py predict               # the model alone
    python benchmarks/train.py concurrent            # 8 small runs at once against one, and at sizes of corpora
    python benchmarks/train.py growth                # vocabulary, batch, hidden, frames, events, documents
    python benchmarks/train.py profile               # time by group of kernels
    python benchmarks/train.py gradients             # fast paths against plain float32: the loss and every gradient
    python benchmarks/train.py same                  # fast paths against plain float32: accuracy and perplexity
    python benchmarks/train.py full                  # 320,000 documents until early stopping
    python benchmarks/train.py figure RESULT.json    # draws what growth measured (needs matplotlib)

Random documents of the given sizes, everything seen, the default settings otherwise; a step is the whole of it
(encoder, latents, decoder, loss over the vocabulary, backward, clipping, Adam). `--tiny` shrinks every size, to try it
out anywhere. Each command prints a line a measurement and writes benchmarks/results/train-COMMAND-DATE.json. Needs
nothing but torch, numpy and safetensors; without an installed revup, run it with PYTHONPATH=src.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from revup import ops
from revup.benchmark import RandomCorpus, Size, predict_alone, surroundings, trained, wait
from revup.data.batches import Batch
from revup.data.corpus import Corpus
from revup.data.knowledge import Observation
from revup.inference.measures import evaluate_split
from revup.models.network import Sizes
from revup.models.randomness import Draws
from revup.ops.device import choose_device
from revup.ops.precision import PRECISIONS, precision
from revup.reporting.progress import Progress
from revup.settings import Config, build_module
from revup.training.loop import training_batches
from revup.training.optimiser import make_optimiser
from revup.training.processes import Processes
from revup.training.run import train_config
from revup.training.step import LOSS_SCALE, Step
from revup.world.world import World

HERE = Path(__file__).parent
PAPER = Size(words=150_000, frames=600, hidden=512, batch=1000, network="paper")
SMALL = Size(words=20_000, frames=600, hidden=128, batch=200, network="small")
TINY = Size(words=300, frames=10, hidden=16, batch=20, network="small")
WARM_UP = 6  # steps: three eager ones, the capture, and two to settle
BLOCKS = 3  # timed, each of as many steps as fit the time; the median counts
GROUPS = {  # of kernels, by what their names contain; the first that fits
    "matrix products": (
        "gemm",
        "cutlass",
        "xmma",
        "nvjet",
        "cublas",
        "::mm",
        "addmm",
        "bmm",
        "matmul",
        "gemv",
        "_product",
    ),
    "recurrent": ("rnn", "gru", "lstm", "persist", "elemwise_fp", "_walk", "_step"),
    "latents and attention": ("_look", "_attend", "_memory_gradient", "_draw", "_sample", "_gaussian", "_divergences"),
    "loss without logits": ("_over_words", "_over_states", "_joined"),
    "optimiser and clipping": ("adam", "multi_tensor", "foreach", "norm"),
    "softmax and sums": ("_softmax_gradient", "softmax", "logsumexp", "reduce", "::sum", "cross_entropy", "amax"),
    "lookups": (
        "_add_up",
        "_join",
        "_read",
        "index",
        "gather",
        "scatter",
        "embedding",
        "sort",
        "radix",
        "scan",
    ),
    "words left out, means": ("_drop", "_mean", "_weighted"),
    "copies": ("copy", "memcpy", "memset", "::cat", "catarray", "fill"),
    "random numbers": ("distribution", "random", "philox", "normal", "uniform"),
    "elementwise": ("elementwise", "vectorized", "::mul", "::add", "::exp", "::sub", "::tanh", "::sigmoid", "::div"),
}


# ---- one training run, measured ----------------------------------------------------------------------------------


class Run:
    """A model of some size that takes training steps on random documents held on the device."""

    def __init__(self, size: Size, device: torch.device, kind: str, preset: str = "default") -> None:
        self.size, self.device = size, device
        self.config = size.config(preset, training={"precision": kind})
        corpus = RandomCorpus(size, max(8 * size.batch, 2000))
        module = build_module(self.config, size.sizes)
        module.prepare(corpus, self.config.observation)
        module.to(device).train()
        optimiser = make_optimiser(module, self.config.training, device)
        self.take_step = Step(module, optimiser, self.config.training, Processes(), 1)
        self.module = module
        self.batches = training_batches(module, corpus, self.config.training, Observation())
        self.stream = self._endless()
        self.number = 0

    def _endless(self) -> Iterator[Batch]:
        epoch = 0
        while True:
            yield from self.batches.epoch(epoch, 1)
            epoch += 1

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.take_step(next(self.stream), self.number)
            self.number += 1

    def timed(self, count: int) -> float:
        wait(self.device)
        start = time.perf_counter()
        self.steps(count)
        wait(self.device)
        return time.perf_counter() - start


def measure(
    size: Size, device: torch.device, kind: str, limit: float, preset: str = "default", plain: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Throughput and peak memory, some operations plain; an `error` where it does not fit."""
    record: dict[str, Any] = {"size": asdict(size), "precision": kind, "preset": preset, "plain": list(plain)}
    on_gpu = device.type == "cuda"
    gc.collect()
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    try:
        with ops.using("plain", *plain) if plain else nullcontext():
            run = Run(size, device, kind, preset)
            warm_up = run.timed(WARM_UP if on_gpu else 1)
            once = run.timed(2) / 2
            count = max(1, int(limit / BLOCKS / once))
            step = statistics.median(run.timed(count) / count for _ in range(BLOCKS))
    except torch.OutOfMemoryError:
        return {**record, "error": "out of memory"}
    record |= {
        "documents_per_second": size.batch / step,
        "step_milliseconds": 1000 * step,
        "steps_timed": BLOCKS * count,
        "warm_up_seconds": warm_up,
    }
    if on_gpu:
        record["peak_gib_allocated"] = torch.cuda.max_memory_allocated(device) / 2**30
        record["peak_gib_reserved"] = torch.cuda.max_memory_reserved(device) / 2**30
    return record


def throughput(given: argparse.Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    """Training at the issue's sizes."""
    wanted = [replace(PAPER, batch=b) for b in (200, 1000, 4000)] + [replace(SMALL, batch=b) for b in (200, 1000)]
    for size in [TINY] if given.tiny else wanted:
        for kind in PRECISIONS if given.precision == "both" else [given.precision]:
            yield measure(size, device, kind, given.seconds)
    if not given.tiny:
        yield measure(PAPER, device, "bf16", given.seconds, "paper")


def operations(given: argparse.Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    """What each fused operation gains: training with that one plain, against all of them fused."""
    paper, small = ([replace(size, batch=b) for b in (200, 1000)] for size in (PAPER, SMALL))
    for size in [TINY] if given.tiny else [*small, *paper]:
        everything = measure(size, device, "bf16", given.seconds)
        yield {**everything, "of_fused": 1.0}
        for name in ops.OPERATIONS:
            found = measure(size, device, "bf16", given.seconds, plain=(name,))
            share = found["documents_per_second"] / everything["documents_per_second"] if "error" not in found else None
            yield {**found, "of_fused": share}


def predict(given: argparse.Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    """The model alone."""
    for size in [TINY] if given.tiny else [SMALL, PAPER]:
        corpus = RandomCorpus(size, 20 if given.tiny else 20_000)
        model = trained(corpus, size, device)
        for batch in (10,) if given.tiny else (500, 5000):
            for model.precision in PRECISIONS:
                rate = predict_alone(model, corpus, 20, batch)
                yield {"size": asdict(size), "batch": batch, "precision": model.precision, "documents_per_second": rate}


# ---- many runs at once ------------------------------------------------------------------------------------------


LIKE = {  # sizes of the public corpora that sweeps were run on
    "reuters": replace(SMALL, words=8_475, frames=486),
    "maven": replace(SMALL, words=5_074, frames=158),
    "framenet15": replace(SMALL, words=3_279, frames=410),
}


def concurrent(given: argparse.Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    """One small run, and several at a time on the same device; by processes at the sizes of small corpora as well."""
    size = TINY if given.tiny else SMALL
    some = [1, given.runs] if given.tiny or given.how else sorted({1, 2, 4, given.runs})
    wanted = [(how, None, size, some) for how in ([given.how] if given.how else ("processes", "streams"))]
    if given.how != "streams" and not given.tiny:
        wanted += [("processes", name, like, [1, given.runs]) for name, like in LIKE.items()]
    for how, like, size, numbers in wanted:
        one: float | None = None
        for runs in numbers:
            rate = {"processes": by_processes, "streams": by_streams}[how](size, runs, device, given)
            one = rate if one is None else one
            yield {
                "how": how,
                "runs": runs,
                **({"like": like} if like else {}),
                "size": asdict(size),
                "documents_per_second": rate,
                "times_one": rate / one,
            }


def by_processes(size: Size, runs: int, device: torch.device, given: argparse.Namespace) -> float:
    """Total documents a second of processes that all start their clock together."""
    command = [sys.executable, __file__, "worker", "--device", device.type, "--seconds", str(given.seconds)]
    command += ["--size", json.dumps(asdict(size)), "--precision", given.precision]
    workers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(runs)]
    try:
        for worker in workers:
            assert worker.stdout is not None
            if worker.stdout.readline().strip() != "ready":
                raise SystemExit("a worker ended before it was ready")
        for worker in workers:
            assert worker.stdin is not None
            print("go", file=worker.stdin, flush=True)
        return sum(float(worker.communicate()[0]) for worker in workers)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def work(given: argparse.Namespace, device: torch.device) -> None:
    """What each of the processes does: warm up, say so, wait for the word, train, print documents a second."""
    if device.type == "cpu":
        torch.set_num_threads(1)
    run = Run(Size(**json.loads(given.size)), device, given.precision)
    run.timed(WARM_UP)
    once = run.timed(2) / 2
    print("ready", flush=True)
    sys.stdin.readline()
    start, done, block = time.perf_counter(), 0, max(1, int(0.2 / once))
    while time.perf_counter() - start < given.seconds:
        run.timed(block)
        done += block
    print(done * run.size.batch / (time.perf_counter() - start))


def by_streams(size: Size, runs: int, device: torch.device, given: argparse.Namespace) -> float:
    """Total documents a second of runs in one process that take turns in launching, each on a stream of its own."""
    on_gpu = device.type == "cuda"
    made = [Run(size, device, given.precision) for _ in range(runs)]
    wait(device)
    streams = [torch.cuda.Stream(device) if on_gpu else None for _ in made]

    def take_turns(count: int) -> float:
        wait(device)
        start = time.perf_counter()
        for _ in range(count):
            for run, stream in zip(made, streams, strict=True):
                with torch.cuda.stream(stream) if stream is not None else nullcontext():
                    run.steps(1)
        wait(device)
        return time.perf_counter() - start

    take_turns(WARM_UP if on_gpu else 1)
    once = take_turns(2) / 2
    count = max(1, int(given.seconds / once))
    return runs * count * size.batch / take_turns(count)


# ---- growth -----------------------------------------------------------------------------------------------------

AXES: dict[str, tuple[int, ...]] = {
    "words": (10_000, 20_000, 50_000, 100_000, 150_000, 250_000, 500_000),
    "batch": (50, 100, 200, 500, 1000, 2000, 4000),
    "hidden": (64, 128, 256, 512, 1024),
    "frames": (10, 50, 200, 600, 2000, 5000),
    "events": (1, 2, 5, 10, 20),
}
DOCUMENTS = (10_000, 20_000, 40_000, 80_000, 160_000, 320_000)
TINY_AXES = {"words": (100, 300), "frames": (5, 10)}


def growth(given: argparse.Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    """One size varied at a time, the others as in the paper; and an epoch over more and more documents."""
    base, axes = (TINY, TINY_AXES) if given.tiny else (PAPER, AXES)
    for axis, values in axes.items():
        if given.axis in (None, axis):
            for value in values:
                changed: dict[str, Any] = {axis: value}
                found = measure(replace(base, **changed), device, given.precision, given.seconds)
                yield {"axis": axis, "value": value, **found}
    if given.axis in (None, "documents"):
        run = Run(base, device, given.precision)
        run.timed(WARM_UP)
        for documents in (40, 80) if given.tiny else DOCUMENTS:
            corpus, module = RandomCorpus(base, documents), run.module
            module.prepare(corpus, run.config.observation)
            run.batches = training_batches(module, corpus, run.config.training, Observation())
            run.stream = run._endless()
            next(run.stream)  # the documents move to the device
            took = run.timed(len(run.batches))
            yield {"axis": "documents", "value": documents, "seconds": took, "documents_per_second": documents / took}


def figure(result: Path) -> None:
    """Throughput and memory along each axis, as an SVG beside the result."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    rows = [row for row in json.loads(result.read_text())["runs"] if "error" not in row]
    axes = list(dict.fromkeys(row["axis"] for row in rows))
    shown, panels = plt.subplots(2, len(axes), figsize=(3 * len(axes), 5), squeeze=False)
    for column, axis in enumerate(axes):
        for line, (name, label) in enumerate(
            (("documents_per_second", "documents a second"), ("peak_gib_allocated", "peak memory, GiB"))
        ):
            points = [(row["value"], row[name]) for row in rows if row["axis"] == axis and name in row]
            panel = panels[line][column]
            if not points:
                panel.axis("off")
                continue
            panel.plot([x for x, _ in points], [y for _, y in points], marker="o")
            panel.set(xscale="log", xlabel=axis, ylabel=label if column == 0 else "")
            panel.set_ylim(0, 1.1 * max(y for _, y in points))
    shown.tight_layout()
    shown.savefig(result.with_suffix(".svg"))
    print(f"wrote {result.with_suffix('.svg')}")


# ---- where the time goes ----------------------------------------------------------------------------------------


def profile(given: argparse.Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    """Time of one step by group of kernels, and the ten longest kernels."""
    from torch.profiler import ProfilerActivity

    on_gpu, steps = device.type == "cuda", 1 if given.tiny else 5
    activity = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    for size in [TINY] if given.tiny else [PAPER, replace(PAPER, batch=200), SMALL]:
        run = Run(size, device, given.precision)
        run.timed(WARM_UP if on_gpu else 1)
        wall = run.timed(steps) / steps
        with torch.profiler.profile(activities=[activity]) as seen:
            run.timed(steps)
        kernels = {
            row.key: (row.self_device_time_total if on_gpu else row.self_cpu_time_total) / 1000 / steps
            for row in seen.key_averages()
        }
        groups: dict[str, float] = dict.fromkeys([*GROUPS, "other"], 0.0)
        for name, took in kernels.items():
            groups[group_of(name)] += took
        longest = sorted(kernels.items(), key=lambda item: -item[1])[:10]
        yield {
            "size": asdict(size),
            "precision": given.precision,
            "step_milliseconds": 1000 * wall,
            "kernel_milliseconds": sum(groups.values()),
            "kernels": sum(row.count for row in seen.key_averages()) / steps,
            "groups": {name: round(took, 4) for name, took in groups.items() if took},
            "longest": {name[:120]: round(took, 4) for name, took in longest},
        }


def group_of(kernel: str) -> str:
    name = kernel.lower()
    return next((group for group, parts in GROUPS.items() if any(part in name for part in parts)), "other")


# ---- real runs --------------------------------------------------------------------------------------------------


def gradients(given: argparse.Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    """How far the loss and the gradients of a step are from those of plain float32, relatively: ‖a − b‖/‖b‖."""
    hows = ["plain float32", "fast float32", "fast bf16"]
    for size in [TINY] if given.tiny else [SMALL, replace(PAPER, batch=200)]:
        run = Run(size, device, "float32")
        run.steps(5)  # away from where it starts, with zeros in the proposal
        batch, module = next(run.stream), run.take_step.module
        exact: dict[str, Tensor] = {}
        for how in hows:
            kind = how.split()[1]
            scale = LOSS_SCALE if kind == "bf16" and device.type == "cuda" else 1.0
            module.zero_grad(set_to_none=True)
            with ops.using("plain" if how.startswith("plain") else "auto"), precision(kind, device):
                choose_device(device.type)  # sets the precision of float32 products
                with ops.defer_gradients(module):
                    loss = module(batch, Draws.seeded(1, batch.documents, device))
            (loss.total * scale).backward()
            found = {n: p.grad.double() / scale for n, p in module.named_parameters() if p.grad is not None}
            found["loss"] = loss.total.detach().double()
            exact = exact or found
            errors = {n: float((found[n] - g).norm() / g.norm().clamp_min(1e-12)) for n, g in exact.items()}
            worst = max((n for n in errors if n != "loss"), key=errors.__getitem__)
            whole = torch.cat([(found[n] - g).flatten() for n, g in exact.items()]).norm()
            whole = whole / torch.cat([g.flatten() for g in exact.values()]).norm()
            yield {"size": asdict(size), "how": how, "loss": errors["loss"], "gradient": float(whole)} | {
                "worst": worst,
                "worst_error": errors[worst],
                "errors": errors,
            }


def same(given: argparse.Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    """Final accuracy and perplexity of plain float32, fast float32 and fast bf16, three seeds each."""
    documents, epochs = (120, 1) if given.tiny else (20_000, 8)
    frames, words = (6, 120) if given.tiny else (100, 5000)
    corpus = world_corpus(documents, frames, words)
    for how in ("plain float32", "fast float32", "fast bf16"):
        for seed in range(1 if given.tiny else 3):
            training = {"precision": how.split()[1], "epochs": epochs, "schedule": "linear"}
            network = {"hidden": 16, "embedding": 16} if given.tiny else {}
            overrides: dict[str, Any] = {"network": network, "training": training}
            config = Config.make("revup", "default", 0.5, 0.2, seed, overrides)
            start = time.perf_counter()
            with ops.using("plain" if how.startswith("plain") else "auto"):
                model = train_config(corpus, config, device=device.type)
            took = time.perf_counter() - start
            scores = evaluate_split(model.module, corpus.split("test"))
            kept = {name: scores[name] for name in ("accuracy", "perplexity", "perplexity_hard", "label_nll")}
            yield {"how": how, "seed": seed, "documents": documents, "epochs": epochs, "seconds": took, **kept}


def full(given: argparse.Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    """The paper's size, from a made-up world, with the default settings until it stops by itself."""
    documents, frames, words = (120, 6, 120) if given.tiny else (320_000, 600, 150_000)
    start = time.perf_counter()
    corpus = Corpus.load(given.data) if given.data else world_corpus(documents, frames, words)
    documents, built = len(corpus.split("train")), time.perf_counter() - start
    network: dict[str, Any] = {"hidden": 16, "embedding": 16} if given.tiny else {"size": "paper"}
    training: dict[str, Any] = {"precision": given.precision, "minutes": given.minutes}
    if given.batch:
        training["batch_size"] = given.batch
    if given.tiny:
        training["epochs"] = 1
    config = Config.make("revup", "default", overrides={"network": network, "training": training})
    seen: list[tuple[int, float, dict[str, float]]] = []
    start = time.perf_counter()

    def note(progress: Progress) -> None:
        if progress.scores is not None:
            seen.append((progress.step, time.perf_counter() - start, progress.scores))

    model = train_config(corpus, config, device=device.type, progress=note)
    took = time.perf_counter() - start
    sizes = Sizes(len(corpus.vocabulary), len(corpus.frames), corpus.events)
    scores = evaluate_split(model.module, corpus.split("test"))
    yield {
        "documents": documents,
        "fingerprint": corpus.fingerprint,
        "sizes": asdict(sizes),
        "config": config.to_json(),
        "corpus_seconds": built,
        "training_seconds": took,
        "validations": [{"step": step, "seconds": at, **values} for step, at, values in seen],
        "accuracy": scores["accuracy"],
        "perplexity": scores["perplexity"],
    }


def world_corpus(documents: int, frames: int, words: int) -> Corpus:
    """A corpus of the made-up world: so many training documents, and a twentieth as many to validate and to test."""
    world, held = World(frames=frames, seed=1, words=words), max(20, documents // 20)
    drawn = world.sample(documents + 2 * held)
    train, valid, test = drawn[:documents], drawn[documents : documents + held], drawn[documents + held :]
    return Corpus.build(train=train, valid=valid, test=test, duplicates="keep")


# ---- main -------------------------------------------------------------------------------------------------------

COMMANDS: dict[str, Callable[[argparse.Namespace, torch.device], Iterator[dict[str, Any]]]] = {
    "throughput": throughput,
    "operations": operations,
    "predict": predict,
    "concurrent": concurrent,
    "growth": growth,
    "profile": profile,
    "gradients": gradients,
    "same": same,
    "full": full,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("command", choices=(*COMMANDS, "figure", "worker"))
    add("result", type=Path, nargs="?", help="figure: what to draw")
    add("--device", help="cpu or cuda (default: cuda where there is one)")
    add("--tiny", action="store_true", help="tiny sizes, to try it out")
    add("--seconds", type=float, default=3.0, help="timed for each measurement, about (default: 3)")
    add("--limit", type=float, default=540.0, help="start no measurement after so many seconds (default: 540)")
    add("--precision", default="bf16", choices=("bf16", "float32", "both"), help="both: for throughput alone")
    add("--runs", type=int, default=8, help="concurrent: how many at most (default: 8)")
    add("--how", choices=("processes", "streams"), help="concurrent: only this one, and only one run against --runs")
    add("--axis", choices=(*AXES, "documents"), help="growth: only along this one")
    add("--data", type=Path, help="full: a dataset to train on (default: one is made up)")
    add("--batch", type=int, help="full: documents in a step (default: the default settings')")
    add("--minutes", type=float, default=8.0, help="full: stop training after so many (default: 8)")
    add("--out", type=Path, help="where to write the result (a file)")
    add("--size", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.command == "figure":
        figure(given.result)
        return
    device = choose_device(given.device)
    if given.command == "worker":
        work(given, device)
        return
    result: dict[str, Any] = {"benchmark": f"train-{given.command}", **surroundings(device)}
    result["config"] = {
        name: value for name, value in vars(given).items() if name not in ("out", "result", "size", "data")
    }
    target = given.out or HERE / "results" / f"train-{given.command}-{result['date']}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    begin, runs = time.monotonic(), []

    def write(complete: bool) -> None:
        target.write_text(json.dumps({**result, "complete": complete, "runs": runs}, indent=1) + "\n")

    for record in COMMANDS[given.command](given, device):
        runs.append(record)
        print(line(record), flush=True)
        write(complete=False)  # after each, so that a run that is cut short leaves what it has
        if time.monotonic() - begin > given.limit:
            print(f"stopped after {given.limit:.0f} s")
            break
    else:
        write(complete=True)
    print(f"written to {target}")


def line(record: dict[str, Any]) -> str:
    """A measurement in one line."""
    parts = []
    for name, value in record.items():
        if name == "size":
            parts.append(" ".join(f"{key}={what}" for key, what in value.items()))
        elif isinstance(value, float):
            parts.append(f"{name}={value:,.4g}" if abs(value) < 1000 else f"{name}={value:,.0f}")
        elif name == "groups":
            total = sum(value.values())
            shares = sorted(value.items(), key=lambda item: -item[1])
            parts.append(", ".join(f"{key} {took:.2f} ms ({100 * took / total:.0f}%)" for key, took in shares))
        elif isinstance(value, str | int):
            parts.append(f"{name}={value}")
    return "  ".join(parts)


if __name__ == "__main__":
    main()
