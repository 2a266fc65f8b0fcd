"""The miniature github app: repositories, issues and comments."""

from __future__ import annotations

from hillclimb.minifleet.apps.github.expert import expert
from hillclimb.minifleet.apps.github.templates import TEMPLATES
from hillclimb.minifleet.apps.github.tools import TOOLS
from hillclimb.minifleet.framework.app import App

APP = App(key="github", tools=TOOLS, templates=TEMPLATES, expert=expert)
