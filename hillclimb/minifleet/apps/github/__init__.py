"""The miniature github app: repositories, issues and comments."""

from __future__ import annotations

from trainer.envs.minifleet.app import App
from trainer.envs.minifleet.github.expert import expert
from trainer.envs.minifleet.github.templates import TEMPLATES
from trainer.envs.minifleet.github.tools import TOOLS

APP = App(key="github", tools=TOOLS, templates=TEMPLATES, expert=expert)
