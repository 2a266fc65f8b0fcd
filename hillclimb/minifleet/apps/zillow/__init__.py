"""The miniature zillow app: homes and their agents, tours, saved searches, loans and offers."""

from __future__ import annotations

from trainer.envs.minifleet.app import App
from trainer.envs.minifleet.zillow.expert import expert
from trainer.envs.minifleet.zillow.templates import TEMPLATES
from trainer.envs.minifleet.zillow.tools import TOOLS

APP = App(key="zillow", tools=TOOLS, templates=TEMPLATES, expert=expert)
