"""Feed readers and lexicons with inputs that Atheris (libFuzzer) chooses by the code that they reach.

    pip install atheris                             # Linux; it is no dependency of the project
    PYTHONPATH=tests python tests/campaigns/coverage_guided.py csv [-max_total_time=300] [-seed=1]

The target is a reader of `mutate_readers`, or `lexicon`. Further arguments are libFuzzer's, which prints the number of
inputs, and writes one that gives anything but documents or a RevupError to a file `crash-…`.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["revup.data", "revup.io"]):
    from campaigns.mutate_readers import SEEDS, _folder, _read
    from revup.data.lexicon import Lexicon
    from revup.errors import RevupError

LEXICON = b'predicate,pos,frame,weight\narrest,v,Arrest,3\narrest,v,Holding,1\n"go on",v,A,2\n'


def main() -> None:
    """Run libFuzzer; it does not return."""
    target, *arguments = sys.argv[1:]
    seeds = [LEXICON] if target == "lexicon" else [seed.data for seed in SEEDS[target]()]
    corpus = Path(tempfile.mkdtemp(prefix="revup-corpus-"))
    for number, data in enumerate(seeds):
        (corpus / str(number)).write_bytes(data)
    with _folder() as folder:

        def try_one(data: bytes) -> None:
            if target == "lexicon":
                (folder / "x.csv").write_bytes(data)
                with suppress(RevupError):
                    Lexicon.load(folder / "x.csv").senses("arrested")
            else:
                _read(target, SEEDS[target]()[0], data, folder)

        atheris.Setup([sys.argv[0], *arguments, str(corpus)], try_one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
