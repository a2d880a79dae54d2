"""The verbs: `revup VERB …`. Each imports what it needs when it runs."""

from __future__ import annotations

import argparse
import gc
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from revup import __version__
from revup.errors import InputError, Interrupted, OutputExistsError, RevupError
from revup.reporting import progress as display

if TYPE_CHECKING:
    from revup.data.events import Document


class _Parser(argparse.ArgumentParser):
    """Bad usage is one line on standard error and status 2, like every other error."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"revup: error: {message}\n")


def _make(verb: str, about: str, example: str) -> _Parser:
    return _Parser(
        prog=f"revup {verb}",
        description=about,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


# ---- demo -----------------------------------------------------------------------------------------------------


def demo(arguments: Sequence[str]) -> None:
    parser = _make("demo", ABOUT["demo"], "revup demo --out demo")
    parser.add_argument("--out", default="demo", metavar="DIR", help="where the report goes (default: demo)")
    parser.add_argument("--force", action="store_true", help="replace DIR even if it is not a demo's own")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    from revup.experiments.demo import demo as run_demo
    from revup.experiments.demo import summary

    with display.training() as show:
        result = run_demo(given.out, seed=given.seed, force=given.force, progress=show)
    print(summary(result))


# ---- prepare --------------------------------------------------------------------------------------------------


def prepare(arguments: Sequence[str]) -> None:
    from revup.data.encode import WINDOWS
    from revup.data.readers import FORMATS, Options

    parser = _make(
        "prepare",
        ABOUT["prepare"],
        "revup prepare docs.jsonl.gz --out data --vectors glove.txt.gz\n"
        "  revup prepare --train a.jsonl --valid b.jsonl --test c.jsonl --out data",
    )
    add = parser.add_argument
    add("files", nargs="*", metavar="FILE", help="documents, to be split by id; - is standard input")
    add("--out", required=True, metavar="DATA", help="the dataset directory to make")
    add("--format", default="jsonl", choices=FORMATS)
    for split in ("train", "valid", "test"):
        add(f"--{split}", action="append", metavar="FILE", help=f"documents of the {split} split (may be repeated)")
    add("--split", default="0.9,0.05,0.05", metavar="A,B,C", help="shares of train, valid, test (default: %(default)s)")
    add("--events", type=int, default=5, metavar="M", help="events in a window (default: 5)")
    add("--window", default="framed", choices=WINDOWS, help="first M events with a frame, first M, or all windows")
    add("--vocabulary", type=int, default=150_000, metavar="V", help="words kept at most (default: 150000)")
    add("--minimum-count", type=int, default=1, metavar="N", help="drop rarer words (default: 1)")
    add("--beyond", type=int, default=100_000, metavar="N", help="more words read by their vectors (default: 100000)")
    add("--classes", type=int, default=50, metavar="K", help="unnamed classes, where there are no frames (default: 50)")
    add("--keep-duplicates", action="store_true", help="keep documents that say the same as an earlier one")
    add("--vectors", metavar="FILE", help="word vectors in GloVe, word2vec or fastText text form")
    add("--lexicon", metavar="FILE", help="FrameNet, VerbNet, PropBank or a CSV: label events that have no frame")
    add("--lexicon-mode", default="hard", choices=("hard", "soft"), help="one sense, or a distribution over senses")
    add("--frames", action="append", default=[], metavar="FILE", help="tuples: the parallel file of frames")
    add("--spacy-model", metavar="NAME", help="text: a spaCy model's name, directory or archive")
    add("--document", default="line", choices=("line", "file"), help="text: what a document is")
    add("--words", default="form", choices=("form", "lemma"), help="conllu, text, framenet: argument words as")
    add("--tool", metavar="NAME", help="concrete, released: the annotation tool")
    add("--frame-tool", metavar="NAME", help="concrete: the tool whose frames to take, where it is another")
    add("--workers", type=int, default=1, metavar="N")
    add("--engine", default="local", choices=("local", "ray"))
    add("--skip-bad", action="store_true", help="count bad lines instead of stopping at the first")
    add("--force", action="store_true", help="replace DATA if it exists")
    add("--json", action="store_true", help="print the statistics as JSON")
    given = parser.parse_args(arguments)
    from revup.data.dataset import Settings
    from revup.data.prepare import prepare as run_prepare
    from revup.data.statistics import render_statistics

    settings = Settings(
        events=given.events,
        window=given.window,
        vocabulary=given.vocabulary,
        minimum_count=given.minimum_count,
        beyond=given.beyond,
        classes=given.classes,
        duplicates="keep" if given.keep_duplicates else "drop",
        split=_shares(given.split),
    )
    options = Options(
        spacy_model=given.spacy_model,
        document=given.document,
        words=given.words,
        tool=given.tool,
        frame_tool=given.frame_tool,
    )
    from importlib.util import find_spec

    statistics = run_prepare(
        given.files,
        given.out,
        format=given.format,
        train=given.train,
        valid=given.valid,
        test=given.test,
        settings=settings,
        options=options,
        frames=given.frames,
        vectors=given.vectors,
        lexicon=given.lexicon,
        lexicon_mode=given.lexicon_mode,
        workers=given.workers,
        engine=given.engine,
        skip_bad=given.skip_bad,
        force=given.force,
        progress=display.counter("documents"),
    )
    print(json.dumps(statistics) if given.json else render_statistics(statistics))
    if find_spec("matplotlib") is not None:
        from revup.reporting.statistics_page import statistics_page

        statistics_page(statistics, Path(given.out) / "statistics.html")


def _shares(text: str) -> tuple[float, float, float]:
    try:
        a, b, c = (float(part) for part in text.split(","))
    except ValueError:
        raise RevupError(f"--split: expected three numbers such as 0.9,0.05,0.05, found '{text}'") from None
    return a, b, c


# ---- world ------------------------------------------------------------------------------------------------------


def world(arguments: Sequence[str]) -> None:
    parser = _make("world", ABOUT["world"], "revup world --frames 600 --documents 60000 --out data")
    parser.add_argument("--frames", type=int, default=20)
    parser.add_argument("--words", type=int, help="size of the vocabulary (default: 50 a frame)")
    parser.add_argument("--documents", type=int, default=5000, help="training documents (default: 5000)")
    parser.add_argument("--held-out", type=int, default=1000, help="documents of valid and of test (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the world; its documents follow from it")
    parser.add_argument("--out", required=True, metavar="DATA")
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    from revup.data.corpus import Corpus
    from revup.world.world import World

    if min(given.documents, given.held_out) < 1:
        raise RevupError("--documents and --held-out: expected 1 or more")
    made = World(frames=given.frames, seed=given.seed, words=given.words)
    train, valid, test = (
        made.sample(count, seed=1 + number)
        for number, count in enumerate((given.documents, given.held_out, given.held_out))
    )
    corpus = Corpus.build(
        out=given.out, train=train, valid=valid, test=test, world=made, force=given.force, duplicates="keep"
    )
    found = {**corpus.meta, "best_table_accuracy": made.best_table_accuracy()}
    if given.json:
        print(json.dumps(found))
    else:
        best = corpus.meta["optimum"]["test"]
        print(f"{given.documents} documents, {len(corpus.frames)} frames, {len(corpus.vocabulary)} words")
        print(f"best predicate table: accuracy {found['best_table_accuracy']:.3f}")
        print(f"exact optimum:        accuracy {best['accuracy']:.3f}, perplexity {best['perplexity']:.2f}")


# ---- train ------------------------------------------------------------------------------------------------------


def _training_options(parser: argparse.ArgumentParser) -> None:
    """Every nested setting as an option, from the dataclasses that hold them."""
    from revup.settings import known_settings

    for section, by_model in known_settings().items():
        group = parser.add_argument_group(f"{section} settings (default: the preset's)")
        seen: dict[str, tuple[Any, list[str]]] = {}
        for model, names in by_model.items():
            for name, item in names.items():
                seen.setdefault(name, (item, []))[1].append(model)
        for name, (item, models) in seen.items():
            used = "" if "" in models else f"({', '.join(models)})"
            group.add_argument(
                f"--{section}.{name.replace('_', '-')}",
                dest=f"{section}.{name}",
                type=_converter(str(item.type)),
                default=None,
                metavar=str(item.type).split(" ")[0].upper(),
                help=used or None,
            )


def _converter(kind: str) -> Callable[[str], Any]:
    name = kind.split(" ")[0]
    if name == "bool":
        return _boolean
    return {"int": int, "float": float}.get(name, str)


def _boolean(text: str) -> bool:
    if text.lower() in ("true", "yes", "1", "on"):
        return True
    if text.lower() in ("false", "no", "0", "off"):
        return False
    raise argparse.ArgumentTypeError(f"expected true or false, found '{text}'")


def overrides(given: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The nested settings that were given on the command line."""
    found: dict[str, dict[str, Any]] = {}
    for name, value in vars(given).items():
        if "." in name and value is not None:
            section, setting = name.split(".", 1)
            found.setdefault(section, {})[setting] = value
    return found


