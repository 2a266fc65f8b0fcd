"""The miniature hubspot app: companies, contacts, deals in two pipelines, activities and reps."""

from __future__ import annotations

from hillclimb.minifleet.apps.hubspot.expert import expert
from hillclimb.minifleet.apps.hubspot.templates import TEMPLATES
from hillclimb.minifleet.apps.hubspot.tools import TOOLS
from hillclimb.minifleet.framework.app import App

APP = App(key="hubspot", tools=TOOLS, templates=TEMPLATES, expert=expert)
