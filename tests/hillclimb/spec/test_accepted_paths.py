"""Evidence allows the path, thing and versions that it was seen with, and no other."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from hillclimb.protocol.checkpoint_manifest import config_hash
from hillclimb.spec.preflight.accepted_paths import AcceptedPath, accepted_for, why_void
from tests.fixtures.factories import make_spec, spec_body

H100 = AcceptedPath(path="gpu", subject="NVIDIA H100 80GB HBM3")
FLEET = "https://fleet.example"


@pytest.mark.parametrize(
    ("gpu", "is_covered"),
    [
        ("H100", True),
        ("H100-80GB", True),
        ("NVIDIA H100 80GB HBM3", True),
        ("H200", False),
        ("H10", False),
        ("A100-80GB", False),
    ],
)
def test_a_kind_of_gpu_is_known_by_its_names(gpu: str, is_covered: bool) -> None:
    assert bool(accepted_for([H100], "gpu", gpu)) is is_covered


def test_a_catalog_may_write_a_name_as_one_word() -> None:
    accepted = AcceptedPath(path="gpu", subject="NVIDIA GeForce RTX 4090")
    assert accepted_for([accepted], "gpu", "RTX4090")
    assert not accepted_for([accepted], "gpu", "RTX4080")


def test_a_cloud_covers_its_regions_and_no_cloud_of_a_like_name() -> None:
    accepted = AcceptedPath(path="cluster", subject="aws")
    assert accepted_for([accepted], "cluster", "aws/us-east-1")
    assert not accepted_for([accepted], "cluster", "awsome")
    assert not accepted_for([accepted], "gpu", "aws")


def test_a_driver_counts_by_its_branch_and_a_library_by_its_version() -> None:
    then = {"hillclimb": "1", "torch": "2.9.0", "driver": "550.54.15", "cuda": "12.8"}
    assert why_void("gpu", then, then | {"driver": "550.90.07"}) is None
    assert why_void("gpu", then, {"driver": "570.1"}) == "driver was 550.54.15 and is 570.1"
    assert why_void("gpu", then, then | {"torch": "2.10"}) == "torch was 2.9.0 and is 2.10"
    assert why_void("gpu", then, then | {"vllm": "0.20"}) == "vllm 0.20 was not part of it"
    assert why_void("gpu", then, {"wandb": "1"}) is None


@pytest.mark.parametrize(
    ("sections", "accepted"),
    [
        ({"tracking": {"wandb": {"mode": "online"}}}, {"path": "wandb"}),
        (
            {"environment": {"provider": "fleet", "fleet": {"base_url": FLEET}}},
            {"path": "fleet", "subject": f"{FLEET}/"},
        ),
    ],
)
def test_a_spec_with_evidence_needs_no_flag(
    sections: dict[str, Any], accepted: dict[str, Any]
) -> None:
    with pytest.raises(ValidationError, match="prove it here once with `hillclimb accept"):
        make_spec(**sections)
    assert not make_spec(**sections, accepted=[accepted]).experimental
    with pytest.raises(ValidationError, match="was never run"):
        make_spec(**sections, accepted=[accepted | {"path": "tinker"}])


def test_evidence_of_one_address_is_none_of_another() -> None:
    environment = {"provider": "fleet", "fleet": {"base_url": "https://other.example"}}
    with pytest.raises(ValidationError, match="was never run"):
        make_spec(environment=environment, accepted=[{"path": "fleet", "subject": FLEET}])


def test_evidence_is_no_setting_of_the_run() -> None:
    accepted = [{"path": "gpu", "subject": "NVIDIA H100"}]
    assert config_hash(make_spec()) == config_hash(make_spec(accepted=accepted))


def test_what_nothing_can_accept_is_not_said_to_be_provable() -> None:
    environment = {"provider": "openenv", "openenv": {"booking": {"url": "https://env.example"}}}
    with pytest.raises(ValidationError) as refusal:
        make_spec(**spec_body(environment=environment))
    assert "hillclimb accept" not in str(refusal.value)
