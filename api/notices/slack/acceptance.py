"""The ladder `slack`: what the bot needs to be able to do in a channel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from api.notices.errors import NoticeError, RateLimited, SlackRefused
from api.notices.slack.blocks import Message
from api.notices.slack.web_api import Posted, SlackApi
from hillclimb.process.acceptance.ladder import AcceptanceCheck, CheckFailed

LIMIT_S = 15.0
LATE = "check that the service reaches slack.com (proxy, firewall), and SLACK_API_BASE_URL"
_TOKEN = "set SLACK_BOT_TOKEN of the service to the bot's token (xoxb-…) and start it again"  # noqa: S105
_SCOPES = "give the app the bot scopes of docs/slack.md and install it again"
ADVICE: Mapping[str, str] = {
    "invalid_auth": _TOKEN,
    "not_authed": _TOKEN,
    "account_inactive": _TOKEN,
    "token_revoked": _TOKEN,
    "token_expired": _TOKEN,
    "missing_scope": _SCOPES,
    "channel_not_found": "name a channel of this workspace (#name or its id), and invite the bot to"
    " a private one",
    "not_in_channel": "invite the bot: /invite @BOT in the channel",
    "is_archived": "name a channel that is not archived",
    "restricted_action": "let the workspace's settings allow the bot to post in this channel",
    "cant_delete_message": _SCOPES,
}
"""The way out, by Slack's code of an error."""


class SlackLadder:
    """Posts, changes and deletes one message in a channel."""

    def __init__(self, slack: SlackApi, channel: str) -> None:
        self._slack, self._channel = slack, channel
        self._posted: Posted | None = None
        self.workspace = ""
        """Name of the workspace and its id, once the first check has passed."""

    @property
    def checks(self) -> Sequence[AcceptanceCheck]:
        """The checks, in order."""
        return (
            self._check("key", self._identify),
            self._check("posted", self._post),
            self._check("changed", self._change),
            self._check("deleted", self._delete),
        )

    async def close(self) -> None:
        """Delete the message if it is still there."""
        if self._posted is not None:
            try:
                await asyncio.to_thread(self._slack.delete, self._posted)
            except NoticeError:  # the failed check before has the reason
                return

    def _check(self, name: str, act: Callable[[], str]) -> AcceptanceCheck:
        async def explained() -> str:
            try:
                return await asyncio.to_thread(act)
            except SlackRefused as refusal:
                code = str(refusal)
                instead = "look the code up in Slack's documentation of the method"
                raise CheckFailed(f"Slack: {code}", ADVICE.get(code, instead)) from refusal
            except RateLimited as limit:
                wait = f"wait {limit.retry_after_s:g} s and try again"
                raise CheckFailed("Slack limits the rate", wait) from limit
            except NoticeError as error:
                raise CheckFailed(str(error), LATE) from error

        return AcceptanceCheck(name=name, act=explained, limit_s=LIMIT_S, late=LATE)

    def _identify(self) -> str:
        identity = self._slack.identify()
        self.workspace = f"{identity.get('team', '?')} ({identity.get('team_id', '?')})"
        return f"bot {identity.get('user', '?')} of {self.workspace}"

    def _post(self) -> str:
        text = "Hillclimb checks that it can post here; this message is deleted at once."
        self._posted = self._slack.post(
            self._channel, Message(text=text, blocks=()), thread_ts=None
        )
        return f"a message in {self._channel} ({self._posted.channel})"

    def _change(self) -> str:
        assert self._posted is not None
        self._slack.update(self._posted, Message(text="Hillclimb changed this.", blocks=()))
        return "the message changed"

    def _delete(self) -> str:
        assert self._posted is not None
        self._slack.delete(self._posted)
        self._posted = None
        return "the message deleted"
