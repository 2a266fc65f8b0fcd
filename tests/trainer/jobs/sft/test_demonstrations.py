"""Demonstrations: what a file may hold, and the tokens that are made of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hillclimb.environment.base import ToolSpec
from hillclimb.environment.task import Task
from tests.trainer.fixtures.tiny_model import write_tiny_model
from trainer.errors import DataError
from trainer.jobs.sft.demonstration import Demonstration, read_demonstrations
from trainer.jobs.sft.encoding import Encoder
from trainer.jobs.sft.sequences import demonstrations_of
from trainer.rollouts.chat.chat import Chat
from trainer.rollouts.chat.prompts import render_call
from trainer.rollouts.styles.own import OWN_STYLE

TOOL = ToolSpec(name="stamp", description="Stamp it.", parameters={"type": "object"})
CALL = {"role": "assistant", "tool_calls": [{"function": {"name": "stamp", "arguments": "{}"}}]}
USER = {"role": "user", "content": "Stamp it twice."}
TOOL_SAYS = {"role": "tool", "content": "stamped"}


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Chat:
    return Chat.from_directory(write_tiny_model(tmp_path_factory.mktemp("sft") / "model"))


def read(*messages: dict[str, Any], **fields: Any) -> Demonstration:
    (found,) = read_demonstrations([json.dumps({"messages": messages, **fields}).encode()])
    return found


def test_only_the_assistants_tokens_count_and_the_prompt_is_a_rollouts(chat: Chat) -> None:
    shown = read(USER, CALL, TOOL_SAYS, {"role": "assistant", "content": "<done>"})
    sequence = Encoder(chat, OWN_STYLE, {"post": [TOOL]}).encode(shown, "post")
    task = Task(key="t", env_key="post", prompt="Stamp it twice.", template="", difficulty=None)
    prompt = chat.encode_prompt(task, [TOOL])
    first, last = chat.encode_turn(render_call("stamp", {})), chat.encode_turn("<done>")
    between = chat.encode_observation("stamped", is_error=False)
    assert sequence.token_ids == (*prompt, *first, *between, *last)
    own = [True] * len(first), [True] * len(last)
    mask = [*[False] * len(prompt), *own[0], *[False] * len(between), *own[1]]
    assert list(sequence.action_mask) == mask
    assert sequence.prompt_length == len(prompt)


def test_what_follows_the_last_turn_is_left_out(chat: Chat) -> None:
    encoder = Encoder(chat, OWN_STYLE, {"post": [TOOL]})
    with_answer, without = read(USER, CALL, TOOL_SAYS), read(USER, CALL)
    assert encoder.encode(with_answer, "post") == encoder.encode(without, "post")


def test_several_answers_in_a_row_are_one_message(chat: Chat) -> None:
    twice = {"role": "assistant", "tool_calls": [*CALL["tool_calls"], *CALL["tool_calls"]]}
    shown = read(USER, twice, TOOL_SAYS, {**TOOL_SAYS, "is_error": True}, CALL)
    text = chat.decode(Encoder(chat, OWN_STYLE, {}).encode(shown, "post").token_ids)
    assert "Tool result:\nstamped\nError: stamped" in text


@pytest.mark.parametrize(
    ("line", "part"),
    [
        (b"{", "line 1 is no JSON"),
        (b"[" * 100_000, "line 1 is no JSON"),
        (b"[1]", "line 1, the line"),
        (b'{"messages": []}', "line 1, messages"),
        (b'{"messages": [{"role": "bot"}, {"role": "user"}]}', "messages.0.role"),
        (json.dumps({"messages": [CALL, USER]}).encode(), "begins with no user message"),
        (json.dumps({"messages": [USER, USER]}).encode(), "no assistant message"),
        (json.dumps({"messages": [USER, TOOL_SAYS, CALL]}).encode(), "comes an assistant message"),
        (json.dumps({"messages": [USER, CALL, CALL]}).encode(), "two assistant messages"),
        (json.dumps({"messages": [USER, {"role": "assistant"}]}).encode(), "neither content nor"),
    ],
)
def test_a_line_that_is_no_demonstration_is_refused_in_a_sentence(line: bytes, part: str) -> None:
    with pytest.raises(DataError, match=part.replace("(", r"\(")):
        list(read_demonstrations([line]))


def test_a_refusal_does_not_repeat_what_the_file_holds(tmp_path: Path) -> None:
    secret = tmp_path / "shadow"
    secret.write_text('{"messages": "hunter2"}\n')
    with secret.open("rb") as lines, pytest.raises(DataError) as refused:
        list(read_demonstrations(lines))
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("source", "part"),
    [("/dev/zero", "is no regular file"), ("/nothing", "No such file"), ("/", "no regular file")],
)
def test_a_source_that_is_no_file_is_a_sentence(source: str, part: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=part):
        list(demonstrations_of(source, tmp_path))


def test_a_line_without_an_end_is_refused_by_its_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("demonstration", "sequences"):
        monkeypatch.setattr(f"trainer.jobs.sft.{module}.MAX_LINE_BYTES", 1 << 20)
    (tmp_path / "long").write_bytes(b"x" * (4 << 20))
    with pytest.raises(DataError, match="line 1 has more than 1 MiB"):
        list(demonstrations_of(str(tmp_path / "long"), tmp_path))
