"""What opens a turn, read from templates as models have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.trainer.fixtures.scripted import byte_tokenizer
from trainer.rollouts.chat.chat import Chat
from trainer.rollouts.chat.template import read_generation_prompt

CHATML = """{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    THOUGHT
{%- endif %}"""
THINKING = CHATML.replace("THOUGHT", "{{- '<think>\\n' }}")
HYBRID = CHATML.replace(
    "THOUGHT",
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}",
)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (THINKING, "<|im_start|>assistant\n<think>\n"),
        (HYBRID, "<|im_start|>assistant\n"),
        ("{{ raise_exception('tools are needed') }}", ""),
        ("{{ messages[0]['content'", ""),
        ("{{ messages[7].content.nothing }}", ""),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", ""),
        ("{{ 1 // 0 }}", ""),
        ("{% for i in range(10 ** 9) %}{% endfor %}", ""),
        ("only this", ""),
    ],
)
def test_what_the_template_adds_is_the_generation_prompt(
    tmp_path: Path, template: str, expected: str
) -> None:
    (tmp_path / "chat_template.jinja").write_text(template)
    assert read_generation_prompt(tmp_path) == expected


def test_older_models_have_it_in_the_config_of_the_tokenizer(tmp_path: Path) -> None:
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": THINKING}))
    assert read_generation_prompt(tmp_path).endswith("<think>\n")
    config.write_text(json.dumps({"chat_template": [{"name": "default", "template": "x"}]}))
    assert read_generation_prompt(tmp_path) == ""
    config.write_text("[]")
    assert read_generation_prompt(tmp_path) == ""
    config.unlink()
    assert read_generation_prompt(tmp_path) == ""


def test_a_model_that_thinks_starts_to_think_by_the_markers_own_ids(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens(["<think>"])
    plain = Chat(tokenizer).open_turn_ids
    thinking = Chat(tokenizer, "<|im_start|>assistant\n<think>\n").open_turn_ids
    assert thinking[: len(plain)] == plain
    assert [tokenizer.id_to_token(i) for i in thinking[len(plain) :]] == ["<think>", "Ċ"]


def test_a_template_of_another_wire_opens_no_turn() -> None:
    chat = Chat(byte_tokenizer(), "[INST]<think>")
    assert chat.open_turn_ids == Chat(byte_tokenizer()).open_turn_ids