def train(arguments: Sequence[str]) -> None:
    from revup.models import CLASSES

    parser = _make(
        "train",
        ABOUT["train"],
        "revup train data --out run --epsilon 0.3 --eta 0.2\n"
        "  revup train data --out run --preset paper --network.size paper --training.epochs 10 --device cuda\n"
        "  torchrun --nproc-per-node 8 -m revup train data --out run --device cuda",
    )
    add = parser.add_argument
    add("data", metavar="DATA", help="a dataset directory")
    add("--out", required=True, metavar="RUN", help="the run directory to make")
    add("--model", default="revup", choices=tuple(CLASSES))
    add("--preset", default="default", metavar="P", help="default, paper or released")
    add("--epsilon", type=float, default=1.0, help="share of the frames that is seen (default: 1)")
    add("--eta", type=float, default=0.0, help="share of the seen frames that is replaced by random ones (default: 0)")
    add("--seed", type=int, default=0)
    add("--device", help="cpu or cuda (default: cuda where there is one)")
    add("--resume", action="store_true", help="go on with a run that was stopped; start it if it is absent")
    add("--force", action="store_true", help="replace RUN if it exists")
    add("--json", action="store_true", help="print the last validation's figures as JSON")
    _training_options(parser)
    given = parser.parse_args(arguments)
    from revup.data.corpus import Corpus
    from revup.settings import Config
    from revup.training.run import train_config

    config = Config.make(given.model, given.preset, given.epsilon, given.eta, given.seed, overrides(given))
    for note in config.notes:
        print(f"revup: note: {note}", file=sys.stderr)
    corpus = Corpus.load(given.data)
    first = os.environ.get("RANK", "0") == "0"
    with display.training(enabled=first, board=Path(given.out) / "tensorboard" if first else None) as show:
        trained = train_config(
            corpus,
            config,
            given.out,
            device=given.device,
            resume=given.resume,
            force=given.force,
            progress=show,
        )
    if not first:
        return
    metrics = Path(given.out) / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text("utf-8").splitlines()] if metrics.exists() else []
    best = next((line for line in reversed(lines) if line["best"]), None)
    if given.json:
        print(json.dumps({"run": given.out, "best": best, "validations": len(lines), **trained.figures}))
        return
    if best:
        scores = ", ".join(f"{name} {value:.4f}" for name, value in best["valid"].items())
        print(f"best at step {best['step']} (epoch {best['epoch']:g}): {scores or 'no validation split'}")
    if trained.figures.get("noise_rate", 0.0) > 0.01:
        print(f"about {trained.figures['noise_rate']:.0%} of the frames you gave look wrong")
    if made_up := int(trained.figures.get("induced_frames", 0)):
        print(f"no frame is seen: {made_up} groups of predicates are called frames, by names that mean nothing")
    print(f"wrote {given.out}")


