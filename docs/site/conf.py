"""Sphinx's settings of the documentation site, which `make docs` builds into `build/docs`.

The source folder is the repository, so that links between README, docs/ and benchmarks/ are links
within the site. Pages stay plain Markdown, as GitHub shows it; `docs/nav.yaml` has their order. All
warnings are errors (`-W`): a link without a target or anchor, a page that the navigation lacks.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from sphinx.application import Sphinx

NAV = Path(__file__).resolve().parents[1] / "nav.yaml"

project = "Hillclimb"
html_title = "Hillclimb"
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["*.md", "docs/**.md", "benchmarks/**.md"]
exclude_patterns = [".*", "api", "assets", "build", "hillclimb", "tests", "trainer", "worker"]
nitpicky = True
# GitHub's anchors of headings; no curly quotes and dashes, which would change options of commands.
myst_heading_anchors = 6
smartquotes = False
# Blocks without a language are commands and their output.
highlight_language = "none"
# An example may leave something out with an ellipsis, which is no JSON.
suppress_warnings = ["misc.highlighting_failure"]
html_theme = "furo"
html_favicon = "../../api/http/dashboard/static/icon.svg"
html_static_path = ["site.css"]
html_css_files = ["site.css"]


def adapt_source(_app: Sphinx, docname: str, source: list[str]) -> None:
    """Append the navigation to the start page, a hidden list per section.

    A report of experiments has a rule below its title, which docutils refuses there.
    """
    source[0] = re.sub(r"\A(# .*\n\n)---\n", r"\1", source[0])
    if docname == root_doc:
        trees = [_toctree(None, ["docs/README"])]
        trees += [_toctree(each["section"], list(_pages(each))) for each in _sections()]
        source[0] = "\n\n".join([source[0], *trees])


def _sections() -> list[dict[str, Any]]:
    sections: list[dict[str, Any]] = yaml.safe_load(NAV.read_text())
    return sections


def _pages(section: dict[str, Any]) -> Iterator[str]:
    yield from (f"docs/{name}" for name in section.get("pages", ()))
    yield from section.get("checkout", ())


def _toctree(caption: str | None, pages: list[str]) -> str:
    options = [":hidden:"] if caption is None else [":hidden:", f":caption: {caption}"]
    return "\n".join(["```{toctree}", *options, "", *pages, "```"])


def add_index(app: Sphinx, problem: Exception | None) -> None:
    """Give the site's folder a start page under the name that servers look for."""
    if problem is None:
        shutil.copyfile(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")


def setup(app: Sphinx) -> None:
    """Register both steps."""
    app.connect("source-read", adapt_source)
    app.connect("build-finished", add_index)
