"""Which answers make a node leave: the service's own word, and nobody else's."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.launch import EndReport
from trainer.node.errors import AttemptOver, ServiceUnreachable, TokenUnknown
from trainer.node.transport.http import HttpTransport

Answer = Callable[[int, str, bytes], HttpTransport]
PROBLEM = "application/problem+json"


@pytest.fixture
def answering() -> Iterator[Answer]:
    """Factory: `answering(status, content_type, body)` is a client of a server that says so."""
    servers: list[HTTPServer] = []

    def make(status: int, kind: str, body: bytes) -> HttpTransport:
        class Says(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        server = HTTPServer(("127.0.0.1", 0), Says)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        url = f"http://127.0.0.1:{server.server_address[1]}"
        return HttpTransport(url, attempt_id="att_1", code="hcx_code")

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "kind", "body"),
    [
        (404, "text/plain", b"default backend - 404"),
        (302, "text/html", b"log in first"),
        (403, "application/json", b'{"code": "attempt_superseded"}'),
        (405, "text/html", b""),
        (404, PROBLEM, b'{"code": "not_found", "detail": "another version answers"}'),
        (409, PROBLEM, b'{"code": "attempt_not_claimed", "retryable": true}'),
        (503, PROBLEM, b'{"code": "internal", "retryable": true}'),
        (401, PROBLEM, b"torn"),
    ],
)
def test_what_the_service_itself_did_not_say_ends_no_attempt(
    answering: Answer, status: int, kind: str, body: bytes
) -> None:
    with pytest.raises(ServiceUnreachable, match=str(status)):
        answering(status, kind, body).heartbeat(is_preparing=False)


@pytest.mark.parametrize(("status", "code"), [(409, "attempt_superseded"), (401, "unknown_token")])
def test_the_service_says_that_the_attempt_is_not_ours_to_take(
    answering: Answer, status: int, code: str
) -> None:
    body = json.dumps({"code": code, "detail": "leave"}).encode()
    with pytest.raises(AttemptOver, match="leave"):
        answering(status, f"{PROBLEM}; charset=utf-8", body).claim("n" * 16)


def test_the_service_says_that_the_attempt_is_not_ours_any_more(answering: Answer) -> None:
    body = json.dumps({"code": "attempt_superseded", "detail": "leave"}).encode()
    requests = answering(409, f"{PROBLEM}; charset=utf-8", body)
    requests.token = "hca_token"
    with pytest.raises(AttemptOver, match="leave"):
        requests.heartbeat(is_preparing=False)


def test_a_service_that_does_not_know_our_token_takes_no_attempt_from_us(answering: Answer) -> None:
    """It may answer out of another database for a moment: a wrong setting, a restored copy."""
    body = json.dumps({"code": "unknown_token", "detail": "who?"}).encode()
    requests = answering(401, f"{PROBLEM}; charset=utf-8", body)
    requests.token = "hca_token"
    end = EndReport(reason=ReasonCode.COMPLETED, message="done")
    for say in (lambda: requests.heartbeat(is_preparing=False), lambda: requests.report_end(end)):
        with pytest.raises(TokenUnknown, match="who"):
            say()
