"""The miniature ticketmaster app: events, held seats and paid orders."""

from __future__ import annotations

from trainer.envs.minifleet.app import App
from trainer.envs.minifleet.ticketmaster.expert import expert
from trainer.envs.minifleet.ticketmaster.templates import TEMPLATES
from trainer.envs.minifleet.ticketmaster.tools import TOOLS

APP = App(key="ticketmaster", tools=TOOLS, templates=TEMPLATES, expert=expert)
