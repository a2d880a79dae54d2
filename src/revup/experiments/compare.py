"""All six systems on one corpus, one footing, one table: mean ± standard deviation over seeds.

    DIR/corpus                the built-in corpus, where none was given
    DIR/runs/MODEL-SEED       a run each; its scores.json has its figures on the test split
    DIR/compare.json, .md     the table

What was finished is not done again; a run that was stopped goes on from its checkpoint.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import revup
from revup.data.corpus import Corpus
from revup.errors import InputError, RevupError
from revup.inference.evaluate import evaluate
from revup.inference.measures import optimum
from revup.io.files import write_text
from revup.models import CLASSES
from revup.reporting.progress import Progress
from revup.settings import Config
from revup.training.run import train_config
from revup.world.world import World

WORLD = {"frames": 20, "seed": 1}
DOCUMENTS = {"train": 2000, "valid": 500, "test": 500}
# Small and quick, the same for all systems.
NETWORK = {"embedding": 50, "hidden": 64, "latent": 32, "frame": 64, "layers": 1}
TRAINING = {"batch_size": 50, "learning_rate": 3e-3, "epochs": 10}
MEASURES = {
    "accuracy": ("accuracy", 3),
    "macro_f1": ("macro-F1", 3),
    "perplexity": ("perplexity", 2),
    "perplexity_hard": ("perplexity, hard", 2),
    "perplexity_bound": ("perplexity, bound", 2),
}
NAMES = {
    "revup": "RevUp",
    "ssdvae": "SSDVAE",
    "haqae": "HAQAE",
    "rnnlm": "RNNLM",
    "tagger": "Tagger",
    "lookup": "Lookup",
}

Overrides = Mapping[str, Mapping[str, Any]]


def built_in(out: Path) -> Corpus:
    """The built-in corpus in DIR/corpus, made if it is not there."""
    if (out / "corpus").exists():
        return Corpus.load(out / "corpus")
    world = World(**WORLD)
    stream = world.sample(sum(DOCUMENTS.values()))
    parts: dict[str, Any] = {}
    for split, count in DOCUMENTS.items():
        parts[split], stream = stream[:count], stream[count:]
    return Corpus.build(**parts, out=out / "corpus", world=world, duplicates="keep")


def compare(
    out: str | Path,
    corpus: Corpus | None = None,
    *,
    seeds: int = 3,
    epsilon: float = 0.3,
    eta: float = 0.2,
    preset: str = "default",
    bound: int = 20,
    overrides: Overrides | None = None,
    device: str | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> dict[str, Any]:
    """Train and measure all six systems with seeds 0, 1, …; write and return the table.

    On the built-in corpus all systems have a small network and the same budget; on another they have the sizes and the
    budget of `revup train`. Overrides of settings hold for all systems that know them.
    """
    if seeds < 1:
        raise RevupError(f"seeds: expected 1 or more, found {seeds}")
    folder = Path(out)
    settings: dict[str, dict[str, Any]] = {section: dict(values) for section, values in (overrides or {}).items()}
    if corpus is None:
        corpus = built_in(folder)
        settings["network"] = {**NETWORK, **settings.get("network", {})}
        settings["training"] = {**TRAINING, **settings.get("training", {})}
    scores: dict[str, list[dict[str, Any]]] = {}
    for model in CLASSES:
        for seed in range(seeds):
            config = Config.make(model, preset, epsilon, eta, seed, settings)
            found = _scores(folder / "runs" / f"{model}-{seed}", config, corpus, bound, device, progress)
            scores.setdefault(model, []).append(found)
    result = {
        "version": revup.__version__,
        "data": {"fingerprint": corpus.fingerprint, "documents": len(corpus.split("train"))},
        "epsilon": epsilon,
        "eta": eta,
        "preset": preset,
        "seeds": seeds,
        "bound_samples": bound,
        "settings": settings,
        "systems": {
            model: {name: _summary([run[name] for run in runs]) for name in MEASURES} for model, runs in scores.items()
        },
        "optimum": optimum(corpus, "test"),
        "runs": scores,
    }
    write_text(folder / "compare.md", markdown(result))
    write_text(folder / "compare.json", json.dumps(result, indent=1) + "\n")
    return result


def _scores(
    run: Path,
    config: Config,
    corpus: Corpus,
    bound: int,
    device: str | None,
    progress: Callable[[Progress], None] | None,
) -> dict[str, Any]:
    """The figures of one run, trained and measured unless that was done before."""
    model = train_config(corpus, config, run, device=device, resume=True, progress=progress)
    kept = run / "scores.json"
    if kept.exists():
        try:
            known: dict[str, Any] = json.loads(kept.read_text("utf-8"))
            if known["bound_samples"] == bound:
                return known
        except (ValueError, KeyError, TypeError):
            raise InputError("damaged: remove it to measure this run again", str(kept)) from None
    scores = evaluate(model, corpus, bound=bound)
    found = {name: scores.get(name) for name in MEASURES} | {"bound_samples": bound}
    write_text(kept, json.dumps(found) + "\n")
    return found


def _summary(values: list[float | None]) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    if not known:
        return {"mean": None, "deviation": None}
    return {
        "mean": statistics.fmean(known),
        "deviation": statistics.stdev(known) if len(known) > 1 else None,
    }


def markdown(result: Mapping[str, Any]) -> str:
    """The table, with what its columns mean below it."""
    lines = [
        "| system | " + " | ".join(title for title, _ in MEASURES.values()) + " |",
        "|---" + "|---:" * len(MEASURES) + "|",
    ]
    for model, measures in result["systems"].items():
        cells = [_cell(measures[name], digits) for name, (_, digits) in MEASURES.items()]
        lines.append(f"| {NAMES[model]} | " + " | ".join(cells) + " |")
    best = result["optimum"]
    if best:
        shown = {"accuracy": best.get("accuracy"), "perplexity_bound": best.get("perplexity")}
        cells = ["–" if shown.get(n) is None else f"{shown[n]:.{digits}f}" for n, (_, digits) in MEASURES.items()]
        lines.append("| *exact optimum* | " + " | ".join(cells) + " |")
    about = (
        f"{result['data']['documents']:,} training documents, ε = {result['epsilon']:g}, η = {result['eta']:g}, "
        f"{'one seed' if result['seeds'] == 1 else str(result['seeds']) + ' seeds, mean ± standard deviation'}, "
        f"preset {result['preset']}, test split."
    )
    note = (
        "Perplexity and hard perplexity of models with latents are those of a reconstruction: the latents have read "
        "the text. Only the last column compares with a language model: a bound on p(x) with "
        f"{result['bound_samples']} samples, exact for RNNLM."
    )
    return "\n".join([*lines, "", about, "", note]) + "\n"


def _cell(cell: Mapping[str, Any], digits: int) -> str:
    if cell["mean"] is None:
        return "–"
    spread = "" if cell["deviation"] is None else f" ± {cell['deviation']:.{digits}f}"
    return f"{cell['mean']:.{digits}f}{spread}"
