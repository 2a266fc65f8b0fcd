"""An HTTP endpoint of a model: retries, `Retry-After`, and a budget for the whole run."""

from __future__ import annotations

import asyncio
import email.utils
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import httpx

from trainer.contract.preflight import TeacherSpec
from trainer.contract.validation import TeacherUse
from trainer.errors import SpecError
from trainer.validation.errors import BudgetSpent, TeacherUnavailable

AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Statuses after which the same request may succeed; 529 is Anthropic's "overloaded"."""
REFUSED = frozenset({401, 402, 403, 404, 405})
"""Statuses that no other request of the run would fare better with."""
MAX_PAUSE_S, FIRST_PAUSE_S = 60.0, 0.5


@dataclass(slots=True, kw_only=True)
class Endpoint:
    """Posts JSON; one per run."""

    spec: TeacherSpec
    headers: Mapping[str, str]
    num_requests: int = 0
    num_retries: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    first_pause_s: float = FIRST_PAUSE_S
    """Seconds before the first repetition where the endpoint names none; doubled each time."""
    _http: httpx.AsyncClient = field(init=False)

    def __post_init__(self) -> None:
        """Open the connections' pool."""
        self._http = httpx.AsyncClient(
            headers=dict(self.headers), timeout=self.spec.request_timeout_s
        )

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request, tried again as often as the spec says.

        Raises:
            TeacherUnavailable: it never came or is no JSON object.
            BudgetSpent: no more requests, or tokens, are left.
            SpecError: the endpoint refuses us altogether.
        """
        url, problem = self.spec.base_url.rstrip("/") + path, ""
        for attempt in range(self.spec.max_retries + 1):
            self._check_budget()
            self.num_requests += 1
            self.num_retries += attempt > 0
            pause_s = min(self.first_pause_s * 2**attempt, MAX_PAUSE_S)
            try:
                response = await self._http.post(url, json=dict(body))
            except httpx.TransportError as error:
                problem = f"{url} does not answer: {type(error).__name__}"
            else:
                if response.is_success:
                    return _object(response)
                problem = f"{url} answers {response.status_code}: {response.text[:200]}"
                if response.status_code in REFUSED:
                    raise SpecError(f"the teacher refuses: {problem}")
                if response.status_code not in AGAIN:
                    raise TeacherUnavailable(problem)
                pause_s = _asked_pause(response, otherwise=pause_s)
            if attempt < self.spec.max_retries:
                await asyncio.sleep(pause_s)
        raise TeacherUnavailable(problem)

    def count(self, *, input_tokens: object, output_tokens: object) -> None:
        """Count tokens, as the endpoint reports them; what is no number counts nothing."""
        self.input_tokens += input_tokens if isinstance(input_tokens, int) else 0
        self.output_tokens += output_tokens if isinstance(output_tokens, int) else 0

    def use(self) -> TeacherUse:
        """Return what was asked so far."""
        return TeacherUse(
            num_requests=self.num_requests,
            num_retries=self.num_retries,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def _check_budget(self) -> None:
        spec, tokens = self.spec, self.input_tokens + self.output_tokens
        if spec.max_requests is not None and self.num_requests >= spec.max_requests:
            raise BudgetSpent("validation.teacher.max_requests are used up")
        if spec.max_tokens is not None and tokens >= spec.max_tokens:
            raise BudgetSpent("validation.teacher.max_tokens are used up")


def _object(response: httpx.Response) -> dict[str, Any]:
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise TeacherUnavailable(f"{response.url} answers what is no JSON object")
    return body


def _asked_pause(response: httpx.Response, *, otherwise: float) -> float:
    """Return the seconds of `Retry-After`, a number or a date, at most `MAX_PAUSE_S`."""
    asked = response.headers.get("retry-after", "")
    if response.status_code == HTTPStatus.CONFLICT or not asked:
        return otherwise
    try:
        seconds = float(asked)
    except ValueError:
        parsed = email.utils.parsedate_tz(asked)
        if parsed is None:
            return otherwise
        seconds = email.utils.mktime_tz(parsed) - time.time()
    return min(max(seconds, 0.0), MAX_PAUSE_S)
