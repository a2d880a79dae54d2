"""Models on the Hugging Face Hub: save_pretrained, from_pretrained, push_to_hub, by the names that its users know.

What is shared is a run directory with a model card: text, JSON and safetensors, nothing that could run code. A model
that is on this machine, in a directory or in the Hub's cache, is opened without the network.
"""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from revup.data.corpus import Corpus
from revup.errors import InputError, RevupError, missing_extra
from revup.inference.loading import load
from revup.inference.run_directory import FILES, METRICS, read_metrics, write_metrics
from revup.inference.trained import Trained
from revup.integrations.model_card import eval_results, measured, model_card, shared_notes
from revup.io.digests import DIGEST
from revup.io.files import write_text
from revup.io.folders import atomic_folder

CARD, RESULTS = "README.md", ".eval_results/revup.yaml"
DOWNLOADED = [*FILES, DIGEST, METRICS, CARD]
TOKEN = "log in with `hf auth login`, set HF_TOKEN, or give token="
NAME = re.compile(r"[\w.-]+/[\w.-]+")


def save_pretrained(
    model: Trained,
    path: str | Path,
    *,
    corpus: Corpus | str | Path | None = None,
    split: str = "test",
    license: str | None = None,
    dataset: str | None = None,
    name: str | None = None,
    force: bool = False,
) -> None:
    """Write a model with its card to a directory that `revup.from_pretrained` and `revup.load` open.

    The directory holds a run directory without the path of its dataset, and README.md, the model card.

    Args:
        model: A model whose training has finished.
        path: The directory.
        corpus: A dataset to evaluate on, or its directory, for scores with intervals and calibration on the card.
            Without one the card shows the run's best validation.
        split: The part of `corpus` to evaluate on.
        license: The licence that the card names, such as "cc-by-4.0".
        dataset: The Hub's name of the dataset, if it is there; `.eval_results` is then written too.
        name: The model's name on the card (default: the name of the directory).
        force: Replace a directory that exists.

    Raises:
        OutputExistsError: The directory exists and `force` is false.
        RevupError: The training of the model has not finished.
    """
    if not model.state.finished:
        raise RevupError("the training of this model has not finished: finish it before it is shared")
    corpus = None if corpus is None else Corpus.opened(corpus)
    data = {key: value for key, value in model.data.items() if key not in ("path", "labels")}  # paths of this machine
    scores = measured(model, corpus, split)
    with atomic_folder(path, force) as folder:
        model.write_to(folder, data)
        if model.path is not None and (records := read_metrics(model.path)):
            write_metrics(folder, records)
        write_text(folder / CARD, model_card(model, name or Path(path).name, scores, license, dataset))
        if dataset is not None and scores:
            (folder / RESULTS).parent.mkdir()
            fingerprint = corpus.fingerprint if corpus is not None else str(model.data.get("fingerprint"))
            write_text(folder / RESULTS, eval_results(scores, dataset, fingerprint))


def from_pretrained(
    name: str | Path,
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
    device: str | None = "cpu",
    precision: str = "float32",
) -> Trained:
    """Open a model from a directory or from the Hub.

    A directory is opened without the network and without huggingface_hub. So is a model in the Hub's cache, with
    `local_files_only` or HF_HUB_OFFLINE=1. Nothing in a model can run code.

    Args:
        name: A directory, or `owner/name` of a model on the Hub.
        revision: A branch, tag or commit of the model (default: its main branch).
        token: A token for private models (default: the one that `hf auth login` stored).
        cache_dir: Where downloaded models are kept (default: the Hub's cache).
        local_files_only: Take the model from the cache, and do not look for a newer one.
        device: cpu or cuda; None: cuda where there is one.
        precision: float32 or bf16.

    Returns:
        The model; its predictions are those of the model that was saved, bit by bit.

    Raises:
        InputError: There is no such directory or model, or it is damaged.
        RevupError: The Hub can't be reached, or the extra `hub` is not installed.
    """
    if Path(name).is_dir():
        return load(name, device, precision)
    if not NAME.fullmatch(str(name)):
        raise InputError("no such directory, and not the name of a model on the Hub (owner/name)", str(name))
    hub = _library("from_pretrained")
    options: dict[str, Any] = {"revision": revision, "token": token, "cache_dir": cache_dir}
    with _asking(str(name), "downloaded"):
        folder = hub.snapshot_download(
            str(name), allow_patterns=DOWNLOADED, local_files_only=local_files_only, library_name="revup", **options
        )
    return load(folder, device, precision)