# ---- evaluate, predict, embed ---------------------------------------------------------------------------------


def evaluate(arguments: Sequence[str]) -> None:
    parser = _make("evaluate", ABOUT["evaluate"], "revup evaluate run --split test --json")
    add = parser.add_argument
    add("run", metavar="RUN")
    add("data", metavar="DATA", nargs="?", help="a dataset (default: the one it was trained on)")
    add("--split", default="test", choices=("train", "valid", "test"))
    add(
        "--samples", type=int, default=0, metavar="S", help="average the proposal over S drawn z (default: at its mean)"
    )
    add("--sampled", action="store_true", help="predict as the paper does: the frame of one Gumbel sample")
    add("--bound", type=int, default=0, metavar="S", help="also bound log p(x), with S samples a document")
    add("--seed", type=int, default=0)
    add("--device", help="cpu or cuda")
    add("--figure", metavar="FILE", help="write a reliability diagram (PNG, SVG or PDF)")
    add("--json", action="store_true")
    given = parser.parse_args(arguments)
    from revup.data.corpus import Corpus
    from revup.inference.evaluate import evaluate as run_evaluate
    from revup.inference.trained import load

    model = load(given.run, given.device)
    corpus = Corpus.load(given.data) if given.data else None
    scores = run_evaluate(
        model,
        corpus,
        given.split,
        seed=given.seed,
        samples=given.samples,
        sampled=given.sampled,
        bound=given.bound,
    )
    if given.figure:
        from revup.reporting.figures import reliability_figure

        reliability_figure(scores["reliability"]).savefig(given.figure)
    if given.json:
        print(json.dumps(scores))
        return
    best = scores.get("optimum") or {}
    for name, value in scores.items():
        if name not in ("reliability", "optimum"):
            shown = "–" if value is None else f"{value:.4f}" if isinstance(value, float) else value
            beside = f"   (exact optimum {best[name]:.4f})" if best.get(name) is not None and value is not None else ""
            print(f"{name.replace('_', ' '):<26}{shown}{beside}")


