"""The miniature fira app: tickets, sprints, epics and worklogs."""

from __future__ import annotations

from hillclimb.minifleet.apps.fira.expert import expert
from hillclimb.minifleet.apps.fira.templates import TEMPLATES
from hillclimb.minifleet.apps.fira.tools import TOOLS
from hillclimb.minifleet.framework.app import App

APP = App(key="fira", tools=TOOLS, templates=TEMPLATES, expert=expert)
