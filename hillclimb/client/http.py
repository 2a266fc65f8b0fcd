"""Requests of the client: payloads from JSON, problem+json as exceptions, files as streams."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, TypeVar

import httpx
from pydantic import ValidationError

from hillclimb.client.errors import ApiProblem, ApiUnreachable, UnexpectedResponse
from hillclimb.protocol.payloads.base import Payload
from hillclimb.spec.hosts import is_loopback
from hillclimb.stack.state.connection import Connection

P = TypeVar("P", bound=Payload)
Parameter = str | float | Sequence[str] | None
"""A parameter of a query; a list is sent as several parameters of one name."""
_ERRNO = re.compile(r"^\[Errno -?\d+\] ")
TIMEOUT = httpx.Timeout(30.0, connect=5.0)


class Http:
    """A connection to one service as one key's owner.

    Every method raises `ApiProblem` if the service refuses and `ApiUnreachable` if it does not
    respond.
    """

    def __init__(
        self, connection: Connection, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._http = httpx.Client(
            base_url=connection.url,
            headers={"Authorization": f"Bearer {connection.api_key}"},
            timeout=TIMEOUT,
            transport=transport,
            verify=_certificates(),
        )
        self.url = connection.url

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def request(self, payload: type[P], method: str, path: str, **options: Any) -> P:
        """Send a request and return the payload of its response; `options` are httpx's."""
        response = self._send(method, path, **options)
        try:
            body = response.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise ApiUnreachable(f"the response of {self.url} is not that of a Hillclimb service")
        return self.parse(payload, body)

    def delete(self, path: str) -> None:
        """Send a DELETE request whose response has no body."""
        self._send("DELETE", path)

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **options)
        except httpx.TransportError as error:
            raise self.unreachable(error) from error
        if response.is_error:
            raise problem_of(response)
        return response

    def get(self, payload: type[P], path: str, params: Mapping[str, Parameter] | None = None) -> P:
        """Send a GET request; parameters that are None are left out."""
        return self.request(payload, "GET", path, params=without_none(params or {}))

    @contextmanager
    def stream(self, path: str, **options: Any) -> Iterator[httpx.Response]:
        """Open the response of a GET request; raises httpx.TransportError as it is."""
        with self._http.stream("GET", path, **options) as response:
            if response.is_error:
                response.read()
                raise problem_of(response)
            yield response

    def file(self, path: str, params: Mapping[str, Parameter] | None = None) -> Iterator[bytes]:
        """Yield the bytes of a file; parameters that are None are left out."""
        options = {"params": without_none(params)} if params else {}
        with self._file_errors(), self.stream(path, **options) as response:
            yield from _bytes_from(response, 0)

    def stored_file(self, path: str, *, start: int = 0) -> Iterator[bytes]:
        """Yield the bytes of a file of the blob store from byte `start` on.

        Directly from the store if it has addresses and is reachable, else from the service.
        """
        headers = {"Range": f"bytes={start}-"} if start else {}
        with self._file_errors():
            with self.stream(f"{path}?direct=true", headers=headers) as response:
                address = response.headers.get("Location") if response.is_redirect else None
                if address is None:
                    yield from _bytes_from(response, start)
                    return
            with suppress(httpx.ConnectError, httpx.ConnectTimeout, _NotServed):
                # Without our key: the signed address is all that the store needs.
                with httpx.stream("GET", address, headers=headers, timeout=TIMEOUT) as response:
                    yield from _bytes_from(response, start)
                return
            with self.stream(path, headers=headers) as response:
                yield from _bytes_from(response, start)

    def unreachable(self, error: Exception) -> ApiUnreachable:
        """Return the error for a service that does not respond."""
        how = ""
        if "WRONG_VERSION_NUMBER" in str(error):
            how = "; it speaks no TLS: write its address with http:// instead of https://"
        elif isinstance(error, httpx.ConnectError) and is_loopback(self.url):
            how = "; if it is the stack of this machine, start it with `hillclimb up`"
        why = _ERRNO.sub("", str(error))
        return ApiUnreachable(f"{self.url} does not respond: {why}{how}")

    @contextmanager
    def _file_errors(self) -> Iterator[None]:
        try:
            yield
        except httpx.TransportError as error:
            raise self.unreachable(error) from error
        except _NotServed as error:
            raise ApiUnreachable(
                f"{self.url} responded with status {error} instead of the file"
            ) from error

    def parse(self, payload: type[P], body: object) -> P:
        """Return the payload of JSON that the service sent; raises UnexpectedResponse."""
        return read_payload(payload, body, url=self.url)


class _NotServed(Exception):
    """A response without the file; `str` is its status.

    A store whose clock is wrong sends one, or a store that redirects: the address is signed for
    its own host alone.
    """


@cache
def _certificates() -> ssl.SSLContext:
    """Return the trusted certificates, read once per process: that takes 50 ms."""
    return httpx.create_ssl_context()


def _bytes_from(response: httpx.Response, start: int) -> Iterator[bytes]:
    """Yield a body from byte `start`, whether the response begins there or at 0."""
    if not response.is_success:
        raise _NotServed(str(response.status_code))
    # Some services send status 200 with a range; this header is correct even then.
    is_range = response.headers.get("Content-Range", "").startswith(f"bytes {start}-")
    skip = 0 if is_range else start
    for block in response.iter_bytes():
        if len(block) > skip:
            yield block[skip:]
        skip = max(0, skip - len(block))


def read_payload(payload: type[P], body: object, *, url: str) -> P:
    """Return the payload of JSON that the service at `url` sent; raises UnexpectedResponse."""
    try:
        return payload.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = "/".join(str(part) for part in first["loc"])
        raise UnexpectedResponse(
            f"this version of Hillclimb cannot read the response of {url}: {place}: {first['msg']}"
        ) from error


def problem_of(response: httpx.Response) -> ApiProblem:
    """Return the error for a response that refuses; its body must have been read."""
    try:
        body = response.json()
    except ValueError:
        body = {"title": f"HTTP {response.status_code} without a readable body"}
    return ApiProblem(response.status_code, body if isinstance(body, dict) else {})


def without_none(values: Mapping[str, Parameter]) -> dict[str, str | float | Sequence[str]]:
    """Return the parameters that have a value."""
    return {name: value for name, value in values.items() if value is not None}