def predict(arguments: Sequence[str]) -> None:
    parser = _make("predict", ABOUT["predict"], "revup predict run docs.jsonl --top 3 > labelled.jsonl")
    add = parser.add_argument
    add("run", metavar="RUN")
    add("file", metavar="FILE", help="documents as JSON Lines; - is standard input")
    add("--out", default="-", metavar="FILE", help="where to write (default: standard output)")
    add("--top", type=int, default=5, help="frames per event (default: 5)")
    add("--revise", action="store_true", help="mix the input's own frames into the prediction")
    add("--format", default="jsonl", help="the format of FILE (default: jsonl)")
    add("--skip-bad", action="store_true", help="pass over bad lines, counting them")
    add("--force", action="store_true", help="replace the output file if it exists")
    add("--device", help="cpu or cuda")
    add("--precision", default="float32", choices=("float32", "bf16"), help="bf16 is faster, where it is in hardware")
    given = parser.parse_args(arguments)
    if given.top < 1:
        raise RevupError(f"--top: expected 1 or more, found {given.top}")
    from revup.data.events import document_to_json
    from revup.inference.trained import load
    from revup.io.files import open_output

    model = load(given.run, given.device, given.precision)
    with _documents(given) as documents, open_output(given.out, given.force) as out:
        for document, events in model.predict_documents(documents, given.top, given.revise):
            data = document_to_json(document)
            for event, frames in zip(data["events"], events, strict=True):
                event["predicted"] = [{"frame": name, "probability": round(p, 6)} for name, p in frames]
            out.write(json.dumps(data, ensure_ascii=False) + "\n")


def embed(arguments: Sequence[str]) -> None:
    parser = _make("embed", ABOUT["embed"], "revup embed run docs.jsonl --out vectors.npz")
    add = parser.add_argument
    add("run", metavar="RUN")
    add("file", metavar="FILE", help="documents as JSON Lines; - is standard input")
    add("--out", required=True, metavar="X.npz")
    add("--format", default="jsonl", help="the format of FILE (default: jsonl)")
    add("--skip-bad", action="store_true", help="pass over bad lines, counting them")
    add("--force", action="store_true", help="replace the output file if it exists")
    add("--device", help="cpu or cuda")
    add("--precision", default="float32", choices=("float32", "bf16"), help="bf16 is faster, where it is in hardware")
    given = parser.parse_args(arguments)
    import numpy as np

    from revup.inference.trained import load
    from revup.io.files import atomic_file
    from revup.io.folders import refuse_existing

    target = Path(given.out)
    refuse_existing(target, given.force)
    model = load(given.run, given.device, given.precision)
    with _documents(given) as stream:
        documents = list(stream)
    whole, events = model.embeddings(documents)
    counts = [len(document.events) for document in documents]
    arrays = {
        "documents": whole,
        "events": events,
        "document_ids": np.array([document.id for document in documents]),
        "event_document": np.repeat(np.arange(len(documents)), counts),
        "event_index": np.concatenate([np.arange(count) for count in counts]),
    }
    with atomic_file(target) as out:
        np.savez(out, allow_pickle=False, **arrays)


