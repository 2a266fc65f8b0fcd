"""The client's methods for links of Slack users and for messages to Slack."""

from __future__ import annotations

from hillclimb.client.http import Http
from hillclimb.client.paths import quoted
from hillclimb.protocol.payloads.projects.slack import (
    SlackLinkCodePayload,
    SlackLinkList,
    SlackMessageList,
)

PATH = "/v1/slack"


class SlackLinks:
    """Links of Slack users to keys of the project, and messages; raises what `Client` does."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def create_code(self) -> SlackLinkCodePayload:
        """Return a one-time code by which a Slack user links themselves to the client's key."""
        return self._http.request(SlackLinkCodePayload, "POST", f"{PATH}/link-codes")

    def list(self) -> SlackLinkList:
        """Return the linked Slack users of the project."""
        return self._http.get(SlackLinkList, f"{PATH}/links")

    def unlink(self, team_id: str, user_id: str) -> SlackLinkList:
        """End a link, so that the user's next command is refused, and return the other links."""
        path = f"{PATH}/links/{quoted(team_id)}/{quoted(user_id)}"
        return self._http.request(SlackLinkList, "DELETE", path)

    def messages(
        self, run_id: str, *, before: int | None = None, limit: int | None = None
    ) -> SlackMessageList:
        """Return one page of a run's messages, newest first, older than the message `before`."""
        query = {"before": before, "limit": limit}
        return self._http.get(SlackMessageList, f"/v1/runs/{quoted(run_id)}/messages", query)
