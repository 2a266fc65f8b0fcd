"""Rollouts on instances of a real server: places, clocks, conversations, figures."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from hillclimb.environment.task import Task
from hillclimb.minifleet.server.problems import FleetProblem
from hillclimb.minifleet.server.routes.records import Records
from hillclimb.minifleet.server.state.instances import InstanceTable
from hillclimb.protocol.outcomes import OutcomeStatus, StopReason
from hillclimb.spec.environment.environment import EnvironmentSpec
from hillclimb.spec.training.rollout import RolloutSpec
from tests.trainer.envs.fleet.scene import TASK, on_server, with_payload
from tests.trainer.fixtures.scripted import CHAT, DONE, ScriptedEngine, a_request
from trainer.envs.fleet.provider import FleetProvider
from trainer.envs.fleet.verifiers import verification
from trainer.rollouts.groups.collector import Collector
from trainer.rollouts.request import Rollout, RolloutRequest
from trainer.rollouts.worker import RolloutParts, RolloutWorker
from trainer.types import SamplingParams

REQUEST = replace(a_request(12), temperatures={"booking": 1.0})


def says_done(_turn: int, _: SamplingParams) -> str:
    return DONE


async def rolled(
    provider: FleetProvider,
    task: Task = TASK,
    *,
    policy: object = says_done,
    request: RolloutRequest = REQUEST,
    **environment: float,
) -> tuple[Rollout, ...]:
    parts = RolloutParts(
        engine=ScriptedEngine(policy),  # type: ignore[arg-type]
        chat=CHAT,
        provider=provider,
        environment=EnvironmentSpec(**environment),
        rollout=RolloutSpec(
            max_input_length=9000, max_generate_length=300, max_sequence_length=9400
        ),
        seed=0,
        attempt=1,
    )
    collector = Collector(RolloutWorker(parts), max_concurrent_rollouts=64)
    return (await collector.collect([task], request))[0]


async def test_waiting_for_a_place_is_nobodys_time_and_no_fault() -> None:
    # Twelve rollouts, one place on the server, and far too little time for twelve in a row.
    async with on_server(max_instances=12, instance_limit=1) as (server, provider):
        await server.faults({"on": ["tool_list"], "latency_s": 0.1})
        rollouts = await rolled(
            provider, trajectory_timeout_s=8.0, call_timeout_s=7.0, infra_retry_allowance_s=0.0
        )
        stats = await server.stats()
    assert {r.trajectory.outcome.status for r in rollouts} == {OutcomeStatus.GRADED}
    assert [r.infra_errors for r in rollouts] == [()] * 12
    assert stats["instances"] == {"created": 12, "running": 0, "ended": {"deleted": 12}}
    waits = sorted(r.measures["slot_wait_s"] for r in rollouts)
    assert waits[0] < waits[-1]
    assert sum(r.measures["num_limits"] for r in rollouts) >= 11
    assert all(r.duration_s < 8.0 for r in rollouts)


async def test_a_verifier_that_declares_the_conversation_gets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[verification.Statement] = []
    build = verification.request

    def spy(verifier: Any, instance: str, statement: verification.Statement, **more: Any) -> Any:
        sent.append(statement)
        return build(verifier, instance, statement, **more)

    monkeypatch.setattr(verification, "request", spy)
    source = "def verify(env, conversation):\n    return 1\n"

    def policy(turn: int, _: SamplingParams) -> str:
        call = {"name": "no_such_tool", "arguments": {}}
        return f"<tool_call>{json.dumps(call)}</tool_call>" if turn == 0 else f"all done {DONE}"

    async with on_server() as (_, provider):
        (rollout,) = await rolled(
            provider,
            with_payload(verifier_code=source),
            policy=policy,
            request=replace(REQUEST, n_samples_per_prompt=1),
            verifier_timeout_s=1.5,
        )
    roles = [(m["role"], str(m["content"])) for m in sent[0].conversation]
    assert [role for role, _ in roles] == ["user", "assistant", "user", "assistant"]
    assert roles[0][1] == TASK.prompt
    assert "no_such_tool" in roles[1][1]
    assert roles[2][1].startswith("Error: no tool")
    assert "all done" in roles[3][1]
    # minifleet's server runs no code that a client sends: no grade, which is not a zero.
    assert rollout.trajectory.outcome.status is OutcomeStatus.UNGRADED
    assert rollout.trajectory.outcome.reason == "verifier_crashed"


async def test_a_final_answer_ends_the_rollout_and_is_graded() -> None:
    asks = replace(TASK, prompt=f"{TASK.prompt} Call submit_final_answer at the end.")

    def policy(_turn: int, _: SamplingParams) -> str:
        call = {"name": "submit_final_answer", "arguments": {"answer": "42"}}
        return f"<tool_call>{json.dumps(call)}</tool_call>"

    async with on_server() as (_, provider):
        (rollout,) = await rolled(
            provider, asks, policy=policy, request=replace(REQUEST, n_samples_per_prompt=1)
        )
    assert rollout.trajectory.stop_reason is StopReason.ENV_ENDED
    assert rollout.trajectory.outcome.score == 0.0
    assert rollout.num_turns == 1


async def test_a_rollout_whose_instance_ends_before_its_grade_starts_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grade, ended = Records._grade, []

    def spy(records: Records, body: Any, instance_id: str, fault: Any) -> Any:
        if not ended:
            ended.append(instance_id)
            instances = records._context.instances
            instances.end(instances.find(instance_id), "ttl_expired")
        return grade(records, body, instance_id, fault)

    monkeypatch.setattr(Records, "_grade", spy)
    async with on_server() as (server, provider):
        (rollout,) = await rolled(provider, request=replace(REQUEST, n_samples_per_prompt=1))
        stats = await server.stats()
    assert rollout.trajectory.outcome.status is OutcomeStatus.GRADED
    assert rollout.infra_errors == ("env_unavailable",)
    assert stats["requests"]["verify"] == 2, "a verifier without its instance is not tried again"


async def test_a_rollout_that_is_refused_for_good_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any) -> Any:
        raise FleetProblem(400, "Version 'v9' not found for 'booking'")

    monkeypatch.setattr(InstanceTable, "reserve", refuse)
    async with on_server() as (server, provider):
        (rollout,) = await rolled(provider, request=replace(REQUEST, n_samples_per_prompt=1))
        stats = await server.stats()
    outcome = rollout.trajectory.outcome
    assert (outcome.status, outcome.reason) == (OutcomeStatus.INFRA_ERROR, "env_unavailable")
    assert stats["requests"]["create"] == 1
