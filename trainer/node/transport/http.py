"""The node's HTTP transport to the service."""

from __future__ import annotations

import ipaddress
from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from hillclimb.protocol.launch import (
    Action,
    BootstrapClaim,
    EndReport,
    NodeBeat,
    NodePlan,
    NodeReply,
)
from trainer.node.errors import AttemptOver, ServiceUnreachable, TokenUnknown

Reply = TypeVar("Reply", bound=BaseModel)
TIMEOUT = httpx.Timeout(10.0, connect=3.0)
PROBLEM = "application/problem+json"
OVER, UNKNOWN = "attempt_superseded", "unknown_token"
"""Codes by which the service denies this job the attempt. Every other failure may come from a proxy
or a restarting service, and is retried. So is `UNKNOWN` for the token of an attempt that we have: a
service that gave the attempt to another job answers `OVER`."""


class HttpTransport:
    """Client of one attempt's routes; every method is one request, none retries.

    Each raises ServiceUnreachable or AttemptOver.
    """

    def __init__(
        self, url: str, *, attempt_id: str, code: str, rank: int = 0, member: str = ""
    ) -> None:
        # A proxy from the environment must not intercept requests to a service on loopback.
        self._http = httpx.Client(
            base_url=url, timeout=TIMEOUT, trust_env=not _is_loopback(httpx.URL(url).host)
        )
        self._attempt_id = attempt_id
        self._code = code
        self._rank, self._member = rank, member
        self.token = ""

    def claim(self, nonce: str) -> NodePlan:
        """Claim the attempt; later requests use its token."""
        body = BootstrapClaim(
            attempt_id=self._attempt_id,
            code=self._code,
            nonce=nonce,
            rank=self._rank,
            member=self._member,
        )
        plan = _parse(NodePlan, self._post("/v1/attempts/claim", body))
        self.token = plan.attempt_token
        return plan

    def heartbeat(self, *, is_preparing: bool) -> Action | None:
        """Send a heartbeat; returns the action for the trainer."""
        body = NodeBeat(is_preparing=is_preparing)
        return _parse(NodeReply, self._post("/v1/attempts/heartbeat", body)).action

    def report_end(self, end: EndReport) -> None:
        """Report that the trainer has exited; idempotent."""
        self._post("/v1/attempts/end", end)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _post(self, path: str, body: BaseModel) -> httpx.Response:
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            answer = self._http.post(path, content=body.model_dump_json(), headers=headers)
        except httpx.HTTPError as error:
            raise ServiceUnreachable(f"{path}: {str(error) or type(error).__name__}") from error
        if answer.is_success:
            return answer
        problem = _problem(answer)
        message = (
            f"{path}: {answer.status_code} {problem.get('detail') or problem.get('title') or ''}"
        )
        code = problem.get("code")
        if code == OVER or (code == UNKNOWN and not self.token):
            raise AttemptOver(message)
        if code == UNKNOWN:
            raise TokenUnknown(message)
        raise ServiceUnreachable(message)


def _parse(model: type[Reply], answer: httpx.Response) -> Reply:
    try:
        return model.model_validate_json(answer.content)
    except ValidationError as error:
        # The error's own message would quote the answer, which has secrets.
        problem = f"the answer is no valid {model.__name__}: {error.error_count()} mistakes"
        raise ServiceUnreachable(problem) from None


def _problem(answer: httpx.Response) -> dict[str, object]:
    """Return the service's problem; empty where a proxy answered instead."""
    if answer.headers.get("content-type", "").partition(";")[0].strip() != PROBLEM:
        return {}
    try:
        body = answer.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
