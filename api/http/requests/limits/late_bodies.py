"""Bodies that arrive long after their caller was admitted: the caller is looked up again.

The gate looks at the token before the body. Whoever sends the body slowly would otherwise still
change something hours after the key was revoked, or the role lowered.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.tables.access.errors import IdentityError

LATE_S = 1.0
"""As soon as streams notice that their caller may no longer read (`api.http.live.leases`)."""


@dataclass(slots=True, kw_only=True)
class LateBody:
    """One request on its way from the gate to its route."""

    receive: Receive
    send: Send
    look_again: Callable[[], Awaitable[None]]
    """Raises IdentityError for a caller who may not do this any more."""
    refusal: Exception | None = None
    _is_complete: bool = False
    _has_started: bool = False
    _admitted_at: float = field(default_factory=time.monotonic)

    async def pass_to(self, app: ASGIApp, scope: Scope) -> None:
        """Call the application; where the caller is refused meanwhile, it answers nothing."""
        try:
            await app(scope, self._receive, self._send)
        except ClientDisconnect:
            if self.refusal is None:
                raise

    async def _receive(self) -> Message:
        message = await self.receive()
        if self._is_complete or message["type"] != "http.request" or message.get("more_body"):
            return message
        self._is_complete = True
        if time.monotonic() - self._admitted_at < LATE_S:
            return message
        try:
            await self.look_again()
        except (IdentityError, OperationalError, PoolTimeout) as error:
            self.refusal = error
            return {"type": "http.disconnect"}
        return message

    async def _send(self, message: Message) -> None:
        if self.refusal is None or self._has_started:
            self._has_started = True
            await self.send(message)
