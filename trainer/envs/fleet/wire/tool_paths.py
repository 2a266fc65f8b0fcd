"""The tools of one instance, from the two paths at which Fleet's environments serve them.

An environment's own server is at `mcp` below the instance's root, the platform's aggregator at
`api/v1/mcp`; some environments serve their tools at the second alone. As in OpenEnv, the tools are
the union of both, and a call goes to the path that listed its tool, the first one where both do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeVar

from pydantic import JsonValue

from trainer.envs.fleet.wire.api import FleetApi, FleetInstance
from trainer.envs.fleet.wire.faults import SESSION_LOST, CallRefused, WireFault
from trainer.envs.fleet.wire.mcp_session import McpSession
from trainer.envs.fleet.wire.retry import CallRetry, Meter
from trainer.envs.fleet.wire.sizes import Sizes

T = TypeVar("T")
Tool = dict[str, JsonValue]
PATHS = ("mcp", "api/v1/mcp")
COMPUTER = "computer"
"""The tool for a screen; tasks of the modality `tool_use` do not get it."""
PATIENCE_S = 5.0
"""How long a path that does not list its tools is tried once the other one has."""
_ABSENT = (404, 410)
_log = logging.getLogger(__name__)


class ToolPaths:
    """The MCP sessions of one instance: one per path, reopened where it was lost."""

    def __init__(self, instance: FleetInstance, api: FleetApi, meter: Meter, sizes: Sizes) -> None:
        connect = partial(
            McpSession,
            headers=api.account.headers,
            meter=meter,
            tls=api.tls,
            allowed=api.account.allowed,
            max_bytes=sizes.max_message_bytes,
        )
        self._paths = tuple(_ToolPath(f"{instance.root}/{path}", connect, meter) for path in PATHS)
        self._owners: dict[str, _ToolPath] = {}

    async def tools(self, retry: CallRetry) -> tuple[Tool, ...]:
        """Return the tools of all paths, never none.

        A path that refuses is passed over where another one lists tools; so is one that does not
        list any for a while.

        Raises:
            WireFault: no path lists tools.
        """
        listings = {
            path: asyncio.create_task(retry.call("the list of tools", path.tools))
            for path in self._paths
        }
        await _settle(listings.values())
        tools: dict[str, Tool] = {}
        faults: list[WireFault] = []
        for path, listing in listings.items():
            fault = _fault_of(listing)
            if fault is not None:
                faults.append(fault)
                _report(path, fault)
                continue
            for tool in listing.result():
                name = str(tool.get("name"))
                if name not in tools:
                    tools[name], self._owners[name] = tool, path
        if not tools:
            # An absent path says less than one whose server has a fault.
            faults.sort(key=lambda fault: fault.status in _ABSENT)
            raise faults[0] if faults else _no_tools("the only tool is for a screen")
        for path in self._paths:
            if path not in self._owners.values():
                path.abandon()
        return tuple(tools.values())

    async def call(self, name: str, arguments: Mapping[str, JsonValue]) -> Tool:
        """Call a tool at its path; one that nobody listed at the path with the first tool.

        Raises:
            CallRefused: there is no such tool, or its arguments are wrong.
            WireFault: no response came.
        """
        owner = self._owners.get(name) or next(iter(self._owners.values()), self._paths[0])
        return await owner.call(name, arguments)

    def abandon(self) -> None:
        """Start to end all sessions without waiting."""
        for path in self._paths:
            path.abandon()

    async def close(self) -> None:
        """End all sessions; the server deletes its side with the instance."""
        for path in self._paths:
            await path.close()


class _ToolPath:
    """One path of an instance, with its session."""

    def __init__(self, url: str, connect: Callable[[str], McpSession], meter: Meter) -> None:
        self.url = url
        self._connect = connect
        self._meter = meter
        self._session: McpSession | None = None
        self._sessions: list[McpSession] = []
        """All sessions that are not closed, with those that were abandoned."""
        self._was_open = False

    async def tools(self) -> Sequence[Tool]:
        """Return the tools without the one for a screen.

        Raises:
            WireFault: the list is empty, or none came.
        """
        session = await self._open()
        try:
            tools = await self._await_answer(session.tools())
        except CallRefused as refused:
            raise _no_tools(refused.message, is_transient=False) from refused
        if not tools:
            raise _no_tools("the list of tools is empty")
        return [tool for tool in tools if tool.get("name") != COMPUTER]

    async def call(self, name: str, arguments: Mapping[str, JsonValue]) -> Tool:
        """Call a tool, as `McpSession.call` does."""
        session = await self._open()
        return await self._await_answer(session.call(name, arguments))

    def abandon(self) -> None:
        """Start to end the session without waiting."""
        self._session = None
        for session in self._sessions:
            session.abandon()

    async def close(self) -> None:
        """End all sessions."""
        self.abandon()
        sessions, self._sessions = self._sessions, []
        for session in sessions:
            await session.close()

    async def _open(self) -> McpSession:
        """Return the session, reopened where it was lost."""
        if self._session is None:
            if self._was_open:
                self._meter.count("reconnects")
            session = self._connect(self.url)
            self._sessions.append(session)
            await session.open()
            self._session, self._was_open = session, True
        return self._session

    async def _await_answer(self, response: Awaitable[T]) -> T:
        """Await a response; a lost session, or one whose call was cancelled, is abandoned."""
        try:
            return await response
        except CallRefused:
            raise
        except BaseException as error:
            if not isinstance(error, WireFault) or error.kind == SESSION_LOST:
                self.abandon()
            raise


async def _settle(listings: Collection[asyncio.Task[Sequence[Tool]]]) -> None:
    """Wait until all listings have ended; once one has tools, the others get `PATIENCE_S`."""
    pending = set(listings)
    patience_s: float | None = None
    try:
        while pending:
            done, pending = await asyncio.wait(
                pending, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                return
            if any(_fault_of(listing) is None and listing.result() for listing in done):
                patience_s = PATIENCE_S
    finally:
        for listing in pending:
            listing.cancel()
        await asyncio.gather(*pending, return_exceptions=True)


def _fault_of(listing: asyncio.Task[Sequence[Tool]]) -> WireFault | None:
    """Return the fault of a listing that has ended; None where it has tools.

    Raises:
        Exception: it ended in no `WireFault`.
    """
    if listing.cancelled():
        return _no_tools(
            f"the list of tools took {PATIENCE_S:g} s longer than that of another path"
        )
    error = listing.exception()
    if error is not None and not isinstance(error, WireFault):
        raise error
    return error


def _report(path: _ToolPath, fault: WireFault) -> None:
    level = logging.DEBUG if fault.status in _ABSENT else logging.WARNING
    _log.log(level, "%s lists no tools: %s", path.url, fault)


def _no_tools(message: str, *, is_transient: bool = True) -> WireFault:
    return WireFault(kind="no_tools", message=message, is_transient=is_transient, may_be_done=False)
