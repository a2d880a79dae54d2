"""The model card of a run: README.md with YAML front matter, and the file of evaluation results.

The front matter is written as YAML whose values are JSON, which is a subset of it, so that a card needs no library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import revup
from revup.data.corpus import Corpus
from revup.inference.evaluate import evaluate
from revup.inference.intervals import intervals
from revup.inference.run_directory import read_metrics
from revup.inference.trained import Trained
from revup.training.command import changed_settings, shown, train_command

LEVEL = 0.9  # of the intervals
MEASURES = {  # name → what a reader of the card is told
    "accuracy": "accuracy of the most probable frame",
    "macro_f1": "macro-F1",
    "macro_precision": "macro precision",
    "macro_recall": "macro recall",
    "label_nll": "mean −log p of the reference frame",
    "calibration_error": "expected calibration error",
    "perplexity": "reconstruction perplexity",
    "perplexity_hard": "reconstruction perplexity with one-hot frames",
}
NAMES_NOTE = (
    "The vocabulary files hold words of the training documents, which can include names of people and places; "
    "the weights were trained on them"
)

LEXICON_NOTE = (
    "The file lexicon.csv is the dictionary that the model was trained with; its licence has to allow that it is shared"
)


def shared_notes(model: Trained) -> list[str]:
    """What who shares a model should know of its files, a sentence each without its full stop.

    Args:
        model: The model.
    """
    return [NAMES_NOTE, *([LEXICON_NOTE] if model.lexicon is not None else [])]


def measured(model: Trained, corpus: Corpus | None = None, split: str = "test") -> dict[str, Any]:
    """The scores of a card.

    Args:
        model: The model.
        corpus: A dataset to evaluate on; without one, the scores are those of the run's best validation.
        split: The part of the dataset.

    Returns:
        `split`, measures by name, `NAME_interval` where there is one, and `reference`: against which labels; with
        `corpus` also its `fingerprint`.
    """
    if corpus is not None:
        found = evaluate(model, corpus, split) | intervals(model, corpus, split, LEVEL)
        return {**found, "reference": "reference frames", "fingerprint": corpus.fingerprint}
    lines = read_metrics(model.path) if model.path is not None else []
    best = next((line for line in reversed(lines) if line["best"]), None)
    return {"split": "valid", **best["valid"], "reference": "observed labels"} if best else {}


def model_card(
    model: Trained, name: str, scores: Mapping[str, Any], license: str | None = None, dataset: str | None = None
) -> str:
    """Write the card.

    Args:
        model: The model.
        name: Its name in the title and in the example.
        scores: What `measured` returns.
        license: The licence of the model, as the Hub names it; absent, the card names none.
        dataset: The Hub's name of the dataset, if it is there.

    Returns:
        The text of README.md.
    """
    parts = [
        _front_matter(model, name, scores, license, dataset),
        f"# {name}",
        _about(model, name),
        _scores(scores),
        _calibration(model, scores),
        _labels(model),
        _data(model, dataset),
        _settings(model),
        _limits(model, scores),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def eval_results(scores: Mapping[str, Any], dataset: str, fingerprint: str) -> str:
    """The scores in the Hub's format of `.eval_results/*.yaml`, which belongs to a dataset of the Hub.

    Args:
        scores: What `measured` returns.
        dataset: The Hub's name of the dataset.
        fingerprint: The fingerprint of the data that was evaluated on.

    Returns:
        The text of the file, an entry for each measure.
    """
    lines = []
    for measure, value in _values(scores):
        notes = f"{scores['split']} split, {scores['reference']}{_interval_note(scores, measure)}; data {fingerprint}"
        lines += [
            f"- dataset: {json.dumps({'id': dataset, 'task_id': measure})}",
            f"  value: {json.dumps(value)}",
            f"  notes: {json.dumps(notes, ensure_ascii=False)}",
        ]
    return "\n".join(lines) + "\n"


def _front_matter(
    model: Trained, name: str, scores: Mapping[str, Any], license: str | None, dataset: str | None
) -> str:
    data: dict[str, Any] = {
        "library_name": "revup",
        "tags": ["revup", "events", "semantic-frames", model.config.model],
        **({"license": license} if license else {}),
        **({"datasets": [dataset]} if dataset else {}),
    }
    entries = [
        {"type": measure, "value": value, "name": MEASURES[measure] + _interval_note(scores, measure)}
        for measure, value in _values(scores)
    ]
    if entries:
        task = "text-classification" if model.module.predicts_frames else "text-generation"
        data_name = f"data {scores.get('fingerprint') or _fingerprint(model)}"
        about = {"type": dataset or "custom", "name": data_name, "split": scores["split"]}
        data["metrics"] = [entry["type"] for entry in entries]
        data["model-index"] = [
            {"name": name, "results": [{"task": {"type": task}, "dataset": about, "metrics": entries}]}
        ]
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in data.items()]
    return "\n".join(["---", *lines, "---"])


def _about(model: Trained, name: str) -> str:
    what = "labels events with frames" if model.module.predicts_frames else "models sequences of events"
    predict = "model.predict(documents)" if model.module.predicts_frames else "model.embed(documents)"
    return (
        f"A {model.config.model} model that {what}, trained with revup {revup.__version__}. "
        f"It knows {len(model.frames):,} frames and {len(model.vocabulary):,} words, "
        f"and reads windows of {model.events} events.\n\n"
        "```python\n"
        "import revup\n\n"
        f'model = revup.from_pretrained("{name}")\n'
        'documents = list(revup.read("docs.jsonl"))\n'
        f"{predict}\n"
        "```"
    )


def _scores(scores: Mapping[str, Any]) -> str:
    rows = [
        f"| {MEASURES[name]} | {_number(value)} | {_shown_interval(scores, name)} |" for name, value in _values(scores)
    ]
    if not rows:
        return "## Scores\n\nNone: the run has no validation, and no dataset was evaluated."
    split = {"valid": "validation", "train": "training"}.get(scores["split"], scores["split"])
    amount = f" of {scores['events_scored']:,} events" if scores.get("events_scored") else ""
    of = f" of data `{scores['fingerprint']}`" if scores.get("fingerprint") else ""
    head = f"On the {split} split{amount}{of}, against the {scores['reference']}."
    if any(f"{name}_interval" in scores for name in MEASURES):
        head += f" Intervals cover {LEVEL:.0%}, by a bootstrap over documents."
    else:
        head += " No intervals: they need the documents (`save_pretrained(…, corpus=corpus)`)."
    return "\n".join(["## Scores", "", head, "", "| measure | value | interval |", "|---|---|---|", *rows])


def _calibration(model: Trained, scores: Mapping[str, Any]) -> str:
    """How far probabilities can be trusted: on the dataset of the scores, else on the validation split of training."""
    rows = [(row["confidence"], row["accuracy"], row["events"]) for row in scores.get("reliability") or ()]
    head, right = (
        "Mean predicted probability and accuracy of the events in each bin of predicted probability.",
        "accuracy",
    )
    if not rows:
        rows = [(row["probability"], row["agreement"], row["events"]) for row in model.state.calibration]
        head = (
            "Mean predicted probability of the events in each bin, and how often the observed labels of the validation "
            "split agree. Labels can be wrong, so agreement can be lower than accuracy."
        )
        right = "agreement"
    if not rows:
        return ""
    lines = [f"| {probability:.2f} | {share:.2f} | {events:,} |" for probability, share, events in rows]
    return "\n".join(["## Calibration", "", head, "", f"| predicted | {right} | events |", "|---|---|---|", *lines])


def _labels(model: Trained) -> str:
    """What training estimated of its labels: the reliability of each source, where the run has it."""
    rows = []
    for name, value in model.figures.items():
        nested = value.items() if isinstance(value, Mapping) else [("", value)]
        for part, figure in nested:
            title = f"{name.replace('_', ' ')} {part}".strip()
            rows.append(f"| {title} | {_number(figure)} |")
    sources = [
        f"| {name} | {found['items']:,} | {_rate(found['error_rate'])} | {_range(found['interval'])} |"
        for name, found in model.reliability.items()
    ]
    parts = []
    if rows:
        parts += ["", "| figure | estimate |", "|---|---|", *rows]
    if sources:
        parts += ["", "| source | labels | share that is wrong | 90% interval |", "|---|---|---|---|", *sources]
    if not parts:
        return ""
    head = (
        "What training estimated of its labels: the share that is wrong (noise rate), and how far each source is "
        "right. A dash: the data cannot tell."
    )
    return "\n".join(["## Labels", "", head, *parts])


def _data(model: Trained, dataset: str | None) -> str:
    observation = model.config.observation
    rows = {
        "dataset": dataset or "not on the Hub",
        "fingerprint": f"`{_fingerprint(model)}`",
        "observed share of labels (ε)": shown(observation.epsilon),
        "simulated noise rate (η)": shown(observation.eta),
        **({"simulated errors": observation.noise} if observation.eta or observation.sources else {}),
        **({"simulated annotators": observation.sources} if observation.sources else {}),
    }
    return _table("## Training data", ("", ""), rows)


def _settings(model: Trained) -> str:
    config, classes = model.config, len(model.frames)
    changed = changed_settings(config, classes)
    rows = {
        f"`{section}.{name.replace('_', '-')}`": shown(value)
        for section, values in changed.items()
        for name, value in values.items()
    }
    table = _table("", ("setting", "value"), {"`model`": config.model, "`preset`": config.preset, **rows})
    return (
        "## Settings\n\nSettings that differ from the preset; `config.json` holds all of them.\n\n"
        f"{table.strip()}\n\nThe command:\n\n```\n{train_command(config, classes=classes)}\n```"
    )


def _limits(model: Trained, scores: Mapping[str, Any]) -> str:
    notes = [
        *(f"{note}." for note in shared_notes(model)),
        "It knows the frames in frames.txt only; an event of another frame gets one of these.",
        "Words and predicates that training did not see are read by their lemma or vector, or not at all.",
    ]
    if scores:
        notes.append(
            "Scores hold for documents like those that they were measured on; other text, above all text whose events "
            "were extracted by other rules, can score lower."
        )
    if scores.get("reference") == "observed labels":
        notes.append("The scores are against observed labels, which can be wrong, and chose the weights.")
    if scores.get("perplexity") is not None and model.module.predicts_frames:
        notes.append("Reconstruction perplexity can't be compared with that of a language model.")
    if not model.data.get("named_frames", True) or "induced_frames" in model.figures:
        notes.append("No label was observed: the frames are clusters, and their names mean nothing.")
    return "\n".join(["## Limits", "", *(f"- {note}" for note in notes)])


def _table(title: str, head: tuple[str, str], rows: Mapping[str, str]) -> str:
    lines = [f"| {left} | {right} |" for left, right in (head, ("---", "---"), *rows.items())]
    return "\n".join([*([title, ""] if title else []), *lines])


def _values(scores: Mapping[str, Any]) -> list[tuple[str, float]]:
    return [(name, float(scores[name])) for name in MEASURES if scores.get(name) is not None]


def _interval_note(scores: Mapping[str, Any], name: str) -> str:
    shown_interval = _shown_interval(scores, name)
    return f" ({LEVEL:.0%} interval {shown_interval})" if shown_interval != "–" else ""


def _shown_interval(scores: Mapping[str, Any], name: str) -> str:
    found = scores.get(f"{name}_interval")
    return "–" if found is None else f"{_number(found[0])} to {_number(found[1])}"


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _range(found: tuple[float, float] | None) -> str:
    return "–" if found is None else f"{_rate(found[0])} to {_rate(found[1])}"


def _number(value: Any) -> str:
    return f"{value:#.4g}" if isinstance(value, float) else str(value)


def _fingerprint(model: Trained) -> str:
    return str(model.data.get("fingerprint", "unknown"))
