"""The node's transport port, and two implementations: the blob-store channel, and a fallback.

A node claims its plan over one transport. While the trainer runs it uses HTTP, and falls back to
the blob store where the API does not answer; the service then reads the store
(`worker.clusters.blob_channel`).
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from hillclimb.blobs.base import BlobMissing, BlobStore, StoreError
from hillclimb.protocol.launch import Action, EndReport, NodePlan
from hillclimb.protocol.node_messages import NodeAlive, NodeClaim, NodeEnd, NodeStop
from hillclimb.protocol.rundir import NodeFile, node_file, run_key
from trainer.node.errors import AttemptOver, ServiceUnreachable, TokenUnknown

log = logging.getLogger(__name__)

DISOWNED_S = 600.0
"""A service that answers nothing but `unknown token` for this long is believed."""
Message = TypeVar("Message", bound=BaseModel)


class Transport(Protocol):
    """Port to the service; each method is one try.

    Each raises ServiceUnreachable (retry) or AttemptOver (exit).
    """

    def claim(self, nonce: str) -> NodePlan:
        """Claim the attempt; may be repeated with the same nonce."""
        ...

    def heartbeat(self, *, is_preparing: bool) -> Action | None:
        """Send a heartbeat; returns the action for the trainer."""
        ...

    def report_end(self, end: EndReport) -> None:
        """Report that the trainer has exited; idempotent."""
        ...


@dataclass(slots=True, kw_only=True)
class BlobTransport:
    """Messages in the blob store; `nonce` identifies the job that wrote them."""

    store: BlobStore
    run_id: str
    attempt: int
    nonce: str
    beat: int = 0

    def claim(self, nonce: str) -> NodePlan:
        """Claim the attempt, which only one job can, by an atomic put. Raises as `Transport`."""
        plan = self._read("plan", NodePlan)
        if plan is None:
            raise ServiceUnreachable(f"{self._key('plan')} does not exist yet")
        claim = NodeClaim(nonce=nonce)
        try:
            if self.store.put_if_absent(self._key("claim"), claim.model_dump_json().encode()):
                return plan
        except StoreError as error:
            raise ServiceUnreachable(str(error)) from error
        if self._read("claim", NodeClaim) != claim:
            raise AttemptOver(f"another job has attempt {self.attempt}")
        return plan

    def heartbeat(self, *, is_preparing: bool) -> Action | None:
        """Write a heartbeat, and read the requested action. Raises as `Transport`."""
        # Only a rising number counts as a heartbeat: a restarted process goes on from the last one.
        last = self._read("alive", NodeAlive) if self.beat == 0 else None
        self.beat = max(self.beat, last.beat if last else 0) + 1
        alive = NodeAlive(
            nonce=self.nonce, beat=self.beat, at=datetime.now(UTC), is_preparing=is_preparing
        )
        self._write("alive", alive)
        stop = self._read("stop", NodeStop)
        return stop.action if stop else None

    def report_end(self, end: EndReport) -> None:
        """Write the end report. Raises as `Transport`."""
        self._write("end", NodeEnd(nonce=self.nonce, end=end))

    def _key(self, name: NodeFile) -> str:
        return run_key(self.run_id, node_file(self.attempt, name))

    def _read(self, name: NodeFile, model: type[Message]) -> Message | None:
        try:
            return model.model_validate_json(self.store.get(self._key(name)))
        except BlobMissing:
            return None
        except (StoreError, ValidationError) as error:
            raise ServiceUnreachable(f"{self._key(name)}: {error}") from error

    def _write(self, name: NodeFile, message: BaseModel) -> None:
        try:
            self.store.put(self._key(name), message.model_dump_json().encode())
        except StoreError as error:
            raise ServiceUnreachable(f"{self._key(name)}: {error}") from error


@dataclass(slots=True, kw_only=True)
class FallbackTransport:
    """HTTP, and the blob store where HTTP gets no answer."""

    primary: Transport
    fallback: Transport
    is_answered: bool = True
    disowned_s: float = DISOWNED_S
    _unknown_since: float | None = None

    def claim(self, nonce: str) -> NodePlan:
        """Claim the attempt over HTTP only: its token must not get into the store."""
        return self.primary.claim(nonce)

    def heartbeat(self, *, is_preparing: bool) -> Action | None:
        """Send a heartbeat over either transport; stop a trainer that the service disowns."""
        try:
            action = self.primary.heartbeat(is_preparing=is_preparing)
        except TokenUnknown as error:
            self._note(is_answered=False, why=str(error))
            return self._heartbeat_disowned(is_preparing=is_preparing)
        except ServiceUnreachable as error:
            self._unknown_since = None
            self._note(is_answered=False, why=str(error))
            return self.fallback.heartbeat(is_preparing=is_preparing)
        self._unknown_since = None
        self._note(is_answered=True, why="")
        return action

    def _heartbeat_disowned(self, *, is_preparing: bool) -> Action | None:
        """Use the fallback while the token is unknown; stop the trainer after `disowned_s`."""
        now = time.monotonic()
        if self._unknown_since is None:
            self._unknown_since = now
        is_disowned = now - self._unknown_since >= self.disowned_s
        try:
            action = self.fallback.heartbeat(is_preparing=is_preparing)
        except ServiceUnreachable:
            if not is_disowned:
                raise
            action = None
        return action or ("stop" if is_disowned else None)

    def report_end(self, end: EndReport) -> None:
        """Report the end over either transport."""
        try:
            self.primary.report_end(end)
        except ServiceUnreachable as error:
            log.warning("the end report goes through the blob store: %s", error)
            self.fallback.report_end(end)

    def _note(self, *, is_answered: bool, why: str) -> None:
        """Log the change, not every failed try."""
        if is_answered and not self.is_answered:
            log.warning("the service answers again")
        if not is_answered and self.is_answered:
            log.warning("the service does not answer; the trainer continues: %s", why)
        self.is_answered = is_answered
