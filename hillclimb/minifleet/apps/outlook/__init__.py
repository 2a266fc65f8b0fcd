"""The miniature outlook app: contacts, mails and events."""

from __future__ import annotations

from hillclimb.minifleet.apps.outlook.expert import expert
from hillclimb.minifleet.apps.outlook.templates import TEMPLATES
from hillclimb.minifleet.apps.outlook.tools import TOOLS
from hillclimb.minifleet.framework.app import App

APP = App(key="outlook", tools=TOOLS, templates=TEMPLATES, expert=expert)
