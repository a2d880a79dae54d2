"""The documentation site: `make docs` builds it from these pages into build/docs.

The pages are the files that a code host shows, so links between them, to files of the repository and to pages in its
root are those of the repository; what Sphinx needs is derived here. Nothing on the site asks another host.
"""

from __future__ import annotations

import gc
import posixpath
import re
import sys
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT / "src"), str(DOCS)]
import make_reference  # noqa: E402

import revup  # noqa: E402

gc.set_threshold(100_000)  # documents are large trees that stay: to search them for garbage takes long
_stem = cache(SearchEnglish.stem)
SearchEnglish.stem = lambda self, word: _stem(self, word)  # the same words on every page

project, author, copyright = "revup", "The revup engineers", "2026, The revup engineers"
release = version = revup.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "index"
default_role = "code"  # `names` in docstrings
exclude_patterns = ["README.md"]  # index.md includes it
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(?!revup\b).*"),  # types of other libraries: no page of this site to point to
    (r"py:.*", r"revup\.\w+\..*"),  # types inside packages, which only signatures name
]

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]  # conllu and other formats have no lexer

autodoc_member_order = "bysource"
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"revup {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_search_summary = False  # it would be fetched, which browsers forbid on file://
html_math_renderer = "mathml"

ROOT_PAGES = {"README.md": "overview.md", "docs/README.md": "index.md"}  # and every page that includes one
for page in DOCS.glob("*.md"):
    if included := re.fullmatch(r"```\{include\} \.\./(\S+)\n```\n", page.read_text("utf-8")):
        ROOT_PAGES[included[1]] = page.name

LINK = re.compile(r"\[([^\[\]]*(?:\[[^\]]*\])?[^\[\]]*)\]\(([^)\s:#]+)((?:#[^)\s]*)?)\)")
MADE = re.compile(r"<!-- made by docs/make_reference\.py: (\w+) -->")
LISTED = re.compile(r"^```\{toctree\}\n(.*?)^```", re.M | re.S)


def site_links(text: str, folder: str, page_folder: str) -> str:
    """Point the links of a file at pages of the site; those to directories and to other pages become plain text.

    Args:
        text: Markdown.
        folder: Where the file stands, from the root of the repository.
        page_folder: Where the page stands that shows it, from docs.
    """

    def mended(match: re.Match[str]) -> str:
        shown, link, anchor = match.groups()
        target = posixpath.normpath(posixpath.join(folder, link))
        if (ROOT / target).is_dir():
            target = f"{target}/README.md"
        found = ROOT_PAGES.get(target, target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}")
        if not (DOCS / found).exists() or (found.startswith("../") and found.endswith(".md")):
            return shown
        return f"[{shown}]({posixpath.relpath(found, page_folder or '.')}{anchor})"

    return LINK.sub(mended, text)


def read_page(app: Sphinx, name: str, source: list[str]) -> None:
    """Prepare a page: its links, what is made from the code, and on the first page the pages that it does not list."""
    folder = posixpath.dirname(name)
    text = site_links(source[0], posixpath.join("docs", folder), folder)
    if text.startswith("## "):  # tables of experiments, which other pages can include
        text = re.sub("^##", "#", text, flags=re.M)
    text = MADE.sub(lambda match: getattr(make_reference, match[1])(), text)
    if name == root_doc:
        listed = [line.strip("<>") for block in LISTED.findall(text) for line in block.split()]
        others = [page for page in sorted(app.env.found_docs) if not any(fnmatch(page, each) for each in listed)]
        text += toctree("More", *(page for page in others if page != root_doc))
    elif name == "results/README":
        text += toctree("", *sorted(page[8:] for page in app.env.found_docs if fnmatch(page, "results/*/*")))
    source[0] = text


def toctree(caption: str, *pages: str) -> str:
    """A list of pages that only the navigation shows."""
    head = ["\n```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else []), ""]
    return "\n".join([*head, *pages, "```\n"]) if pages else ""


def read_included(app: Sphinx, path: Path, page: str, source: list[str]) -> None:
    """Prepare a file that a page in docs includes."""
    folder = posixpath.dirname(posixpath.normpath(posixpath.join("docs", path.as_posix())))
    source[0] = site_links(source[0], folder, "")


def mathml(self: Any, node: nodes.math | nodes.math_block) -> None:
    """An equation as MathML, which browsers draw without a script."""
    display = isinstance(node, nodes.math_block)
    latex = re.sub(r"\\(mathcal|mathbf) (\w)", r"\\\1{\2}", node.astext().replace("{aligned}", "{align*}"))
    for written, known in ((r"\mathbb E", "𝔼"), (r"\arg\min", r"\operatorname{argmin}"), (r"\log ", r"\log\,")):
        latex = latex.replace(written, known)
    found = convert(latex, display="block" if display else "inline")
    self.body.append(f'<div class="math">{found}</div>' if display else found)
    raise nodes.SkipNode


def quick_navigation(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Make the navigation of a page from titles alone: Sphinx copies every heading of every page, and drops them."""
    if "toctree" not in context:
        return
    toctree, env = context["toctree"], app.env
    if not _titles:
        for name, toc in env.tocs.items():
            _titles[name] = toc.deepcopy()
            for item in _titles[name].children:
                if len(item) > 1:
                    nested = list(item.findall(addnodes.toctree))
                    item[1][:] = nested
                    if not nested:
                        item.pop(1)

    def from_titles(**options: Any) -> str:
        whole, env.tocs = env.tocs, _titles
        try:
            return toctree(**options)
        finally:
            env.tocs = whole

    context["toctree"] = from_titles


_titles: dict[str, Any] = {}


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    app.add_html_math_renderer("mathml", inline_renderers=(mathml, None), block_renderers=(mathml, None))
    app.connect("source-read", read_page)
    app.connect("include-read", read_included)
    app.connect("html-page-context", quick_navigation, priority=400)  # before the theme's
    return {"parallel_read_safe": True, "parallel_write_safe": True}
