"""What of a run's spec and its attempt is asked of the clouds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.clusters.secrets import InvalidNodeSecrets
from api.tables import Cluster
from api.tables.access.identity import Principal
from api.tables.access.secrets.keyring import Keyring
from api.tables.access.secrets.store import set_secret
from hillclimb.hardware.plan import HardwarePlan, hardware_plan
from hillclimb.hardware.presets.presets import preset
from hillclimb.spec.run import RunSpec
from tests.api.clusters.renting import rent
from tests.worker.clusters.cluster_simulation import ClusterSimulation, cluster_spec
from tests.worker.run_simulation import PROJECT
from trainer.node.settings import NodeSettings
from worker.clusters.plans import _private_url, node_requirements, plan_for


@pytest.mark.parametrize(
    ("url", "is_taken"),
    [
        ("https://hillclimb.example.com", True),
        ("http://127.0.0.1:8000", True),
        ("http://10.1.2.3:8000", True),
        ("http://[fd00::1]:8000", True),
        ("http://hillclimb.example.com", False),
        ("http://8.8.8.8", False),
    ],
)
def test_secrets_travel_to_nodes_in_private_only(url: str, is_taken: bool) -> None:
    if is_taken:
        assert _private_url(url) == url
    else:
        with pytest.raises(
            InvalidNodeSecrets, match=r"unencrypted over .*: set HILLCLIMB_NODE_API_URL"
        ):
            _private_url(url)


def bounds(found: HardwarePlan) -> tuple[float, float]:
    """Free disk and memory (GB) that a node of this plan asks of its machine."""
    told = {
        "HILLCLIMB_BLOBS_URL": "file:///b",
        "HILLCLIMB_RUN_ID": "run_1",
        "HILLCLIMB_ATTEMPT": "1",
        "HILLCLIMB_ATTEMPT_ID": "att_1",
    }
    read = NodeSettings.from_environment(told | node_requirements(found))
    return read.min_disk_gb, read.min_memory_gb


def test_a_machine_is_tested_for_what_the_run_needs() -> None:
    """The model's files, two checkpoints and 5 GiB of logs; the environment is there by then."""
    found = hardware_plan(RunSpec.model_validate(preset("qwen3-8b-8xh100").spec))
    assert found is not None
    disk_gb, memory_gb = bounds(found)
    assert disk_gb == pytest.approx((2 + 2 * 14) * 8.191 + 5 * 1.0737, rel=0.001)
    estimates = [each.estimate for each in found.candidates if each.why_not is None]
    least = min(each.memory_gib or 0.0 for each in estimates if each)
    assert memory_gb == pytest.approx(0.9 * 1.0737 * least, rel=0.001)
    assert memory_gb > 100


def test_a_machine_of_a_model_that_is_not_known_is_tested_for_the_least() -> None:
    found = hardware_plan(cluster_spec(model={"source": "s3://somewhere/model"}))
    assert found is not None
    assert bounds(found) == (10.0, 4.0)


@pytest.mark.parametrize("api_reachable", [True, False])
def test_secrets_of_the_spec_are_in_the_file_of_nodes_that_cannot_ask_for_them(
    cluster_sim: ClusterSimulation, *, api_reachable: bool
) -> None:
    database, provider = cluster_sim.context.database, cluster_sim.context.cloud_provider
    assert provider is not None
    keys, now = Keyring({"test": b"k" * 32}), cluster_sim.now
    caller = Principal(project_id=PROJECT, key_id="key_1", key_name="me", scopes=frozenset())
    with database.transaction() as session:
        set_secret(session, keys, caller, name="fleet-prod", value="the-fleet-key", now=now)
    named = {"FLEET_API_KEY": "fleet-prod"}
    rented = rent(database, PROJECT, now=now, api_reachable=api_reachable, secrets=named)
    options = replace(
        provider.options(), keyring=keys, node_secrets={"FLEET_API_KEY": "the-operators"}
    )
    with database.transaction() as session:
        plan = plan_for(session, session.get_one(Cluster, rented.cluster_id), options, now=now)
    assert plan.envs["HILLCLIMB_SECRET_NAMES"] == "FLEET_API_KEY"
    assert "the-fleet-key" not in str(plan.envs)
    in_file = None if api_reachable else "the-fleet-key"
    assert plan.secrets.get("FLEET_API_KEY") == in_file
