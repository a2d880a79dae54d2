"""The command `revup VERB …`: finds the verb, and turns errors into one line and an exit status.

Each verb is a module of this package with a function `run(arguments)`, imported when the verb is called.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from types import FrameType
from typing import NoReturn

from revup import __version__
from revup.errors import Interrupted, OutputExistsError, RevupError

VERBS = {
    "demo": "Train RevUp on the built-in corpus, print a table and write a report.",
    "prepare": "Convert documents to a dataset directory and print its statistics.",
    "world": "Make a dataset of the built-in world, whose exact optimum is known.",
    "train": "Train a model on a dataset.",
    "evaluate": "Evaluate a trained model: perplexity, accuracy, macro-F1, calibration.",
    "predict": "Label the events of documents with their most probable frames.",
    "embed": "Write vectors of documents and events.",
    "generate": "Generate event sequences, freely, from a prompt or with given frames.",
    "inspect": "Describe what a model has learned: words and successors of each frame, attention, unused latents.",
    "cloze": "Choose the true continuation of an event among six (inverse narrative cloze).",
    "compare": "Train all systems on one corpus and print one table.",
    "experiment": "Make the tables and figures of the paper; resumes if it was stopped.",
    "bench": "Measure speed and memory on this machine, beside a stepwise reference.",
}

USAGE = """usage: revup VERB …

{verbs}

`revup VERB --help` explains a verb, `revup --version` prints the version.

example:
  revup prepare docs.jsonl --out data && revup train data --out run && revup evaluate run"""


def run(arguments: list[str]) -> None:
    """Run one verb; errors are raised.

    Args:
        arguments: The command line without the program's name.
    """
    verb = arguments[0] if arguments else "--help"
    if verb in ("-h", "--help", "help"):
        print(USAGE.format(verbs="\n".join(f"  {name:<12}{about}" for name, about in VERBS.items())))
    elif verb in ("-V", "--version"):
        print(f"revup {__version__}")
    elif verb in VERBS:
        import_module(f"revup.cli.{verb}").run(list(arguments[1:]))
    else:
        raise RevupError(f"unknown verb '{verb}': one of {', '.join(VERBS)}")


def main(arguments: list[str] | None = None) -> NoReturn:
    """The command. Exits with 0, 2 after an error that the user can correct, or 128 + n after signal n.

    Args:
        arguments: The command line without the program's name (default: that of this process).
    """
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) is not signal.SIG_IGN:
            signal.signal(getattr(signal, name), _interrupt)
    try:
        if sys.stdout is None:
            raise RevupError("standard output is closed")
        run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except OutputExistsError as error:
        _fail(f"{error} (--force replaces it)")
    except RevupError as error:
        _fail(str(error))
    except Interrupted as stop:
        print(f"revup: {stop}", file=sys.stderr)
        _exit(stop.status)
    except KeyboardInterrupt:
        print("revup: stopped", file=sys.stderr)
        _exit(128 + signal.SIGINT)
    except BrokenPipeError:
        _exit(1)
    except MemoryError:
        _fail("out of memory")
    except RecursionError:
        _fail("the input is nested too deeply")
    except OSError as error:
        _fail(": ".join(str(part) for part in (error.filename, error.strerror or error) if part))
    _exit(0)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise Interrupted(number)


def _fail(message: str) -> NoReturn:
    print("revup: error: " + " ".join(message.split("\n")), file=sys.stderr)
    _exit(2)


def _exit(status: int) -> NoReturn:
    """Exit; what can no longer be written to standard output is dropped without a second error."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(status)
