"""One odd answer of one environment among many: data about it, and never the end of the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.environment.base import ToolSpec
from hillclimb.protocol.events import StepCompleted
from hillclimb.protocol.outcomes import OutcomeRow, OutcomeStatus
from tests.trainer.fixtures.scripted import CountingEnv, CountingProvider
from tests.trainer.fixtures.short_run import ShortRun
from trainer.errors import SpecError

ODD = 20
"""Which environment is odd: the fourth group of a step of four groups of four has begun."""


class Odd(CountingEnv):
    """Lists a tool that no other instance has."""

    says: str = "x"

    async def reset(self) -> tuple[ToolSpec, ...]:
        schema = {"type": "object"}
        more = ToolSpec(name="more", description=self.says, parameters=schema)
        return (*await super().reset(), more)


class Long(Odd):
    """Lists one that takes more than the whole input."""

    says = "x y " * 2000


def a_run(root: Path) -> ShortRun:
    return ShortRun(
        root,
        schedule={"total_steps": 3},
        checkpoints={"interval": 100},
        eval={"before_training": False, "interval": 0},
    )


def rows_of(run: ShortRun) -> list[OutcomeRow]:
    return [row for event in run.events(StepCompleted) for row in event.outcomes]


@pytest.mark.parametrize(("kind", "reason"), [(Odd, "prompt_differs"), (Long, "")])
async def test_one_instance_with_other_tools_ends_no_run(
    kind: type[Odd], reason: str, tmp_path: Path
) -> None:
    """Other tools are an infra error; tools that do not fit are rolled again, here with success."""
    run = a_run(tmp_path)
    await run.train(
        provider=CountingProvider(lambda n: (kind if n == ODD else CountingEnv)(goal=0))
    )
    assert [event.step for event in run.events(StepCompleted)] == [1, 2, 3]
    missing = [row for row in rows_of(run) if row.status is not OutcomeStatus.GRADED]
    assert [row.reason for row in missing] == ([reason] if reason else [])
    assert [row.num_infra_retries for row in rows_of(run) if row.num_infra_retries] == (
        [] if reason else [1]
    )
    assert all(row.score is None for row in missing)


async def test_prompts_that_never_fit_end_the_run_with_what_to_change(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    with pytest.raises(
        SpecError,
        match=r"prompt_too_long: the prompt of \S+ has \d{4,} tokens, more than"
        r" rollout\.max_input_length: raise it",
    ):
        await run.train(provider=CountingProvider(lambda _: Long(goal=0)))
    assert run.events(StepCompleted) == []
