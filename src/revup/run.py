"""A run: settings, training to files, and the trained model that users hold.

A run directory is self-contained and movable:

    config.json          what was asked for, and of which data         metrics.jsonl       a line per validation
    model.safetensors    the best weights so far                       checkpoint.safetensors   what a resume needs
    vocabulary.txt, lemmas.txt, beyond.txt, frames.txt
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import revup
from revup.corpus import (
    Batches,
    Corpus,
    Split,
    Vocabulary,
    encode_documents,
    read_list,
    read_vocabulary,
    refuse_existing,
    replace_directory,
    write_list,
    write_vocabulary,
)
from revup.encoding import NONE, UNK, UNSEEN
from revup.errors import InputError, RevupError
from revup.evaluation import BATCH, evaluate_split, evaluating, module_device, optimum, validate
from revup.events import Document
from revup.knowledge import Observation
from revup.models import CLASSES, model_class, model_module
from revup.models.layers import EMBEDDING_SCALE, Network, Sizes
from revup.training import (
    MEASURES,
    Clock,
    Course,
    Processes,
    Progress,
    State,
    Training,
    check_precision,
    choose_device,
    fit,
    load_checkpoint,
    load_tensors,
    load_weights,
    make_optimiser,
    precision,
    save_checkpoint,
    save_tensors,
    settle,
    text_weights,
)

FORMAT = 2
SECTIONS = ("network", "objective", "training")
DOCUMENTS_AT_ONCE = 2000  # that predict and embed hold

Overrides = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Config:
    """All that decides a run, but for the data."""

    model: str
    preset: str
    network: Network
    objective: Any
    training: Training
    observation: Observation
    seed: int
    notes: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def make(
        cls,
        model: str = "revup",
        preset: str = "default",
        epsilon: float = 1.0,
        eta: float = 0.0,
        seed: int = 0,
        overrides: Overrides | None = None,
    ) -> Config:
        """A preset with some of its settings overridden; what the model does not use is noted and ignored."""
        module = model_module(model) if model in CLASSES else model_class(model)
        presets = module.PRESETS
        if preset not in presets:
            raise RevupError(f"model {model} has no preset '{preset}': one of {', '.join(presets)}")
        kinds = {"network": Network, "objective": module.Objective, "training": Training}
        notes: list[str] = []
        made: dict[str, Any] = {}
        for section, kind in kinds.items():
            values = dict(presets[preset].get(section, {}))
            known = {item.name for item in fields(kind)}
            for name, value in (overrides or {}).get(section, {}).items():
                if name not in known:
                    if not any(name in names for names in known_settings()[section].values()):
                        raise RevupError(f"unknown setting {section}.{name.replace('_', '-')}")
                    notes.append(f"{section}.{name.replace('_', '-')} is not used by {model}: ignored")
                    continue
                values[name] = value
                if f"scarce_{name}" in known and f"scarce_{name}" not in (overrides or {}).get(section, {}):
                    values[f"scarce_{name}"] = None  # a weight that is told holds at every ε̂
                if name == "epochs":  # and a number of epochs that is told, whatever the corpus
                    told = (overrides or {}).get(section, {})
                    values |= {limit: told.get(limit, 0) for limit in ("least_steps", "most_steps")}
            made[section] = kind(**values)
        return cls(model, preset, **made, observation=Observation(epsilon, eta, seed), seed=seed, notes=tuple(notes))

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        data.pop("notes")
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Config:
        module = model_module(data["model"]) if data["model"] in CLASSES else model_class(data["model"])
        return cls(
            data["model"],
            data["preset"],
            Network(**data["network"]),
            module.Objective(**data["objective"]),
            Training(**data["training"]),
            Observation(**data["observation"]),
            data["seed"],
        )


def known_settings() -> dict[str, dict[str, dict[str, Any]]]:
    """section → model (or '' for all) → name → field: every setting there is."""
    found: dict[str, dict[str, dict[str, Any]]] = {
        "network": {"": {f.name: f for f in fields(Network)}},
        "training": {"": {f.name: f for f in fields(Training)}},
        "objective": {},
    }
    for name in CLASSES:
        found["objective"][name] = {f.name: f for f in fields(model_module(name).Objective)}
    return found


# ---- the trained model ---------------------------------------------------------------------------------------


class Trained:
    """A model with its vocabulary and frames: predict, embed, save. Made by `train` or `load`."""

    def __init__(
        self,
        module: Any,
        config: Config,
        vocabulary: Vocabulary,
        frames: list[str],
        events: int,
        data: Mapping[str, Any],
        path: Path | None = None,
    ) -> None:
        self.module, self.config, self.vocabulary, self.frames = module, config, vocabulary, frames
        self.events, self.data, self.path = events, dict(data), path
        self.precision = "float32"  # or bf16: how it predicts and embeds
        self.figures: dict[str, float] = {}
        self.best: dict[str, torch.Tensor] | None = None  # weights of the best validation, while training

    @property
    def device(self) -> torch.device:
        return module_device(self.module)

    def to(self, device: str | torch.device) -> Trained:
        self.module.to(device)
        return self

    def encode(self, documents: Iterable[Document]) -> Split:
        """Documents in this model's own words and frames, cut into consecutive windows of M events."""
        return encode_documents(documents, self.vocabulary, self.frames, self.events)

    def _require_frames(self) -> None:
        if not self.module.has_frames:
            raise RevupError(f"the model {self.config.model} does not predict frames")

    @torch.no_grad()
    def probabilities(self, documents: Sequence[Document], revise: bool = False) -> list[NDArray[np.float32]]:
        """p(frame) for each event of each document: one array [events, K] a document."""
        self._require_frames()
        if not any(document.events for document in documents):
            return [np.zeros((0, len(self.frames)), np.float32) for _ in documents]
        split = self.encode(documents)
        evaluating(self.module)
        with precision(self.precision, self.device):
            parts = [
                self.module.frame_probabilities(batch, revise=revise)[batch.mask].float().cpu().numpy()
                for batch in Batches(split, Observation(1.0 if revise else 0.0), BATCH, self.device).ordered()
            ]
        return _by_document(np.concatenate(parts), split, len(documents))

    def predict(
        self, documents: Iterable[Document], top: int = 5, revise: bool = False
    ) -> list[list[list[tuple[str, float]]]]:
        """Per document, per event: the most probable frames with their probabilities, best first.

        Frames in the documents are ignored, unless `revise` mixes them into the prediction.
        """
        return [events for _, events in self.predict_documents(documents, top, revise)]

    def predict_documents(
        self, documents: Iterable[Document], top: int = 5, revise: bool = False
    ) -> Iterator[tuple[Document, list[list[tuple[str, float]]]]]:
        """`predict` as a stream of documents with their predictions, in constant memory.

        On a CPU as many parts as torch has threads are computed at a time, each on one of them, while others are read
        and written: for networks this small that keeps all cores busier than threads inside each operation.
        """
        self._require_frames()
        on_cpu = self.device.type == "cpu"
        workers = torch.get_num_threads() if on_cpu else 1
        size = max(1, min(BATCH, DOCUMENTS_AT_ONCE // (workers + 1)))
        stream = iter(documents)
        waiting: deque[tuple[list[Document], Future[list[list[list[tuple[str, float]]]]]]] = deque()
        with computing_threads(workers, on_cpu) as pool:
            while part := list(islice(stream, size)):
                waiting.append((part, pool.submit(self._best, part, top, revise)))
                if len(waiting) > workers:
                    done, best = waiting.popleft()
                    yield from zip(done, best.result(), strict=True)
            for done, best in waiting:
                yield from zip(done, best.result(), strict=True)

    def _best(self, documents: Sequence[Document], top: int, revise: bool) -> list[list[list[tuple[str, float]]]]:
        """The most probable frames of each event of each document, equally probable ones in the frames' order."""
        by_document = self.probabilities(documents, revise)
        rows = torch.from_numpy(np.concatenate(by_document))
        found = rows.topk(min(top, rows.shape[1]), dim=1)
        shares, chosen = found.values.numpy(), found.indices.numpy()
        tied = (rows >= found.values[:, -1:]).sum(1).numpy() > shares.shape[1]  # which of them is chosen is undefined
        tied |= (shares[:, 1:] == shares[:, :-1]).any(1)
        if tied.any():
            order = np.argsort(-rows.numpy()[tied], axis=1, kind="stable")[:, : shares.shape[1]]
            shares[tied], chosen[tied] = np.take_along_axis(rows.numpy()[tied], order, axis=1), order
        names, shares, frames = chosen.tolist(), shares.tolist(), self.frames
        events = iter(
            [(frames[k], p) for k, p in zip(each, row, strict=True)] for each, row in zip(names, shares, strict=True)
        )
        return [list(islice(events, len(part))) for part in by_document]

    def embed(self, documents: Iterable[Document]) -> NDArray[np.float32]:
        """A vector per document, [N, d]."""
        return self.embeddings(documents)[0]

    @torch.no_grad()
    def embeddings(self, documents: Iterable[Document]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Vectors of documents [N, d] and of all their events [E, d]; a document's is the mean of its events'."""
        if not hasattr(self.module, "embed"):
            raise RevupError(f"the model {self.config.model} does not embed")
        stream = iter(documents)
        whole: list[NDArray[np.float32]] = []
        events: list[NDArray[np.float32]] = []
        evaluating(self.module)
        while part := list(islice(stream, DOCUMENTS_AT_ONCE)):
            split = self.encode(part)
            if not len(split):
                raise RevupError("documents without events can't be embedded")
            with precision(self.precision, self.device):
                rows = [
                    self.module.embed(batch)[1][batch.mask].float().cpu().numpy()
                    for batch in Batches(split, Observation(0.0), BATCH, self.device).ordered()
                ]
            by_document = _by_document(np.concatenate(rows), split, len(part))
            events.extend(by_document)
            whole.extend(v.mean(0) if len(v) else np.zeros(v.shape[1], v.dtype) for v in by_document)
        if not whole:
            raise RevupError("no documents to embed")
        return np.stack(whole), np.concatenate(events)

    def generate(self, n: int = 5, **options: Any) -> list[Document]:
        """Write n documents; `revup.generation.generate` says from what and how."""
        from revup.generation import generate

        return generate(self, n, **options)

    def save(self, path: str | Path, force: bool = False) -> None:
        """Write the model as a run directory, which appears whole or not at all."""
        target = Path(path)
        refuse_existing(target, force)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as work:
            folder = Path(work) / "run"
            folder.mkdir()
            self._write(folder, self._data_seen_from(target))
            if self.path is not None and (self.path / "metrics.jsonl").exists():
                shutil.copy(self.path / "metrics.jsonl", folder)
            replace_directory(folder, target)

    def _data_seen_from(self, folder: Path) -> dict[str, Any]:
        """What is known of the data, its path as seen from another run directory."""
        where = self.data.get("path")
        return {**self.data, "path": _from(self.path / where, folder)} if self.path and where else self.data

    def _write(self, folder: Path, data: Mapping[str, Any], weights: bool = True) -> None:
        write_vocabulary(folder, self.vocabulary)
        write_list(folder / "frames.txt", self.frames)
        if weights:
            self._save_weights(folder)
        about = {
            "format": FORMAT,
            "version": revup.__version__,
            "commit": _commit(),
            **self.config.to_json(),
            "events": self.events,
            "data": data,
        }
        write_text(folder / "config.json", json.dumps(about, indent=1) + "\n")

    def _save_weights(self, folder: Path, weights: Mapping[str, torch.Tensor] | None = None) -> None:
        """The module's own weights, or others of it."""
        chosen = self.module.state_dict() if weights is None else dict(weights)
        save_tensors(folder / "model.safetensors", chosen, {"model": self.config.model})


@contextmanager
def computing_threads(workers: int, alone: bool) -> Iterator[ThreadPoolExecutor]:
    """Threads to compute in; `alone`: torch takes no others for the work of each."""
    threads = torch.get_num_threads()
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1 if alone else threads,)) as pool:
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(threads)


def _by_document(rows: NDArray[Any], split: Split, documents: int) -> list[NDArray[Any]]:
    """Rows of events, in order, given back to their documents."""
    owner = np.repeat(split.arrays["document"], split.arrays["lengths"])
    return np.split(rows, np.searchsorted(owner, np.arange(1, documents)))


def write_text(path: Path, text: str) -> None:
    """A text file that is there whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(text, "utf-8")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _commit() -> str | None:
    """The commit of the source tree this runs from, where it is one."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude=*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


def load(path: str | Path, device: str | None = "cpu", precision: str = "float32") -> Trained:
    """Open a run directory. Nothing in it can run code.

    With precision bf16 it predicts and embeds faster where the processor can, and differs after the second digit.
    """
    folder = Path(path)
    check_precision(precision)
    config, about = read_config(folder)
    try:
        vocabulary = read_vocabulary(folder)
        frames = read_list(folder / "frames.txt")
    except FileNotFoundError as error:
        raise InputError(f"not a run directory: {Path(error.filename).name} is missing", str(folder)) from None
    except ValueError as error:
        raise InputError(f"damaged: a list that is not text: {error}", str(folder)) from None
    sizes = Sizes(len(vocabulary), len(frames), about["events"])
    tensors, meta = load_tensors(folder / "model.safetensors")
    if meta.get("model") != config.model:
        raise InputError(
            f"expected a {config.model} model, found {meta.get('model')}", str(folder / "model.safetensors")
        )
    try:
        module = build_module(config, sizes)
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"damaged: no such model can be built: {error}", str(folder / "config.json")) from None
    load_weights(module, tensors, folder / "model.safetensors")
    evaluating(module)
    module.to(choose_device(device))
    trained = Trained(module, config, vocabulary, frames, sizes.events, about["data"], folder)
    trained.precision = precision
    return trained


