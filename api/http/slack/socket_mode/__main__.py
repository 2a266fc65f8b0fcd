"""`python -m api.http.slack.socket_mode`: exit code 0 after a stop, 2 when it is misconfigured."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

from api.http.requests.services import open_services
from api.http.slack.socket_mode.consumer import EnvelopeConsumer
from api.notices.slack.socket import silence_library
from api.settings import Settings, load_settings
from hillclimb.stack.system import alive

ALIVE_EVERY_S = 15.0


def main() -> int:
    """Run until a signal; returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    silence_library()
    settings = load_settings()
    if settings.slack_app_token is None:
        sys.stderr.write("slack: set SLACK_APP_TOKEN, an app-level token (docs/slack.md)\n")
        return 2
    asyncio.run(_run(settings))
    return 0


async def _run(settings: Settings) -> None:
    # It acts on one request at a time.
    settings = settings.model_copy(update={"db_pool": settings.db_worker_pool})
    with open_services(settings, os.environ) as services:
        consumer = EnvelopeConsumer(services=services)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, consumer.stopping.set)
        beat = asyncio.create_task(_show_life())
        try:
            await consumer.run()
        finally:
            beat.cancel()


async def _show_life() -> None:
    """Touch the file of the health check as long as the event loop turns."""
    while True:
        alive.touch()
        await asyncio.sleep(ALIVE_EVERY_S)


if __name__ == "__main__":
    sys.exit(main())
