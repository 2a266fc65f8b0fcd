"""The port to the service, and its two ways: requests, and notes in the blob store.

A node asks for its plan over one way. While the trainer runs it says what it has to say over
requests, and where those are not answered through the store, which the service then reads.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from trainer.contract.launch import Action, AttemptEnd, NodePlan
from trainer.contract.node import NodeAlive, NodeEnd, NodeStop, NodeTaken
from trainer.contract.rundir import NodeFile, node_file, run_key
from trainer.node.errors import AttemptOver, ServiceUnreachable, TokenUnknown
from trainer.stores.base import BlobMissing, BlobStore, StoreError

log = logging.getLogger(__name__)

DISOWNED_S = 600.0
"""A service that knows nothing of our token for so long, and says nothing else, means it."""
Note = TypeVar("Note", bound=BaseModel)


class Service(Protocol):
    """What a node says to the service; each method is one try.

    Each raises ServiceUnreachable (try again) or AttemptOver (leave).
    """

    def exchange(self, nonce: str) -> NodePlan:
        """Take the attempt; the same nonce may ask again."""
        ...

    def heartbeat(self, *, is_preparing: bool) -> Action | None:
        """Say that the node lives; returns what to do with the trainer."""
        ...

    def report_end(self, end: AttemptEnd) -> None:
        """Say that the trainer is gone; idempotent."""
        ...


@dataclass(slots=True, kw_only=True)
class Mailbox:
    """Notes in the blob store; `nonce` says whose they are."""

    store: BlobStore
    run_id: str
    attempt: int
    nonce: str
    beat: int = 0

    def exchange(self, nonce: str) -> NodePlan:
        """Take the attempt, which one job can, and return its plan. Raises as `Service`."""
        plan = self._read("plan", NodePlan)
        if plan is None:
            raise ServiceUnreachable(f"there is no {self._key('plan')} yet")
        mine = NodeTaken(nonce=nonce)
        try:
            if self.store.put_if_absent(self._key("taken"), mine.model_dump_json().encode()):
                return plan
        except StoreError as error:
            raise ServiceUnreachable(str(error)) from error
        if self._read("taken", NodeTaken) != mine:
            raise AttemptOver(f"another job carries attempt {self.attempt}")
        return plan

    def heartbeat(self, *, is_preparing: bool) -> Action | None:
        """Leave a beat, and read what is wanted. Raises as `Service`."""
        known = self._read("alive", NodeAlive) if self.beat == 0 else None
        self.beat = max(self.beat, known.beat if known else 0) + 1
        alive = NodeAlive(
            nonce=self.nonce, beat=self.beat, at=datetime.now(UTC), is_preparing=is_preparing
        )
        self._write("alive", alive)
        stop = self._read("stop", NodeStop)
        return stop.action if stop else None

    def report_end(self, end: AttemptEnd) -> None:
        """Leave the end. Raises as `Service`."""
        self._write("end", NodeEnd(nonce=self.nonce, end=end))

    def _key(self, name: NodeFile) -> str:
        return run_key(self.run_id, node_file(self.attempt, name))

    def _read(self, name: NodeFile, model: type[Note]) -> Note | None:
        try:
            return model.model_validate_json(self.store.get(self._key(name)))
        except BlobMissing:
            return None
        except (StoreError, ValidationError) as error:
            raise ServiceUnreachable(f"{self._key(name)}: {error}") from error

    def _write(self, name: NodeFile, note: BaseModel) -> None:
        try:
            self.store.put(self._key(name), note.model_dump_json().encode())
        except StoreError as error:
            raise ServiceUnreachable(f"{self._key(name)}: {error}") from error


@dataclass(slots=True, kw_only=True)
class TwoWays:
    """Requests, and where they are not answered the blob store."""

    first: Service
    second: Service
    is_answered: bool = True
    disowned_s: float = DISOWNED_S
    _unknown_since: float | None = None

    def exchange(self, nonce: str) -> NodePlan:
        """Take the attempt over requests alone: its token is not for a store."""
        return self.first.exchange(nonce)

    def heartbeat(self, *, is_preparing: bool) -> Action | None:
        """Beat over either way; a trainer that nobody knows any more is to stop."""
        try:
            action = self.first.heartbeat(is_preparing=is_preparing)
        except TokenUnknown as error:
            self._note(is_answered=False, why=str(error))
            return self._beat_unknown(is_preparing=is_preparing)
        except ServiceUnreachable as error:
            self._unknown_since = None
            self._note(is_answered=False, why=str(error))
            return self.second.heartbeat(is_preparing=is_preparing)
        self._unknown_since = None
        self._note(is_answered=True, why="")
        return action

    def _beat_unknown(self, *, is_preparing: bool) -> Action | None:
        now = time.monotonic()
        if self._unknown_since is None:
            self._unknown_since = now
        is_disowned = now - self._unknown_since >= self.disowned_s
        try:
            action = self.second.heartbeat(is_preparing=is_preparing)
        except ServiceUnreachable:
            if not is_disowned:
                raise
            action = None
        return action or ("stop" if is_disowned else None)

    def report_end(self, end: AttemptEnd) -> None:
        """Tell the end over either way."""
        try:
            self.first.report_end(end)
        except ServiceUnreachable as error:
            log.warning("the end goes through the blob store: %s", error)
            self.second.report_end(end)

    def _note(self, *, is_answered: bool, why: str) -> None:
        """Log the change, not every failed try."""
        if is_answered and not self.is_answered:
            log.warning("the service answers again")
        if not is_answered and self.is_answered:
            log.warning("the service does not answer, the trainer goes on: %s", why)
        self.is_answered = is_answered
