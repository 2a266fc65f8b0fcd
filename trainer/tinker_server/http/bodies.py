"""Bodies and queries of requests: read up to a limit, and parsed."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel
from starlette.requests import Request

from trainer.tinker_server.accounts import refuse_foreign
from trainer.tinker_server.errors import TooLarge

MAX_BODY_BYTES = 32 * 2**20
"""The SDK 0.24.1 sends data in parts of about 10 MiB. All bodies of clients are parsed in the event
loop, at some 5 ms per MB, so that a larger one would stop the samples of the others."""
_Body = TypeVar("_Body", bound=BaseModel)


async def read(request: Request) -> bytes:
    """Return a request's body.

    Raises:
        TooLarge: it has more than `MAX_BODY_BYTES`; the rest is not read.
    """
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise TooLarge(
                f"a request may have {MAX_BODY_BYTES} bytes: send the data in several requests"
            )
        parts.append(part)
    return b"".join(parts)


async def parsed(request: Request, kind: type[_Body]) -> _Body:
    """Return a request's body as JSON of a kind.

    Raises:
        TooLarge: as `read`.
        Unknown: it names what is another account's.
        ValidationError: it is none.
    """
    body = kind.model_validate_json(await read(request))
    refuse_foreign(request.state.account, body)
    return body


def query(request: Request, kind: type[_Body]) -> _Body:
    """Return a request's query parameters.

    Raises:
        ValidationError: one is none of the kind's.
    """
    return kind.model_validate(dict(request.query_params))
