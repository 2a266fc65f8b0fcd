"""The miniature reddit app: communities, posts and votes."""

from __future__ import annotations

from trainer.envs.minifleet.app import App
from trainer.envs.minifleet.reddit.expert import expert
from trainer.envs.minifleet.reddit.templates import TEMPLATES
from trainer.envs.minifleet.reddit.tools import TOOLS

APP = App(key="reddit", tools=TOOLS, templates=TEMPLATES, expert=expert)
