"""Consumes the connection of Socket Mode: stores each request, acknowledges it, then acts on it.

What the process leaves behind when it is killed is in the inbox: the next one acts on it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio.to_thread
import psycopg

from api.http.requests.services import Services
from api.http.slack.processing import process, run_inbox
from api.http.slack.socket_mode.envelopes import take_envelope
from api.http.slack.socket_mode.turn import SlackTurn, wait_for_turn
from api.notices.errors import SlackRefused, SlackUnavailable
from api.notices.slack.socket import SlackSocket, SocketEnvelope, open_socket

CHECK_S = 2.0
"""Interval of checks that the turn is kept and the connection open."""
AWAY_S = 60.0
"""A connection that the library did not restore within this time is opened anew."""
RETRY_S = 2.0
MAX_RETRY_S = 60.0

log = logging.getLogger(__name__)


class SocketLost(Exception):
    """The connection is away for longer than the library needs to restore it."""


@dataclass(slots=True, kw_only=True)
class EnvelopeConsumer:
    """The one consumer of this process; `stopping` ends it."""

    services: Services
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    acting: set[asyncio.Task[None]] = field(default_factory=set)
    failures: int = 0
    """In a row; the wait before the next try grows with them."""

    async def run(self) -> None:
        """Consume until it is stopped, whatever becomes of Slack and of the database meanwhile."""
        log.info("Socket Mode: waiting for the turn")
        async with run_inbox(self.services):
            while not self.stopping.is_set():
                why = await self._take_turn()
                if why is not None:
                    wait_s = min(MAX_RETRY_S, RETRY_S * 2.0 ** min(self.failures, 8))
                    self.failures += 1
                    log.warning("Socket Mode: %s; again in %.0f s", why, wait_s)
                    await self._sleep(wait_s)
            await asyncio.gather(*self.acting, return_exceptions=True)

    async def _take_turn(self) -> str | None:
        """Consume as long as this process has the turn, and return why that ended."""
        settings = self.services.settings
        assert settings.slack_app_token is not None
        token = settings.slack_app_token.get_secret_value()
        stopped = asyncio.ensure_future(self.stopping.wait())
        consuming = asyncio.ensure_future(self._consume(token))
        try:
            await asyncio.wait({stopped, consuming}, return_when=asyncio.FIRST_COMPLETED)
            if not consuming.done():
                return None
            return await _why(consuming)
        finally:
            stopped.cancel()
            consuming.cancel()
            with suppress(asyncio.CancelledError):
                await _why(consuming)

    async def _consume(self, token: str) -> None:
        settings = self.services.settings
        async with (
            wait_for_turn(settings.database_url) as turn,
            open_socket(token, settings.slack_api_base_url, self._take) as socket,
        ):
            self.failures = 0
            log.info("Socket Mode: connected")
            await _keep(turn, socket)

    async def _take(self, envelope: SocketEnvelope) -> Mapping[str, Any] | None:
        """Store the request of an envelope, begin to act on it, and return the acknowledgement."""
        receipt = await anyio.to_thread.run_sync(take_envelope, self.services, envelope)
        if receipt.request_id is not None:
            task = asyncio.create_task(self._act(receipt.request_id))
            self.acting.add(task)
            task.add_done_callback(self.acting.discard)
        return receipt.answer

    async def _act(self, request_id: int) -> None:
        try:
            await anyio.to_thread.run_sync(process, self.services, request_id)
        except Exception:  # the loop over the inbox tries it again
            log.exception("request %d of Slack failed", request_id)

    async def _sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), seconds)


async def _keep(turn: SlackTurn, socket: SlackSocket) -> None:
    """Return never; raises SocketLost, and what `SlackTurn.check` does."""
    away_s = 0.0
    while True:
        await asyncio.sleep(CHECK_S)
        await turn.check()
        away_s = 0.0 if await socket.is_connected() else away_s + CHECK_S
        if away_s >= AWAY_S:
            raise SocketLost(f"no connection for {AWAY_S:.0f} s")


async def _why(consuming: asyncio.Future[None]) -> str:
    """Return why the consumption ended, in words."""
    try:
        await consuming
    except SlackRefused as error:
        return f"Slack refuses the connection ({error}): see docs/slack.md"
    except (SlackUnavailable, SocketLost) as error:
        return f"Slack is away ({error})"
    except (psycopg.Error, TimeoutError) as error:
        return f"the database is away ({str(error).strip() or 'no answer'})"
    return "the connection ended"
