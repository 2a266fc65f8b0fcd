"""Whole rollouts are, token by token, what transformers renders of the same messages.

A chat server sends a model just this rendering, so a served policy reads what it was trained on.
The claim is for turns whose text encodes to what was drawn: ids that were drawn are never changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pydantic import JsonValue
from transformers import AutoTokenizer

from hillclimb.environment.base import Grade, ToolResult, ToolSpec
from hillclimb.environment.task import Task
from hillclimb.protocol.outcomes import StopReason
from hillclimb.spec.environment.environment import EnvironmentSpec
from hillclimb.spec.environment.prompt import PromptSpec
from hillclimb.spec.training.rollout import RolloutSpec
from tests.trainer.fixtures.scripted import ScriptedEngine, a_request
from tests.trainer.rollouts.styles.native.models import FORMS, PublishedForm
from trainer.rollouts.chat.chat import Chat
from trainer.rollouts.request import Rollout
from trainer.rollouts.styles.choose import choose_chat, choose_style
from trainer.rollouts.worker import RolloutParts, RolloutWorker
from trainer.types import Sample, SamplingParams

SAID = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<{"), max_size=20)
TEXT = SAID | st.sampled_from(["<tool_call>", "</tool_response>", "<think>x</think>", '"\\', "\n"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(-9.5, 9.5) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
SCHEMA: dict[str, JsonValue] = {
    "q": {"type": "string"},
    "n": {"type": "integer"},
    "x": {"anyOf": [{"type": "number"}, {"type": "null"}]},
    "on": {"type": "boolean"},
    "many": {"type": "array"},
    "filter": {"$ref": "#/$defs/Filter"},
}
TYPED = st.fixed_dictionaries(
    {},
    optional={
        "q": TEXT | st.sampled_from(["1", "None", "true", "[1]", " a ", ""]),
        "n": st.integers(-(10**9), 10**9),
        "x": st.none() | st.integers(-9, 9) | st.floats(-9.5, 9.5),
        "on": st.booleans(),
        "many": st.lists(VALUES, max_size=2),
        "filter": st.dictionaries(TEXT, VALUES, max_size=2),
    },
)
"""Arguments by `SCHEMA`, which alone tells their types in XML."""
ROOM = RolloutSpec(max_input_length=30_000, max_generate_length=8_000, max_sequence_length=38_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A turn of the policy, and how its calls are answered."""

    thought: str
    said: str
    calls: tuple[tuple[str, dict[str, JsonValue]], ...]
    answers: tuple[ToolResult, ...]


