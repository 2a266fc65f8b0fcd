"""`/v1/runs/{id}/messages`: what a run has said in Slack, and what could not be delivered."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.http.requests.context import Reader, ServicesDep
from api.http.requests.reads import PROBLEMS, RunId, open_run
from api.notices.slack.message_log import list_messages
from api.runs.outbox import PENDING
from api.tables import OutboxMessage
from hillclimb.protocol.payloads.projects.slack import SlackMessageList, SlackMessagePayload

router = APIRouter(prefix="/v1/runs/{run_id}/messages", tags=["slack"], responses=PROBLEMS)


@router.get("", operation_id="list_slack_messages", summary="List the messages of a run to Slack")
def list_slack_messages(
    services: ServicesDep,
    caller: Reader,
    run_id: RunId,
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> SlackMessageList:
    """Return messages, newest first, with the result of the last try and the time of the next.

    Updates of the live message are not listed: only the newest state of it counts.
    """
    with open_run(services, caller, run_id) as (session, run):
        rows = list_messages(session, run, before=before, limit=limit + 1)
        page = [_describe(row) for row in rows[:limit]]
    return SlackMessageList(data=page, has_more=len(rows) > limit)


def _describe(row: OutboxMessage) -> SlackMessagePayload:
    own = {"about": row.kind, "channel": row.payload["channel"]}
    names = [name for name in SlackMessagePayload.model_fields if hasattr(row, name)]
    facts = {name: getattr(row, name) for name in names}
    facts["next_attempt_at"] = row.next_attempt_at if row.state == PENDING else None
    return SlackMessagePayload.model_validate(facts | own)
