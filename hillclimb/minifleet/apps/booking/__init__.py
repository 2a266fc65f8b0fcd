"""The miniature booking app: hotels, rooms and stays."""

from __future__ import annotations

from trainer.envs.minifleet.app import App
from trainer.envs.minifleet.booking.expert import expert
from trainer.envs.minifleet.booking.templates import TEMPLATES
from trainer.envs.minifleet.booking.tools import TOOLS

APP = App(key="booking", tools=TOOLS, templates=TEMPLATES, expert=expert)
