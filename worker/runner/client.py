"""The runner's HTTP client of the service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from hillclimb.protocol.launch import (
    RUNNER_IDENTITY,
    EndReport,
    Heartbeat,
    HeartbeatReply,
    LaunchPlan,
    RegisteredRunner,
    RegisterRunner,
    RunFolders,
)
from worker.runner.errors import (
    PlanUnknown,
    RunnerUnknown,
    ServiceRefused,
    ServiceUnreachable,
    TokenRefused,
)

Reply = TypeVar("Reply", bound=BaseModel)

TIMEOUT = httpx.Timeout(10.0, connect=3.0)
RETRYABLE = frozenset({408, 425, 429})
"""Statuses below 500 that ask for a retry."""


class ServiceClient:
    """Client of the runner's routes; every method is one request, none retries.

    Each raises ServiceUnreachable, TokenRefused, RunnerUnknown or ServiceRefused.
    """

    def __init__(self, url: str, token: str, *, identity: str) -> None:
        # A proxy from the environment must not intercept requests to a service on loopback.
        self._http = httpx.Client(
            base_url=url,
            timeout=TIMEOUT,
            headers={"Authorization": f"Bearer {token}", RUNNER_IDENTITY: identity},
            trust_env=not httpx.URL(url).host.startswith(("127.", "localhost")),
        )

    def register(self, body: RegisterRunner) -> RegisteredRunner:
        """Register the runner, or take over its name after a restart."""
        answer = self._post("/v1/runners", body)
        return _parse(RegisteredRunner, answer)

    def heartbeat(self, runner_id: str, body: Heartbeat) -> HeartbeatReply:
        """Extend the lease; the answer has commands for the claimed attempts."""
        answer = self._post(f"/v1/runners/{runner_id}/heartbeat", body)
        return _parse(HeartbeatReply, answer)

    def claim(self, runner_id: str) -> LaunchPlan | None:
        """Claim the next attempt to start; None when there is none. Raises PlanUnknown too."""
        answer = self._post(f"/v1/runners/{runner_id}/claim", None)
        return _parse_plan(answer) if answer.status_code == httpx.codes.OK else None

    def report_end(self, runner_id: str, attempt_id: str, end: EndReport) -> None:
        """Report that a trainer has exited; idempotent."""
        self._post(f"/v1/runners/{runner_id}/attempts/{attempt_id}/end", end)

    def deleted_runs(self, runner_id: str, run_ids: Sequence[str]) -> Sequence[str]:
        """Return those of the runs that were deleted."""
        body = RunFolders(run_ids=tuple(run_ids))
        answer = self._post(f"/v1/runners/{runner_id}/deleted-runs", body)
        return _parse(RunFolders, answer).run_ids

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _post(self, path: str, body: BaseModel | None) -> httpx.Response:
        content = body.model_dump_json() if body is not None else None
        headers = {"Content-Type": "application/json"} if content else {}
        try:
            answer = self._http.post(path, content=content, headers=headers)
        except httpx.HTTPError as error:
            raise ServiceUnreachable(f"{path}: {str(error) or type(error).__name__}") from error
        _check(path, answer)
        return answer


def _check(path: str, answer: httpx.Response) -> None:
    status = answer.status_code
    if answer.is_success:
        return
    message = f"{path}: {status} {_problem(answer)}"
    if status >= 500 or status in RETRYABLE:
        raise ServiceUnreachable(message)
    if status in (401, 403):
        raise TokenRefused(message)
    if _code(answer) in ("runner_not_found", "runner_gone", "runner_name_in_use"):
        raise RunnerUnknown(message)
    raise ServiceRefused(message)


def _parse(model: type[Reply], answer: httpx.Response) -> Reply:
    try:
        return model.model_validate_json(answer.content)
    except ValidationError as error:
        raise ServiceUnreachable(f"the answer is no valid {model.__name__}") from error


def _parse_plan(answer: httpx.Response) -> LaunchPlan:
    try:
        return LaunchPlan.model_validate_json(answer.content)
    except ValidationError as error:
        attempt_id = _json(answer).get("attempt_id")
        if not isinstance(attempt_id, str):
            raise ServiceUnreachable("the answer is no launch plan") from None
        # Places alone: the error's own message would quote the plan, which has secrets.
        places = (d["loc"] for d in error.errors(include_url=False, include_input=False))
        keys = sorted({".".join(map(str, place)) for place in places})
        message = (
            f"The runner is of another version than the service, and does not know"
            f" {', '.join(keys[:3])}: update it, or leave that out."
        )
        raise PlanUnknown(attempt_id, message) from None


def _problem(answer: httpx.Response) -> str:
    body = _json(answer)
    return str(body.get("detail") or body.get("title") or answer.text[:200])


def _code(answer: httpx.Response) -> str:
    return str(_json(answer).get("code", ""))


def _json(answer: httpx.Response) -> dict[str, object]:
    try:
        body = answer.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
