"""The creation request of a task's instance, and its verifier.

A dataset's task has everything in its payload. One without a verifier, such as a minifleet task
generated from its key, is read from the platform, once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from hillclimb.environment.task import Task
from trainer.envs.fleet.verifiers.verification import Verifier, of_source
from trainer.envs.fleet.wire.api import FleetApi, Json
from trainer.envs.fleet.wire.faults import WireFault
from trainer.envs.fleet.wire.retry import CallRetry
from trainer.inputs.tasks.modality import refuse_screens

MAX_CACHED = 10_000
"""Cached tasks: the other rollouts of a group, and later epochs, send no request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRequest:
    """Instance and verifier that an episode of a task needs."""

    env_key: str
    env_version: str | None
    data_key: str | None
    data_version: str | None
    env_variables: Mapping[str, JsonValue]
    """As the dataset's row has them: numbers and objects are no text."""
    verifier: Verifier | None
    """None: the task cannot be graded."""

    def body(self) -> Json:
        """Return the task's part of the body of `POST /v1/env/instances`."""
        body: Json = {
            "env_key": self.env_key,
            "env_version": self.env_version,
            "data_key": self.data_key,
            "data_version": self.data_version,
            "env_variables": dict(self.env_variables) or None,
        }
        return {key: value for key, value in body.items() if value is not None}


@dataclass(slots=True)
class InstanceRequests:
    """Builds the requests of tasks, with a cache of the platform's tasks."""

    api: FleetApi
    _cache: OrderedDict[str, Json] = field(default_factory=OrderedDict)
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    """The rollouts of a group start together: one sends the request, the others wait for it."""

    async def of(self, task: Task, retry: CallRetry) -> InstanceRequest:
        """Return the request of an episode of `task`.

        Raises:
            SpecError: the task needs images.
            WireFault: the platform does not return the task.
        """
        refuse_screens([task])
        fields = dict(task.payload)
        if _source(fields) is None:
            row = await self._platform_task(task.key, retry)
            fields = {**row, **{key: value for key, value in fields.items() if value is not None}}
        source = _source(fields)
        variables = task.payload.get("env_variables")
        return InstanceRequest(
            env_key=task.env_key,
            env_version=_text(fields, "env_version") or _text(fields, "version"),
            data_key=_text(fields, "data_key") or _text(fields, "data_id"),
            data_version=_text(fields, "data_version"),
            env_variables=variables if isinstance(variables, dict) else task.env_variables,
            verifier=of_source(task.key, source, _runtime_version(fields)) if source else None,
        )

    async def _platform_task(self, key: str, retry: CallRetry) -> Json:
        async with self._locks.setdefault(key, asyncio.Lock()):
            try:
                return await self._fetch(key, retry)
            finally:
                self._locks.pop(key, None)

    async def _fetch(self, key: str, retry: CallRetry) -> Json:
        row = self._cache.get(key)
        if row is None:
            try:
                row = await retry.call(f"task {key}", lambda: self.api.task(key))
            except WireFault as fault:
                if fault.kind != "not_found":
                    raise
                row = {}
            self._cache[key] = row
            if len(self._cache) > MAX_CACHED:
                self._cache.popitem(last=False)
        return row


def _source(fields: Mapping[str, JsonValue]) -> str | None:
    """Return the verifier's source from a dataset's row or the platform's."""
    verifier = fields.get("verifier")
    return (
        _text(fields, "verifier_code")
        or _text(fields, "verifier_func")
        or (_text(verifier, "code") if isinstance(verifier, dict) else None)
    )


def _runtime_version(fields: Mapping[str, JsonValue]) -> str | None:
    """Return the version of the verifier's runtime; rows of the platform have it in `metadata`."""
    metadata = fields.get("metadata")
    return _text(fields, "verifier_runtime_version") or (
        _text(metadata, "verifier_runtime_version") if isinstance(metadata, dict) else None
    )


def _text(fields: Mapping[str, JsonValue], key: str) -> str | None:
    value = fields.get(key)
    return value if isinstance(value, str) and value else None
