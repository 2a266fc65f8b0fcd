"""One request of a Slack user on its way through: who asks, where, and the parts it may use."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from api.admission.admission import Admission
from api.http.requests.context import Services
from api.notices.slack.links import SlackUser
from api.tables.access.idempotency import RequestKey
from api.tables.access.identity import Principal, Scope


class InputRejected(Exception):
    """A command or a form cannot be understood; the message is a sentence that says what would do.

    It is plain text, in which nothing is markup.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonRequest:
    """A request of a Slack user, linked or not."""

    services: Services
    id: int
    """Id of the stored request: what it creates is created once under this id."""
    user: SlackUser
    channel: str
    principal: Principal | None
    now: datetime

    @property
    def admission(self) -> Admission:
        """Admission of runs that may post to the channel of the request."""
        return self.services.admission.from_channel(self.channel)

    def caller(self, scope: Scope) -> Principal:
        """Return the linked person; raises InputRejected without a link, and NotAllowed."""
        if self.principal is None:
            raise InputRejected(
                "Your Slack user is not linked to an API key: run `hillclimb slack link` where you"
                " use the command line, and send me `/hillclimb link CODE` with the code it prints."
            )
        self.principal.require(scope)
        return self.principal

    def reader(self) -> Principal:
        """Return the linked person, who may read runs."""
        return self.caller(Scope.RUNS_READ)

    def writer(self) -> Principal:
        """Return the linked person, who may change runs."""
        return self.caller(Scope.RUNS_WRITE)

    def key(self, path: str, body: bytes = b"", *, of: str | None = None) -> RequestKey:
        """Return the idempotency key of what the request creates.

        `of` names what is done once, whoever asks for it; null: this request.
        """
        return RequestKey(
            project_id=self.writer().project_id,
            method="POST",
            path=path,
            key=f"slack:{self.id if of is None else of}",
            body=body,
        )
