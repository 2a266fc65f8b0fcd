"""Readiness probes of services; each is repeated until it succeeds."""

import http.client
import json
import re
from pathlib import Path

from hillclimb.stack.servers.postgres import PostgresServer
from hillclimb.stack.servers.valkey import ValkeyServer
from hillclimb.stack.supervisor.spec import Probe, ServiceLog
from hillclimb.stack.system.ports import LOOPBACK

PROBE_TIMEOUT_S = 2.0


def server_ready(server: PostgresServer | ValkeyServer) -> Probe:
    """Ready when the server accepts a login with our password."""
    return lambda _log: None if server.ready() else "it does not accept a login"


def http_ready(port: int, path: str) -> Probe:
    """Ready when GET `path` on 127.0.0.1:`port` answers 2xx."""

    def probe(_log: ServiceLog) -> str | None:
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=PROBE_TIMEOUT_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            if 200 <= response.status < 300:
                return None
            return f"GET {path} answers {response.status}: {_sentence(response.read())}"
        except (OSError, http.client.HTTPException):
            return f"GET {path} is not answered"
        finally:
            connection.close()

    return probe


def log_says(pattern: str) -> Probe:
    """Ready when a line of the process's own log matches the regular expression."""
    expression = re.compile(pattern, re.MULTILINE)
    missing = f"its log does not say {pattern!r}"
    return lambda log: None if expression.search(log.text()) else missing


def file_written(path: Path) -> Probe:
    """Ready when the service wrote `path`; remove an old one in the specification's `prepare`."""
    return lambda _log: None if path.exists() else f"it has not written {path}"


def _sentence(body: bytes) -> str:
    """The `detail` of a problem+json body, else the start of the body."""
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")
