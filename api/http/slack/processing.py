"""Acts on stored requests of Slack, and posts the replies: after the acknowledgement.

A request is processed in the background of its own acknowledgement; a loop finds those that another
process left behind when it stopped, or whose reply Slack did not take yet.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import anyio.to_thread
from pydantic import ValidationError

from api.http.problems import DOMAIN_ERRORS, Problem
from api.http.requests.context import Services
from api.http.slack.actions import press, submit_form
from api.http.slack.call import InputRejected, PersonRequest
from api.http.slack.commands import carry_out
from api.http.slack.reply import SlackReply, Target, plain, post_reply
from api.notices.errors import NoticeError, RateLimited, SlackRefused, SlackUnavailable
from api.notices.slack import inbox
from api.notices.slack.inbox import ANSWERED, MAX_TRIES, InboxClaim
from api.notices.slack.links import SlackUser, linked_principal, remove_links_of_team
from api.runs.journal import utc_now
from api.tables.access.identity import NotAllowed

PERIOD_S = 5.0
RETRY_S = 10.0
BATCH = 20
FAILED = (
    "This failed inside the service, and was logged. Try again, or use the command line or the"
    " dashboard."
)
REFUSALS: tuple[type[Exception], ...] = (*DOMAIN_ERRORS, InputRejected, Problem)
"""Errors whose message is a sentence for the person."""

POINTER = re.compile(r"(?:^|(?<=; ))/([^\s:]*): ")
"""Of a mistake in a spec, before its sentence."""

log = logging.getLogger(__name__)


def process(services: Services, request_id: int) -> None:
    """Act on a request, unless that was done, and post its reply; safe to repeat."""
    now = utc_now()
    with services.database.transaction() as session:
        claim = inbox.take(session, request_id, now=now)
    if claim is None:
        return
    stored = claim.reply
    if claim.state != ANSWERED:
        reply = plain(FAILED) if claim.num_attempts > MAX_TRIES else _act(services, claim)
        stored = None if reply is None else reply.as_json(_target(claim, reply))
        with services.database.transaction() as session:
            inbox.keep_reply(session, request_id, stored)
    if stored is not None:
        _post(services, claim, stored)


def _act(services: Services, claim: InboxClaim) -> SlackReply | None:
    payload = claim.payload
    user = SlackUser(team_id=str(payload["team"]), user_id=str(payload["user"]))
    with services.database.transaction() as session:
        principal = linked_principal(session, user, now=utc_now())
    request = PersonRequest(
        services=services,
        id=claim.id,
        user=user,
        channel=str(payload["channel"]),
        principal=principal,
        now=utc_now(),
    )
    try:
        return _dispatch(request, claim)
    except NotAllowed:
        return plain(
            f"Your link's key ({principal.key_name if principal else '–'}) may not do this: link"
            " yourself to a key with the scope `runs:write`."
        )
    except NoticeError as error:
        return plain(str(error))
    except REFUSALS as error:
        return plain(_sentence_of(error))


def _dispatch(request: PersonRequest, claim: InboxClaim) -> SlackReply | None:
    if claim.kind == "action":
        return press(request, claim.payload)
    if claim.kind == "view":
        return submit_form(request, claim.payload)
    if claim.kind == "event" and claim.payload["type"] in ("app_uninstalled", "tokens_revoked"):
        with request.services.database.transaction() as session:
            remove_links_of_team(session, request.user.team_id)
        return None
    return carry_out(request, str(claim.payload["text"]))


def _sentence_of(error: Exception) -> str:
    """Return the message of a refusal, with the keys of a spec as a person writes them."""
    if isinstance(error, ValidationError):
        return "The input is not valid."
    text, num_keys = POINTER.subn(_dotted, str(error) or type(error).__name__)
    text = f"The spec is not valid: {text}." if num_keys else text
    return text if len(text) <= 1500 else text[:1500] + "…"


def _dotted(pointer: re.Match[str]) -> str:
    key = pointer[1].strip("/").replace("/", ".")
    return f"{key}: " if key else ""


def _target(claim: InboxClaim, reply: SlackReply) -> Target:
    """Return where a reply goes; what a click changed is said in the thread, for everybody."""
    payload = claim.payload
    response_url = payload.get("response_url")
    in_thread = claim.kind == "action" and reply.in_channel and not reply.replaces
    if response_url and not (in_thread and payload.get("thread_ts")):
        return Target(response_url=str(response_url))
    return Target(
        channel=str(payload["channel"]),
        thread_ts=payload.get("thread_ts"),
        user=str(payload["user"]),
    )


def _post(services: Services, claim: InboxClaim, stored: dict[str, object]) -> None:
    now, error, wait_s = utc_now(), "", RETRY_S
    try:
        post_reply(services.slack, stored)
    except RateLimited as limit:
        error, wait_s = str(limit), limit.retry_after_s
    except SlackUnavailable as fault:
        error = str(fault)
    except SlackRefused as refusal:
        log.warning("reply to request %d of Slack rejected: %s", claim.id, refusal)
        with services.database.transaction() as session:
            inbox.finish(session, claim.id, error=str(refusal))
        return
    is_limit = error.startswith("rate limited")
    with services.database.transaction() as session:
        if not error:
            inbox.finish(session, claim.id)
        elif claim.num_attempts >= MAX_TRIES and not is_limit:
            inbox.finish(session, claim.id, error=error)
        else:
            at = now + timedelta(seconds=wait_s)
            inbox.try_again(session, claim.id, at=at, error=error, counts=not is_limit)


def process_due(services: Services) -> int:
    """Process the requests that wait, and return their number."""
    with services.database.transaction() as session:
        due = inbox.list_due(session, now=utc_now(), limit=BATCH)
    for request_id in due:
        try:
            process(services, request_id)
        except Exception:  # one broken request must not hold up the others
            log.exception("request %d of Slack failed", request_id)
    return len(due)


@asynccontextmanager
async def run_inbox(services: Services) -> AsyncIterator[None]:
    """Process what waits, at the start and every few seconds, until the block ends."""
    stopping = asyncio.Event()
    loop = asyncio.create_task(_repeat(services, stopping), name="slack inbox")
    try:
        yield
    finally:
        # What is under way in a thread ends first: the database closes after this.
        stopping.set()
        await loop


async def _repeat(services: Services, stopping: asyncio.Event) -> None:
    while not stopping.is_set():
        try:
            await anyio.to_thread.run_sync(process_due, services)
        except Exception:  # the database may be away for a while
            log.exception("the inbox of Slack cannot be read")
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), PERIOD_S)
