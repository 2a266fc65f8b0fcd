"""The typed client: one method per route, problem+json as exceptions, streams that reconnect."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import httpx

from hillclimb.client.http import Http
from hillclimb.client.paths import of_run, quoted
from hillclimb.client.resources.campaigns import Campaigns
from hillclimb.client.resources.datasets import Datasets
from hillclimb.client.resources.documentation import Documentation
from hillclimb.client.resources.experiments import Experiments
from hillclimb.client.resources.imports import Imports
from hillclimb.client.resources.issues import Issues
from hillclimb.client.resources.projects.acceptance import Acceptances
from hillclimb.client.resources.projects.access import ProjectAccess
from hillclimb.client.resources.projects.agent_keys import AgentKeys
from hillclimb.client.resources.projects.project_defaults import Defaults
from hillclimb.client.resources.projects.secrets import Secrets
from hillclimb.client.resources.projects.slack import SlackLinks
from hillclimb.client.resources.projects.webhooks import Webhooks
from hillclimb.client.resources.references import find_run, with_run_source
from hillclimb.client.resources.results import Results
from hillclimb.client.stream.outages import RetryOutages
from hillclimb.client.stream.sse import ServerEvent, lines_of, parse_stream
from hillclimb.protocol.payloads.clusters import (
    ClusterList,
    OrphanList,
    OrphanPayload,
    ProjectClusters,
)
from hillclimb.protocol.payloads.costs import BudgetPayload, CloudExclusionList, LimitsPayload
from hillclimb.protocol.payloads.events import (
    EventPage,
    EventPayload,
    GuardsPayload,
    GuardTripPayload,
)
from hillclimb.protocol.payloads.projects.service import (
    PresetList,
    PresetPayload,
    ReadyPayload,
    SessionCodePayload,
)
from hillclimb.protocol.payloads.results.logs import LogPayload
from hillclimb.protocol.payloads.runs import (
    DeletedRunPayload,
    ForkPayload,
    PlanPayload,
    RunList,
    RunPayload,
)
from hillclimb.stack.state.connection import Connection

STREAM_TIMEOUT = httpx.Timeout(5.0, read=45.0)
"""The service pings every 15 s; after three missed pings the connection is dead."""
RECONNECT_PAUSE_S = 0.5
LOGS_PAUSE_S = 1.0


class Client(Results):
    """A connection to one service as one key's owner.

    Every method raises `ApiProblem` if the service refuses and `ApiUnreachable` if it does not
    respond.
    """

    def __init__(
        self, connection: Connection, transport: httpx.BaseTransport | None = None
    ) -> None:
        super().__init__(Http(connection, transport))
        self.url = connection.url
        self.access = ProjectAccess(self._http)
        """Keys, members, projects, quotas and the audit log."""
        self.datasets = Datasets(self._http)
        """Datasets of the project."""
        self.campaigns = Campaigns(self._http)
        """Campaigns of the project."""
        self.issues = Issues(self._http)
        """Issues of the project."""
        self.imports = Imports(self._http)
        """Imports of past runs."""
        self.slack = SlackLinks(self._http)
        """Links of Slack users to keys of the project."""
        self.experiments = Experiments(self._http)
        """Experiments of the project."""
        self.secrets = Secrets(self._http)
        """Secrets of the project."""
        self.webhooks = Webhooks(self._http)
        """Webhooks of the project."""
        self.defaults = Defaults(self._http)
        """Defaults of the project's specs."""
        self.agent_keys = AgentKeys(self._http)
        """Agent keys of the project."""
        self.acceptance = Acceptances(self._http)
        """Evidence of what works on the installation."""
        self.documentation = Documentation(self._http)
        """The documentation of the service."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ready(self) -> ReadyPayload:
        """Return the health of the service's parts."""
        return self._http.get(ReadyPayload, "/v1/health/ready")

    def presets(self) -> PresetList:
        """Return all specs to start from."""
        return self._http.get(PresetList, "/v1/presets")

    def preset(self, name: str, *, cloud: str | None = None) -> PresetPayload:
        """Return one spec to start from: `spec`, and `text` with its comments.

        `cloud` rents its machines from that one alone.
        """
        return self._http.get(PresetPayload, f"/v1/presets/{quoted(name)}", {"cloud": cloud})

    def session_url(self, path: str) -> str:
        """Return a link whose page has a button that signs a browser in once and opens `path`."""
        code = self._http.request(SessionCodePayload, "POST", "/v1/session-codes").code
        return str(httpx.URL(f"{self.url}/login", params={"code": code, "next": path}))

    def submit(self, spec: Mapping[str, Any], *, idempotency_key: str | None = None) -> RunPayload:
        """Create a run; the same key and spec return the same run again."""
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        body = with_run_source(self.find_run, spec)
        return self._http.request(RunPayload, "POST", "/v1/runs", json=body, headers=headers)

    def plan(self, spec: Mapping[str, Any]) -> PlanPayload:
        """Return the resolved spec and warnings, creating nothing."""
        body = with_run_source(self.find_run, spec)
        return self._http.request(PlanPayload, "POST", "/v1/runs/plan", json=body)

    def annotate(
        self,
        run_id: str,
        *,
        add_tags: Sequence[str] = (),
        remove_tags: Sequence[str] = (),
        links: Mapping[str, str | None] | None = None,
        note: str | None = None,
    ) -> RunPayload:
        """Change a run's tags, links (null removes one) and note (an empty one removes it)."""
        changes: dict[str, Any] = {"add_tags": list(add_tags), "remove_tags": list(remove_tags)}
        changes |= {"links": dict(links or {}), "note": note}
        return self._http.request(RunPayload, "PATCH", of_run(run_id), json=changes)

    def runs(self, /, **filters: str | int | Sequence[str] | None) -> RunList:
        """Return one page of runs, newest first; `tag` is one tag or several that all match."""
        return self._http.get(RunList, "/v1/runs", filters)

    def run(self, run_id: str) -> RunPayload:
        """Return one run."""
        return self._http.get(RunPayload, of_run(run_id))

    def find_run(self, reference: str) -> str:
        """Return the id of a run by id, unique prefix, name or `@last`: see `find_run`."""
        return find_run(self.runs, reference)

    def cancel(self, run_id: str) -> RunPayload:
        """Cancel the run; repeating it changes nothing."""
        return self._http.request(RunPayload, "POST", of_run(run_id, "cancel"))

    def delete(self, run_id: str) -> DeletedRunPayload:
        """Delete an ended run with all that it has, for good; what needs it is named otherwise."""
        return self._http.request(DeletedRunPayload, "DELETE", of_run(run_id))

    def pause(self, run_id: str) -> RunPayload:
        """Pause the run: its trainer checkpoints and exits; repeating it changes nothing."""
        return self._http.request(RunPayload, "POST", of_run(run_id, "pause"))

    def resume(self, run_id: str) -> RunPayload:
        """Resume from the newest checkpoint: a new run if the old one ended, else the same."""
        return self._http.request(RunPayload, "POST", of_run(run_id, "resume"))

    def fork(
        self,
        run_id: str,
        changes: Mapping[str, Any],
        *,
        step: int | None = None,
        name: str | None = None,
        idempotency_key: str | None = None,
    ) -> ForkPayload:
        """Start a new run from the run's spec with changes by dotted key.

        With `step` it continues from the run's checkpoint. The same key and changes return the same
        run again.
        """
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        body = {"step": step, "changes": dict(changes), "name": name}
        path = of_run(run_id, "fork")
        return self._http.request(ForkPayload, "POST", path, json=body, headers=headers)

    def events(
        self, run_id: str, *, after: int = 0, limit: int = 200, types: str | None = None
    ) -> EventPage:
        """Return one page of events with `seq` above `after`; `types` separates by commas."""
        params = {"after": after, "limit": limit, "types": types}
        return self._http.get(EventPage, of_run(run_id, "events"), params)

    def guards(self, run_id: str) -> GuardsPayload:
        """Return the state of the run's guards, and the episodes in which one had tripped."""
        return self._http.get(GuardsPayload, of_run(run_id, "guards"))

    def acknowledge_guard(self, run_id: str, guard: str) -> GuardTripPayload:
        """Note that the caller has seen the newest episode of a guard."""
        path = of_run(run_id, "guards", guard, "acknowledge")
        return self._http.request(GuardTripPayload, "POST", path)

    def follow(self, run_id: str, *, after: int = 0) -> Iterator[EventPayload]:
        """Yield events as they happen until the run has ended; reconnects without losing any."""
        retry = RetryOutages(self.url)
        while True:
            with retry:
                for frame in self._stream_once(run_id, after):
                    retry.reset()
                    if frame.name == "end":
                        return
                    event = self._http.parse(EventPayload, frame.data)
                    after = event.seq
                    yield event
            time.sleep(RECONNECT_PAUSE_S)

    def _stream_once(self, run_id: str, after: int) -> Iterator[ServerEvent]:
        path = of_run(run_id, "events", "stream")
        headers = {"Last-Event-ID": str(after), "Accept": "text/event-stream"}
        with self._http.stream(path, headers=headers, timeout=STREAM_TIMEOUT) as response:
            yield from parse_stream(lines_of(response.iter_text()))

    def follow_logs(
        self,
        run_id: str,
        *,
        attempt: int | None = None,
        filters: Mapping[str, str | None] | None = None,
    ) -> Iterator[LogPayload]:
        """Yield pages of a growing log until the run has ended; retries as `follow` does.

        From the newest attempt on, through later attempts and pauses; with `attempt` only its log.
        """
        retry, after, number = RetryOutages(self.url), 0, attempt
        while True:
            page: LogPayload | None = None
            grew = False
            with retry:
                page = self.logs(run_id, attempt=number, after=after, filters=filters)
                retry.reset()
                number, grew = page.attempt or None, page.next_offset > after
                if page.ended and not grew:
                    if attempt is not None or self.run(run_id).attempt <= page.attempt:
                        return
                    number, after = page.attempt + 1, 0
                    continue
            if page is not None and grew:
                after = page.next_offset
                yield page
            else:
                time.sleep(LOGS_PAUSE_S)

    def clusters(self, run_id: str) -> ClusterList:
        """Return the clusters of a run, the offers that were tried, and their cost."""
        return self._http.get(ClusterList, of_run(run_id, "clusters"))

    def project_clusters(self) -> ProjectClusters:
        """Return the clusters of the project and their cost."""
        return self._http.get(ProjectClusters, "/v1/clusters")

    def cloud_exclusions(self) -> CloudExclusionList:
        """Return the cloud exclusions in force."""
        return self._http.get(CloudExclusionList, "/v1/clouds/exclusions")

    def clear_cloud_exclusion(self, exclusion_id: str) -> CloudExclusionList:
        """Delete a cloud exclusion; returns the remaining ones."""
        path = f"/v1/clouds/exclusions/{quoted(exclusion_id)}"
        return self._http.request(CloudExclusionList, "DELETE", path)

    def orphans(self) -> OrphanList:
        """Return the orphaned clusters; terminates none."""
        return self._http.get(OrphanList, "/v1/clouds/orphans")

    def terminate_orphan(self, name: str) -> OrphanPayload:
        """Have an orphaned cluster terminated at the next cluster sweep."""
        path = f"/v1/clouds/orphans/{quoted(name)}/terminate"
        return self._http.request(OrphanPayload, "POST", path)

    def budget(self, run_id: str) -> BudgetPayload:
        """Return the budget of a run and its use."""
        return self._http.get(BudgetPayload, of_run(run_id, "budget"))

    def extend_budget(self, run_id: str, *, usd: float = 0.0, hours: float = 0.0) -> BudgetPayload:
        """Extend the budget of a run beyond its spec's."""
        body = {"usd": usd, "hours": hours}
        return self._http.request(BudgetPayload, "POST", of_run(run_id, "budget"), json=body)

    def limits(self) -> LimitsPayload:
        """Return the limits on the project's runs together."""
        return self._http.get(LimitsPayload, "/v1/limits")

    def set_limits(self, limits: Mapping[str, Any]) -> LimitsPayload:
        """Replace the limits on the project's runs together."""
        return self._http.request(LimitsPayload, "PUT", "/v1/limits", json=dict(limits))
