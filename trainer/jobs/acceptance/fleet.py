"""The ladder `fleet`: an instance of the platform, from its creation to its deletion."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from hillclimb.environment.base import Grade
from hillclimb.environment.deadline import within
from hillclimb.environment.task import Task
from hillclimb.process.acceptance.ladder import AcceptanceCheck, CheckFailed
from hillclimb.spec.environment.fleet import DEFAULT_BASE_URL
from trainer.attempt.destinations import allowed_hosts
from trainer.envs.fleet.choice import API_KEY, BASE_URL
from trainer.envs.fleet.instances.instances import FleetInstances, LeaseOptions
from trainer.envs.fleet.instances.limiter import Limiter
from trainer.envs.fleet.instances.request import InstanceRequest, InstanceRequests
from trainer.envs.fleet.verifiers import grades, verification
from trainer.envs.fleet.wire.api import FleetAccount, FleetApi, FleetInstance
from trainer.envs.fleet.wire.faults import (
    INSTANCE_LIMIT,
    NO_JSON,
    ODD,
    REDIRECT,
    UNREACHABLE,
    CallRefused,
    WireFault,
    redact_key,
)
from trainer.envs.fleet.wire.results import tool_result
from trainer.envs.fleet.wire.retry import CallRetry, Meter
from trainer.envs.fleet.wire.schema import changes_nothing, tool_spec
from trainer.envs.fleet.wire.sizes import DEFAULT
from trainer.envs.fleet.wire.tool_paths import Tool, ToolPaths

TTL_S = 600
"""The instance's longest life, whatever happens here: bounds what the ladder costs."""
ANSWER_S = 8.0
"""How long the platform may take to say whose key it is: a wrong address is known after it."""
OPERATION_S, START_S, RESET_S, VERIFY_S = 20.0, 180.0, 60.0, 120.0
GONE_S = 30.0
"""How long a deleted instance may still be listed."""
LATE = "check that this machine reaches the platform, and FLEET_BASE_URL"
ADVICE: Mapping[str, str] = {
    "unauthorized": f"set {API_KEY} to a key of this platform, or {BASE_URL} to the key's platform",
    "forbidden": "use a key that may create instances of this environment",
    "not_found": "name an environment (`--env`) and a task (`--task`) that this account has",
    INSTANCE_LIMIT: "end other instances of the account, or have its limit raised",
    UNREACHABLE: LATE,
}
ELSEWHERE = frozenset({"not_found", ODD, NO_JSON, REDIRECT})
"""Faults of the first request that show another server than a platform."""
NO_PLATFORM = f"correct {BASE_URL}: what answers there has not the platform's API"
"""The way out, by the kind of a fault."""


def fleet_account(environ: Mapping[str, str]) -> FleetAccount:
    """Return the platform and key that runs use by themselves; raises SpecError."""
    return FleetAccount(
        base_url=environ.get(BASE_URL) or DEFAULT_BASE_URL,
        key=environ.get(API_KEY, "").strip(),
        allowed=allowed_hosts(environ, operators_url=environ.get(BASE_URL)),
    )


