"""The miniature outlook app: contacts, mails and events."""

from __future__ import annotations

from trainer.envs.minifleet.app import App
from trainer.envs.minifleet.outlook.expert import expert
from trainer.envs.minifleet.outlook.templates import TEMPLATES
from trainer.envs.minifleet.outlook.tools import TOOLS

APP = App(key="outlook", tools=TOOLS, templates=TEMPLATES, expert=expert)
