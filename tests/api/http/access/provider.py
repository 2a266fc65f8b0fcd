"""A provider of identities on loopback: real codes, PKCE, keys and signatures."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

CLIENT_ID, CLIENT_SECRET = "hillclimb", "s3cret/with:odd characters"


@dataclass
class OidcServer:
    """The state of one provider; tests change what it says."""

    issuer: str = ""
    subject: str = "sub-ada"
    email: str = "ada@example.org"
    claims: dict[str, Any] = field(default_factory=dict)
    """Override the claims of the next id tokens; null leaves one out."""
    key: RSAKey | ECKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "k1"}))
    published: list[RSAKey | ECKey] = field(default_factory=list)
    algorithm: str = "RS256"
    pending: dict[str, dict[str, str]] = field(default_factory=dict)
    """Authorization requests by code; a code is redeemed once."""
    num_key_fetches: int = 0

    def document(self) -> dict[str, str]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
        }

    def keys(self) -> dict[str, Any]:
        self.num_key_fetches += 1
        keys: Any = self.published or [self.key]
        return dict(KeySet(keys).as_dict(private=False))

    def authorize(self, query: dict[str, str]) -> str:
        assert query["code_challenge_method"] == "S256"
        assert query["scope"].split()[0] == "openid"
        code = secrets.token_urlsafe(16)
        self.pending[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def redeem(self, form: dict[str, str], authorization: str) -> dict[str, Any] | None:
        asked = self.pending.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        login = f"{urlencode({'': CLIENT_ID})[1:]}:{CLIENT_SECRET.replace('/', '%2F')}"
        login = login.replace(":odd", "%3Aodd").replace(" ", "%20")
        expected = "Basic " + base64.b64encode(login.encode()).decode()
        if asked is None or asked["code_challenge"] != challenge or authorization != expected:
            return None
        if form.get("redirect_uri") != asked["redirect_uri"]:
            return None
        return {"access_token": "x", "token_type": "Bearer", "id_token": self.token(asked["nonce"])}

    def token(self, nonce: str) -> str:
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT_ID,
            "sub": self.subject,
            "iat": now,
            "exp": now + 300,
            "nonce": nonce,
            "email": self.email,
            "email_verified": True,
            "name": "Ada",
        } | self.claims
        claims = {name: value for name, value in claims.items() if value is not None}
        header = {"alg": self.algorithm, "kid": self.key.kid}
        return jwt.encode(header, claims, self.key, algorithms=[self.algorithm])


@contextmanager
def serve_provider() -> Iterator[OidcServer]:
    """Serve a provider until the block ends."""
    state = OidcServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            if url.path == "/authorize":
                self.send_response(302)
                self.send_header("Location", state.authorize(query))
                self.end_headers()
            elif url.path == "/.well-known/openid-configuration":
                self._json(state.document())
            else:
                self._json(state.keys())

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {name: values[0] for name, values in parse_qs(content).items()}
            self._json(state.redeem(form, self.headers.get("Authorization", "")))

        def _json(self, body: dict[str, Any] | None) -> None:
            content = json.dumps(body or {"error": "invalid_grant"}).encode()
            self.send_response(200 if body else 400)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.issuer = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
