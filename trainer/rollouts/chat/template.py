"""The generation prompt of a model's own chat template.

Some thinking models were trained to continue after a `<think>` that their template writes (Kimi
K2.5, Qwen3-Thinking-2507). Without it they would sample from a context that they never saw.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

log = logging.getLogger(__name__)

_OF_EXPRESSIONS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What the expressions of a template may raise beside Jinja's own errors."""
_QUESTION = ({"role": "user", "content": "?"},)


def read_generation_prompt(directory: Path) -> str:
    """Render the text that the template of a model directory writes before the model's response.

    Returns "" without a template, or with one that needs more than messages to render.
    """
    source = _read_template(directory)
    if source is None:
        return ""
    try:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals["raise_exception"] = _refuse
        template = environment.from_string(source)
        without, with_it = (
            template.render(messages=_QUESTION, tools=None, add_generation_prompt=add_prompt)
            for add_prompt in (False, True)
        )
    except (TemplateError, *_OF_EXPRESSIONS) as fault:
        log.warning("the chat template in %s cannot be rendered: %s", directory, fault)
        return ""
    return with_it.removeprefix(without) if with_it.startswith(without) else ""


def _read_template(directory: Path) -> str | None:
    """Read the template from its own file or, for older models, from the tokenizer's config."""
    try:
        return (directory / "chat_template.jinja").read_text(encoding="utf-8")
    except FileNotFoundError:
        pass
    try:
        config = json.loads((directory / "tokenizer_config.json").read_text(encoding="utf-8"))
        template = config.get("chat_template")
    except (FileNotFoundError, ValueError, AttributeError):
        return None
    return template if isinstance(template, str) else None


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
