"""SkyRL's rules where the recorded cases do not reach: tokens, limits and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

import pytest
from pydantic import JsonValue

from hillclimb.protocol.outcomes import StopReason
from hillclimb.spec.environment.environment import EnvironmentSpec
from hillclimb.spec.environment.fleet import FleetSpec, output_limit
from hillclimb.spec.environment.prompt import PromptSpec
from hillclimb.spec.training.rollout import RolloutSpec
from tests.trainer.fixtures.scripted import (
    ADD,
    CHAT,
    DONE,
    CountingEnv,
    CountingProvider,
    ScriptedEngine,
    a_request,
    a_task,
    byte_tokenizer,
)
from trainer.rollouts.chat.chat import Chat
from trainer.rollouts.chat.stop_text import cut_at
from trainer.rollouts.request import Rollout
from trainer.rollouts.styles.base import PromptStyle
from trainer.rollouts.styles.choose import choose_style
from trainer.rollouts.styles.skyrl.rules import SkyrlRules
from trainer.rollouts.styles.skyrl.turns import STOP_TEXT, read_turn
from trainer.rollouts.styles.skyrl.wording import SkyrlWording
from trainer.rollouts.worker import RolloutParts, RolloutWorker
from trainer.types import Sample

STYLE = PromptStyle(wording=SkyrlWording(today=date(2026, 5, 18)), rules=SkyrlRules())
LENGTHS = RolloutSpec(max_input_length=4000, max_generate_length=200, max_sequence_length=4200)


@dataclass(slots=True)
class Listening(CountingEnv):
    """Keeps the conversations that its verifier gets."""

    heard: list[Sequence[Mapping[str, JsonValue]]] = field(default_factory=list)

    def set_transcript(self, conversation: Sequence[Mapping[str, JsonValue]]) -> None:
        self.heard.append(conversation)


async def roll(
    *turns: str,
    env: CountingEnv | None = None,
    lengths: RolloutSpec = LENGTHS,
    **environment: object,
) -> tuple[Rollout, ScriptedEngine]:
    engine = ScriptedEngine(lambda turn, _: turns[min(turn, len(turns) - 1)])
    own = env or CountingEnv(goal=1)
    parts = RolloutParts(
        engine=engine,
        chat=CHAT,
        provider=CountingProvider(lambda _: own),
        environment=EnvironmentSpec.model_validate({"provider": "fleet", **environment}),
        rollout=lengths,
        seed=0,
        attempt=1,
        style=STYLE,
    )
    return await RolloutWorker(parts).run_rollout(a_task(), 0, a_request()), engine


async def test_what_follows_the_stop_text_is_dropped_and_the_turns_end_is_not_learned() -> None:
    found, engine = await roll(f"{ADD}and so on", DONE)
    trajectory = found.trajectory
    drawn = [t for t, a in zip(trajectory.token_ids, trajectory.action_mask, strict=True) if a]
    assert CHAT.decode(drawn) == ADD + DONE
    assert len(engine.requests) == 2
    reply = CHAT.encode_reply("Tool result:\ncount is 1", turn_closed=False)
    assert engine.requests[1][0][-len(reply) :] == reply
    assert reply[0] == CHAT.end_of_turn_id
    assert trajectory.reward == 1.0


async def test_a_turn_cut_at_its_limit_is_played_and_the_episode_goes_on() -> None:
    unclosed = ADD.removesuffix("</tool_call>")
    lengths = LENGTHS.model_copy(update={"max_generate_length": len(unclosed)})
    found, _ = await roll(f"{unclosed}   and more", DONE, lengths=lengths)
    assert [turn.tool_name for turn in found.trajectory.turns] == ["add", None]
    assert found.trajectory.stop_reason is StopReason.DONE
    assert found.trajectory.reward == 1.0


async def test_a_full_context_is_graded_zero_and_the_spec_can_say_so_of_the_turn_limit() -> None:
    first, engine = await roll(ADD, DONE)
    assert first.trajectory.reward == 1.0
    lengths = LENGTHS.model_copy(update={"max_input_length": len(engine.requests[1][0]) - 1})
    full, _ = await roll(ADD, DONE, lengths=lengths)
    assert full.trajectory.stop_reason is StopReason.MAX_INPUT_LENGTH
    assert full.trajectory.reward == 0.0
    for grade_unfinished, reward in ((None, 1.0), ("zero", 0.0)):
        late, _ = await roll(ADD, max_turns=1, grade_unfinished=grade_unfinished)
        assert late.trajectory.reward == reward


async def test_a_verifier_does_not_get_the_conversation() -> None:
    env = Listening(goal=1)
    await roll(ADD, DONE, env=env)
    assert env.heard == []


@pytest.mark.parametrize(
    "value",
    ["NaN", "1e999", "1" + "0" * 18, "[" * 40 + "]" * 40, '"\\ud800"'],
    ids=["nan", "infinite", "long-integer", "deep", "half-a-character"],
)
def test_a_value_that_stores_refuse_makes_a_call_unreadable(value: str) -> None:
    turn = f'<tool_call>{{"name": "add", "arguments": {{"n": {value}}}}}</tool_call>'
    assert read_turn(turn).calls == ()
    assert read_turn(turn.replace(value, "1")).calls != ()


def test_a_task_is_dated_by_itself_and_else_by_the_day_of_the_attempt() -> None:
    dated = replace(a_task(), env_variables={"CURRENT_DATE": "2024-02-03"})
    texts = [STYLE.wording.compose_system(task, "") for task in (dated, a_task())]
    assert "Today's date is 2024-02-03." in texts[0]
    assert "the current year (2024)" in texts[0]
    assert "Today's date is 2026-05-18." in texts[1]


@pytest.mark.parametrize("length", range(1, 8))
def test_a_sample_ends_with_the_token_that_completes_the_text(length: int) -> None:
    ids = CHAT.encode_turn("abc" + "x" * length + "STOP and more")
    sample = Sample(
        token_ids=ids,
        logprobs=tuple(-float(i) for i in range(len(ids))),
        stopped=False,
        weight_versions=tuple(range(len(ids))),
    )
    cut = cut_at(sample, "STOP", CHAT)
    end = 3 + length + 4
    assert (cut.token_ids, cut.stopped) == (ids[:end], True)
    assert (cut.logprobs, cut.weight_versions) == (
        sample.logprobs[:end],
        sample.weight_versions[:end],
    )
    assert cut_at(sample, "absent", CHAT) is sample
    assert cut_at(sample, None, CHAT) is sample


def test_an_engine_stops_at_the_text_where_it_is_a_token() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens([STOP_TEXT])
    chat = Chat(tokenizer)
    assert chat.stop_ids(STOP_TEXT) == (chat.end_of_turn_id, chat.token_id(STOP_TEXT))
    assert chat.stop_ids(None) == (chat.end_of_turn_id,)
    assert CHAT.stop_ids(STOP_TEXT) == (CHAT.end_of_turn_id,)


def test_a_spec_chooses_the_style_and_the_limit_of_answers() -> None:
    assert choose_style(PromptSpec(style="skyrl")).wording.version == "skyrl-1"
    assert choose_style(PromptSpec()).wording.version == "1"
    long = "x" * 12_000
    assert output_limit(FleetSpec(), PromptSpec(style="skyrl")) > len(long)
    assert output_limit(FleetSpec(), PromptSpec()) == 10_000
    assert output_limit(FleetSpec(max_output_chars=300), PromptSpec(style="skyrl")) == 300
