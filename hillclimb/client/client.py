"""The typed client: one method per route, problem+json as exceptions, streams that reconnect."""

from __future__ import annotations

import ssl
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from http import HTTPStatus
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
from pydantic import ValidationError

from hillclimb.client.datasets import Datasets
from hillclimb.client.errors import ApiProblem, ApiUnreachable
from hillclimb.client.paths import of_run
from hillclimb.client.sse import ServerEvent, lines_of, parse_stream
from hillclimb.protocol.payloads.base import Payload
from hillclimb.protocol.payloads.checkpoints import CheckpointList, CheckpointWithManifest
from hillclimb.protocol.payloads.events import EventPage
from hillclimb.protocol.payloads.runs import PlanPayload, RunList, RunPayload
from hillclimb.stack.control import Connection

P = TypeVar("P", bound=Payload)
Json = dict[str, Any]
TIMEOUT = httpx.Timeout(30.0, connect=5.0)
STREAM_TIMEOUT = httpx.Timeout(5.0, read=45.0)
"""The service pings every 15 s; three missed pings mean a dead connection."""
RECONNECT_PAUSE_S = 0.5
RECONNECT_FOR_S = 60.0
"""The client retries this long while a service restarts, then reports it (seconds)."""
LOGS_PAUSE_S = 1.0


@cache
def _certificates() -> ssl.SSLContext:
    """Return the trusted certificates, read once per process: that takes 50 ms."""
    return httpx.create_ssl_context()


