"""The miniature fira app: tickets, sprints, epics and worklogs."""

from __future__ import annotations

from trainer.envs.minifleet.app import App
from trainer.envs.minifleet.fira.expert import expert
from trainer.envs.minifleet.fira.templates import TEMPLATES
from trainer.envs.minifleet.fira.tools import TOOLS

APP = App(key="fira", tools=TOOLS, templates=TEMPLATES, expert=expert)
