"""The miniature hubspot app: companies, contacts, deals in two pipelines, activities and reps."""

from __future__ import annotations

from trainer.envs.minifleet.app import App
from trainer.envs.minifleet.hubspot.expert import expert
from trainer.envs.minifleet.hubspot.templates import TEMPLATES
from trainer.envs.minifleet.hubspot.tools import TOOLS

APP = App(key="hubspot", tools=TOOLS, templates=TEMPLATES, expert=expert)
