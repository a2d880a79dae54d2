"""`revup world`."""

import json

import revup
from revup.cli.options import Parser, whole


def run(arguments: list[str]) -> None:
    """Run the verb with these arguments."""
    parser = Parser("world", "revup world --frames 600 --documents 60000 --out data")
    parser.add("--frames", type=whole(1), default=20, metavar="K", help="number of frames")
    parser.add("--words", type=whole(1), metavar="V", help="size of the vocabulary (default: 50 for each frame)")
    parser.add("--documents", type=whole(1), default=5000, metavar="N", help="training documents")
    parser.add("--held-out", type=whole(1), default=1000, metavar="N", help="documents of valid and of test")
    parser.add("--twins", action="store_true", help="frames that depend on the document: given ones tell about others")
    parser.add("--out", required=True, metavar="DATA", help="the dataset directory to write")
    parser.common("--seed", "--force", "--json")
    given = parser.parse_args(arguments)
    world = revup.World(frames=given.frames, seed=given.seed, words=given.words, twins=given.twins)
    counts = (given.documents, given.held_out, given.held_out)
    train, valid, test = (world.sample(count, seed=1 + number) for number, count in enumerate(counts))
    corpus = revup.Corpus.build(
        out=given.out, train=train, valid=valid, test=test, world=world, force=given.force, duplicates="keep"
    )
    table = world.best_table_accuracy()
    if given.json:
        print(json.dumps({**corpus.meta, "best_table_accuracy": table}))
        return
    best = corpus.meta["optimum"]["test"]
    print(f"{given.documents} documents, {len(corpus.frames)} frames, {len(corpus.vocabulary)} words")
    print(f"best predicate table: accuracy {table:.3f}")
    print(f"exact optimum:        accuracy {best['accuracy']:.3f}, perplexity {best['perplexity']:.2f}")
