"""Which of the service's variables rented nodes get."""

import pytest

from api.clusters.secrets import BadNodeSecrets, node_secrets

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
