"""Renders templates to HTML: values are escaped, unknown names are errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from hillclimb.stats.intervals import points_text

HERE = Path(__file__).parent
STATIC = HERE / "static"

_templates = Environment(
    loader=FileSystemLoader(HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters["points"] = points_text


def render_page(name: str, **values: Any) -> str:  # noqa: ANN401 (templates take any value)
    """Return the page `templates/<name>.html` with these values."""
    return _templates.get_template(f"{name}.html").render(**values)
