"""`revup review`."""

import json
import sys

import revup
from revup.cli.options import Parser, whole
from revup.errors import RevupError


def run(arguments: list[str]) -> None:
    """Run the verb with these arguments."""
    parser = Parser(
        "review",
        "revup review issues.jsonl docs.jsonl",
        "revup review issues.jsonl --port 9000 --open",
        "revup review issues.jsonl --export label-studio --out tasks.json",
        "revup review issues.jsonl --import project-1.json",
    )
    parser.add("issues", metavar="ISSUES", help="the list that `revup audit` wrote")
    parser.add("file", metavar="FILE", nargs="?", help="the audited file (default: the one that the list names)")
    parser.add("--port", type=whole(0, 65535), default=8765, help="port on 127.0.0.1; 0 picks a free one")
    parser.add("--open", action="store_true", help="open the page in the browser")
    parser.output("--page", metavar="PAGE.html", help="write the review as one HTML file instead")
    parser.add("--export", choices=("label-studio", "prodigy"), help="write the list as tasks of this tool instead")
    parser.output("--out", metavar="FILE2", help="where --export writes")
    parser.add("--import", dest="answers", metavar="ANSWERS", help="add the decisions of another tool or page instead")
    parser.common("--force")
    given = parser.parse_args(arguments)
    if (given.out is None) != (given.export is None):
        raise RevupError("--export needs --out" if given.out is None else "--out needs --export")
    if given.page:
        from revup.auditing.page import write_page

        print(f"revup: {write_page(given.page, given.issues, given.file, force=given.force):,} issues", file=sys.stderr)
    if given.export:
        from revup.auditing.exports import export_issues

        count = export_issues(given.issues, given.out, given.export, given.file, given.force)
        print(f"revup: {count:,} tasks", file=sys.stderr)
    if given.answers:
        from revup.auditing.exports import import_decisions

        print(json.dumps(import_decisions(given.issues, given.answers, given.file)))
    if given.page or given.export or given.answers:
        return

    from revup.auditing.issues import read_about

    def ready(url: str) -> None:
        if given.file is None and read_about(given.issues).digest is None:
            note = "the audited file is not known; give FILE, or `revup apply` will refuse the decisions"
            print(f"revup: note: {note}", file=sys.stderr)
        print(f"revup: review at {url} (Ctrl-C ends it)", file=sys.stderr, flush=True)
        if given.open:
            import webbrowser

            webbrowser.open(url)

    revup.review(given.issues, given.file, given.port, ready)
