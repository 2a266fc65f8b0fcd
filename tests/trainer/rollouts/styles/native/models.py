"""Model directories with a tokenizer and a chat template, as published models have them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from trainer.rollouts.chat.turns import LLAMA

TEMPLATES = Path(__file__).parent / "templates"
QWEN_TOKENIZER = Path(__file__).parents[5] / "assets" / "tiny-qwen3-a" / "tokenizer.json"
LLAMA_TEMPLATE = """{{- bos_token }}
{%- set system, messages = messages[0]['content'] | trim, messages[1:] %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{%- if tools is not none %}{{- 'Environment: ipython\\n' }}{%- endif %}
{{- 'Today Date: ' + (date_string or '01 Jan 2024') + '\\n\\n' + system + '<|eot_id|>' }}
{%- if tools is not none %}
    {%- set first, messages = messages[0]['content'] | trim, messages[1:] %}
    {{- '<|start_header_id|>user<|end_header_id|>\\n\\nAnswer with the JSON of a call of one of:' }}
    {%- for tool in tools %}{{- '\\n\\n' + (tool | tojson(indent=4)) }}{%- endfor %}
    {{- '\\n\\n' + first + '<|eot_id|>' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
        {{- (message.content | tojson) + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if message.tool_calls | length != 1 %}{{- raise_exception('one call') }}{%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + call.name }}
        {{- '", "parameters": ' + (call.arguments | tojson) + '}<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
        {{- message.content | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}"""
"""Ours, with the structure of Llama 3.1's: tools in the first user message, a bare call a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedForm:
    """A template, and the switch for thinking that a spec would set."""

    name: str
    source: str
    thinking: bool | None = None

    @property
    def is_llama(self) -> bool:
        """It has Llama's markers, and one call is a whole turn."""
        return "<|start_header_id|>" in self.source

    def write(self, directory: Path) -> Path:
        """Write tokenizer and template."""
        directory.mkdir(parents=True, exist_ok=True)
        config = {"backend": "tokenizers", "tokenizer_class": "TokenizersBackend"}
        if self.is_llama:
            llama_tokenizer().save(str(directory / "tokenizer.json"))
            config["bos_token"] = "<|begin_of_text|>"
        else:
            (directory / "tokenizer.json").write_bytes(QWEN_TOKENIZER.read_bytes())
        (directory / "tokenizer_config.json").write_text(json.dumps(config))
        (directory / "chat_template.jinja").write_text(self.source)
        return directory


def llama_tokenizer() -> Tokenizer:
    """One token per byte, and Llama's markers."""
    vocab = {
        letter: index for index, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))
    }
    made = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([*LLAMA.markers, "<|python_tag|>"])
    return made


def _read(name: str) -> str:
    return (TEMPLATES / f"{name}.jinja").read_text()


QWEN2_5 = PublishedForm(name="Qwen2.5", source=_read("qwen2_5"))
QWEN3 = PublishedForm(name="Qwen3", source=_read("qwen3"))
QWEN3_OFF = PublishedForm(name="Qwen3 without thoughts", source=_read("qwen3"), thinking=False)
LLAMA3 = PublishedForm(name="Llama 3", source=LLAMA_TEMPLATE)
_FURTHER = os.environ.get("HILLCLIMB_CHAT_TEMPLATES")
FORMS = [QWEN2_5, QWEN3, QWEN3_OFF, LLAMA3] + [
    PublishedForm(name=path.stem, source=path.read_text())
    for path in sorted(Path(_FURTHER).glob("*.jinja") if _FURTHER else ())
]
