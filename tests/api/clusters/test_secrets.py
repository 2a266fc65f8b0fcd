"""Which of the service's variables rented nodes get."""

from typing import Any

import pytest

from api.clusters.errors import NoMachineWillDo
from api.clusters.secrets import BadNodeSecrets, node_secrets, refuse_ungiven
from tests.contract.clusters.rented import rented
from tests.factories import make_spec

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
        ("WANDB_API_KEY", "names WANDB_API_KEY, which the service's environment does not have"),
        ("EMPTY", "names EMPTY, which the service's environment does not have"),
        ("AWS_REGION", "names AWS_REGION, whose value has fewer than 6 characters"),
        ("a=b", "'a=b' is none"),
    ],
)
def test_what_cannot_be_given_is_said_without_its_value(names: str, said: str) -> None:
    with pytest.raises(BadNodeSecrets, match=said) as refused:
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
    with pytest.raises(NoMachineWillDo, match=rf"{why} needs {name}, .* on lambda .*there: OTHER"):
        refuse_ungiven(spec, {"OTHER"})
    refuse_ungiven(spec, {"OTHER", name})


def test_what_is_in_an_image_or_on_ones_own_machines_is_not_judged() -> None:
    own = {"infra": "slurm/lab", "accelerators": "H100:8"}
    packed = LAMBDA | {"image": "docker:example/trainer:1"}
    for machines in (own, packed):
        refuse_ungiven(rented(machines, experimental=True, environment=FLEET), ())
    with pytest.raises(NoMachineWillDo, match=r"on lambda .*there: nothing"):
        refuse_ungiven(rented(own, LAMBDA, experimental=True, environment=FLEET), ())


def test_a_run_without_secrets_or_without_machines_of_its_own_needs_none() -> None:
    refuse_ungiven(rented(LAMBDA, experimental=True), ())
    refuse_ungiven(make_spec(environment=FLEET, experimental=True), ())
