"""`/v1/slack/link-codes` and `/v1/slack/links`: which Slack users act with which API key."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from sqlalchemy.orm import Session

from api.http.problems import INVALID, KINDS, documented
from api.http.requests.context import Reader, ServicesDep, Writer
from api.notices.errors import LinkNotFound
from api.notices.slack import links
from api.notices.slack.links import CODE_S, SlackUser
from api.runs.journal import utc_now
from api.tables.access.identity import NotAllowed, NotAuthenticated
from hillclimb.protocol.payloads.projects.slack import (
    SlackLinkCodePayload,
    SlackLinkList,
    SlackLinkPayload,
)

router = APIRouter(
    prefix="/v1/slack",
    tags=["slack"],
    responses={**documented(KINDS[NotAuthenticated], KINDS[NotAllowed], INVALID)},
)
SlackId = Annotated[str, Path(pattern=r"^[A-Z0-9]{1,40}$", examples=["U0ABCDEFG"])]


@router.post(
    "/link-codes",
    operation_id="create_slack_link_code",
    summary="Create a code that links a Slack user",
    status_code=201,
)
def create_link_code(services: ServicesDep, caller: Reader) -> SlackLinkCodePayload:
    """Return a code for `/hillclimb link CODE`: whoever sends it first acts with the caller's key.

    It works once, within `expires_in_s`.
    """
    with services.database.transaction() as session:
        code = links.mint_link_code(session, caller, now=utc_now())
    return SlackLinkCodePayload(code=code, command=f"/hillclimb link {code}", expires_in_s=CODE_S)


@router.get("/links", operation_id="list_slack_links", summary="List linked Slack users")
def list_links(services: ServicesDep, caller: Reader) -> SlackLinkList:
    """Return the newest 500 links of the project's keys."""
    with services.database.transaction() as session:
        return _links(session, caller.project_id)


@router.delete(
    "/links/{team_id}/{user_id}",
    operation_id="delete_slack_link",
    summary="Unlink a Slack user",
    responses={**documented(KINDS[LinkNotFound])},
)
def delete_link(
    services: ServicesDep, caller: Writer, team_id: SlackId, user_id: SlackId
) -> SlackLinkList:
    """End a link of one's own, so that the user's next command is refused; return the others.

    Links of other keys end by a key with the scope `admin`.
    """
    user = SlackUser(team_id=team_id, user_id=user_id)
    with services.database.transaction() as session:
        links.remove_link(session, caller, user)
        return _links(session, caller.project_id)


def _links(session: Session, project_id: str) -> SlackLinkList:
    rows = links.list_links(session, project_id)
    return SlackLinkList(data=[SlackLinkPayload.model_validate(each) for each in rows])
