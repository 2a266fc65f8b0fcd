"""Which of the service's variables rented nodes get."""

from typing import Any

import pytest

from api.clusters.errors import NoEligibleHardware
from api.clusters.secrets import (
    InvalidNodeSecrets,
    needed_secrets,
    node_secrets,
    require_node_secrets,
)
from tests.fixtures.factories import make_spec
from tests.hillclimb.hardware.rented import rented

ENVIRON = {"FLEET_API_KEY": "fleet-key", "AWS_REGION": "eu", "EMPTY": ""}


def test_only_named_variables_are_given() -> None:
    assert node_secrets("FLEET_API_KEY", ENVIRON) == {"FLEET_API_KEY": "fleet-key"}
    assert node_secrets("", ENVIRON) == {}
    assert node_secrets(" FLEET_API_KEY,\nFLEET_API_KEY ", ENVIRON) == {
        "FLEET_API_KEY": "fleet-key"
    }


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("WANDB_API_KEY", "names WANDB_API_KEY, which is not set in the service's environment"),
        ("EMPTY", "names EMPTY, which is not set in the service's environment"),
        ("AWS_REGION", "names AWS_REGION, whose value has fewer than 6 characters"),
        ("a=b", "'a=b' is none"),
    ],
)
def test_what_cannot_be_given_is_said_without_its_value(names: str, said: str) -> None:
    with pytest.raises(InvalidNodeSecrets, match=said) as refused:
        node_secrets(names, ENVIRON)
    assert "fleet-key" not in str(refused.value)


LAMBDA = {"infra": "lambda", "accelerators": "H100:8"}
FLEET = {"provider": "fleet"}
SHOP = {"url": "https://shop.example", "headers": {"X-Key": "RUN_SECRET_SHOP"}}
OPENENV = {"provider": "openenv", "openenv": {"booking": SHOP}}
ONLINE = {"wandb": {"mode": "online"}}
TEACHER = {"base_url": "https://t.example", "model": "m", "api_key_env": "RUN_SECRET_TEACHER"}


@pytest.mark.parametrize(
    ("sections", "name", "why"),
    [
        ({"environment": FLEET}, "FLEET_API_KEY", "environment.provider fleet"),
        ({"environment": OPENENV}, "RUN_SECRET_SHOP", "environment.openenv.booking.headers"),
        ({"tracking": ONLINE}, "WANDB_API_KEY", "tracking.wandb.mode online"),
        (
            {"kind": "validate", "validation": {"teacher": TEACHER}},
            "RUN_SECRET_TEACHER",
            "validation.teacher.api_key_env",
        ),
    ],
)
def test_fresh_machines_are_refused_to_a_run_that_would_find_no_key_there(
    sections: dict[str, Any], name: str, why: str
) -> None:
    data = {"env_keys": ["booking"]}
    spec = rented(LAMBDA, experimental=True, data=data, **sections)
    message = rf"{why} needs {name}, .* on lambda .*there: OTHER"
    with pytest.raises(NoEligibleHardware, match=message):
        require_node_secrets(spec, {"OTHER"})
    hosts = {name: ("shop.example", "t.example")}
    require_node_secrets(spec, {"OTHER", name}, hosts)


def test_what_is_in_an_image_or_on_ones_own_machines_is_not_judged() -> None:
    own = {"infra": "slurm/lab", "accelerators": "H100:8"}
    packed = LAMBDA | {"image": "docker:example/trainer:1"}
    for machines in (own, packed):
        require_node_secrets(rented(machines, experimental=True, environment=FLEET), ())
    with pytest.raises(NoEligibleHardware, match=r"on lambda .*there: nothing"):
        require_node_secrets(rented(own, LAMBDA, experimental=True, environment=FLEET), ())


def test_a_run_without_secrets_or_without_machines_of_its_own_needs_none() -> None:
    require_node_secrets(rented(LAMBDA, experimental=True), ())
    require_node_secrets(make_spec(environment=FLEET, experimental=True), ())


ALL = {
    "AWS_SECRET_ACCESS_KEY": "of-the-store",
    "OTEL_EXPORTER_OTLP_HEADERS": "of-traces",
    "FLEET_API_KEY": "of-fleet",
    "WANDB_API_KEY": "of-wandb",
    "HF_TOKEN": "of-the-hub",
    "RUN_SECRET_SHOP": "of-a-shop",
}
INFRASTRUCTURE = {"AWS_SECRET_ACCESS_KEY", "OTEL_EXPORTER_OTLP_HEADERS"}
QWEN = {"source": "Qwen/Qwen3-8B"}
BOUND = {"RUN_SECRET_SHOP": ("shop.example",)}


@pytest.mark.parametrize(
    ("sections", "hosts", "more"),
    [
        ({}, BOUND, set()),
        ({"environment": FLEET}, {}, {"FLEET_API_KEY"}),
        ({"tracking": ONLINE}, {}, {"WANDB_API_KEY"}),
        ({"model": QWEN}, {}, {"HF_TOKEN"}),
        ({"environment": OPENENV}, {}, set()),
        ({"environment": OPENENV}, {"RUN_SECRET_SHOP": ("other.example",)}, set()),
        ({"environment": OPENENV}, BOUND, {"RUN_SECRET_SHOP"}),
    ],
)
def test_nodes_get_the_operators_secrets_that_their_run_needs(
    sections: dict[str, Any], hosts: dict[str, tuple[str, ...]], more: set[str]
) -> None:
    data = {"env_keys": ["booking"]}
    spec = rented(LAMBDA, experimental=True, data=data, **sections)
    needed = needed_secrets(spec, ALL, hosts)
    assert needed == {name: ALL[name] for name in INFRASTRUCTURE | more}


def test_a_secret_of_the_operators_that_may_not_be_sent_there_is_none() -> None:
    spec = rented(LAMBDA, experimental=True, data={"env_keys": ["booking"]}, environment=OPENENV)
    elsewhere = {"RUN_SECRET_SHOP": ("other.example",)}
    with pytest.raises(NoEligibleHardware, match="its hosts to HILLCLIMB_RUN_SECRET_HOSTS"):
        require_node_secrets(spec, {"RUN_SECRET_SHOP"}, elsewhere)
    require_node_secrets(spec, {"RUN_SECRET_SHOP"}, BOUND)
