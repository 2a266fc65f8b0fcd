"""What SkyPilot and the service tell a node."""

import pytest

from trainer.node.environment import ray_variables, with_mark, with_secrets
from trainer.node.errors import NodeMisconfigured
from trainer.node.gang import Gang
from trainer.node.settings import NodeSettings

TOLD = {
    "HILLCLIMB_API_URL": "http://service/",
    "HILLCLIMB_BLOBS_URL": "/blobs",
    "HILLCLIMB_RUN_ID": "run_1",
    "HILLCLIMB_ATTEMPT": "2",
    "HILLCLIMB_ATTEMPT_ID": "att_1",
    "HILLCLIMB_BOOTSTRAP_TOKEN": "hcx_code",
}
PAIR = {
    "SKYPILOT_NODE_RANK": "1",
    "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2",
    "SKYPILOT_NUM_NODES": "2",
    "SKYPILOT_NUM_GPUS_PER_NODE": "8",
}


def test_a_node_knows_which_of_how_many_it_is() -> None:
    gang = NodeSettings.from_environment(TOLD | PAIR).gang
    assert (gang.is_head, gang.is_alone, gang.num_gpus) == (False, False, 8)
    assert (gang.head_ip, gang.own_ip) == ("10.0.0.1", "10.0.0.2")


def test_without_skypilot_a_node_is_alone() -> None:
    gang = NodeSettings.from_environment(TOLD).gang
    assert (gang.is_head, gang.is_alone, gang.num_gpus) == (True, True, 0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"SKYPILOT_NODE_RANK": "2"}, "SKYPILOT_NODE_RANK is 2 of 2"),
        ({"SKYPILOT_NUM_NODES": "3"}, "SKYPILOT_NUM_NODES is 3, and SKYPILOT_NODE_IPS has 2"),
        ({"SKYPILOT_NUM_GPUS_PER_NODE": "x"}, "SKYPILOT_NUM_GPUS_PER_NODE must be a whole number"),
        ({"HILLCLIMB_ATTEMPT": ""}, "HILLCLIMB_ATTEMPT must be a number"),
        ({"HILLCLIMB_NODE_STOP_S": "-1"}, "HILLCLIMB_NODE_STOP_S must be a number"),
        (
            {"HILLCLIMB_BOOTSTRAP_TOKEN": ""},
            "needs the environment variable HILLCLIMB_BOOTSTRAP_TOKEN",
        ),
        ({"HILLCLIMB_BLOBS_URL": ""}, "needs the environment variable HILLCLIMB_BLOBS_URL"),
    ],
)
def test_what_makes_no_sense_is_named(changes: dict[str, str], said: str) -> None:
    with pytest.raises(NodeMisconfigured, match=said):
        NodeSettings.from_environment(TOLD | PAIR | changes)


def test_a_gang_agrees_on_a_port_and_another_on_the_same_machines_has_another() -> None:
    ports = {
        NodeSettings.from_environment(TOLD | PAIR | {"HILLCLIMB_ATTEMPT_ID": f"att_{n}"}).ray_port
        for n in range(20)
    }
    assert len(ports) > 15
    assert all(6400 <= port < 8200 and port % 4 == 0 for port in ports)
    first = NodeSettings.from_environment(TOLD | PAIR | {"SKYPILOT_NODE_RANK": "0"})
    assert first.ray_port == NodeSettings.from_environment(TOLD | PAIR).ray_port


def test_rays_token_is_the_gangs_own_and_nothing_of_another_ray_gets_in() -> None:
    settings = NodeSettings.from_environment(TOLD | PAIR)
    variables = with_secrets(TOLD | {"RAY_ADDRESS": "x:6380", "RAY_AUTH_TOKEN": "theirs"}, {})
    assert "RAY_ADDRESS" not in variables
    assert "RAY_AUTH_TOKEN" not in variables
    same = NodeSettings.from_environment(TOLD | PAIR | {"SKYPILOT_NODE_RANK": "0"})
    assert ray_variables(settings) == ray_variables(same)
    other = NodeSettings.from_environment(TOLD | PAIR | {"HILLCLIMB_BOOTSTRAP_TOKEN": "hcx_other"})
    assert ray_variables(settings)["RAY_AUTH_TOKEN"] != ray_variables(other)["RAY_AUTH_TOKEN"]
    assert ray_variables(NodeSettings.from_environment(TOLD)) == {}


def test_children_are_marked_and_never_see_the_code() -> None:
    settings = NodeSettings.from_environment(TOLD | PAIR)
    child = with_mark(with_secrets(TOLD, {"FLEET_API_KEY": "the-key"}), settings)
    assert child["HILLCLIMB_ATTEMPT_ID"] == "att_1"
    assert child["HILLCLIMB_SECRET_NAMES"] == "FLEET_API_KEY"
    assert child["FLEET_API_KEY"] == "the-key"
    assert "HILLCLIMB_BOOTSTRAP_TOKEN" not in child
    assert "hcx_code" not in repr(settings)
    assert Gang().ips == ("127.0.0.1",)
