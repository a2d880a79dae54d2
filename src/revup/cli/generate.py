"""`revup generate`."""

import revup
from revup.cli.options import Parser, documents, load, whole
from revup.errors import RevupError


def run(arguments: list[str]) -> None:
    """Run the verb with these arguments."""
    parser = Parser(
        "generate",
        "revup generate run -n 3 --frames Arrest,Trial,Verdict",
        "revup generate run --prompt beginnings.jsonl --method beam --events 3-6",
    )
    parser.model()
    add = parser.add
    add("--prompt", dest="file", metavar="FILE", help="documents to continue; - is standard input")
    add("--frames", metavar="A,B,C", help="the frames of the events to generate")
    add("-n", type=whole(1), default=5, metavar="N", help="documents for each prompt")
    add("--method", default="sample", metavar="METHOD", help="greedy, beam or sample")
    add("--events", metavar="N", help="events of a document (default: M, or as many as --frames); beam: also 3-6")
    add("--beams", type=whole(1), metavar="N", help="beam: hypotheses kept (default: 5, or n if that is more)")
    add("--length-penalty", type=float, default=1.0, metavar="X", help="beam: exponent of the length")
    add("--temperature", type=float, default=1.0, metavar="X", help="sample: below 1 is more conservative")
    add("--top-k", type=whole(), default=0, metavar="K", help="sample: among the K most probable words (default: all)")
    add("--top-p", type=float, default=1.0, metavar="P", help="sample: among words of this total probability")
    parser.output("--out", default="-", metavar="FILE", help="where to write (default: standard output)")
    parser.reading(leave_out=("frames",))
    parser.common("--seed", "--force")
    given = parser.parse_args(arguments)
    from revup.inference.decoding import Method

    beams = max(given.n if given.method == "beam" else 1, Method.beams) if given.beams is None else given.beams
    method = Method(given.method, beams, given.length_penalty, given.temperature, given.top_k, given.top_p)
    model = load(given)
    prompts = None
    if given.file is not None:
        with documents(given) as stream:
            prompts = list(stream)
    frames = [name.strip() for name in given.frames.split(",")] if given.frames else None
    written = revup.generate(
        model, given.n, prompts=prompts, frames=frames, events=_span(given.events), method=method, seed=given.seed
    )
    revup.write(written, given.out, given.force)


def _span(text: str | None) -> int | tuple[int, int] | None:
    """A number, or a range such as 3-6."""
    if text is None:
        return None
    try:
        low, dash, high = text.partition("-")
        return (int(low), int(high)) if dash else int(low)
    except ValueError:
        raise RevupError(f"--events: expected a number, or a range such as 3-6, found '{text}'") from None
