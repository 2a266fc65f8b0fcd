"""A provider of identities that answers wrongly opens no session, and no address of its choice."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from api.http.oidc.provider import MAX_BYTES, OidcClient, Provider
from api.tables.access.errors import SignInFailed

ISSUER = "https://id.example.org"
DOCUMENT = {"issuer": ISSUER, "token_endpoint": f"{ISSUER}/token", "jwks_uri": f"{ISSUER}/keys"}


def redeemed(document: httpx.Response, token: httpx.Response | None = None) -> list[httpx.Request]:
    """Exchange a code as a client without a secret; return the requests that were sent."""
    requests: list[httpx.Request] = []

    def respond(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        is_document = request.url.path == "/.well-known/openid-configuration"
        return document if is_document or token is None else token

    client = OidcClient(issuer=ISSUER, client_id="hillclimb", client_secret=None)
    provider = Provider(client, transport=httpx.MockTransport(respond))
    try:
        assert provider.redeem("code", verifier="v", redirect_uri="https://us/back") == "token"
    finally:
        provider.close()
    return requests


def test_a_client_without_a_secret_names_itself_in_the_form() -> None:
    answer = httpx.Response(200, json={"id_token": "token"})
    _, request = redeemed(httpx.Response(200, json=DOCUMENT), answer)
    assert b"client_id=hillclimb" in request.content
    assert "Authorization" not in request.headers


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"json": DOCUMENT | {"issuer": "https://other.example.org"}}, "is another issuer's"),
        ({"json": {"issuer": ISSUER}}, "names no token_endpoint"),
        ({"json": DOCUMENT | {"token_endpoint": "http://10.0.0.1/"}}, "an address without https"),
        ({"json": DOCUMENT | {"token_endpoint": "file:///etc/passwd"}}, "without https"),
        ({"content": b"x" * (MAX_BYTES + 1)}, "is too large"),
        ({"content": b"<html>"}, "does not respond: try again"),
    ],
)
def test_a_wrong_document_is_a_sentence(document: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SignInFailed, match=sentence):
        redeemed(httpx.Response(200, **document))


@pytest.mark.parametrize("answer", [{}, {"id_token": 7}])
def test_an_answer_without_an_id_token_is_a_sentence(answer: dict[str, Any]) -> None:
    with pytest.raises(SignInFailed, match="sent no id token"):
        redeemed(httpx.Response(200, json=DOCUMENT), httpx.Response(200, json=answer))
