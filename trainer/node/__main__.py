"""`python -m trainer.node`: SkyPilot's job on every machine of a cluster.

Exit code 0: the service has the attempt's end report. 1: it could not be reported. 2: the node is
misconfigured. 3: the attempt is over, or another job has it.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from hillclimb.blobs.base import StoreError
from hillclimb.blobs.locate import open_store
from hillclimb.blobs.retry import RetryPolicy
from hillclimb.process.redactor import SECRET_NAMES, Redactor
from trainer.node.errors import NodeMisconfigured, NodeRunning
from trainer.node.head import Head
from trainer.node.member import Member
from trainer.node.rendezvous import KEY_BYTES
from trainer.node.settings import NodeSettings
from trainer.node.state.journal import NodeJournal, only_one
from trainer.node.state.logs import NodeLogs
from trainer.node.state.secrets_file import SecretsFile
from trainer.node.transport.http import HttpTransport
from trainer.node.transport.transport import BlobTransport, FallbackTransport, Transport

STORE_RETRY = RetryPolicy(total_s=5.0)
"""Short, because the loop that watches the trainer waits meanwhile."""
EXIT_MISCONFIGURED, EXIT_OVER = 2, 3


@dataclass(slots=True, kw_only=True)
class NodeTransports:
    """Creates the transports to the service that the settings allow."""

    settings: NodeSettings
    nonce: str = ""
    """Empty on other machines: they get it from the first one."""
    member: str = ""
    """Key of this process, on other machines."""
    _http_transport: HttpTransport | None = field(default=None, repr=False)

    def for_claim(self) -> Transport:
        """Return HTTP, or the blob store where the API cannot be reached."""
        return self._get_http_transport() if self.settings.api_url else self._blob_transport()

    def for_attempt(self, environ: Mapping[str, str]) -> Transport:
        """Return HTTP with the blob store as fallback, using the credentials in `environ`."""
        for name in filter(None, environ.get(SECRET_NAMES, "").split(",")):
            if name in environ:
                os.environ[name] = environ[name]
        if not self.settings.api_url:
            return self._blob_transport()
        http = self._get_http_transport()
        http.token = environ["HILLCLIMB_ATTEMPT_TOKEN"]
        return FallbackTransport(primary=http, fallback=self._blob_transport())

    def _get_http_transport(self) -> HttpTransport:
        if self._http_transport is None:
            settings = self.settings
            self._http_transport = HttpTransport(
                settings.api_url,
                attempt_id=settings.attempt_id,
                code=settings.code,
                rank=settings.gang.rank,
                member=self.member,
            )
        return self._http_transport

    def _blob_transport(self) -> BlobTransport:
        return BlobTransport(
            store=open_store(self.settings.blobs_url, STORE_RETRY),
            run_id=self.settings.run_id,
            attempt=self.settings.attempt,
            nonce=self.nonce,
        )


def main() -> int:
    """Run this machine's node; returns the exit code."""
    logs, secrets_file = NodeLogs(Redactor.of(os.environ)), SecretsFile()
    try:
        secrets_file = SecretsFile.read(os.environ)
        os.environ.update(secrets_file.values)
        logs.set_redactor(Redactor.of(os.environ))
        settings = NodeSettings.from_environment(os.environ)
        if settings.gang.is_alone:
            secrets_file.delete()
        with only_one(settings.own_dir):
            node = make_node(settings, logs, secrets_file)
            stop_on_signals(node)
            return node.run()
    except (NodeMisconfigured, StoreError) as error:
        sys.stderr.write(f"node: {error}\n")
        return EXIT_MISCONFIGURED
    except NodeRunning as error:
        sys.stderr.write(f"node: {error}\n")
        return EXIT_OVER
    finally:
        secrets_file.delete()


def make_node(settings: NodeSettings, logs: NodeLogs, secrets_file: SecretsFile) -> Head | Member:
    """Create the head on the first machine, a member on the others. Raises NodeRunning."""
    if settings.gang.is_head:
        journal = NodeJournal(settings.own_dir, secrets.token_hex(KEY_BYTES))
        return Head(
            settings=settings,
            environ=dict(os.environ),
            journal=journal,
            transports=NodeTransports(settings=settings, nonce=journal.record.nonce),
            attach_log=logs.attach_log,
            delete_secrets=secrets_file.delete,
        )
    key = secrets.token_bytes(KEY_BYTES)
    transports = NodeTransports(settings=settings, member=key.hex())
    return Member(
        settings=settings,
        environ=dict(os.environ),
        key=key,
        service=transports.for_claim() if settings.api_url else None,
        set_redactor=logs.set_redactor,
        delete_secrets=secrets_file.delete,
    )


def stop_on_signals(node: Head | Member) -> None:
    """Let the trainer checkpoint and exit on SIGTERM and SIGINT."""

    def stop(_number: int, _frame: object) -> None:
        node.stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


if __name__ == "__main__":
    sys.exit(main())
