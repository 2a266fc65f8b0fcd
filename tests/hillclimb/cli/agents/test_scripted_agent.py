"""An agent over MCP takes a crippled spec to a confirmed improvement with three runs."""

from __future__ import annotations

import pytest

from benchmarks.experiments.scripted_agent import climb, crippled
from tests.api.admission.experiments.conftest import BASE, train
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.hillclimb.cli.agents.conftest import Open


@pytest.mark.long
def test_a_crippled_spec_becomes_a_confirmed_improvement_with_three_runs(
    served: Served, story: Story, open_session: Open
) -> None:
    spec = crippled(BASE | {"optimizer": {"lr": 2.5e-4}})

    def play(run_id: str) -> None:
        with served.client() as client:
            rate = client.get(f"/v1/runs/{run_id}").json()["spec"]["optimizer"]["lr"]
        train(story, run_id, 0.3, 0.3 if rate < 1e-4 else 0.7)

    found = climb(open_session(3), spec, key="v0.1.1", submitted=play)
    assert found["word"] == "confirmed"
    assert found["pass_at_1"] == {"baseline": 0.3, "variants": [0.7, 0.7]}
    assert found["verdicts"] == {"sampled": "improved"}
    assert "v0.1.1" in found["changelog"]
    assert "CONFIRMED" in found["changelog"].upper()
    assert "pass@1 0.300 became 0.700 and 0.700" in found["changelog"]
    assert found["grant"]["num_runs_used"] == found["grant"]["num_runs"] == 3
    refusal = found["fourth_run"]
    assert (refusal["code"], refusal["retryable"]) == ("grant_exhausted", False)
    with served.client() as client:
        assert len(client.get("/v1/runs").json()["data"]) == 3


def test_an_idle_policy_confirms_nothing(served: Served, story: Story, open_session: Open) -> None:
    spec = crippled(BASE | {"optimizer": {"lr": 2.5e-4}})
    found = climb(
        open_session(3),
        spec,
        key="v0.1.1",
        submitted=lambda run_id: train(story, run_id, 0.3, 0.3),
    )
    assert found["word"] != "confirmed"
    assert "became" in found["changelog"]
