"""A model's own chat template, rendered as chat servers render it.

Its generation prompt begins every turn: some thinking models were trained to continue after a
`<think>` that their template writes (Kimi K2.5, Qwen3-Thinking-2507), others switch thinking off by
an empty thought (Qwen3). Without it they would sample from a context that they never saw.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import JsonValue

log = logging.getLogger(__name__)

Message = Mapping[str, JsonValue]
_OF_EXPRESSIONS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What the expressions of a template may raise beside Jinja's own errors."""
_QUESTION: tuple[Message, ...] = ({"role": "user", "content": "?"},)
_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")
_NO_VARIABLES: Mapping[str, JsonValue] = MappingProxyType({})


class ChatTemplate:
    """The template of a model directory, with the variables that its files and the spec set."""

    def __init__(self, source: str, variables: Mapping[str, JsonValue] = _NO_VARIABLES) -> None:
        """Compile a template; `variables` are passed to every rendering.

        Raises:
            ValueError: it cannot be compiled.
        """
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals["raise_exception"] = _refuse
        environment.filters["tojson"] = _to_json
        # Without `strftime_now`, with which a prompt would change from one day to the next:
        # templates that ask for it (Llama 3.2's) have a date for servers that lack it.
        try:
            self._template = environment.from_string(source)
        except TemplateError as fault:
            raise ValueError(f"the chat template cannot be rendered: {fault}") from fault
        self._variables = dict(variables)

    @classmethod
    def read(cls, directory: Path, *, thinking: bool | None = None) -> ChatTemplate | None:
        """Read the template of a model directory; None where there is none.

        `thinking` is the template's `enable_thinking`; None leaves it at its default.

        Raises:
            ValueError: it cannot be compiled, or has no switch for thinking.
        """
        config = _read_config(directory)
        source = _read_source(directory, config)
        if source is None:
            return None
        tokens = {key: _content(config.get(key)) for key in _SPECIAL_TOKENS if config.get(key)}
        if thinking is None:
            return cls(source, tokens)
        switched = {value: cls(source, tokens | {"enable_thinking": value}) for value in _SWITCH}
        if len({template.generation_prompt() for template in switched.values()}) == 1:
            raise ValueError(
                "the chat template has no switch for thinking: leave prompt.thinking out"
            )
        return switched[thinking]

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[JsonValue] = (),
        opens_turn: bool = False,
    ) -> str:
        """Render a conversation; `opens_turn` adds the generation prompt.

        Raises:
            ValueError: the template refuses it, or has a fault.
        """
        try:
            return self._template.render(
                messages=messages,
                tools=tools or None,
                documents=None,
                add_generation_prompt=opens_turn,
                **self._variables,
            )
        except (TemplateError, *_OF_EXPRESSIONS) as fault:
            raise ValueError(f"the chat template cannot be rendered: {fault}") from fault

    def generation_prompt(self) -> str:
        """Return the text before the model's response; "" where nothing is merely added.

        Raises:
            ValueError: the template needs more than messages to render.
        """
        without, with_it = (self.render(_QUESTION, opens_turn=opens) for opens in (False, True))
        return with_it.removeprefix(without) if with_it.startswith(without) else ""


_SWITCH = (False, True)


def read_generation_prompt(directory: Path, *, thinking: bool | None = None) -> str:
    """Render the text that the template of a model directory writes before the model's response.

    Returns "" without a template, or with one that needs more than messages to render.

    Raises:
        ValueError: `thinking` is set, and no template can be rendered that has a switch for it.
    """
    try:
        template = ChatTemplate.read(directory, thinking=thinking)
        if template is not None:
            return template.generation_prompt()
    except ValueError as fault:
        if thinking is not None:
            raise
        log.warning("%s: %s", directory, fault)
    if thinking is not None:
        raise ValueError("there is no chat template, which prompt.thinking is to switch")
    return ""


def _read_config(directory: Path) -> Mapping[str, JsonValue]:
    try:
        config = json.loads((directory / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def _read_source(directory: Path, config: Mapping[str, JsonValue]) -> str | None:
    """Read the template from its own file or, for older models, from the tokenizer's config."""
    try:
        return (directory / "chat_template.jinja").read_text(encoding="utf-8")
    except FileNotFoundError:
        template = config.get("chat_template")
    return template if isinstance(template, str) else None


def _content(token: JsonValue) -> JsonValue:
    """Return the text of a special token, which older files have in an object."""
    return token.get("content") if isinstance(token, dict) else token


def _to_json(
    value: JsonValue,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - as templates call it
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    """Write JSON as transformers does: Jinja's own filter would escape what HTML reserves."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