# ---- generate, inspect, cloze, compare ------------------------------------------------------------------------


def generate(arguments: Sequence[str]) -> None:
    from revup.inference.decoding import METHODS

    parser = _make(
        "generate",
        ABOUT["generate"],
        "revup generate run -n 3 --frames Arrest,Trial,Verdict\n"
        "  revup generate run --prompt beginnings.jsonl --method beam --events 3-6",
    )
    add = parser.add_argument
    add("run", metavar="RUN")
    add("--prompt", dest="file", metavar="FILE", help="documents to go on from; - is standard input")
    add("--frames", metavar="A,B,C", help="the frames of the events to write")
    add("-n", type=int, default=5, help="documents, for each prompt (default: 5)")
    add("--method", default="sample", choices=METHODS, help="(default: sample)")
    add("--events", metavar="N", help="of a document in the end (default: M, or one a frame); beam: also N-N")
    add("--beams", type=int, help="beam: hypotheses kept (default: 5, or n if that is more)")
    add("--length-penalty", type=float, default=1.0, help="beam: log p is divided by length to this power (default: 1)")
    add("--temperature", type=float, default=1.0, help="sample: below 1 sharpens (default: 1)")
    add("--top-k", type=int, default=0, help="sample: among the k most probable words")
    add("--top-p", type=float, default=1.0, help="sample: among the most probable words that make up this share")
    add("--seed", type=int, default=0)
    add("--out", default="-", metavar="FILE", help="where to write (default: standard output)")
    add("--format", default="jsonl", help="the format of the prompt (default: jsonl)")
    add("--skip-bad", action="store_true", help="pass over bad lines of the prompt, counting them")
    add("--force", action="store_true", help="replace the output file if it exists")
    add("--device", help="cpu or cuda")
    given = parser.parse_args(arguments)
    from revup.data.events import document_to_json
    from revup.inference.decoding import Method
    from revup.inference.trained import load
    from revup.io.files import open_output

    method = Method(
        given.method,
        max(given.n, Method.beams) if given.beams is None else given.beams,
        given.length_penalty,
        given.temperature,
        given.top_k,
        given.top_p,
    )
    model = load(given.run, given.device)
    prompts = None
    if given.file is not None:
        with _documents(given) as stream:
            prompts = list(stream)
    frames = [name.strip() for name in given.frames.split(",")] if given.frames else None
    with open_output(given.out, given.force) as out:
        for document in model.generate(
            given.n, prompts=prompts, frames=frames, events=_span(given.events), method=method, seed=given.seed
        ):
            out.write(json.dumps(document_to_json(document), ensure_ascii=False) + "\n")


def _span(text: str | None) -> int | tuple[int, int] | None:
    """A number, or a range such as 3-6."""
    if text is None:
        return None
    try:
        low, dash, high = text.partition("-")
        return (int(low), int(high)) if dash else int(low)
    except ValueError:
        raise RevupError(f"--events: expected a number, or a range such as 3-6, found '{text}'") from None