@st.composite
def rounds(draw: st.DrawFn, *, form: PublishedForm) -> Round:
    is_llama = form.is_llama
    number = draw(st.integers(0, 1 if is_llama else 3))
    names = st.sampled_from(["search"] if form.is_xml else ["add", "search", "unknown_tool"])
    given = TYPED if form.is_xml else st.dictionaries(TEXT, VALUES, max_size=2)
    calls = [(draw(names), draw(given)) for _ in range(number)]
    return Round(
        thought=draw(SAID),
        said="" if is_llama and calls else draw(SAID),
        calls=tuple(calls),
        answers=tuple(ToolResult(text=draw(TEXT), is_error=draw(st.booleans())) for _ in calls),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    task: Task
    tools: tuple[ToolSpec, ...]
    rounds: tuple[Round, ...]
    last_words: str


@st.composite
def conversations(draw: st.DrawFn, *, form: PublishedForm) -> Conversation:
    variables = st.dictionaries(st.sampled_from(["CURRENT_DATE", "USER"]), SAID, max_size=2)
    task = Task(
        key="t0",
        env_key="counting",
        prompt="Do it. " + draw(TEXT),
        template="t",
        difficulty=None,
        env_variables=draw(variables),
    )
    schema: dict[str, JsonValue] = {
        "type": "object",
        "properties": SCHEMA | {"q": {"type": "string", "description": draw(TEXT)}},
        "$defs": {"Filter": {"type": "object"}},
    }
    tools = (
        ToolSpec(name="add", description=draw(TEXT), parameters={"type": "object"}),
        ToolSpec(name="search", description="Finds.", parameters=schema),
    )
    turns = draw(st.lists(rounds(form=form), max_size=3))
    return Conversation(
        task=task, tools=tools, rounds=tuple(turns), last_words="That is all. " + draw(SAID)
    )


class Official:
    """What transformers makes of messages with a model's template."""

    def __init__(self, form: PublishedForm, directory: Path) -> None:
        self._switch = {} if form.thinking is None else {"enable_thinking": form.thinking}
        self._tokenizer = AutoTokenizer.from_pretrained(directory)
        self._thinks = "reasoning_content" in form.source
        self._end = "<|eot_id|>" if form.is_llama else "<|im_end|>"

    def text(self, messages: Sequence[object], tools: Sequence[ToolSpec]) -> str:
        described = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": dict(tool.parameters),
                },
            }
            for tool in tools
        ]
        rendered: str = self._tokenizer.apply_chat_template(
            messages, tools=described, tokenize=False, add_generation_prompt=True, **self._switch
        )
        return rendered

    def ids(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def turn(self, one: Round) -> dict[str, Any]:
        """The message of a round; an empty thought is kept when it is sent as a line's end."""
        thought = one.thought.strip("\n")
        message: dict[str, Any] = {"role": "assistant", "content": one.said}
        if self._thinks:
            is_off = self._switch.get("enable_thinking") is False
            message["reasoning_content"] = "\n" if is_off or not thought else thought
        if one.calls:
            message["tool_calls"] = [
                {"type": "function", "function": {"name": name, "arguments": arguments}}
                for name, arguments in one.calls
            ]
        return message

    def drawn(self, before: str, after: str) -> str:
        """The text that a turn adds to a context, without its end."""
        assert after.startswith(before)
        return after.removeprefix(before).partition(self._end)[0]


@dataclass(slots=True)
class ReplayingEnv:
    tools: tuple[ToolSpec, ...]
    answers: Iterator[ToolResult]
    calls: list[tuple[str, Mapping[str, JsonValue]]] = field(default_factory=list)

    async def reset(self) -> tuple[ToolSpec, ...]:
        return self.tools

    async def call(self, name: str, arguments: Mapping[str, JsonValue]) -> ToolResult:
        self.calls.append((name, arguments))
        return next(self.answers)

    async def score(self) -> Grade:
        return Grade(score=1.0)

    async def close(self) -> None:
        pass


@dataclass(slots=True)
class DrawingEngine(ScriptedEngine):
    """Draws given ids."""

    turns: Sequence[tuple[int, ...]] = ()

    async def sample(
        self, prompt_ids: Sequence[int], params: SamplingParams, *, session: str, prefix_key: str
    ) -> Sample:
        ids = self.turns[len(self.requests)]
        self.requests.append((tuple(prompt_ids), params, session, prefix_key))
        return Sample(
            token_ids=ids,
            logprobs=tuple(-0.5 for _ in ids),
            stopped=True,
            weight_versions=(0,) * len(ids),
        )


@dataclass(frozen=True, slots=True)
class OneWorld:
    env: ReplayingEnv
    env_keys: tuple[str, ...] = ("counting",)

    def make(self, task: Task) -> ReplayingEnv:
        return self.env


def roll(
    conversation: Conversation, drawn: Sequence[tuple[int, ...]], chat: Chat, spec: PromptSpec
) -> tuple[Rollout, DrawingEngine, ReplayingEnv]:
    """Play a conversation through a real rollout worker."""
    engine = DrawingEngine(lambda *_: "", turns=drawn)
    answers = [each for one in conversation.rounds for each in one.answers]
    env = ReplayingEnv(conversation.tools, iter(answers))
    parts = RolloutParts(
        engine=engine,
        chat=chat,
        provider=OneWorld(env),
        environment=EnvironmentSpec(),
        rollout=ROOM,
        seed=0,
        attempt=1,
        style=choose_style(spec, chat.call_form),
        has_deadlines=False,
    )
    done = asyncio.run(RolloutWorker(parts).run_rollout(conversation.task, 0, a_request()))
    return done, engine, env


def opening(conversation: Conversation, spec: PromptSpec) -> list[dict[str, Any]]:
    wording = choose_style(spec).wording
    system = wording.compose_system(conversation.task, "")
    first = wording.compose_first(conversation.task)
    return [{"role": "system", "content": system}, {"role": "user", "content": first}]


def answers_of(one: Round, spec: PromptSpec, chat: Chat) -> list[dict[str, str]]:
    """One message per call; errors are named, also that of a turn without a call."""
    no_call = choose_style(spec, chat.call_form).rules.no_call
    answers = one.answers or (ToolResult(text=no_call, is_error=True),)
    texts = [f"Error: {each.text}" if each.is_error else each.text for each in answers]
    return [{"role": "tool", "content": text} for text in texts]


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_rollout_is_the_rendering_of_its_messages(
    form: PublishedForm, version: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = form.write(tmp_path_factory.mktemp("model"))
    spec = PromptSpec(tool_format="native", version=version, thinking=form.thinking)
    chat, official = choose_chat(spec, directory, None), Official(form, directory)

    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
    @given(conversations(form=form))
    def compare(conversation: Conversation) -> None:
        messages, tools = opening(conversation, spec), conversation.tools
        contexts, drawn = [official.text(messages, tools)], []
        last = Round(thought="", said=f"{conversation.last_words}\n<done>", calls=(), answers=())
        for one in (*conversation.rounds, last):
            messages += [official.turn(one), *answers_of(one, spec, chat)]
            contexts.append(official.text(messages, tools))
            drawn.append(chat.encode_turn(official.drawn(*contexts[-2:])))
        prompts = [official.ids(context) for context in contexts]
        for before, after, ids in zip(prompts, prompts[1:], drawn, strict=False):
            assume(after[: len(before) + len(ids)] == before + ids)
        found, engine, env = roll(conversation, drawn, chat, spec)
        trajectory = found.trajectory
        assert trajectory.stop_reason is StopReason.DONE, trajectory.outcome
        assert [request[0] for request in engine.requests] == prompts[:-1]
        assert trajectory.token_ids == prompts[-2] + drawn[-1]
        own = [t for t, a in zip(trajectory.token_ids, trajectory.action_mask, strict=True) if a]
        assert own == [token for ids in drawn for token in ids]
        assert env.calls == [call for one in conversation.rounds for call in one.calls]

    compare()
