"""`python -m api.http.live.serving`: serves the API from `HILLCLIMB_API_PROCESSES` processes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from api.http.live.serving.processes import ApiConfig, ApiProcesses, ApiServer
from api.http.live.serving.shared import shared_folder
from api.settings import load_settings

GRACE_S = 3
"""Open streams end only when their clients disconnect: a process that stops does not wait."""


def main() -> int:
    """Serve until SIGTERM or SIGINT; return 0, or 3 if the application did not start."""
    parser = argparse.ArgumentParser(prog="python -m api.http.live.serving", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8710)
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--shared", type=Path, help="folder for what the processes share")
    options = parser.parse_args()
    config = ApiConfig(
        "api.app:create_app",
        factory=True,
        host=options.host,
        port=options.port,
        log_level=options.log_level,
        timeout_graceful_shutdown=GRACE_S,
        workers=load_settings().api_processes,
    )
    server = ApiServer(config)
    if config.workers == 1:
        server.run()
        return 0
    with shared_folder(options.shared):
        return ApiProcesses(config, server, sockets=[config.bind_socket()]).serve()


if __name__ == "__main__":
    sys.exit(main())
