"""The command `revup VERB …`: finds the verb, and turns errors into one line and an exit status.

Each verb is a module of this package with a function `run(arguments)`, imported when the verb is called.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn

from revup import __version__
from revup.cli.torch_import import postpone_compiler
from revup.errors import DEVICE_ERRORS, Interrupted, OutputExistsError, RevupError, RevupWarning, did_you_mean

VERBS = {
    "demo": "Train RevUp on the built-in corpus, print a table and write a report.",
    "prepare": "Convert documents to a dataset directory and print its statistics.",
    "convert": "Convert documents to JSON Lines, CSV or Parquet.",
    "world": "Make a dataset of the built-in world, whose exact optimum is known.",
    "train": "Train a model on a dataset.",
    "tune": "Search for better settings than the default ones; resumes if it was stopped.",
    "evaluate": "Evaluate a trained model: perplexity, accuracy, macro-F1, calibration.",
    "predict": "Label the events of documents with their most probable frames.",
    "embed": "Write vectors of documents and events.",
    "serve": "Serve models over HTTP, with a page to try them on.",
    "generate": "Generate event sequences, freely, from a prompt or with given frames.",
    "inspect": "Describe what a model has learned: words and successors of each frame, attention, unused latents.",
    "cloze": "Choose the true continuation of an event among six (inverse narrative cloze).",
    "audit": "Find labels that are probably wrong, and what they should be.",
    "review": "Review suspicious labels in the browser, by keyboard.",
    "apply": "Write the corrected documents after a review; every other byte stays.",
    "suggest": "Choose which events to label next, and which labels to check again.",
    "compare": "Train all systems on one corpus and print one table.",
    "experiment": "Make the tables and figures of the paper; resumes if it was stopped.",
    "bench": "Measure speed and memory on this machine, beside a stepwise reference.",
}

OUT_OF_MEMORY = "out of memory: smaller batches (--training.batch-size), networks or windows need less"

PROMPT = ("predict", "embed", "serve")  # verbs that answer soon after their start, and compile nothing

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
        if verb in PROMPT:
            postpone_compiler()
        import_module(f"revup.cli.{verb}").run(list(arguments[1:]))
    else:
        raise RevupError(f"unknown verb '{verb}': one of {', '.join(VERBS)}{did_you_mean(verb, VERBS)}")


def main(arguments: list[str] | None = None) -> NoReturn:
    """The command. Exits with 0, 2 after an error that the user can correct, or 128 + n after signal n.

    Args:
        arguments: The command line without the program's name (default: that of this process).
    """
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) is not signal.SIG_IGN:
            signal.signal(getattr(signal, name), _interrupt)
    if sys.stderr is None:  # closed: messages must not go to standard output
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    sys.unraisablehook = _signal_again
    try:
        if sys.stdout is None:
            raise RevupError("standard output is closed")
        run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except OutputExistsError as error:
        _fail(f"{error} ({'--resume continues it, ' if error.resumable else ''}--force replaces it)")
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
        _fail(OUT_OF_MEMORY)
    except RecursionError:
        _fail("the input is nested too deeply")
    except OSError as error:
        # whatever writes a file names it
        where = error.filename or ("standard output" if error.errno in DEVICE_ERRORS else "")
        _fail(": ".join(str(part) for part in (where, error.strerror or error) if part))
    except RuntimeError as error:
        if not any(sign in str(error) for sign in ("can't allocate memory", "out of memory", "not enough memory")):
            raise
        _fail(OUT_OF_MEMORY)  # torch has no type of its own for it
    _exit(0)


_show_otherwise = warnings.showwarning


def _show_warning(message: Warning | str, category: type[Warning], *rest: Any) -> None:
    """Show a warning of revup as a note; those of libraries as ever."""
    if issubclass(category, RevupWarning):
        print(f"revup: note: {message}", file=sys.stderr)
    else:
        _show_otherwise(message, category, *rest)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise Interrupted(number)


AGAIN = 0.02  # seconds
_show_lost = sys.unraisablehook


def _signal_again(lost: sys.UnraisableHookArgs) -> None:
    """Send a signal again whose exception Python dropped, because it came in a destructor or a callback."""
    if not isinstance(lost.exc_value, KeyboardInterrupt):
        _show_lost(lost)
        return
    number = lost.exc_value.signal if isinstance(lost.exc_value, Interrupted) else signal.SIGINT
    timer = threading.Timer(AGAIN, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()


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
