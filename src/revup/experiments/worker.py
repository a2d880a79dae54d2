"""A worker of a sweep: `python -m revup.experiments.worker`. The first line says where, each further one is a run."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import torch

from revup.data.corpus import Corpus
from revup.experiments.sweep import Deadline, Run, attempt


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle: it ends its workers
    answers, sys.stdout = sys.stdout, sys.stderr  # what a library prints must not look like an answer
    about = json.loads(sys.stdin.readline())
    torch.set_num_threads(about["threads"])
    corpus, out, deadline = Corpus.load(about["data"]), Path(about["out"]), Deadline(*about["deadline"])
    for line in sys.stdin:
        given = json.loads(line)
        run = Run(**{**given, "settings": tuple(tuple(setting) for setting in given["settings"])})
        problem = attempt(run, corpus, out, about["device"], deadline)[1]
        answers.write(json.dumps({"problem": problem}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
