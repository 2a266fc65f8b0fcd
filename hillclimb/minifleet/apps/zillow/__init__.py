"""The miniature zillow app: homes and their agents, tours, saved searches, loans and offers."""

from __future__ import annotations

from hillclimb.minifleet.apps.zillow.expert import expert
from hillclimb.minifleet.apps.zillow.templates import TEMPLATES
from hillclimb.minifleet.apps.zillow.tools import TOOLS
from hillclimb.minifleet.framework.app import App

APP = App(key="zillow", tools=TOOLS, templates=TEMPLATES, expert=expert)
