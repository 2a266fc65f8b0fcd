"""Upload of verifiers to a server that checks their requests as strictly as Fleet's models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from hillclimb.environment.deadline import within
from hillclimb.environment.errors import VerifierUnavailable
from hillclimb.minifleet.export import verifier_source
from hillclimb.minifleet.server.state import verifiers
from hillclimb.minifleet.server.state.task_registry import TaskRegistry
from tests.trainer.envs.fleet.scene import TASK, on_server, with_payload
from trainer.envs.fleet.provider import FleetProvider

SOURCE = verifier_source(TASK)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Any]]:
    """The bodies of verifier requests that the server accepted."""
    bodies: list[Mapping[str, Any]] = []
    resolve = verifiers.resolve

    def spy(request: verifiers.ExecuteRequest, tasks: TaskRegistry) -> Any:
        bodies.append(request.model_dump(exclude_none=True))
        return resolve(request, tasks)

    monkeypatch.setattr("hillclimb.minifleet.server.routes.records.resolve", spy)
    return bodies


async def graded(provider: FleetProvider, **payload: Any) -> float | None:
    env = provider.make(with_payload(verifier_code=SOURCE, **payload))
    await env.reset()
    # Longer than the longest timeout of the contract.
    with within(400.0):
        grade = await env.score()
    await env.close()
    return grade.score


async def test_a_bundle_is_uploaded_once(sent: list[Mapping[str, Any]]) -> None:
    async with on_server() as (_, provider):
        assert [await graded(provider) for _ in range(3)] == [0.0] * 3
    assert ["bundle" in body for body in sent] == [True, False, False]
    assert {body["timeout"] for body in sent} == {300}


@pytest.mark.parametrize("status", [400, 404])
async def test_a_bundle_that_the_platform_has_dropped_is_uploaded_again(
    status: int, sent: list[Mapping[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifiers, "UNKNOWN_BUNDLE", status)
    async with on_server() as (_, provider):
        assert await graded(provider) == 0.0
        with monkeypatch.context() as dropped:
            dropped.setattr(TaskRegistry, "key_of_bundle", lambda *_: None)
            assert await graded(provider) == 0.0
    assert ["bundle" in body for body in sent] == [True, False, True]


async def test_a_refused_bundle_is_not_uploaded_twice(
    sent: list[Mapping[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifiers, "RequirementMissing", _refuse)
    monkeypatch.setattr(verifiers, "REQUIREMENT", "a-package-that-nobody-names")
    async with on_server() as (_, provider):
        with pytest.raises(VerifierUnavailable, match=r"not_found \(404\): no bundles today"):
            await graded(provider)
    assert len(sent) == 1


def _refuse(_: str) -> Exception:
    return verifiers.FleetProblem(404, "no bundles today")


@pytest.mark.parametrize(
    ("payload", "version"),
    [
        ({"metadata": {"verifier_runtime_version": "v2"}}, "v2"),
        ({"verifier_runtime_version": "v3"}, "v3"),
        ({}, None),
    ],
    ids=["as the platform has it", "as the SDK dumps it", "without one"],
)
async def test_the_version_of_the_verifiers_runtime_travels(
    payload: dict[str, Any], version: str | None, sent: list[Mapping[str, Any]]
) -> None:
    async with on_server() as (_, provider):
        assert await graded(provider, **payload) == 0.0
    assert [body.get("verifier_runtime_version") for body in sent] == [version]
