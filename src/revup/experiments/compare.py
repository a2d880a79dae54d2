"""All systems on one corpus under the same conditions, in one table: mean ± standard deviation over seeds.

    DIR/corpus                the built-in corpus, where none is given
    DIR/runs/MODEL-SEED       a run directory each; its scores.json holds its test scores
    DIR/compare.json, .md     the table

Finished runs are not computed again; runs that were stopped continue from their checkpoints.
"""

from __future__ import annotations

import json
from collections.abc import Callable
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
from revup.reporting.tables import Row, Table, markdown, quoted, summary
from revup.settings import Config, Overrides
from revup.training.deadline import resumed_by
from revup.training.run import train_config
from revup.world.world import World

WORLD: dict[str, Any] = {"frames": 20, "seed": 1}
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
    """Train and evaluate all systems on one corpus, and write one table.

    Args:
        out: Output directory; runs that it holds already are not computed again.
        corpus: The data; by default a built-in corpus, on which all systems have a small network and few epochs.
        seeds: Runs of each system, with seeds 0, 1, ….
        epsilon: Observation probability of the training labels.
        eta: Noise rate of the observed labels.
        preset: Preset of all systems.
        bound: Samples per document for the bound on the perplexity.
        overrides: Settings by section and name, for all systems that have them.
        device: `cpu` or `cuda`; by default a GPU if there is one.
        progress: Called with reports of each training run.

    Returns:
        The table as data, as it is written to compare.json.

    Raises:
        RevupError: `seeds` is less than 1, or `out` holds runs with other settings.
        Interrupted: A signal came; finished runs are kept, and the one being trained has written a checkpoint.
    """
    if seeds < 1:
        raise RevupError(f"seeds: expected 1 or more, found {seeds}")
    folder = Path(out)
    settings: dict[str, dict[str, Any]] = {section: dict(values) for section, values in (overrides or {}).items()}
    if corpus is None:
        corpus = _built_in(folder / "corpus")
        settings["network"] = {**NETWORK, **settings.get("network", {})}
        settings["training"] = {**TRAINING, **settings.get("training", {})}
    scores: dict[str, list[dict[str, Any]]] = {}
    for model in CLASSES:
        for seed in range(seeds):
            config = Config.make(model, preset, epsilon, eta, seed, overrides=settings)
            run = folder / "runs" / f"{model}-{seed}"
            with resumed_by("the same command"):
                trained = train_config(corpus, config, run, device=device, resume=True, progress=progress)
            found = _known_scores(run / "scores.json", bound)
            if found is None:
                measured = evaluate(trained, corpus, bound=bound)
                found = {name: measured.get(name) for name in MEASURES} | {"bound_samples": bound}
                write_text(run / "scores.json", json.dumps(found) + "\n")
            scores.setdefault(model, []).append(found)
    rows = [
        Row(CLASSES[model], tuple(tuple(r[name] for r in runs) for name in MEASURES)) for model, runs in scores.items()
    ]
    best = optimum(corpus, "test")
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
            model: {
                name: {"mean": cell.mean, "deviation": cell.deviation}
                for name, cell in zip(MEASURES, map(summary, row.cells), strict=True)
            }
            for model, row in zip(scores, rows, strict=True)
        },
        "optimum": best,
        "runs": scores,
    }
    if best:
        exact = {"accuracy": best.get("accuracy"), "perplexity_bound": best.get("perplexity")}
        rows.append(quoted("exact optimum", [exact.get(name) for name in MEASURES]))
    titles, digits = zip(*MEASURES.values(), strict=True)
    table = Table("compare", "", "system", titles, tuple(rows), _caption(result), digits, compete=False)
    write_text(folder / "compare.md", markdown(table))
    write_text(folder / "compare.json", json.dumps(result, indent=1) + "\n")
    return result


def _built_in(path: Path) -> Corpus:
    """The built-in corpus, made if it is not there."""
    if path.exists():
        return Corpus.load(path)
    world = World(**WORLD)
    stream = world.sample(sum(DOCUMENTS.values()))
    parts: dict[str, Any] = {}
    for split, count in DOCUMENTS.items():
        parts[split], stream = stream[:count], stream[count:]
    return Corpus.build(**parts, out=path, world=world, duplicates="keep")


def _known_scores(path: Path, bound: int) -> dict[str, Any] | None:
    """The scores of a run that was evaluated before, with as many samples for the bound."""
    if not path.exists():
        return None
    try:
        known: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return known if known["bound_samples"] == bound else None
    except (ValueError, KeyError, TypeError):
        raise InputError("damaged: remove it to evaluate this run again", str(path)) from None


def _caption(result: dict[str, Any]) -> str:
    seeds = "one seed" if result["seeds"] == 1 else f"{result['seeds']} seeds, mean ± standard deviation"
    return (
        f"{result['data']['documents']:,} training documents, ε = {result['epsilon']:g}, η = {result['eta']:g}, "
        f"{seeds}, preset {result['preset']}, test split.\n\n"
        "Perplexity and hard perplexity of models with latents are those of a reconstruction: the latents are inferred "
        "from the same text. Only the last column compares with a language model: a bound on p(x) with "
        f"{result['bound_samples']} samples, exact for RNNLM."
    )
