"""The gate and the paths of routes."""

from __future__ import annotations

import httpx
import pytest


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PATCH", "/v1/experiments/changelog", "GET"),
        ("DELETE", "/v1/agent-keys/self", "GET"),
        ("PUT", "/v1/secrets/reencrypt", "POST"),
        ("GET", "/v1/runs/plan", "POST"),
        ("DELETE", "/v1/runs", "GET, POST"),
    ],
)
async def test_a_fixed_path_is_no_value_of_another_routes_parameter(
    client: httpx.AsyncClient, method: str, path: str, allowed: str
) -> None:
    answer = await client.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert answer.json()["code"] == "method_not_allowed"