def inspect(arguments: Sequence[str]) -> None:
    parser = _make("inspect", ABOUT["inspect"], "revup inspect run --page latents.html")
    add = parser.add_argument
    add("run", metavar="RUN")
    add("data", metavar="DATA", nargs="?", help="a dataset (default: the one it was trained on)")
    add("--split", default="test", choices=("train", "valid", "test"))
    add("--top", type=int, default=10, help="words and frames shown for each frame (default: 10)")
    add("--page", metavar="FILE", help="write an HTML page with plots")
    add("--force", action="store_true", help="replace the page if it exists")
    add("--device", help="cpu or cuda")
    add("--json", action="store_true")
    given = parser.parse_args(arguments)
    from revup.data.corpus import Corpus
    from revup.inference.inspect import inspect as run_inspect
    from revup.inference.trained import load
    from revup.io.folders import refuse_existing
    from revup.reporting.latents import page, summary

    if given.top < 1:
        raise RevupError(f"--top: expected 1 or more, found {given.top}")
    if given.page:
        refuse_existing(Path(given.page), given.force)
    model = load(given.run, given.device)
    found = run_inspect(model, Corpus.load(given.data) if given.data else None, given.split, given.top)
    if given.page:
        page(found).save(given.page)
    if given.json:
        print(json.dumps(found))
    else:
        print(summary(found))
        if given.page:
            print(f"wrote {given.page}")


def cloze(arguments: Sequence[str]) -> None:
    from revup.inference.cloze import LATENTS, SCORES

    parser = _make("cloze", ABOUT["cloze"], "revup cloze run items.txt.gz --json")
    add = parser.add_argument
    add("run", metavar="RUN")
    add("file", metavar="FILE", help="items: six sequences a line, the true one first; - is standard input")
    add("--score", default=SCORES[0], choices=SCORES, help=f"what is compared (default: {SCORES[0]})")
    add("--latents", default=LATENTS[0], choices=LATENTS, help=f"inferred from what (default: {LATENTS[0]})")
    add("--skip-bad", action="store_true", help="pass over bad lines, counting them")
    add("--device", help="cpu or cuda")
    add("--json", action="store_true")
    given = parser.parse_args(arguments)
    from revup.data.readers.cloze import items
    from revup.inference.cloze import cloze as run_cloze
    from revup.inference.trained import load

    bad: list[InputError] = []
    model = load(given.run, given.device)
    read = list(items(given.file, bad.append if given.skip_bad else None))
    if not read:
        raise InputError("no items in it", given.file)
    if bad:
        print(f"revup: note: skipped {len(bad)} bad lines, the first: {bad[0]}", file=sys.stderr)
    _print_figures({**run_cloze(model, read, given.score, given.latents), "skipped": len(bad)}, given.json)


def _print_figures(figures: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name.replace('_', ' '):<26}{f'{value:.4f}' if isinstance(value, float) else value}")


def compare(arguments: Sequence[str]) -> None:
    parser = _make("compare", ABOUT["compare"], "revup compare --out comparison --seeds 3 --epsilon 0.3 --eta 0.2")
    add = parser.add_argument
    add("data", metavar="DATA", nargs="?", help="a dataset (default: a small one of the built-in world)")
    add("--out", required=True, metavar="DIR", help="where runs and tables go; what is there already is taken up")
    add("--seeds", type=int, default=3, help="runs of each system (default: 3)")
    add("--epsilon", type=float, default=0.3, help="share of the frames that is seen (default: 0.3)")
    add("--eta", type=float, default=0.2, help="share of the seen frames that is replaced (default: 0.2)")
    add("--preset", default="default", metavar="P", help="default, paper or released")
    add("--bound", type=int, default=20, metavar="S", help="samples of the bound on log p(x) (default: 20)")
    add("--device", help="cpu or cuda (default: cuda where there is one)")
    add("--json", action="store_true")
    _training_options(parser)
    given = parser.parse_args(arguments)
    from revup.data.corpus import Corpus
    from revup.experiments.compare import compare as run_compare

    with display.training() as show:
        result = run_compare(
            given.out,
            Corpus.load(given.data) if given.data else None,
            seeds=given.seeds,
            epsilon=given.epsilon,
            eta=given.eta,
            preset=given.preset,
            bound=given.bound,
            overrides=overrides(given),
            device=given.device,
            progress=show,
        )
    print(json.dumps(result) if given.json else Path(given.out, "compare.md").read_text("utf-8").rstrip())


# ---- experiment -----------------------------------------------------------------------------------------------


