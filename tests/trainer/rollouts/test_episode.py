from collections.abc import Callable
from dataclasses import replace

import pytest

from hillclimb.environment.base import ToolSpec
from hillclimb.protocol.outcomes import OutcomeStatus, StopReason
from hillclimb.spec.environment.environment import EnvironmentOverride, EnvironmentSpec
from hillclimb.spec.training.rollout import RolloutSpec
from tests.trainer.fixtures.scripted import (
    ADD,
    CHAT,
    DONE,
    CountingEnv,
    CountingProvider,
    ScriptedEngine,
    a_collector,
    a_request,
    a_task,
)
from trainer.errors import EngineError
from trainer.rollouts.chat.prompts import NO_CALL_OBSERVATION
from trainer.rollouts.request import Rollout
from trainer.types import SamplingParams


async def roll(
    *turns: str,
    env: Callable[[int], CountingEnv] = lambda _: CountingEnv(goal=1),
    environment: EnvironmentSpec | None = None,
    rollout: RolloutSpec | None = None,
    delay_s: float = 0.0,
) -> tuple[Rollout, ScriptedEngine, CountingProvider]:
    engine = ScriptedEngine(lambda turn, _: turns[min(turn, len(turns) - 1)], delay_s=delay_s)
    provider = CountingProvider(env)
    collector = a_collector(engine, provider, environment=environment, rollout=rollout)
    ((found,),) = await collector.collect([a_task()], a_request())
    return found, engine, provider


async def test_a_solved_task_is_graded_by_the_verifier() -> None:
    found, _, provider = await roll(ADD, DONE)
    assert found.trajectory.stop_reason is StopReason.DONE
    assert found.trajectory.reward == 1.0
    assert found.num_turns == 2
    assert provider.envs[0].num_closed == 1


async def test_the_tokens_kept_are_the_tokens_the_engine_saw_and_drew() -> None:
    found, engine, _ = await roll(ADD, DONE)
    trajectory = found.trajectory
    last_prompt = engine.requests[-1][0]
    drawn = CHAT.encode_turn(DONE)
    assert trajectory.token_ids == last_prompt + drawn
    assert trajectory.token_ids[: trajectory.prompt_length] == engine.requests[0][0]
    actions = [t for t, a in zip(trajectory.token_ids, trajectory.action_mask, strict=True) if a]
    assert tuple(actions) == CHAT.encode_turn(ADD) + drawn


async def test_text_of_the_environment_has_no_logprob_and_no_version() -> None:
    found, _, _ = await roll(ADD, DONE)
    for mask, logprob, version in zip(
        found.trajectory.action_mask,
        found.trajectory.logprobs,
        found.trajectory.weight_versions,
        strict=True,
    ):
        assert (logprob, version) == ((-0.5, 0) if mask else (0.0, -1))


async def test_all_calls_of_a_turn_are_executed_in_order() -> None:
    found, _, provider = await roll(ADD + ADD + DONE, env=lambda _: CountingEnv(goal=2))
    assert provider.envs[0].count == 2
    assert found.trajectory.reward == 1.0
    assert [turn.call_index for turn in found.trajectory.turns] == [0, 1]
    assert found.num_turns == 1


async def test_a_turn_without_call_or_done_gets_an_observation_and_goes_on() -> None:
    found, _, _ = await roll("Hello.", ADD, DONE)
    assert found.trajectory.turns[0].observation == NO_CALL_OBSERVATION
    assert found.trajectory.turns[0].is_error
    assert found.trajectory.reward == 1.0


async def test_an_unreadable_call_is_an_error_the_policy_sees() -> None:
    found, _, _ = await roll("<tool_call>[1]</tool_call>", DONE)
    assert found.trajectory.turns[0].is_error
    assert "JSON object" in (found.trajectory.turns[0].observation or "")


