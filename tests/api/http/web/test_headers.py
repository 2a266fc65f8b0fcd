"""Headers of every response, limits of sign-in forms, and what the access log has of a sign-in."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from api.http.middleware import MAX_FORM_BYTES
from api.http.requests.permissions import PERMISSIONS

PARAMETER = re.compile(r"\{[^}]+\}")
STREAMS = {"GET /v1/runs/{run_id}/events/stream"}


@pytest.mark.parametrize("has_key", [True, False])
async def test_every_response_has_a_policy_for_browsers(
    client: httpx.AsyncClient, has_key: bool
) -> None:
    if not has_key:
        del client.headers["Authorization"]
    for route in [*sorted(PERMISSIONS.keys() - STREAMS), "PUT /v1/runs", "GET /none"]:
        method, _, path = route.partition(" ")
        answer = await client.request(method, PARAMETER.sub("x", path))
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'"), route
        assert "frame-ancestors 'none'" in policy, route
        assert answer.headers["x-content-type-options"] == "nosniff", route


async def test_static_files_pages_and_refused_bodies_have_it_too(client: httpx.AsyncClient) -> None:
    page = await client.get("/docs")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    names = re.findall(r'"/static/([^"?]+)', page.text)
    assert names
    answers = [await client.get(f"/static/{name}") for name in names]
    answers.append(await client.post("/v1/runs", content=b"x" * 1_000_001))
    assert [each.status_code for each in answers] == [200] * len(names) + [413]
    assert all("content-security-policy" in each.headers for each in answers)


@pytest.mark.parametrize("path", ["/login", "/logout", "/login/oidc/accept"])
async def test_a_large_sign_in_form_is_refused_before_it_is_read(
    client: httpx.AsyncClient, path: str
) -> None:
    """960 kB of a form took half a second of the process, without any key."""
    body = b"a=1&" * 250_000
    answer = await client.post(path, content=body)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    many = b"&".join(b"%d=1" % number for number in range(1000))
    assert len(many) < MAX_FORM_BYTES
    if path == "/login":
        assert (await client.post(path, content=many)).json()["code"] == "malformed"


def test_codes_of_sign_ins_are_not_in_the_access_log(database_url: str, tmp_path: Path) -> None:
    environment = os.environ | {
        "DATABASE_URL": database_url,
        "REDIS_URL": "redis://127.0.0.1:1",
        "HILLCLIMB_BLOBS_URL": str(tmp_path),
        "HILLCLIMB_SECRET_KEY": "for tests only",
    }
    code = "import uvicorn; uvicorn.run('api.app:create_app', factory=True, port=0)"
    command = [sys.executable, "-u", "-c", code]
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = next(line for line in process.stdout if "running on" in line).split()[-5]
        try:
            for path in ("login?code=SECRET&next=/", "login/oidc/callback?state=s&code=SECRET"):
                httpx.get(f"{url}/{path}", timeout=20)
            httpx.get(f"{url}/v1/health?page=2", timeout=20)
        finally:
            process.terminate()
        log = process.stdout.read()
    assert "SECRET" not in log
    for path in ("/login?…", "/login/oidc/callback?…", "/v1/health?page=2"):
        assert f'"GET {path} HTTP/1.1"' in log
