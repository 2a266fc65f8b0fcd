"""Which error so many missing grades are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hillclimb.protocol.outcomes import Outcome, OutcomeStatus
from tests.trainer.fixtures.scripted import (
    ADD,
    DONE,
    CountingEnv,
    CountingProvider,
    ScriptedEngine,
    a_collector,
    a_request,
    a_task,
)
from trainer.errors import EnvironmentOutage, SpecError
from trainer.rollouts.groups.outage import refuse_outage
from trainer.rollouts.records.skipped import skipped_rollout
from trainer.rollouts.request import Rollout


async def a_rollout(code: str | None) -> Rollout:
    """A rollout that is solved, or has no grade for this reason."""
    engine = ScriptedEngine(lambda turn, _: (ADD, DONE)[turn])
    collector = a_collector(engine, CountingProvider(lambda _: CountingEnv(goal=1)))
    ((found,),) = await collector.collect([a_task()], a_request())
    if code is None:
        return found
    outcome = Outcome(status=OutcomeStatus.INFRA_ERROR, reason=code)
    return replace(found, trajectory=replace(found.trajectory, outcome=outcome))


TOO_LONG, NO_PROMPT, TRANSPORT = "prompt_too_long", "no_prompt", "tool_transport"
DIFFERS = "prompt_differs"


@pytest.mark.parametrize(
    ("codes", "error", "sentence"),
    [
        ([TOO_LONG, TOO_LONG, TRANSPORT], SpecError,
         r"3 of 3 .* counting: prompt_too_long: the prompt of t0 has \d+ tokens, more than"
         r" rollout\.max_input_length: raise it"),
        ([NO_PROMPT, NO_PROMPT, None], SpecError,
         "2 of 3 .* t0 has no prompt, and its environment's reset returned none: add"),
        ([DIFFERS, DIFFERS, DIFFERS, None], SpecError,
         "3 of 4 .* t0 got another prompt for each of its rollouts: make the environment's reset"),
        ([TOO_LONG, TRANSPORT], EnvironmentOutage, "2 of 2 "),
        ([TRANSPORT, TRANSPORT, TOO_LONG], EnvironmentOutage, "most often counting: tool_tra"),
    ],
)  # fmt: skip
async def test_what_most_lack_decides_whether_the_spec_can_mend_it(
    codes: list[str | None], error: type[Exception], sentence: str
) -> None:
    rollouts = [await a_rollout(code) for code in codes]
    with pytest.raises(error, match=sentence):
        refuse_outage(rollouts, max_infra_error_rate=0.5)


async def test_a_few_missing_grades_and_what_was_never_begun_are_no_outage() -> None:
    late = skipped_rollout(a_task(), 0, a_request(), attempt=1, why="late")
    refuse_outage([late, late], max_infra_error_rate=0.0)
    rollouts = [await a_rollout(code) for code in (TOO_LONG, None)]
    refuse_outage([*rollouts, late], max_infra_error_rate=0.5)
    with pytest.raises(SpecError):
        refuse_outage([*rollouts, late], max_infra_error_rate=0.49)
