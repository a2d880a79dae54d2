"""Opening the model of a run directory."""

from __future__ import annotations

import copy
from pathlib import Path

from revup.data.event_vectors import Reduction
from revup.data.lexicon import Lexicon
from revup.data.vocabulary import Vocabulary, read_vocabulary
from revup.errors import InputError, RevupError, reason
from revup.inference.run_directory import COUNTS, LEXICON, TEXT, WEIGHTS, check_files, read_config
from revup.inference.trained import Trained
from revup.inference.weights import WithoutValues, check_header, check_values, check_vectors, load_weights
from revup.io.digests import as_one, digest_stamp
from revup.io.files import read_list
from revup.io.tensors import load_tensors, read_header
from revup.models.base import Model
from revup.models.count_prior import CountPrior, CountSettings
from revup.models.network import Sizes
from revup.ops.device import choose_device
from revup.ops.precision import check_precision, warn_if_slow
from revup.settings import build_module


def load(
    path: str | Path, device: str | None = "cpu", precision: str = "float32", *, allow_unfinished: bool = False
) -> Trained:
    """Open a run directory. Nothing in it can run code, and nothing is allocated before its sizes are checked.

    Args:
        path: The run directory.
        device: cpu or cuda; None: cuda where there is one.
        precision: float32, or bf16, which is faster where the processor supports it and differs after two digits.
        allow_unfinished: Open a run whose training has not finished, with the best weights that it has so far.

    Returns:
        The model.

    Raises:
        InputError: Not a run directory, a damaged one, one of another format, or one that has not finished.
    """
    folder = Path(path)
    check_precision(precision)
    with as_one(folder, digest_stamp(folder)):
        return _load(folder, device, precision, allow_unfinished)


def _load(folder: Path, device: str | None, precision: str, allow_unfinished: bool) -> Trained:
    config, about = read_config(folder)
    state = check_files(folder, allow_unfinished)
    try:
        vocabulary = read_vocabulary(folder)
        frames = read_list(folder / "frames.txt")
        lexicon = Lexicon.load(folder / LEXICON) if (folder / LEXICON).exists() else None
        reduction = Reduction.load(folder)
    except FileNotFoundError as error:
        raise InputError(f"not a run directory: {Path(error.filename).name} is missing", str(folder)) from None
    sizes = Sizes(len(vocabulary), len(frames), about["events"], 0 if reduction is None else reduction.size)
    for path in (folder / WEIGHTS, folder / TEXT):
        if path.name == TEXT and not path.exists():
            continue
        header = read_header(path)
        if header.meta.get("model") != config.model:
            found = str(header.meta.get("model"))[:40]
            raise InputError(f"expected a {config.model} model, found {found}", str(path))
        check_header(header, path, config, sizes)
    with WithoutValues():
        module = build_module(config, sizes)
    _fill(module, folder / WEIGHTS, vocabulary)
    if (folder / COUNTS).exists():
        module.use_counts(_counts(folder / COUNTS, vocabulary, frames, lexicon))
    elif isinstance(config.objective, CountSettings) and config.objective.needs_counts:
        raise InputError(f"not a run directory: {COUNTS} is missing", str(folder))
    module.eval()
    module.to(choose_device(device))
    warn_if_slow(precision, module.device)
    trained = Trained(module, config, vocabulary, frames, sizes.events, about["data"], folder, lexicon, reduction)
    trained.precision, trained.state, trained.figures = precision, state, state.figures
    if (folder / TEXT).exists():
        trained.writer = copy.deepcopy(module)
        _fill(trained.writer, folder / TEXT, vocabulary)
    return trained


def _fill(module: Model, path: Path, vocabulary: Vocabulary) -> None:
    """Put the weights of a file into a model whose shapes they have."""
    tensors, _ = load_tensors(path)
    check_values(tensors, path)
    load_weights(module, tensors, path)
    check_vectors(module, path, len(vocabulary) + len(vocabulary.beyond))


def _counts(path: Path, vocabulary: Vocabulary, frames: list[str], lexicon: Lexicon | None) -> CountPrior:
    tensors, _ = load_tensors(path)
    try:
        return CountPrior.from_tensors(tensors, vocabulary, frames, lexicon)
    except (RevupError, ValueError, KeyError, TypeError, RuntimeError, IndexError) as error:
        why = reason(error)
        raise InputError(f"the counts of this run don't fit together{why and ': '}{why}", str(path)) from None


def opened(model: Trained | str | Path) -> Trained:
    """The model itself, or that of a run directory."""
    return model if isinstance(model, Trained) else load(model)
