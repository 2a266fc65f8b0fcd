"""The miniature reddit app: communities, posts and votes."""

from __future__ import annotations

from hillclimb.minifleet.apps.reddit.expert import expert
from hillclimb.minifleet.apps.reddit.templates import TEMPLATES
from hillclimb.minifleet.apps.reddit.tools import TOOLS
from hillclimb.minifleet.framework.app import App

APP = App(key="reddit", tools=TOOLS, templates=TEMPLATES, expert=expert)
