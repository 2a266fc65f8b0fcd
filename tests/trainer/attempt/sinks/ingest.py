"""A real HTTP server that keeps what the service's ingest would keep."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from hillclimb.protocol.events import EventRefused, IngestBatch


@dataclass
class Ingest:
    """Idempotent on the sequence number, as the service is; `answers` are given first."""

    seqs: list[int] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    answers: list[tuple[int, dict[str, object]]] = field(default_factory=list)
    failed: threading.Event = field(default_factory=threading.Event)
    url: str = ""
    most: int = 500
    """Events of a batch that are stored."""
    poison: dict[int, tuple[int, dict[str, object]]] = field(default_factory=dict)
    """Answer to every batch with the event of this number, unless it is a placeholder."""
    refused: list[EventRefused] = field(default_factory=list)

    def take(self, body: bytes, token: str) -> tuple[int, dict[str, object]]:
        self.tokens.append(token)
        if self.answers:
            self.failed.set()
            return self.answers.pop(0)
        events = IngestBatch.model_validate_json(body).events[: self.most]
        for event in events:
            if event.trainer_seq in self.poison and not isinstance(event, EventRefused):
                return self.poison[event.trainer_seq]
        self.refused += [event for event in events if isinstance(event, EventRefused)]
        new = [e.trainer_seq for e in events if e.trainer_seq == len(self.seqs) + 1]
        for event in events:
            if event.trainer_seq == len(self.seqs) + 1:
                self.seqs.append(event.trainer_seq)
        return 200, {"accepted": len(new), "last_trainer_seq": len(self.seqs)}


@contextmanager
def serving() -> Iterator[Ingest]:
    """A service on a free port of the loopback interface."""
    service = Ingest()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, reply = service.take(body, self.headers["Authorization"])
            data = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.url = f"http://127.0.0.1:{server.server_port}/v1/ingest"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield service
    server.shutdown()
    server.server_close()
    thread.join()
