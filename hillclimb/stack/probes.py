"""Questions that tell whether a service is ready; each is asked anew until it says yes."""

import http.client
import re
from pathlib import Path

from hillclimb.stack.ports import LOOPBACK
from hillclimb.stack.postgres import PostgresServer
from hillclimb.stack.spec import Probe, ServiceLog
from hillclimb.stack.valkey import ValkeyServer

PROBE_TIMEOUT_S = 2.0


def server_ready(server: PostgresServer | ValkeyServer) -> Probe:
    """Ready when the server answers a login with our password."""
    return lambda _log: server.ready()


def http_ready(port: int, path: str) -> Probe:
    """Ready when GET `path` on 127.0.0.1:`port` answers 2xx."""

    def probe(_log: ServiceLog) -> bool:
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=PROBE_TIMEOUT_S)
        try:
            connection.request("GET", path)
            return 200 <= connection.getresponse().status < 300
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    return probe


def log_says(pattern: str) -> Probe:
    """Ready when a line of the process's own log matches the regular expression."""
    expression = re.compile(pattern, re.MULTILINE)
    return lambda log: expression.search(log.text()) is not None


def file_written(path: Path) -> Probe:
    """Ready when the service wrote `path`; remove an old one in the specification's `prepare`."""
    return lambda _log: path.exists()
