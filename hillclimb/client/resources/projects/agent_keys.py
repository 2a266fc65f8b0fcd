"""The client's methods for agent keys."""

from __future__ import annotations

from hillclimb.client.http import Http, without_none
from hillclimb.client.paths import quoted
from hillclimb.protocol.payloads.projects.service import (
    AgentKeyList,
    AgentKeyPayload,
    CreatedAgentKey,
)

PATH = "/v1/agent-keys"


class AgentKeys:
    """Agent keys of the project; raises what `Client` does."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def create(
        self, name: str, *, num_runs: int, extra_usd: float = 0.0, extra_hours: float = 0.0
    ) -> CreatedAgentKey:
        """Create a key with its grant; the response has the key itself, this once."""
        body = {"name": name, "num_runs": num_runs}
        body |= {"extra_usd": extra_usd, "extra_hours": extra_hours}
        return self._http.request(CreatedAgentKey, "POST", PATH, json=body)

    def list(self, *, limit: int | None = None) -> AgentKeyList:
        """Return the newest agent keys."""
        return self._http.get(AgentKeyList, PATH, {"limit": limit})

    def own(self) -> AgentKeyPayload:
        """Return the key of this client with its grant; a key without one is refused (404)."""
        return self._http.get(AgentKeyPayload, f"{PATH}/self")

    def change(
        self,
        key_id: str,
        *,
        num_runs: int | None = None,
        extra_usd: float | None = None,
        extra_hours: float | None = None,
    ) -> AgentKeyPayload:
        """Replace amounts of the grant; what was used stays used."""
        body = without_none(
            {"num_runs": num_runs, "extra_usd": extra_usd, "extra_hours": extra_hours}
        )
        return self._http.request(AgentKeyPayload, "PATCH", _of(key_id), json=body)

    def revoke(self, key_id: str) -> AgentKeyPayload:
        """Make the key invalid; its runs go on."""
        return self._http.request(AgentKeyPayload, "DELETE", _of(key_id))


def _of(key_id: str) -> str:
    return f"{PATH}/{quoted(key_id)}"