async def test_too_many_turns_are_graded_zero_even_in_a_solved_state() -> None:
    found, _, _ = await roll(ADD, "Hm.", environment=EnvironmentSpec(max_turns=2))
    assert found.trajectory.stop_reason is StopReason.MAX_TURNS
    assert found.trajectory.outcome.status is OutcomeStatus.GRADED
    assert found.trajectory.reward == 0.0


async def test_an_environment_has_its_own_limit_of_turns() -> None:
    environment = EnvironmentSpec(overrides={"counting": EnvironmentOverride(max_turns=1)})
    found, engine, _ = await roll(ADD, DONE, environment=environment)
    assert found.trajectory.stop_reason is StopReason.MAX_TURNS
    assert len(engine.requests) == 1


async def test_a_tool_may_end_the_episode_and_calls_after_it_are_not_made() -> None:
    end = '<tool_call>{"name": "end", "arguments": {}}</tool_call>'
    found, _, provider = await roll(ADD + end + ADD)
    assert found.trajectory.stop_reason is StopReason.ENV_ENDED
    assert found.trajectory.reward == 1.0
    assert provider.envs[0].count == 1


async def test_a_turn_cut_off_by_its_limit_is_graded_zero_and_calls_nothing() -> None:
    limits = RolloutSpec(max_input_length=4000, max_generate_length=70, max_sequence_length=4100)
    found, _, provider = await roll(ADD + "x" * 100, rollout=limits)
    assert found.trajectory.stop_reason is StopReason.MAX_GENERATE_LENGTH
    assert found.trajectory.reward == 0.0
    assert provider.envs[0].count == 0


async def test_a_conversation_longer_than_the_input_limit_stops_before_the_next_turn() -> None:
    first, engine, _ = await roll(ADD, DONE)
    limit = len(engine.requests[1][0]) - 1
    spec = RolloutSpec(max_input_length=limit, max_generate_length=80, max_sequence_length=4000)
    found, engine, _ = await roll(ADD, DONE, rollout=spec)
    assert found.trajectory.stop_reason is StopReason.MAX_INPUT_LENGTH
    assert found.trajectory.reward == 0.0
    assert len(engine.requests) == 1
    assert found.trajectory.action_mask[-1], "text after the last action is not trained on"
    exact = spec.model_copy(update={"max_input_length": limit + 1})
    found, _, _ = await roll(ADD, DONE, rollout=exact)
    assert found.trajectory.token_ids == first.trajectory.token_ids


async def test_a_prompt_that_does_not_fit_is_no_zero_and_asks_the_policy_nothing() -> None:
    spec = RolloutSpec(max_input_length=100, max_generate_length=80, max_sequence_length=4000)
    found, engine, provider = await roll(ADD, DONE, rollout=spec)
    assert found.trajectory.outcome.status is OutcomeStatus.INFRA_ERROR
    assert found.infra_errors == ("prompt_too_long",) * 3
    assert (engine.requests, len(provider.envs)) == ([], 3)
    assert found.trajectory.prompt_length > 100
    assert (found.num_tools, found.num_turns) == (2, 0)


async def test_an_instance_whose_tools_do_not_fit_is_replaced_by_one_whose_do() -> None:
    class Long(CountingEnv):
        async def reset(self) -> tuple[ToolSpec, ...]:
            more = ToolSpec(name="more", description="x" * 5000, parameters={"type": "object"})
            return (*await super().reset(), more)

    found, _, _ = await roll(ADD, DONE, env=lambda n: (CountingEnv if n else Long)(goal=1))
    assert found.trajectory.reward == 1.0
    assert found.infra_errors == ("prompt_too_long",)


async def test_a_call_without_answer_in_time_is_the_environments_fault() -> None:
    environment = EnvironmentSpec(call_timeout_s=0.01, max_infra_retries=0)
    found, _, provider = await roll(
        ADD, env=lambda _: CountingEnv(goal=1, call_delay_s=60.0), environment=environment
    )
    assert found.trajectory.outcome.reason == "tool_transport"
    assert provider.envs[0].num_closed == 1


