"""From a task to what is asked of the platform for it.

A dataset's task brings everything in its payload. One without a verifier, such as a minifleet task
made from its key, is looked up on the platform, once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from trainer.data.modality import refuse_screens
from trainer.envs.fleet.api import FleetApi, Json
from trainer.envs.fleet.faults import WireFault
from trainer.envs.fleet.persistence import Persistence
from trainer.envs.fleet.verification import Verifier, of_source
from trainer.types import Task

KEPT = 10_000
"""Tasks remembered: the rollouts of a group, and of later epochs, look up nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What an episode of a task needs."""

    env_key: str
    env_version: str | None
    data_key: str | None
    data_version: str | None
    env_variables: Mapping[str, str]
    verifier: Verifier | None
    """None: nothing can grade the task."""

    def body(self) -> Json:
        """Return the part of `POST /v1/env/instances` that the task decides."""
        wanted: Json = {
            "env_key": self.env_key,
            "env_version": self.env_version,
            "data_key": self.data_key,
            "data_version": self.data_version,
            "env_variables": dict(self.env_variables) or None,
        }
        return {key: value for key, value in wanted.items() if value is not None}


@dataclass(slots=True)
class Wishes:
    """Knows what tasks need."""

    api: FleetApi
    _looked_up: OrderedDict[str, Json] = field(default_factory=OrderedDict)
    _asking: dict[str, asyncio.Lock] = field(default_factory=dict)
    """The rollouts of a group begin at once: one of them asks, the others wait for it."""

    async def of(self, task: Task, persistence: Persistence) -> Wish:
        """Return what an episode of `task` needs.

        Raises:
            SpecError: the task needs images.
            WireFault: the platform does not say.
        """
        refuse_screens([task])
        found = dict(task.payload)
        if _source(found) is None:
            known = await self._look_up(task.key, persistence)
            found = {**known, **{key: value for key, value in found.items() if value is not None}}
        source = _source(found)
        return Wish(
            env_key=task.env_key,
            env_version=_text(found, "env_version") or _text(found, "version"),
            data_key=_text(found, "data_key") or _text(found, "data_id"),
            data_version=_text(found, "data_version"),
            env_variables=task.env_variables,
            verifier=of_source(task.key, source) if source else None,
        )

    async def _look_up(self, key: str, persistence: Persistence) -> Json:
        async with self._asking.setdefault(key, asyncio.Lock()):
            try:
                return await self._ask(key, persistence)
            finally:
                self._asking.pop(key, None)

    async def _ask(self, key: str, persistence: Persistence) -> Json:
        row = self._looked_up.get(key)
        if row is None:
            try:
                row = await persistence.insist(f"task {key}", lambda: self.api.task(key))
            except WireFault as fault:
                if fault.kind != "not_found":
                    raise
                row = {}
            self._looked_up[key] = row
            if len(self._looked_up) > KEPT:
                self._looked_up.popitem(last=False)
        return row


def _source(found: Mapping[str, JsonValue]) -> str | None:
    """Return the verifier's source, wherever a dataset's row or the platform's has it."""
    verifier = found.get("verifier")
    return (
        _text(found, "verifier_code")
        or _text(found, "verifier_func")
        or (_text(verifier, "code") if isinstance(verifier, dict) else None)
    )


def _text(found: Mapping[str, JsonValue], key: str) -> str | None:
    value = found.get(key)
    return value if isinstance(value, str) and value else None
