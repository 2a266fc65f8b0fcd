"""Why a rollout has no grade, in words: where the words come from, and what they never say."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import pytest

from hillclimb.environment.base import Grade, ToolSpec
from hillclimb.environment.errors import EnvUnavailable, VerifierUnavailable
from hillclimb.process.redactor import Redactor
from hillclimb.protocol.outcomes import DETAIL_LIMIT, OutcomeStatus
from hillclimb.spec.environment.environment import EnvironmentSpec
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
from trainer.errors import EnvironmentOutage
from trainer.rollouts.groups.outage import refuse_outage
from trainer.rollouts.records.cause import cause_in_words
from trainer.rollouts.records.dump import write_trajectories
from trainer.rollouts.records.outcomes import outcome_rows
from trainer.rollouts.request import Rollout

CRASH = "KeyError: 'bookings'\n  in verify"
REFUSED = "401 unauthorized: the key is unknown"


@dataclass(slots=True)
class Crashing(CountingEnv):
    """Its verifier answers that it crashed."""

    async def score(self) -> Grade:
        return Grade(score=None, reason="verifier_crashed", detail=CRASH)


@dataclass(slots=True)
class Refusing(CountingEnv):
    """Does not start: the platform refuses it, for now or for good."""

    is_permanent: bool = False

    async def reset(self) -> tuple[ToolSpec, ...]:
        raise EnvUnavailable(REFUSED, is_permanent=self.is_permanent)


@dataclass(slots=True)
class Silent(CountingEnv):
    """Its verifier does not answer."""

    async def score(self) -> Grade:
        raise VerifierUnavailable("the verifier answered 503")


async def roll(env: CountingEnv, n: int = 1, **environment: int) -> tuple[Rollout, ...]:
    engine = ScriptedEngine(lambda turn, _: (ADD, DONE)[turn])
    collector = a_collector(
        engine, CountingProvider(lambda _: env), environment=EnvironmentSpec(**environment)
    )
    (group,) = await collector.collect([a_task()], a_request(n))
    return tuple(group)


@pytest.mark.parametrize(
    ("env", "status", "reason", "detail"),
    [
        (Crashing(1), OutcomeStatus.UNGRADED, "verifier_crashed", "KeyError: 'bookings' in verify"),
        (Refusing(1), OutcomeStatus.INFRA_ERROR, "env_unavailable", REFUSED),
        (Silent(1), OutcomeStatus.UNGRADED, "verifier_unavailable", "the verifier answered 503"),
        (CountingEnv(1, bug=True), OutcomeStatus.INFRA_ERROR, "unexpected_KeyError",
         "'a bug of the environment'"),
    ],
    ids=["verifier-crashed", "refused", "verifier-silent", "bug"],
)  # fmt: skip
async def test_the_cause_is_in_outcome_row_trajectory_and_log(
    env: CountingEnv,
    status: OutcomeStatus,
    reason: str,
    detail: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO", logger="trainer.rollouts.worker"):
        (found,) = await roll(env)
    outcome = found.trajectory.outcome
    assert (outcome.status, outcome.reason, outcome.detail) == (status, reason, detail)
    (row,) = outcome_rows([found], a_request(), trajectory_key="t")
    assert (row.reason, row.detail) == (reason, detail)
    file = tmp_path / "t.jsonl.gz"
    write_trajectories(file, [found], a_request())
    assert f'"detail":"{detail}"' in gzip.decompress(file.read_bytes()).decode()
    assert detail in caplog.text


async def test_an_outage_names_the_most_frequent_cause() -> None:
    missing = [*await roll(Refusing(1), 2), *await roll(Silent(1))]
    with pytest.raises(EnvironmentOutage) as caught:
        refuse_outage(missing, max_infra_error_rate=0.5)
    assert str(caught.value) == (
        "3 of 3 rollouts have no grade (100%, allowed 50%); most often counting: env_unavailable"
        f" ({REFUSED})"
    )


@pytest.mark.parametrize(("is_permanent", "tries"), [(True, 1), (False, 3)])
async def test_a_permanent_refusal_is_not_tried_again(is_permanent: bool, tries: int) -> None:
    (found,) = await roll(Refusing(1, is_permanent=is_permanent), max_infra_retries=2)
    assert found.infra_errors == ("env_unavailable",) * tries
    assert found.trajectory.num_infra_retries == tries - 1


def test_a_cause_is_one_short_line_and_no_half_of_a_secret_is_left_at_its_end() -> None:
    redactor = Redactor(("sk-abcdefgh",))
    text = "x" * (DETAIL_LIMIT - 6) + "sk-abcdefgh is refused"
    assert cause_in_words(text, redactor) == "x" * (DETAIL_LIMIT - 6) + "*****…"
    assert (
        cause_in_words("key sk-abcdefgh\n\n refused\0", redactor) == "key *********** refused\ufffd"
    )
    assert cause_in_words("", redactor) is None
    assert cause_in_words(None, redactor) is None