class Client:
    """A connection to one service as one key's owner.

    Every method raises `ApiProblem` when the service refuses and `ApiUnreachable` when it does
    not answer.
    """

    def __init__(
        self, connection: Connection, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._http = httpx.Client(
            base_url=connection.url,
            headers={"Authorization": f"Bearer {connection.api_key}"},
            timeout=TIMEOUT,
            transport=transport,
            verify=_certificates(),
        )
        self.url = connection.url
        self.datasets = Datasets(self._json, self._download)
        """Datasets of the project."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def submit(self, spec: Mapping[str, Any], *, idempotency_key: str | None = None) -> RunPayload:
        """Create a run; the same key and spec give the same run again."""
        key = idempotency_key or uuid.uuid4().hex
        headers = {"Idempotency-Key": key}
        return self._payload(RunPayload, "POST", "/v1/runs", json=dict(spec), headers=headers)

    def plan(self, spec: Mapping[str, Any]) -> PlanPayload:
        """Return the resolved spec and warnings, creating nothing."""
        return self._payload(PlanPayload, "POST", "/v1/runs/plan", json=dict(spec))

    def presets(self) -> Json:
        """Return all specs to start from."""
        return self._json("GET", "/v1/presets")

    def preset(self, name: str) -> Json:
        """Return one spec to start from: `spec`, and `text` with its comments."""
        return self._json("GET", f"/v1/presets/{quote(name, safe='')}")

    def runs(self, **filters: str | int | None) -> RunList:
        """Return one page of runs, newest first."""
        return self._payload(RunList, "GET", "/v1/runs", params=_without_none(filters))

    def run(self, run_id: str) -> RunPayload:
        """Return one run."""
        return self._payload(RunPayload, "GET", of_run(run_id))

    def cancel(self, run_id: str) -> RunPayload:
        """Cancel the run; repeating it changes nothing."""
        return self._payload(RunPayload, "POST", of_run(run_id, "cancel"))

    def pause(self, run_id: str) -> RunPayload:
        """Pause the run: its trainer checkpoints and exits; repeating it changes nothing."""
        return self._payload(RunPayload, "POST", of_run(run_id, "pause"))

    def clusters(self, run_id: str) -> Json:
        """Return the clusters of a run, the launches tried, and their cost."""
        return self._json("GET", of_run(run_id, "clusters"))

    def project_clusters(self) -> Json:
        """Return the clusters of the project and their cost."""
        return self._json("GET", "/v1/clusters")

    def cloud_exclusions(self) -> Json:
        """Return the cloud exclusions in force."""
        return self._json("GET", "/v1/clouds/exclusions")

    def clear_cloud_exclusion(self, exclusion_id: str) -> Json:
        """Delete a cloud exclusion; returns the remaining ones."""
        return self._json("DELETE", f"/v1/clouds/exclusions/{quote(exclusion_id, safe='')}")

    def orphans(self) -> Json:
        """Return the orphaned clusters; terminates none."""
        return self._json("GET", "/v1/clouds/orphans")

    def terminate_orphan(self, name: str) -> Json:
        """Have an orphaned cluster terminated at the next sweep."""
        return self._json("POST", f"/v1/clouds/orphans/{quote(name, safe='')}/terminate")

    def budget(self, run_id: str) -> Json:
        """Return the budget of a run and its use."""
        return self._json("GET", of_run(run_id, "budget"))

    def extend_budget(self, run_id: str, *, usd: float = 0.0, hours: float = 0.0) -> Json:
        """Extend the budget of a run beyond its spec's."""
        return self._json("POST", of_run(run_id, "budget"), json={"usd": usd, "hours": hours})

    def limits(self) -> Json:
        """Return the limits on the project's runs together."""
        return self._json("GET", "/v1/limits")

    def set_limits(self, limits: Mapping[str, Any]) -> Json:
        """Replace the limits on the project's runs together."""
        return self._json("PUT", "/v1/limits", json=dict(limits))

    def resume(self, run_id: str) -> RunPayload:
        """Resume from the newest checkpoint: a new run when the old one ended, else the same."""
        return self._payload(RunPayload, "POST", of_run(run_id, "resume"))

    def events(
        self, run_id: str, *, after: int = 0, limit: int = 200, types: str | None = None
    ) -> EventPage:
        """Return one page of events with `seq` above `after`; `types` separates by commas."""
        params = _without_none({"after": after, "limit": limit, "types": types})
        return self._payload(EventPage, "GET", of_run(run_id, "events"), params=params)

    def follow(self, run_id: str, *, after: int = 0) -> Iterator[ServerEvent]:
        """Yield events as they happen until the run has ended; reconnects without losing any."""
        retry = _RetryOutages(self.url)
        while True:
            with retry:
                for event in self._stream_once(run_id, after):
                    retry.reset()
                    if event.name == "end":
                        return
                    after = event.id if event.id is not None else after
                    yield event
            time.sleep(RECONNECT_PAUSE_S)

    def _stream_once(self, run_id: str, after: int) -> Iterator[ServerEvent]:
        path = of_run(run_id, "events", "stream")
        headers = {"Last-Event-ID": str(after), "Accept": "text/event-stream"}
        with self._http.stream("GET", path, headers=headers, timeout=STREAM_TIMEOUT) as response:
            if response.is_error:
                response.read()
                raise _problem(response)
            yield from parse_stream(lines_of(response.iter_text()))

    def metrics(self, run_id: str, *, names: str = "*") -> Json:
        """Return metric series by name pattern (comma-separated globs)."""
        return self._json("GET", of_run(run_id, "metrics"), params={"names": names})

    def evals(self, run_id: str) -> Json:
        """Return every evaluation of the run, overall and per environment."""
        return self._json("GET", of_run(run_id, "evals"))

    def report(self, run_id: str) -> Json:
        """Return the before/after report: per environment, per decoding, with p-values."""
        return self._json("GET", of_run(run_id, "evals", "report"))

    def probe(self, run_id: str) -> Json:
        """Return the results of a run of kind `probe`, per environment."""
        return self._json("GET", of_run(run_id, "probe"))

    def validation(self, run_id: str, **filters: str | int | None) -> Json:
        """Return the results of a run of kind `validate`, with one page of its rows."""
        return self._json("GET", of_run(run_id, "validation"), params=_without_none(filters))

    def trajectories(self, run_id: str, **filters: str | int | None) -> Json:
        """Return one page of rollouts with their outcomes."""
        return self._json("GET", of_run(run_id, "trajectories"), params=_without_none(filters))

    def trajectory(self, run_id: str, rollout_id: str) -> Json:
        """Return one rollout with its prompt, turns and tokens."""
        return self._json("GET", of_run(run_id, "trajectories", rollout_id))

    def prompts(self, run_id: str, *, env: str | None = None, task: str | None = None) -> Json:
        """Return the first prompts: tokens and hashes per environment, and some in full."""
        params = _without_none({"env": env, "task": task})
        return self._json("GET", of_run(run_id, "prompts"), params=params)

    def logs(
        self,
        run_id: str,
        *,
        attempt: int | None = None,
        after: int = 0,
        filters: Mapping[str, str | None] | None = None,
    ) -> Json:
        """Return the trainer's log from position `after` on.

        `filters`: `level`, `component`, `environment`, `text` (docs/api.md).
        """
        params = _without_none({"attempt": attempt, "after": after, **(filters or {})})
        return self._json("GET", of_run(run_id, "logs"), params=params)

    def follow_logs(
        self,
        run_id: str,
        *,
        attempt: int | None = None,
        filters: Mapping[str, str | None] | None = None,
    ) -> Iterator[Json]:
        """Yield pages of a growing log until its attempt has ended; retries as `follow` does."""
        retry, after = _RetryOutages(self.url), 0
        while True:
            page: Json | None = None
            with retry:
                page = self.logs(run_id, attempt=attempt, after=after, filters=filters)
                retry.reset()
            grew = page is not None and page["next_offset"] > after
            if page is not None and grew:
                after = page["next_offset"]
                yield page
            elif page is not None and page["ended"]:
                return
            if not grew:
                time.sleep(LOGS_PAUSE_S)

    def checkpoints(self, run_id: str) -> CheckpointList:
        """Return the run's checkpoints, newest first."""
        return self._payload(CheckpointList, "GET", of_run(run_id, "checkpoints"))

    def checkpoint(self, run_id: str, step: int) -> CheckpointWithManifest:
        """Return one checkpoint with its manifest."""
        path = of_run(run_id, "checkpoints", step)
        return self._payload(CheckpointWithManifest, "GET", path)

    def checkpoint_file(
        self, run_id: str, step: int, path: str, *, start: int = 0
    ) -> Iterator[bytes]:
        """Yield the bytes of one file of a checkpoint from byte `start` on.

        Directly from the blob store if it has addresses and is reachable, else from the service.
        """
        url = of_run(run_id, "checkpoints", step, "files", path)
        headers = {"Range": f"bytes={start}-"} if start else {}
        try:
            with self._file(f"{url}?direct=true", headers) as reply:
                address = reply.headers.get("Location") if reply.is_redirect else None
                if address is None:
                    yield from _bytes_from(reply, start)
                    return
            with suppress(httpx.ConnectError, httpx.ConnectTimeout, _NotServed):
                # Without our key: the signed address is all that the store needs.
                with httpx.stream("GET", address, headers=headers, timeout=TIMEOUT) as reply:
                    yield from _bytes_from(reply, start)
                return
            with self._file(url, headers) as reply:
                yield from _bytes_from(reply, start)
        except httpx.TransportError as error:
            raise ApiUnreachable(f"{self.url} does not answer: {error}") from error
        except _NotServed as error:
            raise ApiUnreachable(f"{self.url} answers {error} where a file should be") from error

    @contextmanager
    def _file(self, url: str, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        with self._http.stream("GET", url, headers=dict(headers)) as reply:
            if reply.is_error:
                reply.read()
                raise _problem(reply)
            yield reply

    def session_url(self, path: str) -> str:
        """Return a link that logs a browser in once and opens `path`."""
        code = self._json("POST", "/v1/session-codes")["code"]
        return str(httpx.URL(f"{self.url}/login", params={"code": code, "next": path}))

    def ready(self) -> Json:
        """Return the health of the service's parts."""
        return self._json("GET", "/v1/health/ready")

    def _download(self, path: str) -> Iterator[bytes]:
        try:
            with self._file(path, {}) as response:
                yield from _bytes_from(response, 0)
        except _NotServed as error:
            raise ApiUnreachable(f"{self.url} answers {error} where a file should be") from error
        except httpx.TransportError as error:
            raise ApiUnreachable(f"{self.url} does not answer: {error}") from error

    def _payload(self, payload: type[P], method: str, path: str, **options: Any) -> P:
        body = self._json(method, path, **options)
        try:
            return payload.model_validate(body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = "/".join(str(part) for part in first["loc"])
            raise ApiUnreachable(
                f"{self.url} answers, but not as this version of Hillclimb expects: {place}:"
                f" {first['msg']}"
            ) from error

    def _json(self, method: str, path: str, **options: Any) -> Json:
        try:
            response = self._http.request(method, path, **options)
        except httpx.TransportError as error:
            raise ApiUnreachable(f"{self.url} does not answer: {error}") from error
        if response.is_error:
            raise _problem(response)
        try:
            body = response.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise ApiUnreachable(f"{self.url} answers, but not as a Hillclimb service would")
        return body


class _RetryOutages:
    """Suppresses connection errors and 5xx responses until they have lasted `RECONNECT_FOR_S`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.reset()

    def reset(self) -> None:
        self._last_answer = time.monotonic()

    def __enter__(self) -> None:
        return

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        refused = isinstance(error, ApiProblem) and error.status < HTTPStatus.INTERNAL_SERVER_ERROR
        silent = isinstance(error, httpx.TransportError | ApiUnreachable | ApiProblem)
        if refused or not silent:
            return False
        if time.monotonic() - self._last_answer > RECONNECT_FOR_S:
            raise ApiUnreachable(f"{self._url} does not answer: {error}") from error
        return True


class _NotServed(Exception):
    """A response without the file; `str` is its status.

    A store whose clock is wrong answers so, or one that redirects: the address is signed for its
    own host alone.
    """


def _bytes_from(reply: httpx.Response, start: int) -> Iterator[bytes]:
    """Yield a body from byte `start`, whether the answer begins there or at 0."""
    if not reply.is_success:
        raise _NotServed(str(reply.status_code))
    # Some services say 200 to a range they serve; this header is then still true.
    skip = 0 if reply.headers.get("Content-Range", "").startswith(f"bytes {start}-") else start
    for block in reply.iter_bytes():
        if len(block) > skip:
            yield block[skip:]
        skip = max(0, skip - len(block))


def _problem(response: httpx.Response) -> ApiProblem:
    try:
        body = response.json()
    except ValueError:
        body = {"title": f"HTTP {response.status_code} without a readable body"}
    return ApiProblem(response.status_code, body if isinstance(body, dict) else {})


def _without_none(values: Mapping[str, str | int | None]) -> dict[str, str | int]:
    return {name: value for name, value in values.items() if value is not None}
