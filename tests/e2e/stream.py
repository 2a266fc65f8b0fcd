"""A client of the event stream that never gives up: what it has seen must be everything, once."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import httpx

from hillclimb.client.stream.sse import parse_stream

RETRY_S = 0.3


@dataclass(slots=True)
class Follower:
    """Follows one run in a thread, reconnecting with `Last-Event-ID`, until its end."""

    url: str
    key: str
    run_id: str
    seen: list[tuple[int, str]] = field(default_factory=list)
    num_connections: int = 0
    _closed: threading.Event = field(default_factory=threading.Event)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        if self._thread is not None:
            self._thread.join(10)

    def ended(self) -> bool:
        return self._ended.is_set()

    def _follow(self) -> None:
        while not self._closed.is_set() and not self.ended():
            try:
                self._connect()
            except httpx.HTTPError:
                self._closed.wait(RETRY_S)

    def _connect(self) -> None:
        headers = {"Authorization": f"Bearer {self.key}"}
        if self.seen:
            headers["Last-Event-ID"] = str(self.seen[-1][0])
        url = f"{self.url}/v1/runs/{self.run_id}/events/stream"
        timeout = httpx.Timeout(5.0, read=30.0)
        with httpx.stream("GET", url, headers=headers, timeout=timeout, trust_env=False) as answer:
            answer.raise_for_status()
            self.num_connections += 1
            for event in parse_stream(answer.iter_lines()):
                if event.name == "end":
                    self._ended.set()
                    return
                if event.id is not None and not self._closed.is_set():
                    self.seen.append((event.id, str(event.data["type"])))