def read_config(folder: Path) -> tuple[Config, dict[str, Any]]:
    """The settings of a run, and all that its config.json says."""
    try:
        about = json.loads((folder / "config.json").read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise InputError("not a run directory: config.json is missing", str(folder)) from None
    except ValueError as error:
        raise InputError(f"not valid JSON: {error}", str(folder / "config.json")) from None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise InputError(f"expected a run of format {FORMAT}", str(folder / "config.json"))
    try:
        config = Config.from_json(about)
        if not isinstance(about["data"], dict) or not isinstance(about["events"], int) or about["events"] < 1:
            raise ValueError("data or events are not what they should be")
    except (KeyError, TypeError, ValueError, RevupError) as error:
        raise InputError(f"damaged: {error}", str(folder / "config.json")) from None
    return config, about


def build_module(config: Config, sizes: Sizes) -> Any:
    """A fresh module, its initial weights a function of the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return model_class(config.model)(sizes, config.network, config.objective)


# ---- training to files ---------------------------------------------------------------------------------------


def train(
    corpus: Corpus,
    model: str = "revup",
    epsilon: float = 1.0,
    eta: float = 0.0,
    seed: int = 0,
    out: str | Path | None = None,
    *,
    preset: str = "default",
    device: str | None = None,
    resume: bool = False,
    force: bool = False,
    progress: Callable[[Progress, State], None] | None = None,
    network: Mapping[str, Any] | None = None,
    objective: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
) -> Trained:
    """Train a model on a corpus with a share ε of the frames seen and a share η of those wrong.

    `out` is a run directory; without one nothing is written. `resume` goes on with a run that was stopped, starts it
    if it is absent, and does nothing if it is finished.
    """
    overrides = {"network": network or {}, "objective": objective or {}, "training": training or {}}
    config = Config.make(model, preset, epsilon, eta, seed, overrides)
    return train_config(corpus, config, out, device=device, resume=resume, force=force, progress=progress)


def train_config(
    corpus: Corpus,
    config: Config,
    out: str | Path | None = None,
    *,
    device: str | None = None,
    resume: bool = False,
    force: bool = False,
    transient: bool = False,
    progress: Callable[[Progress, State], None] | None = None,
) -> Trained:
    """`train` with its settings already made. transient: `out` is only for going on after a stop, so that weights are
    written there when it is stopped, or by the clock, but neither at the start nor at the end."""
    folder = Path(out) if out is not None else None
    where = choose_device(device)
    processes = Processes.join(where)
    vectors = corpus.vectors()
    resolved = config.network.resolve(len(corpus.frames), vectors[0].shape[1] if vectors else None)
    config = replace(config, network=resolved)
    resuming = resume and folder is not None and (folder / "config.json").exists()
    if folder is not None and not resuming:
        refuse_existing(folder, force)
    if resuming and folder is not None:
        _refuse_other_run(folder, config, corpus)
    processes.wait()  # all have looked before the first one writes
    sizes = Sizes(len(corpus.vocabulary), len(corpus.frames), corpus.events)
    data = {"fingerprint": corpus.fingerprint, "path": _from(corpus.path, folder), "named_frames": corpus.has_frames}
    module = build_module(config, sizes).to(where)
    trained = Trained(module, config, corpus.vocabulary, corpus.frames, corpus.events, data, folder)
    figures = module.prepare(corpus, config.observation)
    trained.figures = figures
    if not hasattr(module, "parameters"):  # counted, not trained
        if folder is not None and processes.rank == 0 and not resuming:
            _start_folder(folder, trained)
        return trained
    if vectors is not None and hasattr(module, "words"):
        _use_vectors(module, *vectors)
    if config.network.unigrams and hasattr(module, "vocabulary"):
        _use_frequencies(module, corpus)
    optimiser = make_optimiser(module, config.training, where)
    state = State(figures=figures)
    checkpoint = folder / "checkpoint.safetensors" if folder is not None else None
    if resuming and checkpoint is not None and checkpoint.exists():
        state = load_checkpoint(checkpoint, module, optimiser)
        trained.figures = state.figures
        if state.best is not None and not state.finished:
            saved = load_tensors(checkpoint.with_name("model.safetensors"))[0]
            trained.best = {name: tensor.to(where) for name, tensor in saved.items()}
    elif folder is not None and processes.rank == 0 and not resuming:
        _start_folder(folder, trained, weights=not transient)
    if state.settled:
        settle(module)
    processes.wait()
    if not state.finished:
        _Sitting(trained, corpus, optimiser, state, checkpoint, processes, progress).run(save=not transient)
    processes.wait()  # until the best weights are written
    _restore_best(trained, folder)
    return trained


def _from(path: Path, folder: Path | None) -> str:
    """A path as seen from the run directory, so that both may move together."""
    return os.path.relpath(path, folder) if folder is not None else os.path.abspath(path)


class _Sitting:
    """One sitting of a training run: consumes the loop, keeps the best, saves, stops in time."""

    def __init__(
        self,
        trained: Trained,
        corpus: Corpus,
        optimiser: torch.optim.Adam,
        state: State,
        checkpoint: Path | None,
        processes: Processes,
        progress: Callable[[Progress, State], None] | None,
    ) -> None:
        self.trained, self.corpus, self.optimiser, self.state = trained, corpus, optimiser, state
        self.checkpoint, self.processes, self.progress = checkpoint, processes, progress
        self.clock = Clock(state.seconds)
        self.saved_at, self.best_written = self.clock.seconds, True
        self.writes = checkpoint is not None and processes.rank == 0
        if self.writes and checkpoint is not None:
            _trim_metrics(checkpoint.parent / "metrics.jsonl", state.step)

    def run(self, save: bool = True) -> None:
        """Train to the end, and save the outcome."""
        state = self.state
        while self._train():  # on, with the frames settled
            pass
        if state.best is None:  # stopped before the first validation
            self._keep_best()
        state.finished = True
        if save:
            self._save()

    def _train(self) -> bool:
        """Train until it is finished, or until the frames have settled: then True."""
        config, state = self.trained.config, self.state
        loop = fit(
            self.trained.module,
            self.optimiser,
            self.corpus,
            config.training,
            config.observation,
            config.seed,
            state,
            self._validate,
            self.processes,
        )
        # Saved only where the loop pauses: Ctrl-C in the middle of a step leaves the last checkpoint, as a kill does.
        for progress in loop:
            settled = state.settled
            if progress.scores is not None:
                self._judge(progress)
            state.seconds = self.clock.seconds
            state.finished = state.finished or self._out_of_time()
            if self.progress:
                try:
                    self.progress(progress, state)
                except BaseException:  # whoever watches has stopped it
                    self._save()
                    raise
            if self._due() and not state.finished:
                self._save()
            if state.finished or state.settled != settled:
                return not state.finished
        return False

    def _out_of_time(self) -> bool:
        """Whether the time limit is over for any of the processes: all stop together."""
        limit = self.trained.config.training.minutes * 60
        if not limit or self.processes.count == 1:
            return bool(limit) and self.clock.seconds > limit
        over = torch.tensor(float(self.clock.seconds > limit), device=self.trained.device)
        return bool(self.processes.sum(over) > 0)

    def _validate(self) -> dict[str, float]:
        split = self.corpus.split("valid")
        if not len(split):
            return {}
        config = self.trained.config
        return validate(self.trained.module, split, config.observation, config.seed)

    def _judge(self, progress: Progress) -> None:
        """Is this the best so far? Where the chosen measure is not to be had, the next one decides."""
        state, training = self.state, self.trained.config.training
        scores = progress.scores or {}
        measures = ("perplexity",) if state.settled else (training.measure, "accuracy", "perplexity")
        name = next((n for n in measures if n in scores), None)
        value = MEASURES[name] * scores[name] if name else float(progress.step)  # no validation split: the last
        if state.best is None or value > state.best:
            state.best, state.best_step, state.stale = value, progress.step, 0
            self._keep_best()
        else:
            state.stale += 1
        best, out_of_patience = state.stale == 0, state.stale >= progress.course.patience
        ended = out_of_patience or state.epoch >= progress.course.epochs
        by_frames = name not in (None, "perplexity")
        if ended and by_frames and not state.settled and self._may_settle(progress.course):
            self._settle()
        else:
            state.finished = out_of_patience
        if self.writes and self.checkpoint is not None:
            line = {
                "step": progress.step,
                "epoch": round(progress.epoch + progress.share, 4),
                "seconds": round(self.clock.seconds, 3),
                "best": best,
                "settled": state.settled,
                "train": progress.terms,
                "valid": scores,
            }
            with open(self.checkpoint.parent / "metrics.jsonl", "a", encoding="utf-8") as out:
                out.write(json.dumps(line) + "\n")

    def _may_settle(self, course: Course) -> bool:
        """Whether there is a decoder that would go on, and whether it should."""
        return course.settled_epochs > 0 and bool(getattr(self.trained.module, "text_parts", ()))

    def _settle(self) -> None:
        """The frames back to where they were best, to stay there; the decoder goes on from where it is."""
        state, module = self.state, self.trained.module
        assert self.trained.best is not None
        module.load_state_dict({**self.trained.best, **text_weights(module)})
        settle(module)
        if state.batch:  # what is left of this epoch is left out
            state.epoch, state.batch = state.epoch + 1, 0
        state.settled, state.settled_epoch, state.settled_step = True, state.epoch, state.step
        state.best, state.stale = None, 0

    def _keep_best(self) -> None:
        weights = self.trained.module.state_dict()
        self.trained.best = {name: tensor.detach().clone() for name, tensor in weights.items()}
        self.best_written = False

    def _due(self) -> bool:
        return self.clock.seconds - self.saved_at > self.trained.config.training.checkpoint_minutes * 60

    def _save(self) -> None:
        """The best weights and where the run stands, in that order: a kill in between costs what it would before."""
        self.saved_at = self.clock.seconds
        if not self.writes or self.checkpoint is None:
            return
        if not self.best_written and self.trained.best is not None:
            self.trained._save_weights(self.checkpoint.parent, self.trained.best)
            self.best_written = True
        save_checkpoint(self.checkpoint, self.trained.module, self.optimiser, self.state)


def _restore_best(trained: Trained, folder: Path | None) -> None:
    """The weights of the best validation, whatever came after it."""
    if trained.best is not None:
        trained.module.load_state_dict(trained.best)
        trained.best = None
    elif folder is not None and (folder / "model.safetensors").exists():
        load_weights(trained.module, load_tensors(folder / "model.safetensors")[0], folder)
    settle(trained.module, settled=False)
    evaluating(trained.module)


def _start_folder(folder: Path, trained: Trained, weights: bool = True) -> None:
    """A run directory with the settings and the initial weights, there whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as work:
        started = Path(work) / "run"
        started.mkdir()
        trained._write(started, trained.data, weights)
        replace_directory(started, folder)


def _refuse_other_run(folder: Path, config: Config, corpus: Corpus) -> None:
    """A resume must be of the same run: same settings, same data."""
    known, about = read_config(folder)
    if about["data"].get("fingerprint") != corpus.fingerprint:
        raise InputError("can't resume: it was trained on other data", str(folder))
    for section in ("model", "preset", "network", "objective", "training", "observation", "seed"):
        if getattr(known, section) != getattr(config, section):
            raise InputError(f"can't resume: its {section} differs from what is asked for now", str(folder))


def _trim_metrics(path: Path, step: int) -> None:
    """Forget what was logged after the checkpoint, a line cut short included: it is about to be done again."""
    if path.exists():
        lines = [line for line in path.read_text("utf-8").splitlines(keepends=True) if line.endswith("}\n")]
        write_text(path, "".join(line for line in lines if json.loads(line)["step"] <= step))


def _use_vectors(module: Any, vectors: NDArray[Any], found: NDArray[Any]) -> None:
    """Pretrained vectors in place of random ones, where a word has one; the others scaled alike.

    An encoder keeps the vectors as they came as well, to read words by that training never had.
    """
    table: torch.nn.Embedding = module.words
    with torch.no_grad():
        rows = torch.from_numpy(np.flatnonzero(found[: len(table.weight)]))
        given = torch.from_numpy(vectors)[rows]
        table.weight.mul_(float(given.std()) / EMBEDDING_SCALE if len(rows) else 1.0)
        table.weight[rows.to(table.weight.device)] = given.to(table.weight)
    if hasattr(module, "encoder"):
        module.encoder.reader.keep(vectors, found)


def _use_frequencies(module: Any, corpus: Corpus) -> None:
    """The bias over the vocabulary as the words' log frequencies in training, one more of each.

    Otherwise the states have to learn them first. They do so by growing until tanh is flat, and nothing more is learned
    for hundreds of steps.
    """
    split = corpus.split("train")
    tokens = np.asarray(split.arrays["tokens"])
    there = np.arange(corpus.events) < np.asarray(split.arrays["lengths"])[:, None]
    bias: torch.Tensor = module.vocabulary.bias
    counts = 1 + np.bincount(tokens[there].ravel(), minlength=len(bias))
    with torch.no_grad():
        bias.copy_(torch.from_numpy(np.log(counts / counts.sum())))


# ---- evaluation of a run ----------------------------------------------------------------------------------------


def evaluate(
    model: Trained,
    corpus: Corpus | None = None,
    split: str = "test",
    *,
    seed: int = 0,
    samples: int = 0,
    sampled: bool = False,
    bound: int = 0,
) -> dict[str, Any]:
    """All measures on a split of a corpus (by default the one the model was trained on).

    bound: samples of the bound on log p(x) (0: leave it out).
    """
    corpus = corpus or trained_on(model)
    part = corpus.split(split)
    if not len(part):
        raise RevupError(f"the {split} split is empty")
    same = corpus.events == model.events and corpus.frames == model.frames
    words, known = corpus.vocabulary, model.vocabulary
    if not same or (words.words, words.beyond) != (known.words, known.beyond):
        part = translate(part, corpus, model)
    scores = evaluate_split(model.module, part, seed, samples, sampled)
    if bound:
        from revup.bound import bound_split

        scores |= bound_split(model.module, part, bound, seed)
    if not (corpus.has_frames and model.data.get("named_frames", True)):
        names = ("accuracy", "macro_f1", "macro_precision", "macro_recall", "label_nll", "calibration_error")
        scores.update(dict.fromkeys(names), reliability=[])
    return {
        "model": model.config.model,
        "preset": model.config.preset,
        "split": split,
        **scores,
        "optimum": optimum(corpus, split),
    }


def trained_on(model: Trained) -> Corpus:
    """The corpus a run was trained on, if it is still where it was and what it was."""
    where = model.data.get("path")
    if not where:
        raise RevupError("this model does not know its data: name a dataset")
    where = os.path.normpath(os.path.join(model.path or ".", where))
    corpus = Corpus.load(where)
    if corpus.fingerprint != model.data.get("fingerprint"):
        raise InputError("has changed since the model was trained on it; name the dataset to evaluate on", str(where))
    return corpus


def translate(split: Split, corpus: Corpus, model: Trained) -> Split:
    """A split of another corpus in the model's own words, frames and number of events."""
    read = model.vocabulary.translation(corpus.vocabulary)
    words = np.where(read < len(model.vocabulary), read, UNK)
    lookup = {frame: number for number, frame in enumerate(model.frames)}
    frames = np.array([lookup.get(frame, UNSEEN) for frame in corpus.frames] + [UNSEEN, NONE], np.int32)  # −2, −1
    arrays = dict(split.arrays)
    known = frames[np.asarray(arrays["knowledge_frames"])]
    arrays["read"] = read[np.asarray(arrays["read"])]
    arrays["tokens"] = words[np.asarray(arrays["tokens"])]
    arrays["reference"] = frames[np.asarray(arrays["reference"])]
    arrays["knowledge_weights"] = np.where(known >= 0, arrays["knowledge_weights"], 0).astype(np.float32)
    arrays["knowledge_frames"] = np.maximum(known, 0)
    arrays = rewindow(arrays, model.events)
    return Split(split.name, arrays, lambda: split.ids, len(model.frames))


def rewindow(arrays: dict[str, NDArray[Any]], events: int) -> dict[str, NDArray[Any]]:
    """Windows of another size: longer ones are cut, shorter ones padded (the padding is masked by `lengths`)."""
    size = arrays["tokens"].shape[1]
    if size == events:
        return arrays
    pieces: dict[str, list[NDArray[Any]]] = {name: [] for name in arrays}
    places: list[NDArray[Any]] = []
    for start in range(0, size, events):
        lengths = np.clip(arrays["lengths"] - start, 0, events)
        rows = np.flatnonzero(lengths)
        places.append(rows)
        for name, array in arrays.items():
            part = array[rows]
            if part.ndim > 1:
                part = part[:, start : start + events]
                part = np.pad(part, [(0, 0), (0, events - part.shape[1]), *[(0, 0)] * (part.ndim - 2)])
            pieces[name].append(lengths[rows] if name == "lengths" else part)
    order = np.argsort(np.concatenate(places), kind="stable")
    return {name: np.concatenate(parts)[order] for name, parts in pieces.items()}