def experiment(arguments: Sequence[str]) -> None:
    from revup.experiments import PARTS
    from revup.experiments import experiment as run_experiment

    parser = _make(
        "experiment",
        ABOUT["experiment"],
        "revup experiment all data --out results --seeds 3\n"
        "  revup experiment incomplete data --out results --device cuda --jobs 8 --minutes 9   # again, until done",
    )
    add = parser.add_argument
    add("name", metavar="NAME", choices=(*PARTS, "all"), help=f"one of {', '.join(PARTS)}, or all")
    add("data", metavar="DATA", nargs="?", help="a dataset directory (small and reliance can do without)")
    add("--out", required=True, metavar="DIR", help="where tables, figures and finished runs go; goes on if it exists")
    add("--seeds", type=int, default=3, metavar="N", help="runs of each system and condition (default: 3)")
    add("--quick", action="store_true", help="few documents, conditions and epochs, a small network: to try it out")
    add("--models", metavar="M,…", help="systems to compare, such as lookup,revup:paper,revup (default: all)")
    add("--jobs", type=int, metavar="N", help="runs at a time (default: one a core, at most 8)")
    add("--minutes", type=float, default=0.0, metavar="X", help="stop before X minutes are over; the next call goes on")
    add("--device", help="cpu or cuda (default: cuda where there is one)")
    add("--json", action="store_true", help="print all tables as JSON")
    _training_options(parser)
    given = parser.parse_args(arguments)
    with display.sweep() as show:
        result = run_experiment(
            given.name,
            given.data,
            given.out,
            seeds=given.seeds,
            quick=given.quick,
            jobs=given.jobs,
            device=given.device,
            minutes=given.minutes,
            systems=given.models,
            overrides=overrides(given),
            command=shlex.join(["revup", "experiment", *arguments]),
            progress=show,
        )
    for note in result["notes"]:
        print(f"revup: note: {note}", file=sys.stderr)
    if given.json:
        print((Path(given.out) / "results.json").read_text("utf-8"), end="")
        return
    print(f"{result['runs']} runs finished; tables in {given.out}: {', '.join(result['written'])}")
    if not result["complete"]:
        left = "" if result["seconds_left"] is None else f", about {result['seconds_left'] / 60:.0f} minutes"
        parts = ", ".join(result["unfinished"])
        print(f"not finished ({parts}): {result['left']} runs left{left}; the same command goes on")


# ---- bench ----------------------------------------------------------------------------------------------------


def bench(arguments: Sequence[str]) -> None:
    parser = _make("bench", ABOUT["bench"], "revup bench --json\n  revup bench --hidden 512 --words 150000 --batch 50")
    add = parser.add_argument
    add("--hidden", type=int, metavar="N", help="units of the network (default: 128)")
    add("--words", type=int, metavar="N", help="words of the vocabulary (default: 20000)")
    add("--frames", type=int, metavar="N", help="frames (default: 600)")
    add("--batch", type=int, metavar="N", help="documents in a step (default: 500)")
    add("--steps", type=int, metavar="N", help="steps of each system that are timed (default: 3)")
    add("--quick", action="store_true", help="small sizes, to try it out in seconds")
    add("--device", help="cpu or cuda (default: cuda where there is one)")
    add("--json", action="store_true")
    given = parser.parse_args(arguments)
    from dataclasses import replace

    from revup.bench import Plan, table
    from revup.bench import bench as run_bench
    from revup.ops.device import choose_device

    if given.steps is not None and given.steps < 1:
        raise RevupError(f"--steps: expected 1 or more, found {given.steps}")
    plan = Plan.quick() if given.quick else Plan()
    sizes = {name: getattr(given, name) for name in ("hidden", "words", "frames", "batch")}
    size = replace(plan.size, **{name: value for name, value in sizes.items() if value is not None})
    plan = replace(plan, size=size, steps=given.steps or plan.steps)
    result = run_bench(plan, choose_device(given.device))
    print(json.dumps(result) if given.json else table(result))


