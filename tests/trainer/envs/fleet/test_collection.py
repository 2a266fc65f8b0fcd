"""A collection under faults ends, loses nothing, and takes no fault for the policy's.

The benchmark of 500 rollouts, `benchmarks/envs/collection.py`, with fewer of them and less waiting.
"""

from __future__ import annotations

import asyncio
import runpy
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[4] / "benchmarks/envs/collection.py"
NUM_ROLLOUTS = 20


@pytest.mark.long
def test_a_collection_under_faults_ends_with_an_outcome_for_everything() -> None:
    benchmark = runpy.run_path(str(BENCHMARK))
    work = asyncio.run(benchmark["make_work"](NUM_ROLLOUTS))
    assert set(work.worth.values()) == {0.0, 1.0}, "grades that are all alike prove nothing"
    rules = benchmark["faults"](1.0)
    rules[1]["after_s"] = 0.0
    found = benchmark["run"](work, rules, turn_s=0.0, call_timeout_s=6.0)
    assert benchmark["broken"](found, NUM_ROLLOUTS) == []
    assert found["server"]["faults"]["error"] > 5
    assert found["provider"]["num_retries"] > 0
    assert sum(found["tries_that_failed"].values()) > 0
    assert found["outcomes"]["graded"] > NUM_ROLLOUTS // 4
