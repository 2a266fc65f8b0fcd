"""`python -m trainer.node`: what SkyPilot's job runs on every machine of a cluster.

Exit code 0: the service knows how the attempt ended. 1: nobody could be told. 2: the set-up is
wrong. 3: the attempt is over, or another job's.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer.handover.masking import SECRET_NAMES, Mask
from trainer.node.errors import NodeMisconfigured, NodeRunning
from trainer.node.given import Given
from trainer.node.head import Head
from trainer.node.journal import NodeJournal, only_one
from trainer.node.logs import NodeLogs
from trainer.node.member import Member
from trainer.node.requests import Requests
from trainer.node.rollcall import KEY_BYTES
from trainer.node.service import Mailbox, Service, TwoWays
from trainer.node.settings import NodeSettings
from trainer.stores.base import StoreError
from trainer.stores.locate import open_store
from trainer.stores.patience import Patience

PATIENCE = Patience(total_s=5.0)
"""The trainer is looked after in between."""
EXIT_MISCONFIGURED, EXIT_OVER = 2, 3


@dataclass(slots=True, kw_only=True)
class Wires:
    """The ways to the service that the settings name."""

    settings: NodeSettings
    nonce: str = ""
    """Empty on a further machine: the first one tells it."""
    member: str = ""
    """Of this process, on a further machine."""
    _requests: Requests | None = field(default=None, repr=False)

    def first(self) -> Service:
        """Requests, or the blob store where the API cannot be reached."""
        return self._asked() if self.settings.api_url else self._mailbox()

    def later(self, environ: Mapping[str, str]) -> Service:
        """Either way, by the token and with the credentials that `environ` has."""
        for name in filter(None, environ.get(SECRET_NAMES, "").split(",")):
            if name in environ:
                os.environ[name] = environ[name]
        if not self.settings.api_url:
            return self._mailbox()
        asked = self._asked()
        asked.token = environ["HILLCLIMB_ATTEMPT_TOKEN"]
        return TwoWays(first=asked, second=self._mailbox())

    def _asked(self) -> Requests:
        if self._requests is None:
            settings = self.settings
            self._requests = Requests(
                settings.api_url,
                attempt_id=settings.attempt_id,
                code=settings.code,
                rank=settings.gang.rank,
                member=self.member,
            )
        return self._requests

    def _mailbox(self) -> Mailbox:
        return Mailbox(
            store=open_store(self.settings.blobs_url, PATIENCE),
            run_id=self.settings.run_id,
            attempt=self.settings.attempt,
            nonce=self.nonce,
        )


def main() -> int:
    """Do this machine's part; returns the exit code."""
    logs, given = NodeLogs(Mask.of(os.environ)), Given()
    try:
        given = Given.read(os.environ)
        os.environ.update(given.values)
        logs.know(Mask.of(os.environ))
        settings = NodeSettings.from_environment(os.environ)
        if settings.gang.is_alone:
            given.forget()
        with only_one(settings.own_dir):
            worker = make_worker(settings, logs, given)
            stop_on_signals(worker)
            return worker.run()
    except (NodeMisconfigured, StoreError) as error:
        sys.stderr.write(f"node: {error}\n")
        return EXIT_MISCONFIGURED
    except NodeRunning as error:
        sys.stderr.write(f"node: {error}\n")
        return EXIT_OVER
    finally:
        given.forget()


def make_worker(settings: NodeSettings, logs: NodeLogs, given: Given) -> Head | Member:
    """The first machine's part, or another one's. Raises NodeRunning."""
    if settings.gang.is_head:
        journal = NodeJournal(settings.own_dir, secrets.token_hex(KEY_BYTES))
        return Head(
            settings=settings,
            environ=dict(os.environ),
            journal=journal,
            ways=Wires(settings=settings, nonce=journal.notes.nonce),
            show=logs.show,
            forget=given.forget,
        )
    key = secrets.token_bytes(KEY_BYTES)
    wires = Wires(settings=settings, member=key.hex())
    return Member(
        settings=settings,
        environ=dict(os.environ),
        key=key,
        service=wires.first() if settings.api_url else None,
        know=logs.know,
        forget=given.forget,
    )


def stop_on_signals(worker: Head | Member) -> None:
    """Let the trainer checkpoint and leave on SIGTERM and SIGINT."""

    def stop(_number: int, _frame: object) -> None:
        worker.stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


if __name__ == "__main__":
    sys.exit(main())
