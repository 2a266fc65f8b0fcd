"""The entrance of a process: looks keys up, and counts and records those that are refused."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from fastapi import Request
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from api.http.requests.limits.recent_attempts import RecentAttempts
from api.http.requests.limits.wrong_keys import WrongKeys, address_of
from api.runs.errors import UnknownToken
from api.runs.journal import utc_now
from api.scheduling.attempts import hash_token
from api.tables import Attempt
from api.tables.access.audit import Origin, record_refusal, subject_of_refusal
from api.tables.access.errors import NotAuthenticated
from api.tables.access.identity import Principal, authenticate, prefixes_of_keys
from api.tables.database import Database

log = logging.getLogger(__name__)

ATTEMPT, LINK = "attempt", "link"
"""Kinds of secrets whose wrong ones are counted apart: keys never wait for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrance:
    """The place where keys, tokens of attempts and sign-in links are looked at."""

    database: Database
    wrong_keys: WrongKeys
    recent_attempts: RecentAttempts = field(default_factory=RecentAttempts)

    async def check(self, origin: Origin, secret: str, kind: str = "") -> None:
        """Refuse a guess without a thread or the database; raises RateExceeded."""
        if not kind and self.wrong_keys.needs_prefixes(origin.address):
            await run_in_threadpool(self._learn_prefixes)
        self.wrong_keys.check(_name(origin, kind), secret)

    def check_here(self, origin: Origin, secret: str, kind: str = "") -> None:
        """Refuse a guess, for a caller in a thread; raises RateExceeded."""
        if not kind and self.wrong_keys.needs_prefixes(origin.address):
            self._learn_prefixes()
        self.wrong_keys.check(_name(origin, kind), secret)

    def enter(self, key: str, origin: Origin) -> Principal:
        """Return the owner of a key; raises NotAuthenticated."""
        try:
            with self.database.lookup() as session:
                caller = authenticate(session, key, now=utc_now())
        except NotAuthenticated as error:
            self.refuse(key, str(error), origin)
            raise
        self.wrong_keys.right(key)
        return caller

    def attempt_of(self, token: str, origin: Origin) -> str:
        """Return the id of the attempt with this token; raises UnknownToken."""
        query = select(Attempt.id).where(Attempt.token_hash == hash_token(token))
        with self.database.lookup() as session:
            attempt_id = session.scalar(query)
        if attempt_id is None:
            error = UnknownToken("The attempt token is not known.")
            self.refuse(token, str(error), origin, ATTEMPT)
            raise error
        self.wrong_keys.right(token)
        self.recent_attempts.note(token, attempt_id)
        return attempt_id

    def refuse(self, secret: str, why: str, origin: Origin, kind: str = "") -> None:
        """Count a refused secret, and record it unless a record tells of its like already.

        The answer is a refusal whatever the database does.
        """
        self.wrong_keys.wrong(_name(origin, kind), secret)
        try:
            with self.database.transaction() as session:
                subject = None if kind else subject_of_refusal(session, secret)
                about = subject.id if subject is not None else _name(origin, kind)
                if number := self.wrong_keys.number_to_record(about):
                    record_refusal(session, subject, why, number, origin)
        except SQLAlchemyError:
            log.exception("no audit record of the refused request %s", origin.request_id)

    def _learn_prefixes(self) -> None:
        with self.database.lookup() as session:
            self.wrong_keys.learn(prefixes_of_keys(session))


def origin_of(request: Request, route: str) -> Origin:
    """Return where a request comes from, as its server sees it.

    Behind proxies uvicorn takes the address from `X-Forwarded-For`, if it was told to trust them.
    """
    return Origin(
        route=route,
        request_id=request.state.request_id,
        address=address_of(request.client),
    )


def entrance_of(request: Request) -> Entrance:
    """Return the entrance of the application."""
    entrance: Entrance = request.app.state.entrance
    return entrance


def _name(origin: Origin, kind: str) -> str:
    return f"{kind} {origin.address}".strip()
