"""The provider of identities: OpenID Connect with authorization code and PKCE.

OpenID Connect Core 1.0 §3.1, RFC 7636 (PKCE), RFC 9700. The provider's document and keys are
fetched when first needed; an unknown key id fetches the keys again, at most once a minute.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import httpx
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from api.tables.access.errors import SignInFailed
from api.tables.access.members import ConfirmedIdentity

ALGORITHMS = ("RS256", "PS256", "ES256")
"""Signatures of id tokens that are accepted: neither `none` nor a shared secret."""
SCOPES = "openid email profile"
LEEWAY_S = 60
TIMEOUT_S = 10.0
MAX_BYTES = 1_000_000
CACHE_S = 3600.0
REFETCH_S = 60.0
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcClient:
    """This service as the provider knows it."""

    issuer: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    """Null for a public client, which PKCE alone protects."""


@dataclass(slots=True)
class _Cached:
    """A document of the provider, and when it was fetched (s, monotonic)."""

    document: Mapping[str, Any]
    at: float


class Provider:
    """One provider; every method raises SignInFailed with a sentence for the person."""

    def __init__(
        self,
        client: OidcClient,
        *,
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client = client
        self._http = httpx.Client(timeout=TIMEOUT_S, transport=transport)
        self._clock = clock
        self._lock = threading.Lock()
        self._cached: dict[str, _Cached] = {}

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def authorization_url(self, *, state: str, nonce: str, verifier: str, redirect_uri: str) -> str:
        """Return the address at which the person signs in."""
        digest = hashlib.sha256(verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self.client.client_id,
            "redirect_uri": redirect_uri,
            "scope": SCOPES,
            "state": state,
            "nonce": nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        endpoint = self._endpoint("authorization_endpoint")
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    def redeem(self, code: str, *, verifier: str, redirect_uri: str) -> str:
        """Exchange a code for an id token; it is not verified yet."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        auth: tuple[str, str] | None = None
        if self.client.client_secret is None:
            form["client_id"] = self.client.client_id
        else:
            # RFC 6749 §2.3.1: both are form-encoded before they become HTTP Basic.
            auth = (
                quote(self.client.client_id, safe=""),
                quote(self.client.client_secret, safe=""),
            )
        options: dict[str, Any] = {"data": form} | ({"auth": auth} if auth else {})
        answer = self._fetch("POST", self._endpoint("token_endpoint"), **options)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise SignInFailed("The provider of identities sent no id token.")
        return token

    def verify(self, id_token: str, *, nonce: str, now: datetime) -> ConfirmedIdentity:
        """Return the person of an id token whose signature and claims are those of this sign-in."""
        claims = self._claims(id_token)
        registry = jwt.JWTClaimsRegistry(
            now=int(now.timestamp()),
            leeway=LEEWAY_S,
            iss={"essential": True, "value": self.client.issuer},
            aud={"essential": True, "value": self.client.client_id},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
            nonce={"essential": True, "value": nonce},
        )
        try:
            registry.validate(claims)
        except JoseError as error:
            raise SignInFailed(f"The id token is not valid for this sign-in: {error}.") from error
        self._check_party(claims)
        email, name = claims.get("email"), claims.get("name")
        is_verified = claims.get("email_verified") is True and isinstance(email, str)
        return ConfirmedIdentity(
            issuer=self.client.issuer,
            subject=str(claims["sub"])[:255],
            email=email if is_verified else None,
            name=name if isinstance(name, str) else None,
        )

    def _check_party(self, claims: Mapping[str, Any]) -> None:
        """OpenID Connect Core §3.1.3.7: of several audiences, this service must be the party."""
        audience, party = claims["aud"], claims.get("azp")
        is_shared = isinstance(audience, list) and len(audience) > 1
        if (is_shared or party is not None) and party != self.client.client_id:
            raise SignInFailed("The id token was issued for another service.")

    def _claims(self, id_token: str) -> dict[str, Any]:
        """Return the claims of a token with a valid signature."""
        for max_age_s in (CACHE_S, REFETCH_S):
            try:
                keys = KeySet.import_key_set(dict(self._keys(max_age_s)))  # type: ignore[arg-type]
                return dict(jwt.decode(id_token, keys, algorithms=list(ALGORITHMS)).claims)
            except (JoseError, ValueError, KeyError, TypeError) as error:
                # The provider may have new keys.
                failure = error
        raise SignInFailed("The signature of the id token is not the provider's.") from failure

    def _keys(self, max_age_s: float) -> Mapping[str, Any]:
        return self._document(self._endpoint("jwks_uri"), max_age_s)

    def _endpoint(self, name: str) -> str:
        """Return an address from the provider's document."""
        issuer = self.client.issuer
        address = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
        document = self._document(address, CACHE_S)
        if document.get("issuer") != issuer:
            raise SignInFailed(f"The document of {issuer} is another issuer's.")
        endpoint = document.get(name)
        if not isinstance(endpoint, str):
            raise SignInFailed(f"The document of {issuer} names no {name}.")
        return endpoint

    def _document(self, address: str, max_age_s: float) -> Mapping[str, Any]:
        with self._lock:
            cached = self._cached.get(address)
            if cached is None or self._clock() - cached.at >= max_age_s:
                cached = _Cached(self._fetch("GET", address), self._clock())
                self._cached[address] = cached
        return cached.document

    def _fetch(self, method: str, address: str, **options: Any) -> dict[str, Any]:  # noqa: ANN401 (httpx's)
        """Return the JSON object at an address of the provider; follows no redirect."""
        if not is_protected(address):
            raise SignInFailed(
                f"The provider of identities names an address without https: {address}"
            )
        try:
            with self._http.stream(method, address, **options) as response:
                content = b""
                for block in response.iter_bytes():
                    content += block
                    if len(content) > MAX_BYTES:
                        raise SignInFailed("A response of the provider of identities is too large.")
                body = json.loads(content) if response.status_code == httpx.codes.OK else None
        except (httpx.HTTPError, ValueError) as error:
            raise SignInFailed("The provider of identities does not respond: try again.") from error
        if not isinstance(body, dict):
            raise SignInFailed(
                f"The provider of identities refused the request (status {response.status_code})."
            )
        return body


def is_protected(address: str) -> bool:
    """Return True for https, and for http on this machine."""
    parts = urlsplit(address)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
