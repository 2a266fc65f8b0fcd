"""HTTP endpoint of a teacher: retries, `Retry-After`, and one budget for the whole run."""

from __future__ import annotations

import asyncio
import email.utils
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import httpx

from hillclimb.environment.retry import ExponentialBackoff, retry_async
from hillclimb.process.network.addresses import AllowedHosts
from hillclimb.process.network.connections import CheckedTransport
from hillclimb.protocol.validation import TeacherUse
from hillclimb.spec.preflight.preflight import TeacherSpec
from trainer.attempt.destinations import check_destination
from trainer.errors import SpecError
from trainer.jobs.validate.errors import RequestRefused, TeacherBudgetExhausted, TeacherUnavailable

AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Statuses after which the same request may succeed; 529 is Anthropic's "overloaded"."""
REFUSED = frozenset({401, 402, 403, 404, 405})
"""Statuses that every other request of the run would get too."""
MAX_PAUSE_S, FIRST_PAUSE_S = 60.0, 0.5
MAX_SILENT = 32
"""Unanswered requests in a row, retries included, after which no more are sent."""
MAX_QUOTED, MAX_BODY = 200, 10_000
"""Characters of a refusal quoted in messages, and kept in `RequestRefused.body` (count)."""
NOTHING = TeacherUse(num_requests=0, num_retries=0, input_tokens=0, output_tokens=0)


class _NoAnswer(Exception):
    """An attempt failed, and a retry may succeed."""

    def __init__(self, problem: str, retry_after_s: float | None = None) -> None:
        super().__init__(problem)
        self.retry_after_s = retry_after_s


@dataclass(slots=True, kw_only=True)
class Endpoint:
    """Posts JSON; one per attempt of a run."""

    spec: TeacherSpec
    headers: Mapping[str, str]
    allowed: AllowedHosts
    """What requests may reach beside public addresses."""
    secret: str | None = None
    """The key in the headers; redacted from every quoted answer."""
    used: TeacherUse = NOTHING
    """Requests and tokens of the run, earlier attempts included."""
    first_pause_s: float = FIRST_PAUSE_S
    """Pause before the first retry if the endpoint names none (seconds); doubled each time."""
    _is_checked: bool = False
    _has_answered: bool = False
    _num_silent: int = 0
    """Unanswered requests in a row, including those cancelled by their episode."""
    _silence: str = ""
    """Problem of the last unanswered request."""
    _http: httpx.AsyncClient = field(init=False)

    def __post_init__(self) -> None:
        """Open the connection pool."""
        self._http = httpx.AsyncClient(
            headers=dict(self.headers),
            timeout=self.spec.request_timeout_s,
            transport=CheckedTransport(self.allowed),
        )

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request, with the retries of the spec.

        Raises:
            TeacherUnavailable: there was no answer, or it is not a JSON object.
            RequestRefused: the endpoint rejects this request.
            TeacherBudgetExhausted: no requests or tokens remain; the endpoint rejects us after it
                has answered before; or it left many requests in a row unanswered.
            SpecError: the endpoint rejects the first request, or is nowhere that may be reached.
        """
        if not self._is_checked:
            base_url = self.spec.base_url
            await check_destination("validation.teacher.base_url", base_url, self.allowed)
            self._is_checked = True
        url = self.spec.base_url.rstrip("/") + path
        try:
            return await self._post(url, body)
        except asyncio.CancelledError:
            # The deadline of an episode before the last retry counts as no answer, too.
            self._num_silent += 1
            self._silence = f"{url} did not answer before the episode was over"
            raise

    async def _post(self, url: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request, with `max_retries` retries."""

        async def attempt(number: int) -> dict[str, Any]:
            self._check_silence()
            self._check_budget()
            self._use(requests=1, retries=int(number > 0))
            try:
                response = await self._http.post(url, json=dict(body))
            except httpx.TransportError as error:
                raise _NoAnswer(f"{url} does not answer: {type(error).__name__}") from error
            if response.status_code in AGAIN:
                raise _NoAnswer(self._quote(response, url), _retry_after_s(response))
            return self._read(response, url)

        def pause_s(fault: _NoAnswer, number: int) -> float | None:
            if number >= self.spec.max_retries:
                return None
            if fault.retry_after_s is not None:
                return fault.retry_after_s
            return backoff.pause_s(number)

        backoff = ExponentialBackoff(first_s=self.first_pause_s, longest_s=MAX_PAUSE_S)
        try:
            return await retry_async(attempt, faults=_NoAnswer, pause_s=pause_s)
        except _NoAnswer as fault:
            self._num_silent += 1
            self._silence = str(fault)
            self._check_silence()
            raise TeacherUnavailable(str(fault)) from fault

    def count(self, *, input_tokens: object, output_tokens: object) -> None:
        """Count tokens as reported by the endpoint; values that are not numbers count as 0."""
        self._use(read=_number(input_tokens), written=_number(output_tokens))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def _read(self, response: httpx.Response, url: str) -> dict[str, Any]:
        self._num_silent = 0
        if response.is_success:
            self._has_answered = True
            return _object(response, url)
        problem = self._quote(response, url)
        if response.status_code not in REFUSED:
            raise RequestRefused(problem, body=self._redact(response.text)[:MAX_BODY])
        if self._has_answered:
            raise TeacherBudgetExhausted(
                f"the teacher answered before and rejects requests now: {problem}"
            )
        raise SpecError(f"the teacher rejects requests: {problem}")

    def _quote(self, response: httpx.Response, url: str) -> str:
        text = self._redact(response.text)[:MAX_QUOTED]
        return f"{url} answers {response.status_code}: {text}"

    def _redact(self, text: str) -> str:
        return text.replace(self.secret, "[the key]") if self.secret else text

    def _use(self, *, requests: int = 0, retries: int = 0, read: int = 0, written: int = 0) -> None:
        used = self.used
        self.used = TeacherUse(
            num_requests=used.num_requests + requests,
            num_retries=used.num_retries + retries,
            input_tokens=used.input_tokens + read,
            output_tokens=used.output_tokens + written,
        )

    def _check_silence(self) -> None:
        if self._num_silent >= MAX_SILENT:
            message = f"{MAX_SILENT} requests in a row had no answer, the last: {self._silence}"
            raise TeacherBudgetExhausted(message)

    def _check_budget(self) -> None:
        spec, used = self.spec, self.used
        if spec.max_requests is not None and used.num_requests >= spec.max_requests:
            raise TeacherBudgetExhausted("validation.teacher.max_requests are used up")
        tokens = used.input_tokens + used.output_tokens
        if spec.max_tokens is not None and tokens >= spec.max_tokens:
            raise TeacherBudgetExhausted("validation.teacher.max_tokens are used up")


def _number(value: object) -> int:
    return max(0, value) if isinstance(value, int) else 0


def _object(response: httpx.Response, url: str) -> dict[str, Any]:
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise TeacherUnavailable(f"{url} answers something that is not a JSON object")
    return body


def _retry_after_s(response: httpx.Response) -> float | None:
    """Return the seconds of `Retry-After`, a number or a date, at most `MAX_PAUSE_S`."""
    header = response.headers.get("retry-after", "")
    if response.status_code == HTTPStatus.CONFLICT or not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        date = email.utils.parsedate_tz(header)
        if date is None:
            return None
        seconds = email.utils.mktime_tz(date) - time.time()
    if math.isnan(seconds):
        return None
    return min(max(seconds, 0.0), MAX_PAUSE_S)