def push_to_hub(
    model: Trained,
    repo_id: str,
    *,
    private: bool = True,
    token: str | bool | None = None,
    revision: str | None = None,
    commit_message: str = "Upload a revup model",
    create_pr: bool = False,
    corpus: Corpus | str | Path | None = None,
    split: str = "test",
    license: str | None = None,
    dataset: str | None = None,
) -> str:
    """Upload a model with its card to the Hub, into a private repository unless asked otherwise.

    A UserWarning reminds that vocabularies can hold names of people, and that a dictionary is uploaded too.

    Args:
        model: A model whose training has finished.
        repo_id: `owner/name`; the repository is made if it is not there.
        private: Only the owner sees the repository. A public one that exists is refused then.
        token: A token with the right to write (default: the one that `hf auth login` stored).
        revision: The branch to upload to (default: main).
        commit_message: The message of the commit.
        create_pr: Open a pull request instead of committing to the branch.
        corpus: A dataset to evaluate on, as for `save_pretrained`.
        split: The part of `corpus` to evaluate on.
        license: The licence that the card names.
        dataset: The Hub's name of the dataset, if it is there.

    Returns:
        The address of the commit.

    Raises:
        RevupError: The Hub refused, can't be reached, or the repository is public while `private` is asked for.
    """
    if not NAME.fullmatch(repo_id):
        raise RevupError(f"expected owner/name, found '{repo_id}'")
    hub = _library("push_to_hub")
    notes = " ".join(f"{note}." for note in shared_notes(model))
    warnings.warn(f"{notes} They are uploaded to {repo_id}.", UserWarning, stacklevel=2)
    with tempfile.TemporaryDirectory(prefix="revup-") as work:
        folder = Path(work) / "model"
        save_pretrained(model, folder, corpus=corpus, split=split, license=license, dataset=dataset, name=repo_id)
        api = hub.HfApi(token=token, library_name="revup")
        with _asking(repo_id, "uploaded"):
            api.create_repo(repo_id, private=private, exist_ok=True)
            if private and not api.model_info(repo_id).private:
                raise RevupError(
                    f"{repo_id} exists and is public: private=False uploads to it nevertheless, for everyone to see"
                )
            commit = api.upload_folder(
                repo_id=repo_id,
                folder_path=folder,
                commit_message=commit_message,
                revision=revision,
                create_pr=create_pr,
            )
    return str(getattr(commit, "commit_url", commit))


def _library(what: str) -> Any:
    """huggingface_hub, imported when it is needed."""
    try:
        import huggingface_hub
    except ImportError:
        raise missing_extra("hub", what) from None
    return huggingface_hub


@contextmanager
def _asking(name: str, done: str) -> Iterator[None]:
    """Turn whatever the Hub's library raises into one line that names the model."""
    from huggingface_hub.errors import (
        HfHubHTTPError,
        LocalEntryNotFoundError,
        LocalTokenNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        yield
    except RevupError:
        raise
    except RepositoryNotFoundError as error:
        raise InputError(f"no such model on the Hub, or it is private: {TOKEN}", name) from error
    except LocalEntryNotFoundError as error:
        message = "not in the cache of this machine, and the Hub can't be reached or asking it was forbidden"
        raise InputError(message, name) from error
    except LocalTokenNotFoundError as error:
        raise RevupError(f"{name}: can't be {done}: no token is stored: {TOKEN}") from error
    except Exception as error:  # the network's own errors differ from version to version
        if isinstance(error, HfHubHTTPError) and error.response.status_code in (401, 403):
            raise RevupError(f"{name}: can't be {done} without a token that allows it: {TOKEN}") from error
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise RevupError(f"{name}: can't be {done}: {reason}") from error
