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
QWEN3_5_TEMPLATE = """{%- set system, rest = messages[0].content | trim, messages[1:] %}
{%- if messages[0].role != 'system' %}{%- set system, rest = '', messages %}{%- endif %}
{%- if system or tools %}{{- '<|im_start|>system\\n' }}{%- endif %}
{%- if tools %}
    {{- '# Tools\\n\\nThese functions can be called:\\n\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
    {{- '\\n</tools>\\n\\nCall one as in\\n\\n<tool_call>\\n<function=name>\\n<parameter=key>\\n' }}
    {{- 'value\\n</parameter>\\n</function>\\n</tool_call>\\n\\n' }}
{%- endif %}
{%- if system or tools %}{{- system + '<|im_end|>\\n' }}{%- endif %}
{%- set last = namespace(query=0) %}
{%- for message in rest %}
    {%- if message.role == 'user' %}{%- set last.query = loop.index0 %}{%- endif %}
{%- endfor %}
{%- for message in rest %}
    {%- set said = message.content | trim %}
    {%- if message.role == 'user' %}
        {{- '<|im_start|>user\\n' + said + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thought = message.reasoning_content %}
        {%- elif '</think>' in said %}
            {%- set thought = said.split('</think>')[0].split('<think>')[-1] %}
            {%- set said = said.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if loop.index0 > last.query %}
            {{- '<think>\\n' + (thought | trim) + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- said }}
        {%- for call in message.tool_calls or () %}
            {{- ('\\n' if not loop.first else '\\n\\n' if said else '') + '<tool_call>\\n' }}
            {{- '<function=' + call.function.name + '>\\n' }}
            {%- for key, value in call.function.arguments | items %}
                {{- '<parameter=' + key + '>\\n' }}
                {%- if value is mapping or value is sequence and value is not string %}
                    {{- value | tojson }}
                {%- else %}
                    {{- value | string }}
                {%- endif %}
                {{- '\\n</parameter>\\n' }}
            {%- endfor %}
            {{- '</function>\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if rest[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + said + '\\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n<think>\\n' }}
    {%- if enable_thinking is false %}{{- '\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""
"""Ours, with the structure of Qwen3.5's: tools before the instructions, a thought that every turn
opens with, trimmed contents, a tag for each argument; what is no list is as Python prints it."""


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

    @property
    def is_xml(self) -> bool:
        """Arguments have tags of their own, and no types."""
        return "<parameter=" in self.source

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
QWEN3_5 = PublishedForm(name="Qwen3.5", source=QWEN3_5_TEMPLATE)
QWEN3_5_OFF = PublishedForm(
    name="Qwen3.5 without thoughts", source=QWEN3_5_TEMPLATE, thinking=False
)
_FURTHER = os.environ.get("HILLCLIMB_CHAT_TEMPLATES")
FORMS = [QWEN2_5, QWEN3, QWEN3_OFF, QWEN3_5, QWEN3_5_OFF, LLAMA3] + [
    PublishedForm(name=path.stem, source=path.read_text())
    for path in sorted(Path(_FURTHER).glob("*.jinja") if _FURTHER else ())
]
