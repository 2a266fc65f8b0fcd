"""The miniature ticketmaster app: events, held seats and paid orders."""

from __future__ import annotations

from hillclimb.minifleet.apps.ticketmaster.expert import expert
from hillclimb.minifleet.apps.ticketmaster.templates import TEMPLATES
from hillclimb.minifleet.apps.ticketmaster.tools import TOOLS
from hillclimb.minifleet.framework.app import App

APP = App(key="ticketmaster", tools=TOOLS, templates=TEMPLATES, expert=expert)