async def test_slow_sampling_leaves_no_grade_and_is_not_tried_again() -> None:
    environment = EnvironmentSpec(trajectory_timeout_s=0.05, call_timeout_s=0.04)
    found, _, _ = await roll(ADD, delay_s=60.0, environment=environment)
    assert found.trajectory.stop_reason is StopReason.POLICY_DEADLINE
    assert found.trajectory.reward is None
    assert found.trajectory.num_infra_retries == 0


async def test_a_slow_environment_that_uses_up_the_time_is_an_infra_error() -> None:
    environment = EnvironmentSpec(
        trajectory_timeout_s=0.08, call_timeout_s=0.06, max_infra_retries=0
    )
    found, _, _ = await roll(
        ADD, env=lambda _: CountingEnv(goal=9, call_delay_s=0.03), environment=environment
    )
    assert found.trajectory.outcome.reason == "env_deadline"
    assert found.trajectory.outcome.status is OutcomeStatus.INFRA_ERROR


@pytest.mark.parametrize(
    "fault", [AssertionError("a row too many"), RuntimeError(), TimeoutError()]
)
async def test_what_an_engine_did_not_foresee_is_its_fault_and_not_the_environments(
    fault: Exception,
) -> None:
    def failing(turn: int, params: SamplingParams) -> str:
        raise fault

    provider = CountingProvider()
    collector = a_collector(ScriptedEngine(failing), provider)
    with pytest.raises(EngineError, match=f"sampling failed: {type(fault).__name__}") as caught:
        await collector.collect([a_task()], a_request())
    assert caught.value.__cause__ is fault
    assert [env.num_closed for env in provider.envs] == [1]


@pytest.mark.parametrize("turn", ["", "<tool_call>", "\x00", "<think>" * 50])
async def test_nothing_a_policy_says_raises(turn: str) -> None:
    found, _, _ = await roll(turn, environment=EnvironmentSpec(max_turns=2))
    assert found.trajectory.outcome.status is OutcomeStatus.GRADED


class Wording(CountingEnv):
    """Knows what its task is once it was reset."""

    prompt = "Count to 1, please."


async def roll_without_prompt(env: CountingEnv) -> Rollout:
    collector = a_collector(
        ScriptedEngine(lambda turn, _: (ADD, DONE)[turn]), CountingProvider(lambda _: env)
    )
    ((found,),) = await collector.collect([replace(a_task(), prompt="")], a_request())
    return found


async def test_a_task_without_a_prompt_gets_its_environments() -> None:
    found = await roll_without_prompt(Wording(goal=1))
    assert found.trajectory.task.prompt == Wording.prompt
    assert Wording.prompt in CHAT.decode(found.trajectory.token_ids)


@pytest.mark.parametrize(
    ("own", "read"),
    [
        ("Be quick.", "Be quick.\n\nCount to 1, please."),
        ("Count to 1, please.", "Count to 1, please."),
        ("Listen: Count to 1, please. Go.", "Listen: Count to 1, please. Go."),
        ("Count to 1", "Count to 1, please."),
    ],
    ids=["both", "equal", "it-quotes-the-reset", "the-reset-quotes-it"],
)
async def test_the_policy_reads_the_tasks_prompt_and_then_that_of_the_reset(
    own: str, read: str
) -> None:
    engine = ScriptedEngine(lambda turn, _: (ADD, DONE)[turn])
    collector = a_collector(engine, CountingProvider(lambda _: Wording(goal=1)))
    ((found,),) = await collector.collect([replace(a_task(), prompt=own)], a_request())
    assert found.trajectory.task.prompt == read
    text = CHAT.decode(engine.requests[0][0])
    assert f"user\n{read}<|im_end|>" in text


async def test_a_task_that_nobody_words_is_no_zero() -> None:
    found = await roll_without_prompt(CountingEnv(goal=1))
    assert found.trajectory.outcome.status is OutcomeStatus.INFRA_ERROR
    assert found.infra_errors == ("no_prompt",) * 3
