"""One episode on one instance of the platform: an `Env` over Fleet's wire.

Reset makes the instance, waits until it runs, puts it into its start state and waits until it lists
tools. Who decides that the episode is over is `trainer.rollouts.episode`; `submit_final_answer`,
where a prompt names it, is answered here and ends it.

A tool call that got no answer may have been carried out. It is sent again only if that changes
nothing: the fault says that nothing was done (the connection was never made, 429, 503, a session
the server does not know, `retryable: true`), or the tool declares itself read-only or idempotent.
Otherwise the state is unknown, so the try ends as an infra error and the rollout begins anew on
another instance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from pydantic import JsonValue

from trainer.envs.base import Grade, ToolResult, ToolSpec, shortened
from trainer.envs.deadline import remaining_s
from trainer.envs.fleet import verification
from trainer.envs.fleet.api import FleetApi, Instance, Json
from trainer.envs.fleet.faults import INSTANCE_LIMIT, SESSION_LOST, Refused, WireFault
from trainer.envs.fleet.instances import Instances
from trainer.envs.fleet.limiter import Share
from trainer.envs.fleet.mcp_session import McpSession
from trainer.envs.fleet.persistence import Persistence
from trainer.envs.fleet.results import tool_result
from trainer.envs.fleet.schema import changes_nothing, tool_spec
from trainer.envs.fleet.sizes import Sizes
from trainer.envs.fleet.wishes import Wish, Wishes
from trainer.errors import EnvAtCapacity, EnvUnavailable, ToolTransport, VerifierUnavailable
from trainer.types import Task

T = TypeVar("T")

COMPUTER = "computer"
"""The tool for a screen; tasks of the modality `tool_use` do not get it."""
SUBMIT = "submit_final_answer"
SUBMIT_SPEC = ToolSpec(
    name=SUBMIT,
    description="Submit the final answer of the task. This ends the task.",
    parameters={
        "type": "object",
        "properties": {"answer": {"type": "string", "description": "The final answer."}},
        "required": ["answer"],
    },
)
SUBMITTED = "Answer recorded."
NO_VERIFIER = "no_verifier"
VERIFIER_TRIES = 4
"""How often a verifier that crashes, or whose judge is out, is asked; as often as Fleet asks."""
VERIFIER_PAUSE_S = 1.0
_GONE = (404, 410)


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """What the episodes of an attempt share."""

    api: FleetApi
    instances: Instances
    wishes: Wishes
    known_verifiers: set[str]
    """Hashes of the bundles that the platform has from us."""
    partial_reward: bool
    region: str | None
    sizes: Sizes


class FleetEnv:
    """An `Env`; also hears the conversation, for verifiers that read it, and tells what it took."""

    def __init__(
        self, platform: Platform, task: Task, persistence: Persistence, share: Share
    ) -> None:
        self._platform = platform
        self._task = task
        self._persistence = persistence
        self._share = share
        self._wish: Wish | None = None
        self._instance: Instance | None = None
        self._session: McpSession | None = None
        self._dropped: list[McpSession] = []
        self._harmless: frozenset[str] = frozenset()
        self._answer: str | None = None
        self._conversation: Sequence[Mapping[str, JsonValue]] = ()

    async def reset(self) -> tuple[ToolSpec, ...]:
        """Make an instance and return its tools.

        Raises:
            EnvAtCapacity: the account holds as many instances as it may.
            EnvUnavailable: the instance did not start, or lists no tools.
        """
        platform, insist = self._platform, self._persistence.insist
        await self._delete()
        self._answer = None
        try:
            self._wish = await platform.wishes.of(self._task, self._persistence)
            instance = await platform.instances.make(
                self._wish.body(), self._persistence, self._share.account
            )
            self._instance = instance
            await insist("the reset", partial(platform.api.reset, instance))
            listed = await insist("the list of tools", self._list_tools)
        except WireFault as fault:
            if fault.kind == INSTANCE_LIMIT:
                raise EnvAtCapacity(str(fault)) from fault
            raise EnvUnavailable(f"{self._task.env_key}: {fault}") from fault
        tools = [tool_spec(each) for each in listed]
        self._harmless = frozenset(str(t.get("name")) for t in listed if changes_nothing(t))
        if SUBMIT in self._task.prompt:
            tools = [tool for tool in tools if tool.name != SUBMIT] + [SUBMIT_SPEC]
        return tuple(tools)

    async def call(self, name: str, arguments: Mapping[str, JsonValue]) -> ToolResult:
        """Call a tool.

        Raises:
            ToolTransport: no answer came, and asking again could do it twice.
            EnvUnavailable: there is no instance any more.
        """
        if name == SUBMIT and SUBMIT in self._task.prompt:
            return self._submit(arguments)
        platform = self._platform
        try:
            found = await self._persistence.insist(
                name,
                partial(self._call, name, arguments),
                may_repeat=lambda fault: not fault.may_be_done or name in self._harmless,
            )
        except Refused as refused:
            text = shortened(refused.message, platform.sizes.max_output_chars)
            return ToolResult(text=text, is_error=True)
        except WireFault as fault:
            if fault.status in _GONE:
                raise EnvUnavailable(
                    f"{self._task.env_key}: the instance is gone: {fault}"
                ) from fault
            raise ToolTransport(f"{self._task.env_key}.{name}: {fault}") from fault
        return tool_result(found, platform.sizes.max_output_chars)

    async def score(self) -> Grade:
        """Have the state graded by the task's verifier, over there.

        Raises:
            VerifierUnavailable: it could not be asked.
        """
        wish, instance = self._wish, self._instance
        if wish is None or instance is None:
            raise VerifierUnavailable("the episode is not running")
        if wish.verifier is None:
            return Grade(score=None, reason=NO_VERIFIER)
        answer: Json = {}
        for number in range(VERIFIER_TRIES):
            try:
                answer = await self._persistence.insist(
                    "the verifier",
                    partial(self._execute, wish.verifier, instance),
                    # A verifier takes longer than a call; half of the time leaves room for another.
                    at_most_s=max(self._persistence.operation_s, remaining_s() / 2.0),
                )
            except WireFault as fault:
                raise VerifierUnavailable(f"{self._task.env_key}: {fault}") from fault
            pause = VERIFIER_PAUSE_S * 2.0**number
            if not verification.may_pass(answer) or remaining_s() < 2.0 * pause:
                break
            self._persistence.meter.count("retries")
            await asyncio.sleep(pause)
        return verification.grade(answer, partial_reward=self._platform.partial_reward)

    async def close(self) -> None:
        """Delete the instance."""
        await self._delete()

    def hear(self, conversation: Sequence[Mapping[str, JsonValue]]) -> None:
        """Take the conversation as it is at the end, for verifiers that read it."""
        self._conversation = conversation

    def measures(self) -> Mapping[str, float]:
        """Return what the episode took; see docs/metrics.md."""
        meter = self._persistence.meter
        counted = ("mcp_requests", "retries", "timeouts", "limits", "reconnects")
        return {
            **{f"num_{name}": float(meter.counts[name]) for name in counted},
            "num_unknown_errors": float(sum(meter.unknown.values())),
            "concurrency_limit": float(self._share.limit),
        }

    def _submit(self, arguments: Mapping[str, JsonValue]) -> ToolResult:
        answer = arguments.get("answer")
        if not isinstance(answer, str):
            return ToolResult(text="answer must be a string", is_error=True)
        self._answer = answer
        return ToolResult(text=SUBMITTED, ends_episode=True)

    async def _list_tools(self) -> tuple[dict[str, JsonValue], ...]:
        session = await self._connected()
        found = await self._asking(session, session.tools())
        kept = tuple(each for each in found if each.get("name") != COMPUTER)
        if not kept:
            raise WireFault(
                kind="no_tools",
                message="the list of tools is empty",
                is_transient=True,
                may_be_done=False,
            )
        return kept

    async def _call(self, name: str, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        session = await self._connected()
        return await self._asking(session, session.call(name, arguments))

    async def _execute(self, verifier: verification.Verifier, instance: Instance) -> Json:
        known = self._platform.known_verifiers
        body = verification.request(
            verifier,
            instance.id,
            verification.Statement(answer=self._answer, conversation=self._conversation),
            with_bundle=verifier.sha256 not in known,
            timeout_s=remaining_s(),
            region=self._platform.region,
        )
        try:
            answer = await self._platform.api.execute(body)
        except WireFault as fault:
            if fault.status == 400 and verifier.sha256 in known:
                # The platform has forgotten the bundle: send it again.
                known.discard(verifier.sha256)
                return await self._execute(verifier, instance)
            raise
        known.add(verifier.sha256)
        return answer

    async def _connected(self) -> McpSession:
        """Return the episode's session, opened again where it was lost; the instance stays."""
        if self._session is None:
            instance, api = self._instance, self._platform.api
            if instance is None:
                raise WireFault(
                    kind="no_instance",
                    message="the episode is not running",
                    is_transient=False,
                    may_be_done=False,
                )
            meter = self._persistence.meter
            if self._dropped:
                meter.count("reconnects")
            session = McpSession(
                instance.mcp_url,
                api.account.headers,
                meter=meter,
                tls=api.tls,
                max_bytes=self._platform.sizes.max_message_bytes,
            )
            self._session = session
            await self._asking(session, session.open())
        return self._session

    async def _asking(self, session: McpSession, asking: Awaitable[T]) -> T:
        """Await an answer; a session that is lost, or that is not waited for, is let go."""
        try:
            return await asking
        except Refused:
            raise
        except BaseException as error:
            if not isinstance(error, WireFault) or error.kind == SESSION_LOST:
                session.abandon()
                self._dropped.append(session)
                self._session = None
            raise

    async def _delete(self) -> None:
        sessions, instance = [*self._dropped, self._session], self._instance
        self._dropped, self._session, self._instance = [], None, None
        for session in sessions:
            if session is not None:
                session.abandon()
        if instance is not None:
            await self._platform.instances.delete(instance.id)
        for session in sessions:
            if session is not None:
                await session.close()