class FleetLadder:
    """Checks one environment by one task; the instance has a tag of its own."""

    def __init__(self, account: FleetAccount, env_key: str, task_key: str) -> None:
        self._account = account
        self._task = Task(
            key=task_key, env_key=env_key, prompt="", template="accept", difficulty=None
        )
        self._api = FleetApi(account)
        lease = LeaseOptions(
            run_tag=f"hillclimb.process.acceptance.{uuid.uuid4().hex}",
            ttl_s=TTL_S,
            heartbeat_interval_s=60,
            operation_s=OPERATION_S,
        )
        self._instances = FleetInstances(self._api, lease)
        self._limiter = Limiter(1)
        self._retry = CallRetry(operation_s=OPERATION_S, meter=Meter(), load=self._limiter)
        self._request: InstanceRequest | None = None
        self._instance: FleetInstance | None = None
        self._paths: ToolPaths | None = None

    @property
    def checks(self) -> Sequence[AcceptanceCheck]:
        """The checks, in order."""
        return (
            self._check("key", self._ask_who, limit_s=ANSWER_S),
            self._check("created", self._create, limit_s=START_S),
            self._check("reset", self._reset, limit_s=RESET_S),
            self._check("called", self._call, limit_s=60.0),
            self._check("verified", self._verify, limit_s=VERIFY_S),
            self._check("deleted", self._delete, limit_s=60.0),
        )

    async def close(self) -> None:
        """Delete what carries the ladder's tag, and close the connections."""
        try:
            if self._paths is not None:
                self._paths.abandon()
                await self._paths.close()
            if self._instance is not None:
                await self._instances.close()
        finally:
            await self._api.close()

    def _check(
        self, name: str, act: Callable[[], Awaitable[str]], *, limit_s: float
    ) -> AcceptanceCheck:
        async def explained() -> str:
            try:
                with within(limit_s):
                    return await act()
            except WireFault as fault:
                seen = redact_key(str(fault), self._account.key)
                raise CheckFailed(seen, ADVICE.get(fault.kind, LATE)) from fault

        return AcceptanceCheck(name=name, act=explained, limit_s=limit_s + 5.0, late=LATE)

    async def _ask_who(self) -> str:
        if not self._account.key:
            raise CheckFailed("there is no key", f"set {API_KEY} in this environment")
        try:
            account = await self._retry.call(
                "the platform",
                self._api.me,
                # A run waits for a platform to come back; here the address is what is in question.
                may_repeat=lambda fault: fault.kind not in (UNREACHABLE, *ELSEWHERE),
            )
        except WireFault as fault:
            seen = redact_key(f"{self._account.base_url}: {fault}", self._account.key)
            advice = NO_PLATFORM if fault.kind in ELSEWHERE else ADVICE.get(fault.kind, LATE)
            raise CheckFailed(seen, advice) from fault
        return f"account {account.get('team_id', '?')}, limit {account.get('instance_limit', '?')}"

    async def _create(self) -> str:
        self._request = await InstanceRequests(self._api).of(self._task, self._retry)
        if self._request.verifier is None:
            raise CheckFailed(
                f"the platform has no verifier of {self._task.key}",
                "name a task of this environment that has one (`--task`)",
            )
        started = time.monotonic()
        self._instance = await self._instances.make(
            self._request.body(), self._retry, self._limiter
        )
        seconds = time.monotonic() - started
        return f"instance {self._instance.id} of {self._task.env_key} runs after {seconds:.1f} s"

    async def _reset(self) -> str:
        instance = self._running()
        await self._retry.call("the reset", partial(self._api.reset, instance))
        return "its manager put it into its start state"

    async def _call(self) -> str:
        self._paths = ToolPaths(self._running(), self._api, self._retry.meter, DEFAULT)
        tools = await self._paths.tools(self._retry)
        tool = _harmless(tools)
        if tool is None:
            raise CheckFailed(
                f"none of {len(tools)} tools is declared read-only",
                "name an environment whose tools have MCP's annotation readOnlyHint",
            )
        name = tool_spec(tool).name
        try:
            answer = await self._retry.call(name, partial(self._paths.call, name, {}))
        except CallRefused as refused:
            return f"{len(tools)} tools; {name} without arguments is refused: {refused.message}"
        text = tool_result(answer, 200).text
        return f"{len(tools)} tools; {name} answers {len(text)} characters"

    async def _verify(self) -> str:
        request = self._request
        assert request is not None
        assert request.verifier is not None
        body = verification.request(
            request.verifier,
            self._running().id,
            verification.Statement(answer=None, conversation=()),
            with_bundle=True,
            timeout_s=VERIFY_S / 2,
            region=None,
        )
        answer = await self._retry.call(
            "the verifier", partial(self._api.execute, body), at_most_s=VERIFY_S / 2
        )
        grade: Grade = grades.grade(answer, partial_reward=False)
        if grade.score is None:
            raise CheckFailed(
                f"the verifier of {self._task.key} gave no grade: {grade.reason}",
                "name another task (`--task`), or ask the platform why its verifier fails",
            )
        return f"{self._task.key} is graded {grade.score:g} in its start state"

    async def _delete(self) -> str:
        instance = self._running()
        await self._instances.delete(instance.id)
        end = time.monotonic() + GONE_S
        while not await self._api.has_ended(instance.id):
            if time.monotonic() > end:
                raise CheckFailed(
                    f"instance {instance.id} still runs {GONE_S:g} s after its deletion",
                    "delete it by hand; it ends by itself without heartbeats",
                )
            await asyncio.sleep(0.5)
        return f"instance {instance.id} has ended"

    def _running(self) -> FleetInstance:
        assert self._instance is not None
        return self._instance


def _harmless(tools: Sequence[Tool]) -> Tool | None:
    """Return a tool that changes nothing, if there is one; at best one without arguments."""
    harmless = [tool for tool in tools if changes_nothing(tool)]
    free = [tool for tool in harmless if not tool_spec(tool).parameters.get("required")]
    return next(iter([*free, *harmless]), None)
