"""The miniature booking app: hotels, rooms and stays."""

from __future__ import annotations

from hillclimb.minifleet.apps.booking.expert import expert
from hillclimb.minifleet.apps.booking.templates import TEMPLATES
from hillclimb.minifleet.apps.booking.tools import TOOLS
from hillclimb.minifleet.framework.app import App

APP = App(key="booking", tools=TOOLS, templates=TEMPLATES, expert=expert)