@contextmanager
def _documents(given: argparse.Namespace) -> Iterator[Iterator[Document]]:
    """The documents of a file, bad ones counted if asked, and an error if there is none at all."""
    from revup.data.readers import read

    bad: list[InputError] = []

    def stream() -> Iterator[Document]:
        count = 0
        for document in read(given.file, given.format, bad.append if given.skip_bad else None):
            count += 1
            yield document
        if not count:
            raise InputError("no documents in it", given.file)

    with _many_objects():
        yield stream()
    if bad:
        print(f"revup: note: skipped {len(bad)} bad lines, the first: {bad[0]}", file=sys.stderr)


SEARCHED_AFTER = 50_000  # objects that were made; Python's own number is for programs with fewer


@contextmanager
def _many_objects() -> Iterator[None]:
    """While documents come and go: all that was there before is not searched again and again for what is no longer
    reached, nor are they as often."""
    first, *others = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(SEARCHED_AFTER, *others)
    try:
        yield
    finally:
        gc.set_threshold(first, *others)
        gc.unfreeze()


# ---- main --------------------------------------------------------------------------------------------------------

ABOUT = {
    "demo": "Train RevUp on the built-in corpus, print a table and write a report.",
    "prepare": "Turn documents into a dataset directory, and say what was found in them.",
    "world": "Make a dataset from the built-in world, whose exact optimum is known.",
    "train": "Train a model on a dataset.",
    "evaluate": "Measure a trained model: perplexity, accuracy, macro-F1, calibration.",
    "predict": "Label the events of documents with their most probable frames.",
    "embed": "Write vectors of documents and events.",
    "generate": "Write event sequences: from a prompt, from chosen frames, or from nothing.",
    "inspect": "Say what a model's latents mean: words and followers of each frame, attention, what is unused.",
    "cloze": "Choose the true continuation of a first event among six (inverse narrative cloze).",
    "compare": "Train all six systems on one corpus and print one table.",
    "experiment": "Make the paper's tables and figures on a dataset; goes on where it was stopped.",
    "bench": "Measure speed and memory here, beside a step-by-step reference.",
}
VERBS: dict[str, Callable[[Sequence[str]], None]] = {
    "demo": demo,
    "prepare": prepare,
    "world": world,
    "train": train,
    "evaluate": evaluate,
    "predict": predict,
    "embed": embed,
    "generate": generate,
    "inspect": inspect,
    "cloze": cloze,
    "compare": compare,
    "experiment": experiment,
    "bench": bench,
}


def _usage() -> str:
    rows = "\n".join(f"  {verb:<12}{ABOUT[verb]}" for verb in VERBS)
    return (
        "usage: revup VERB …\n\n"
        f"{rows}\n\n"
        "revup VERB --help says more of each; revup --version says which revup this is.\n\n"
        "example:\n  revup prepare docs.jsonl --out data && revup train data --out run && revup evaluate run"
    )


def run(arguments: Sequence[str]) -> None:
    """Run one verb; errors come out as exceptions."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_usage())
    elif arguments[0] in ("--version", "-V"):
        print(f"revup {__version__}")
    elif arguments[0] in VERBS:
        VERBS[arguments[0]](arguments[1:])
    else:
        raise RevupError(f"unknown verb '{arguments[0]}': one of {', '.join(VERBS)}")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The command: one line for each error that a user can mend, 130 after Ctrl-C."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except OutputExistsError as error:
        _fail(f"{error} (--force replaces it)")
    except RevupError as error:
        _fail(str(error))
    except Interrupted as stop:
        print(f"revup: {stop}", file=sys.stderr)
        _leave(stop.status)
    except KeyboardInterrupt:
        print("revup: stopped", file=sys.stderr)
        _leave(130)
    except BrokenPipeError:
        _leave(1)
    except MemoryError:
        _fail("out of memory")
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        _fail(f"{name}{error.strerror or error}")
    _leave(0)


def _stop(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _fail(message: str) -> NoReturn:
    print("revup: error: " + " ".join(message.split("\n")), file=sys.stderr)
    _leave(2)


def _leave(status: int) -> NoReturn:
    """Exit; what can't be written to standard output any more is let go without a second complaint."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(status)
