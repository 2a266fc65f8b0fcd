"""One episode on one instance of a Fleet platform.

`reset` creates the instance, waits until it runs, puts it into its start state and waits until it
lists tools. `trainer.rollouts.episode` decides when the episode is over; `submit_final_answer`,
where a prompt names it, is answered here and ends it.

A tool call without a response may have been carried out. It is repeated only where that is safe:
the fault shows that nothing was done (no connection, 429, 503, an unknown session,
`retryable: true`), or the tool declares itself read-only or idempotent. Otherwise the state is
unknown, so the attempt ends as an infra error and the rollout starts over on another instance.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pydantic import JsonValue

from hillclimb.environment.base import Grade, ToolResult, ToolSpec, shortened
from hillclimb.environment.deadline import remaining_s
from hillclimb.environment.errors import (
    EnvAtCapacity,
    EnvUnavailable,
    ToolTransport,
    VerifierUnavailable,
)
from hillclimb.environment.retry import ExponentialBackoff
from hillclimb.environment.task import Task
from trainer.envs.fleet.instances.instances import FleetInstances
from trainer.envs.fleet.instances.limiter import Share
from trainer.envs.fleet.instances.request import InstanceRequest, InstanceRequests
from trainer.envs.fleet.verifiers import grades, verification
from trainer.envs.fleet.wire.api import FleetApi, FleetInstance, Json
from trainer.envs.fleet.wire.faults import (
    INSTANCE_LIMIT,
    CallRefused,
    WireFault,
    redact_key,
)
from trainer.envs.fleet.wire.results import tool_result
from trainer.envs.fleet.wire.retry import CallRetry
from trainer.envs.fleet.wire.schema import changes_nothing, tool_spec
from trainer.envs.fleet.wire.sizes import Sizes
from trainer.envs.fleet.wire.tool_paths import ToolPaths

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
"""Attempts of a verifier that crashes, or whose judge fails; the same number as Fleet's client."""
VERIFIER_BACKOFF = ExponentialBackoff(first_s=1.0, longest_s=8.0)
REFUSED_RESET_S = 10.0
"""How long a refused reset is tried again; OpenEnv's limit of a reset."""
_ENDED = (404, 410)
_NO_BUNDLE = (400, 404)
"""Answers of a platform that does not know a bundle's hash; Fleet's own client sends the bundle
again after either."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """State that the episodes of an attempt share."""

    api: FleetApi
    instances: FleetInstances
    requests: InstanceRequests
    known_verifiers: set[str]
    """Hashes of the bundles that were uploaded to the platform."""
    partial_reward: bool
    region: str | None
    sizes: Sizes


class FleetEnv:
    """An `Env` on one instance, with a transcript for verifiers and metrics of the episode."""

    def __init__(self, platform: Platform, task: Task, retry: CallRetry, share: Share) -> None:
        self._platform = platform
        self._task = task
        self._retry = retry
        self._share = share
        self._request: InstanceRequest | None = None
        self._instance: FleetInstance | None = None
        self._paths: ToolPaths | None = None
        self._repeatable: frozenset[str] = frozenset()
        self._answer: str | None = None
        self._conversation: Sequence[Mapping[str, JsonValue]] = ()

    async def reset(self) -> tuple[ToolSpec, ...]:
        """Create an instance and return its tools.

        Raises:
            EnvAtCapacity: the account is at its limit of instances, or the platform asks to wait
                for longer than the reset may take.
            EnvUnavailable: the instance did not start, or lists no tools.
        """
        platform = self._platform
        await self._delete()
        self._answer = None
        try:
            self._request = await platform.requests.of(self._task, self._retry)
            instance = await platform.instances.make(
                self._request.body(), self._retry, self._share.account
            )
            self._instance = instance
            await self._reset_state(instance)
            self._paths = ToolPaths(instance, platform.api, self._retry.meter, platform.sizes)
            listed = await self._paths.tools(self._retry)
        except WireFault as fault:
            if fault.kind == INSTANCE_LIMIT:
                raise EnvAtCapacity(str(fault)) from fault
            if fault.is_deferred:
                self._share.hold(fault.retry_after_s or 0.0)
                raise EnvAtCapacity(f"{self._task.env_key}: {fault}") from fault
            # What one instance refuses, another one may accept.
            is_permanent = fault.is_permanent and self._instance is None
            raise EnvUnavailable(
                f"{self._task.env_key}: {fault}", is_permanent=is_permanent
            ) from fault
        tools = [tool_spec(each) for each in listed]
        self._repeatable = frozenset(str(t.get("name")) for t in listed if changes_nothing(t))
        if SUBMIT in self._task.prompt:
            tools = [tool for tool in tools if tool.name != SUBMIT] + [SUBMIT_SPEC]
        return tuple(tools)

    async def call(self, name: str, arguments: Mapping[str, JsonValue]) -> ToolResult:
        """Call a tool.

        Raises:
            ToolTransport: no response came, and a retry could execute the call twice.
            EnvUnavailable: the instance has ended.
        """
        if name == SUBMIT and SUBMIT in self._task.prompt:
            return self._submit(arguments)
        platform = self._platform
        try:
            result = await self._retry.call(
                name,
                partial(self._call, name, arguments),
                may_repeat=lambda fault: not fault.may_be_done or name in self._repeatable,
            )
        except CallRefused as refused:
            text = shortened(refused.message, platform.sizes.max_output_chars)
            return ToolResult(text=text, is_error=True)
        except WireFault as fault:
            if fault.status in _ENDED:
                raise EnvUnavailable(
                    f"{self._task.env_key}: the instance has ended: {fault}"
                ) from fault
            raise ToolTransport(f"{self._task.env_key}.{name}: {fault}") from fault
        return tool_result(result, platform.sizes.max_output_chars)

    async def score(self) -> Grade:
        """Grade the state with the task's verifier, on the platform.

        Raises:
            VerifierUnavailable: the verifier could not run.
            EnvUnavailable: the instance ended before it was graded.
        """
        request, instance = self._request, self._instance
        if request is None or instance is None:
            raise VerifierUnavailable("the episode is not running")
        if request.verifier is None:
            return Grade(score=None, reason=NO_VERIFIER)
        answer: Json = {}
        for number in range(VERIFIER_TRIES):
            answer = await self._run_verifier(request.verifier, instance)
            pause = VERIFIER_BACKOFF.pause_s(number)
            if not grades.may_pass(answer) or remaining_s() < 2.0 * pause:
                break
            self._retry.meter.count("retries")
            await asyncio.sleep(pause)
        grade = grades.grade(answer, partial_reward=self._platform.partial_reward)
        key = self._platform.api.account.key
        return replace(grade, detail=redact_key(grade.detail, key) if grade.detail else None)

    async def close(self) -> None:
        """Delete the instance."""
        await self._delete()

    def set_transcript(self, conversation: Sequence[Mapping[str, JsonValue]]) -> None:
        """Set the final conversation, for verifiers that read it."""
        self._conversation = conversation

    def measures(self) -> Mapping[str, float]:
        """Return the metrics of the episode; see docs/metrics.md."""
        meter = self._retry.meter
        counted = ("mcp_requests", "retries", "timeouts", "limits", "reconnects")
        return {
            **{f"num_{name}": float(meter.counts[name]) for name in counted},
            "num_unknown_errors": float(sum(meter.unknown.values())),
            "concurrency_limit": float(self._share.limit),
        }

    async def _reset_state(self, instance: FleetInstance) -> None:
        """Put a new instance into its start state, where its manager can do it.

        A manager that refuses is passed over, as in OpenEnv: the instance was created for this
        episode, and nobody has used it. One that has not answered is not: it may carry out the
        reset later, in the middle of the episode.

        Raises:
            WireFault: no answer came.
        """
        refused_until = time.monotonic() + REFUSED_RESET_S
        unanswered: list[WireFault] = []

        def may_repeat(fault: WireFault) -> bool:
            unanswered.extend([fault] if fault.may_come_late else [])
            return bool(unanswered) or time.monotonic() < refused_until

        try:
            reset = partial(self._platform.api.reset, instance)
            await self._retry.call("the reset", reset, may_repeat=may_repeat)
        except WireFault as fault:
            if unanswered or fault.may_come_late:
                raise
            _log.warning(
                "%s: the manager of instance %s did not reset it, which was created for this"
                " episode and is used as it is: %s",
                *(self._task.env_key, instance.id, fault),
            )

    def _submit(self, arguments: Mapping[str, JsonValue]) -> ToolResult:
        answer = arguments.get("answer")
        if not isinstance(answer, str):
            return ToolResult(text="answer must be a string", is_error=True)
        self._answer = answer
        return ToolResult(text=SUBMITTED, ends_episode=True)

    async def _call(self, name: str, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        if self._paths is None:
            raise WireFault(
                kind="no_instance",
                message="the episode is not running",
                is_transient=False,
                may_be_done=False,
            )
        return await self._paths.call(name, arguments)

    async def _run_verifier(self, verifier: verification.Verifier, instance: FleetInstance) -> Json:
        """Run the verifier once, with retries of the request.

        Raises:
            VerifierUnavailable: no response came.
            EnvUnavailable: the instance has ended, whatever the response says.
        """
        try:
            answer = await self._retry.call(
                "the verifier",
                partial(self._execute, verifier, instance),
                # A verifier takes longer than a call; half of the time leaves room for a retry.
                at_most_s=max(self._retry.operation_s, remaining_s() / 2.0),
            )
        except WireFault as fault:
            await self._refuse_ended(instance)
            raise VerifierUnavailable(
                f"{self._task.env_key}: {fault}", is_permanent=fault.is_permanent
            ) from fault
        if answer.get("success") is not True:
            await self._refuse_ended(instance)
        return answer

    async def _refuse_ended(self, instance: FleetInstance) -> None:
        """Raise EnvUnavailable if an instance has ended: what a verifier says of it is no grade."""
        try:
            has_ended = await self._retry.call(
                "the instance",
                partial(self._platform.api.has_ended, instance.id),
                may_repeat=lambda _: False,
            )
        except WireFault as fault:
            _log.info("instance %s: whether it has ended is not known: %s", instance.id, fault)
            return
        if has_ended:
            raise EnvUnavailable(f"{self._task.env_key}: the instance ended before it was graded")

    async def _execute(self, verifier: verification.Verifier, instance: FleetInstance) -> Json:
        """Run the verifier; send its bundle once, and again where the platform dropped it."""
        known_verifiers = self._platform.known_verifiers
        if verifier.sha256 in known_verifiers:
            try:
                return await self._send(verifier, instance, with_bundle=False)
            except WireFault as fault:
                if fault.status not in _NO_BUNDLE:
                    raise
                known_verifiers.discard(verifier.sha256)
        answer = await self._send(verifier, instance, with_bundle=True)
        known_verifiers.add(verifier.sha256)
        return answer

    async def _send(
        self, verifier: verification.Verifier, instance: FleetInstance, *, with_bundle: bool
    ) -> Json:
        body = verification.request(
            verifier,
            instance.id,
            verification.Statement(answer=self._answer, conversation=self._conversation),
            with_bundle=with_bundle,
            timeout_s=remaining_s(),
            region=self._platform.region,
        )
        return await self._platform.api.execute(body)

    async def _delete(self) -> None:
        paths, instance = self._paths, self._instance
        self._paths, self._instance = None, None
        if paths is not None:
            paths.abandon()
        if instance is not None:
            await self._platform.instances.delete(instance.id)
        if paths is not None:
            await paths.close()
