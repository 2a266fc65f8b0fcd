"""An HTTP endpoint of a model: retries, `Retry-After`, and a budget for the whole run."""

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

from trainer.contract.preflight import TeacherSpec
from trainer.contract.validation import TeacherUse
from trainer.errors import SpecError
from trainer.validation.errors import AskingOver, RequestRefused, TeacherUnavailable

AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Statuses after which the same request may succeed; 529 is Anthropic's "overloaded"."""
REFUSED = frozenset({401, 402, 403, 404, 405})
"""Statuses that no other request of the run would fare better with."""
MAX_PAUSE_S, FIRST_PAUSE_S = 60.0, 0.5
MAX_SILENT = 32
"""Requests in a row that get no answer, retries and all, before the endpoint is let alone."""
MAX_SHOWN, MAX_BODY = 200, 10_000
"""Characters of a refusal that are shown, and kept (count)."""
NOTHING = TeacherUse(num_requests=0, num_retries=0, input_tokens=0, output_tokens=0)


@dataclass(slots=True, kw_only=True)
class Endpoint:
    """Posts JSON; one per attempt of a run."""

    spec: TeacherSpec
    headers: Mapping[str, str]
    secret: str | None = None
    """The key in the headers; wherever an answer repeats it, it is not shown."""
    used: TeacherUse = NOTHING
    """By the run, earlier attempts included."""
    first_pause_s: float = FIRST_PAUSE_S
    """Seconds before the first repetition where the endpoint names none; doubled each time."""
    _has_answered: bool = False
    _num_silent: int = 0
    """Requests in a row that got no answer, those given up by their episode included."""
    _silence: str = ""
    """What was the matter with the last of them."""
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
            RequestRefused: the endpoint refuses this request.
            AskingOver: no more requests, or tokens, are left; the endpoint refuses us although it
                did not before; or it gave no answer to many requests in a row.
            SpecError: the endpoint refuses us from the beginning.
        """
        url = self.spec.base_url.rstrip("/") + path
        try:
            return await self._insist(url, body)
        except asyncio.CancelledError:
            # An episode's deadline may come before the last retry, and that too was no answer.
            self._num_silent += 1
            self._silence = f"{url} did not answer before the episode was over"
            raise

    async def _insist(self, url: str, body: Mapping[str, Any]) -> dict[str, Any]:
        problem = ""
        for attempt in range(self.spec.max_retries + 1):
            self._check_silence()
            self._check_budget()
            self._use(requests=1, retries=int(attempt > 0))
            pause_s = min(self.first_pause_s * 2**attempt, MAX_PAUSE_S)
            try:
                response = await self._http.post(url, json=dict(body))
            except httpx.TransportError as error:
                problem = f"{url} does not answer: {type(error).__name__}"
            else:
                if response.status_code not in AGAIN:
                    return self._read(response, url)
                problem = self._shown(response, url)
                pause_s = _asked_pause(response, otherwise=pause_s)
            if attempt < self.spec.max_retries:
                await asyncio.sleep(pause_s)
        self._num_silent += 1
        self._silence = problem
        self._check_silence()
        raise TeacherUnavailable(problem)

    def count(self, *, input_tokens: object, output_tokens: object) -> None:
        """Count tokens, as the endpoint reports them; what is no number counts nothing."""
        self._use(read=_number(input_tokens), written=_number(output_tokens))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def _read(self, response: httpx.Response, url: str) -> dict[str, Any]:
        self._num_silent = 0
        if response.is_success:
            self._has_answered = True
            return _object(response, url)
        problem = self._shown(response, url)
        if response.status_code not in REFUSED:
            raise RequestRefused(problem, body=self._cleaned(response.text)[:MAX_BODY])
        if self._has_answered:
            raise AskingOver(f"the teacher answered before, and refuses now: {problem}")
        raise SpecError(f"the teacher refuses: {problem}")

    def _shown(self, response: httpx.Response, url: str) -> str:
        text = self._cleaned(response.text)[:MAX_SHOWN]
        return f"{url} answers {response.status_code}: {text}"

    def _cleaned(self, text: str) -> str:
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
            raise AskingOver(message)

    def _check_budget(self) -> None:
        spec, used = self.spec, self.used
        if spec.max_requests is not None and used.num_requests >= spec.max_requests:
            raise AskingOver("validation.teacher.max_requests are used up")
        tokens = used.input_tokens + used.output_tokens
        if spec.max_tokens is not None and tokens >= spec.max_tokens:
            raise AskingOver("validation.teacher.max_tokens are used up")


def _number(told: object) -> int:
    return max(0, told) if isinstance(told, int) else 0


def _object(response: httpx.Response, url: str) -> dict[str, Any]:
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise TeacherUnavailable(f"{url} answers what is no JSON object")
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
    if math.isnan(seconds):
        return otherwise
    return min(max(seconds, 0.0), MAX_PAUSE_S)
