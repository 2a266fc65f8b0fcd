"""A whole run stores the learner's values of its tokens, unless its spec says not to."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from hillclimb.protocol.events import StepCompleted
from hillclimb.protocol.payloads.results.rollouts import StoredTokenValues, StoredTrajectory
from hillclimb.stats.trajectories.tokens import RolloutTokens, tokens_of
from tests.trainer.fixtures.short_run import ShortRun

EVALUATES_ONCE = {"eval": {"before_training": False, "interval": 0}}


def lines(run: ShortRun, folder: str, name: str) -> list[bytes]:
    key = f"runs/{run.run_id}/attempt-1/{folder}/{name}.jsonl.gz"
    return gzip.decompress(run.store.get(key)).splitlines()


def learned(run: ShortRun, step: int) -> list[tuple[StoredTokenValues, RolloutTokens]]:
    """The rollouts that a step learned from, with their tokens."""
    name = f"step-{step:06d}-train-train"
    pairs = zip(lines(run, "trajectories", name), lines(run, "token-values", name), strict=True)
    found = []
    for trajectory, line in pairs:
        values = StoredTokenValues.model_validate_json(line)
        assert values.rollout_id == json.loads(trajectory)["rollout_id"]
        if values.state == "learned":
            found.append(
                (values, tokens_of(StoredTrajectory.model_validate_json(trajectory), values))
            )
    return found


@pytest.mark.parametrize(
    "algorithm", [{}, {"step_wise": True}, {"off_policy_correction": {"tis_ratio_type": "token"}}]
)
async def test_each_step_stores_what_engine_and_learner_say_of_the_same_tokens(
    tmp_path: Path, algorithm: dict[str, Any]
) -> None:
    run = ShortRun(tmp_path, algorithm=algorithm, schedule={"total_steps": 2}, **EVALUATES_ONCE)
    await run.train()
    for event in run.events(StepCompleted):
        found = learned(run, event.step)
        assert found
        drawn = sum(sum(tokens.drawn) for _, tokens in found)
        assert drawn == event.metrics["policy/num_action_tokens"]
        assert {values.version for values, _ in found} == {event.step - 1}
        first = [tokens for values, tokens in found if values.num_updates == 0]
        largest = max(abs(gap) for tokens in first for gap in tokens.gaps or ())
        stated = event.metrics["policy/rollout_train_logprobs_abs_diff_max"]
        if not algorithm.get("off_policy_correction"):
            assert largest == pytest.approx(stated, rel=2e-3, abs=1e-7)
        assert largest < 1e-4
        entropies = [value for _, tokens in found for value in tokens.entropies or ()]
        mean = sum(entropies) / len(entropies)
        assert mean == pytest.approx(event.metrics["policy/policy_entropy"], rel=1e-3)
        assert event.metrics["timing/store_token_values"] > 0.0


async def test_a_spec_may_store_no_values(tmp_path: Path) -> None:
    run = ShortRun(
        tmp_path,
        learner={"store_token_values": False},
        schedule={"total_steps": 1},
        **EVALUATES_ONCE,
    )
    await run.train()
    stored = run.store.list(f"runs/{run.run_id}/attempt-1")
    assert not [key for key in stored if "token-values" in key]
    assert [key for key in stored if re.search(r"attempt-1/trajectories/", key)]
