"""What a node says to the service, over HTTP."""

from __future__ import annotations

import ipaddress
from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from trainer.contract.launch import Action, AttemptEnd, ExchangeCode, NodeBeat, NodePlan, NodeReply
from trainer.node.errors import AttemptOver, ServiceUnreachable, TokenUnknown

Reply = TypeVar("Reply", bound=BaseModel)
TIMEOUT = httpx.Timeout(10.0, connect=3.0)
PROBLEM = "application/problem+json"
OVER, UNKNOWN = "attempt_superseded", "unknown_token"
"""Codes by which the service itself says that the attempt is not this job's. Whatever else is no
success may be a proxy's word, or a service that is being replaced, and is asked again. So is one
that does not know the token of an attempt that we have: whoever took it from us says `OVER`."""


class Requests:
    """One attempt's face of the service; every method is one request, none retries.

    Each raises ServiceUnreachable or AttemptOver.
    """

    def __init__(
        self, url: str, *, attempt_id: str, code: str, rank: int = 0, member: str = ""
    ) -> None:
        # Proxies of the environment must not get between a node and a service on loopback.
        self._http = httpx.Client(
            base_url=url, timeout=TIMEOUT, trust_env=not _is_loopback(httpx.URL(url).host)
        )
        self._attempt_id = attempt_id
        self._code = code
        self._rank, self._member = rank, member
        self.token = ""

    def exchange(self, nonce: str) -> NodePlan:
        """Take the attempt; what is said afterwards is said with its token."""
        body = ExchangeCode(
            attempt_id=self._attempt_id,
            code=self._code,
            nonce=nonce,
            rank=self._rank,
            member=self._member,
        )
        plan = _parse(NodePlan, self._post("/v1/attempts/exchange", body))
        self.token = plan.attempt_token
        return plan

    def heartbeat(self, *, is_preparing: bool) -> Action | None:
        """Say that the node lives; returns what to do with the trainer."""
        body = NodeBeat(is_preparing=is_preparing)
        return _parse(NodeReply, self._post("/v1/attempts/heartbeat", body)).action

    def report_end(self, end: AttemptEnd) -> None:
        """Say that the trainer is gone; idempotent."""
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
            raise ServiceUnreachable(f"{path}: {error or type(error).__name__}") from error
        if answer.is_success:
            return answer
        problem = _problem(answer)
        said = f"{path}: {answer.status_code} {problem.get('detail') or problem.get('title') or ''}"
        code = problem.get("code")
        if code == OVER or (code == UNKNOWN and not self.token):
            raise AttemptOver(said)
        if code == UNKNOWN:
            raise TokenUnknown(said)
        raise ServiceUnreachable(said)


def _parse(model: type[Reply], answer: httpx.Response) -> Reply:
    try:
        return model.model_validate_json(answer.content)
    except ValidationError as error:
        # The error's own words would show the answer, and in it secrets.
        problem = f"an answer that is no {model.__name__}: {error.error_count()} mistakes"
        raise ServiceUnreachable(problem) from None


def _problem(answer: httpx.Response) -> dict[str, object]:
    """Return what the service itself says; nothing where somebody else has answered."""
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
