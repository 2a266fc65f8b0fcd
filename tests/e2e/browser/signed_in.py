"""Signs a browser without hands in: a server on the same host sets the cookie and leads on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.api.fixtures.serving import Served


@contextmanager
def signed_in(served: Served, path: str) -> Iterator[str]:
    """Yield an address that opens `path` in a session; cookies know hosts, not ports."""
    with served.browser() as browser:
        answer = browser.post("/login", data={"key": served.key, "next": "/"})
    cookie = answer.headers["set-cookie"]

    class Entrance(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(303)
            self.send_header("Set-Cookie", cookie)
            self.send_header("Location", f"{served.url}{path}")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Entrance)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
