"""The trainer's gate reads the evidence of a spec, and compares it with this machine."""

from __future__ import annotations

from typing import Any

import pytest

from hillclimb.spec.run import RunSpec
from tests.fixtures.factories import make_spec, spec_body
from trainer.envs.fleet.choice import account_of
from trainer.errors import SpecError
from trainer.inputs.accepted_paths import (
    gpu_versions,
    library_versions,
    own_version,
    refuse_changed,
)
from trainer.jobs.assembly import refuse_gpu

PLATFORM = "https://orchestrator.fleetai.com"


def on_gpu(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda _: name)
    monkeypatch.setattr("torch.version.cuda", "12.8")


def accepted(path: str, subject: str, versions: dict[str, str]) -> dict[str, Any]:
    return {"accepted": [{"path": path, "subject": subject, "versions": versions}]}


def test_a_gpu_of_the_evidence_is_taken_and_another_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch  # noqa: F401, PLC0415 - a job that trains has loaded it

    on_gpu(monkeypatch, "NVIDIA H100 80GB HBM3")
    proved = make_spec(**accepted("gpu", "NVIDIA H100 80GB HBM3", gpu_versions()))
    refuse_gpu(proved, has_gpu=True)
    with pytest.raises(SpecError, match=r"vLLM was on one.*`hillclimb accept gpu`"):
        refuse_gpu(make_spec(), has_gpu=True)
    on_gpu(monkeypatch, "NVIDIA A100-SXM4-80GB")
    with pytest.raises(SpecError, match="vLLM was on one"):
        refuse_gpu(proved, has_gpu=True)


def test_another_torch_makes_the_evidence_void_and_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch  # noqa: F401, PLC0415

    on_gpu(monkeypatch, "NVIDIA H100")
    versions = gpu_versions() | {"torch": "2.0.0"}
    with pytest.raises(SpecError, match=r"evidence of it is void: torch was 2\.0\.0 and is"):
        refuse_gpu(make_spec(**accepted("gpu", "NVIDIA H100", versions)), has_gpu=True)


def test_fleets_own_platform_is_taken_with_evidence_of_it() -> None:
    key = {"FLEET_API_KEY": "very-secret"}
    body = spec_body(environment={"provider": "fleet"})
    proved = body | accepted("fleet", PLATFORM, own_version())
    assert account_of(RunSpec.model_validate(proved), key).base_url == PLATFORM
    other = body | accepted("fleet", "https://fleet.example", own_version())
    with pytest.raises(SpecError, match="`hillclimb accept fleet`"):
        account_of(RunSpec.model_validate(other), key)


def test_online_tracking_needs_evidence_of_this_server_and_library() -> None:
    online = {"tracking": {"wandb": {"mode": "online"}}}
    here = own_version() | library_versions("wandb")
    proved = make_spec(**online, **accepted("wandb", "https://api.wandb.ai", here))
    refuse_changed(proved, {})
    with pytest.raises(SpecError, match=r"tracking\.wandb\.mode online was never run"):
        refuse_changed(proved, {"WANDB_BASE_URL": "https://wandb.example"})
    older = make_spec(
        **online, **accepted("wandb", "https://api.wandb.ai", here | {"wandb": "0.1"})
    )
    with pytest.raises(SpecError, match=r"void: wandb was 0\.1"):
        refuse_changed(older, {})
    refuse_changed(make_spec(**online, experimental=True), {})
