"""Pushes events to the service while training continues; a dead service never stops a run."""

from __future__ import annotations

import logging
import random
import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

import httpx
from pydantic import BaseModel

from hillclimb.protocol.events import IngestReply
from hillclimb.protocol.refused_events import refuse
from trainer.attempt.sinks.tail import Tail

MAX_EVENTS = 500
MAX_BYTES = 1_000_000
REQUEST_TIMEOUT_S = 10.0
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 15.0
SUPERSEDED = "attempt_superseded"
AT_FAULT = {413: None, 400: "malformed", 422: "invalid"}
"""Statuses, each with the service's code, of a batch that is refused for what it says, for good. A
body that is too large for a proxy in between has no code."""
_log = logging.getLogger(__name__)


class _Numbered(BaseModel):
    """The number of a journal's line."""

    trainer_seq: int


class Push:
    """Sends `events.jsonl` in batches to an ingest URL, from a thread of its own.

    The service replies with the last event it has stored, and sending continues after it, so no
    event is lost or counted twice. `on_superseded` is called once, from that thread, when a newer
    attempt owns the run; nothing is sent afterwards. Everything is repeated but a batch that is
    refused for what it says: that is halved until one event is left, which an `event.refused`
    replaces under its number.
    """

    def __init__(
        self, events: Path, *, url: str, token: str, on_superseded: Callable[[], None]
    ) -> None:
        self._tail = Tail(events)
        self._url = url
        self._on_superseded = on_superseded
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {token}"}, timeout=REQUEST_TIMEOUT_S, trust_env=False
        )
        self._acknowledged = 0
        self._wait_s = FIRST_WAIT_S
        self._complaint = ""
        self._max_events = MAX_EVENTS
        self._news = threading.Event()
        self._closing = threading.Event()
        self._stopped_sending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="push", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Signal that there are new events."""
        self._news.set()

    def close(self, timeout_s: float) -> bool:
        """Send the remaining events within `timeout_s` and stop; True if the service has all."""
        deadline = time.monotonic() + timeout_s
        self._closing.set()
        self._news.set()
        self._thread.join(max(0.0, deadline - time.monotonic()))
        is_done = not self._thread.is_alive()
        self._stopped_sending.set()
        return is_done and not self._batch()

    def _work(self) -> None:
        while not self._stopped_sending.is_set():
            batch = self._batch()
            if batch:
                self._try_to_send(batch)
            elif self._closing.is_set():
                break
            else:
                self._news.wait()
                self._news.clear()
        self._client.close()

    def _batch(self) -> list[bytes]:
        return self._tail.lines(max_bytes=MAX_BYTES, max_lines=self._max_events)

    def _try_to_send(self, lines: list[bytes]) -> None:
        try:
            self._send(lines)
        except Exception as error:  # noqa: BLE001 - the sink edge: training goes on whatever fails
            self._back_off(f"{type(error).__name__}: {error}")

    def _send(self, lines: list[bytes]) -> None:
        # The journal wrote these lines from events, and the service checks them: here only their
        # numbers are read, at a twentieth of the cost of validating and writing each event again.
        numbers = [_Numbered.model_validate_json(line).trainer_seq for line in lines]
        if numbers[-1] <= self._acknowledged:
            self._tail.advance(lines)
            return
        reply = self._post(lines)
        if _is_at_fault(reply) and len(lines) > 1:
            self._max_events = len(lines) // 2
            return
        if _is_at_fault(reply):
            reply = self._post([self._placeholder(lines[0], numbers[0], reply)])
        if reply.is_client_error and _problem(reply).get("code") == SUPERSEDED:
            self._stopped_sending.set()
            self._on_superseded()
        elif reply.is_success:
            self._accept(lines, numbers, IngestReply.model_validate_json(reply.content))
        else:
            self._back_off(f"HTTP {reply.status_code}: {reply.text[:200]}")

    def _post(self, lines: list[bytes]) -> httpx.Response:
        return self._client.post(
            self._url,
            content=b'{"events":[' + b",".join(lines) + b"]}",
            headers={"Content-Type": "application/json"},
        )

    def _placeholder(self, line: bytes, number: int, reply: httpx.Response) -> bytes:
        why = str(_problem(reply).get("detail", ""))
        sentence = f"The service refused it with HTTP {reply.status_code}. {why}".rstrip()
        refused = refuse(line, trainer_seq=number, message=sentence)
        _log.warning("event %d (%s) is kept out: %s", number, refused.refused_type, sentence)
        return refused.model_dump_json().encode()

    def _accept(self, lines: list[bytes], numbers: list[int], reply: IngestReply) -> None:
        """Advance past the stored events, or go back to the start if the service lost some."""
        self._wait_s, self._complaint = FIRST_WAIT_S, ""
        self._max_events = min(MAX_EVENTS, 2 * self._max_events)
        self._acknowledged = reply.last_trainer_seq
        if reply.last_trainer_seq >= numbers[0]:
            stored = bisect_right(numbers, reply.last_trainer_seq)
            self._tail.advance(lines[:stored])
        elif self._tail.offset:
            self._tail = Tail(self._tail.path)
        else:
            self._back_off("the service stored none of them")

    def _back_off(self, complaint: str) -> None:
        """Wait, longer each time; log each kind of problem once."""
        if complaint != self._complaint:
            _log.warning("the service did not accept events (%s); retrying", complaint)
            self._complaint = complaint
        wait = self._wait_s * random.uniform(0.5, 1.0)
        self._wait_s = min(2.0 * self._wait_s, LONGEST_WAIT_S)
        if self._closing.is_set():
            time.sleep(min(wait, FIRST_WAIT_S))
        else:
            self._closing.wait(wait)


def _is_at_fault(reply: httpx.Response) -> bool:
    """Return True if the batch is refused for what it says, whenever it is sent."""
    if reply.status_code not in AT_FAULT:
        return False
    code = AT_FAULT[reply.status_code]
    return code is None or _problem(reply).get("code") == code


def _problem(reply: httpx.Response) -> dict[str, object]:
    """Return a problem+json body; empty for another one."""
    try:
        body = reply.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
