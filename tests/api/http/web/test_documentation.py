"""llms.txt and the pages behind it: the packaged documentation, and nothing beside it."""

from __future__ import annotations

import re

import httpx
import pytest

from api.http.document.pages import FOLDER


async def test_every_listed_page_is_served_without_a_key(client: httpx.AsyncClient) -> None:
    del client.headers["Authorization"]
    listed = await client.get("/llms.txt")
    assert listed.status_code == 200
    assert listed.text.startswith("# Hillclimb\n\n> ")
    links = re.findall(r"^- \[[^\]]+\]\(http://service(/docs/[^)]+)\): \S", listed.text, re.M)
    paths = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.md")}
    paths.remove("README.md")  # the same list, as GitHub shows it
    assert {link.removeprefix("/docs/") for link in links} == paths
    for link in links:
        page = await client.get(link)
        assert page.headers["content-type"] == "text/markdown; charset=utf-8"
        assert page.text == (FOLDER / link.removeprefix("/docs/")).read_text()


@pytest.mark.parametrize(
    "path",
    [
        "/docs/none.md",
        "/docs/..%2FREADME.md",
        "/docs/%2e%2e/CONTRIBUTING.md",
        "/docs//etc/passwd.md",
        "/docs/images/../spec.md%00.md",
    ],
)
async def test_no_other_file_is_served(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert answer.status_code == 404
    assert answer.json()["code"] == "not_found"
