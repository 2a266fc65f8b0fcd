"""Client of Fleet's REST API; each method sends one request, the caller retries.

Source: the wire contract (`GET/POST/DELETE /v1/env/instances`, manager reset, verifiers, account).
Every request carries an `X-Request-ID`; a creation keeps its id over repetitions, so that the
server can tell a retry from a second creation.
"""

from __future__ import annotations

import json
import ssl
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx
from pydantic import JsonValue

from hillclimb.process.network.addresses import OWN_MACHINE_HOSTS, AllowedHosts
from hillclimb.process.network.connections import CheckedTransport
from hillclimb.spec.hosts import is_private
from trainer.envs.fleet.wire.faults import (
    DUPLICATE,
    NO_JSON,
    WireFault,
    odd,
    of_network,
    of_response,
    of_size,
)
from trainer.envs.fleet.wire.retry import IDLE_S
from trainer.envs.fleet.wire.sizes import DEFAULT, Sizes
from trainer.errors import SpecError

_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_ENDED, _ENDED_STATUSES = ("stopped", "error"), (404, 410)
"""An instance that has ended: its status, and HTTP's where the platform no longer knows it."""
Json = dict[str, JsonValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetAccount:
    """The platform's address and the API key."""

    base_url: str
    key: str = field(repr=False)
    allowed: AllowedHosts = OWN_MACHINE_HOSTS
    """What the platform and its instances may be at beside public addresses."""

    def __post_init__(self) -> None:
        """Refuse an address that would expose the key, and a key that no header carries."""
        if not is_private(self.base_url):
            raise SpecError(
                f"the platform is at {self.base_url}, and the key travels over https only: give an"
                " address that begins with https, or that of a server on this machine"
            )
        if not self.key.isascii() or not self.key.isprintable():
            raise SpecError(
                "the key of the platform holds characters that no HTTP header carries: set"
                " FLEET_API_KEY to the key alone"
            )

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every request; an uncompressed body cannot grow when it is read."""
        return {
            "Authorization": f"Bearer {self.key}",
            "User-Agent": "hillclimb",
            "Accept-Encoding": "identity",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetInstance:
    """An instance of an environment: id, status and addresses."""

    id: str
    status: str
    root_url: str
    manager_url: str

    @property
    def root(self) -> str:
        """Address below which its tools are, without a slash at the end."""
        return self.root_url.rstrip("/")


class FleetApi:
    """Client of the platform. Every method raises `WireFault` without a good response."""

    def __init__(self, account: FleetAccount, sizes: Sizes = DEFAULT) -> None:
        self.account = account
        self._sizes = sizes
        self.tls = ssl.create_default_context()
        """Shared by all connections to instances: loading the root certificates is slow."""
        self._client = httpx.AsyncClient(
            headers=account.headers,
            timeout=None,  # noqa: S113 - `CallRetry` bounds every call
            transport=CheckedTransport(
                account.allowed,
                self.tls,
                httpx.Limits(
                    max_connections=None, max_keepalive_connections=64, keepalive_expiry=IDLE_S
                ),
            ),
        )
        self._gate: Mapping[str, str] = {}

    async def create(self, body: Json, request_id: str) -> FleetInstance:
        """Create an instance, or return the one that an earlier request of this id created."""
        try:
            return _instance(await self._ask("POST", "/v1/env/instances", body, request_id))
        except WireFault as fault:
            instance_id = _duplicate_of(fault)
            if instance_id is None:
                raise
        try:
            return await self.instance(instance_id)
        except WireFault as fault:
            # The creation itself succeeded; only this later request failed.
            fault.may_be_done = True
            raise

    async def created(self, body: Json, request_id: str) -> str:
        """Return the id of a creation's instance; the request creates it if no earlier one did."""
        try:
            answer = await self._ask("POST", "/v1/env/instances", body, request_id)
        except WireFault as fault:
            instance_id = _duplicate_of(fault)
            if instance_id is None:
                raise
            return instance_id
        name = answer.get("instance_id")
        if not isinstance(name, str):
            raise odd("the answer to a creation names no instance")
        return name

    async def instance(self, instance_id: str) -> FleetInstance:
        """Return an instance with its status."""
        return _instance(await self._ask("GET", f"/v1/env/instances/{instance_id}"))

    async def has_ended(self, instance_id: str) -> bool:
        """Tell whether an instance has ended, by its status or because it is unknown by now."""
        try:
            answer = await self._ask("GET", f"/v1/env/instances/{instance_id}")
        except WireFault as fault:
            if fault.status not in _ENDED_STATUSES:
                raise
            return True
        return answer.get("status") in _ENDED

    async def delete(self, instance_id: str) -> None:
        """Delete an instance; it is no error where it has ended already."""
        try:
            await self._ask("DELETE", f"/v1/env/instances/{instance_id}")
        except WireFault as fault:
            if fault.status not in _ENDED_STATUSES:
                raise

    async def delete_run(self, run_tag: str) -> None:
        """Delete every instance that carries the tag of a run."""
        await self._ask_any("DELETE", "/v1/env/instances/batch", params={"run_id": run_tag})

    async def instances_of(self, run_tag: str) -> tuple[str, ...]:
        """Return the ids of the instances of a run that still run."""
        answer = await self._ask_any("GET", "/v1/env/instances", params={"run_id": run_tag})
        rows: list[Json] = []
        for row in answer if isinstance(answer, list) else [None]:
            if not isinstance(row, dict) or not isinstance(row.get("instance_id"), str):
                raise odd("the answer is no list of instances")
            rows.append(row)
        return tuple(
            str(row["instance_id"])
            for row in rows
            if row.get("run_id") in (run_tag, None) and row.get("status") not in _ENDED
        )

    async def heartbeat(self, instance_id: str) -> None:
        """Send a heartbeat for an instance."""
        await self._ask("POST", f"/v1/env/instances/{instance_id}/heartbeat", {})

    async def reset(self, instance: FleetInstance) -> None:
        """Put an instance into its start state; a gated cluster's manager gets its runner token.

        Such a manager answers 404 to a request without it.
        """
        url = f"{instance.manager_url.rstrip('/')}/reset"
        gate = self._gate
        try:
            answer = await self._ask("POST", url, {}, more=gate)
        except WireFault as fault:
            if fault.status != 404:
                raise
            if self._gate == gate:
                # No other episode has fetched a token meanwhile, or the current one is wrong.
                token = (await self._ask("GET", "/v1/runner-auth/token")).get("token")
                if not isinstance(token, str) or gate == {"X-Runner-Token": token}:
                    raise
                self._gate = {"X-Runner-Token": token}
            answer = await self._ask("POST", url, {}, more=self._gate)
        if answer.get("success") is False:
            message = str(answer.get("message") or "no message")
            raise WireFault(
                kind="reset_refused", message=message, is_transient=True, may_be_done=False
            )
        if answer.get("success") is not True:
            raise odd("the answer to the reset does not say whether it was done")

    async def task(self, key: str) -> Json:
        """Return the platform's row of a task, with its verifier."""
        answer = await self._ask("GET", "/v1/tasks", params={"task_keys": key})
        rows = answer.get("tasks")
        if not isinstance(rows, list):
            raise odd("the answer holds no list of tasks")
        for row in rows:
            if isinstance(row, dict) and row.get("key") == key:
                return row
        raise WireFault(
            kind="not_found", message=f"no task {key}", is_transient=False, may_be_done=False
        )

    async def me(self) -> Json:
        """Return the account that the key belongs to, with its limit of instances."""
        answer = await self._ask("GET", "/v1/account")
        if "team_id" not in answer and "instance_limit" not in answer:
            raise odd("the answer tells of no account")
        return answer

    async def execute(self, verification: Json) -> Json:
        """Run a verifier on the platform and return its response."""
        answer = await self._ask("POST", "/v1/verifiers/execute", verification)
        if not isinstance(answer.get("success"), bool):
            raise odd("the answer does not say whether the verifier ran")
        return answer

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _ask(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        request_id: str | None = None,
        *,
        params: Mapping[str, str] | None = None,
        more: Mapping[str, str] | None = None,
    ) -> Json:
        answer = await self._ask_any(method, path, body, request_id, params=params, more=more)
        if not isinstance(answer, dict):
            raise odd("the answer is no JSON object")
        return answer

    async def _ask_any(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        request_id: str | None = None,
        *,
        params: Mapping[str, str] | None = None,
        more: Mapping[str, str] | None = None,
    ) -> JsonValue:
        """Send one request; `more` are headers beside the usual ones."""
        url = path if "://" in path else f"{self.account.base_url.rstrip('/')}{path}"
        headers = {
            **(more or {}),
            "X-Request-ID": request_id or uuid.uuid4().hex,
            "X-Request-Timestamp": str(int(1000 * time.time())),
        }
        try:
            async with self._client.stream(
                method, url, json=body, headers=headers, params=params
            ) as response:
                content = await _content(response, self._sizes.max_message_bytes)
        except httpx.RequestError as error:
            raise of_network(error, was_sent=not isinstance(error, _UNSENT)) from error
        if not response.is_success:
            key = self.account.key
            raise of_response(response.status_code, response.headers, content, key)
        return _read(content)


async def _content(response: httpx.Response, max_bytes: int) -> bytes:
    """Return the body of an answer; one above the size limit is not read to its end."""
    parts: list[bytes] = []
    num_bytes = 0
    async for part in response.aiter_bytes():
        num_bytes += len(part)
        if num_bytes > max_bytes:
            raise of_size(max_bytes)
        parts.append(part)
    return b"".join(parts)


def _duplicate_of(fault: WireFault) -> str | None:
    """Return the instance of an earlier request of the same id, if that is the fault."""
    instance_id = fault.detail.get("instance_id")
    return instance_id if fault.kind == DUPLICATE and isinstance(instance_id, str) else None


def _read(content: bytes) -> JsonValue:
    if not content.strip():
        return {}
    try:
        answer: JsonValue = json.loads(content)
    except ValueError as error:
        raise WireFault(
            kind=NO_JSON,
            message="the answer is not JSON",
            is_transient=True,
            may_be_done=True,
        ) from error
    return answer


def _instance(answer: Json) -> FleetInstance:
    urls = answer.get("urls")
    urls = urls if isinstance(urls, dict) else {}
    manager = urls.get("manager")
    manager = manager if isinstance(manager, dict) else {}
    root, api, name = urls.get("root"), manager.get("api"), answer.get("instance_id")
    if not (isinstance(root, str) and isinstance(api, str) and isinstance(name, str)):
        raise WireFault(
            kind="no_instance",
            message="the answer names no instance with its urls",
            is_transient=False,
            may_be_done=True,
        )
    for url in (root, api):
        if not is_private(url):
            raise WireFault(
                kind="open_wire",
                message=f"the instance is at {url[:200]}, and the key travels over https only",
                is_transient=False,
                may_be_done=True,
            )
    return FleetInstance(id=name, status=str(answer.get("status")), root_url=root, manager_url=api)
