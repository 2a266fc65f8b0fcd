"""The typed asynchronous client: the methods of `Client`, named once and typed by them.

`async with AsyncClient(find_connection()) as client: run = await client.submit(spec)`
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Self

import anyio
import anyio.to_thread
import httpx

from hillclimb.client.asynchronous.methods import AsyncIteration, AsyncMethod
from hillclimb.client.asynchronous.parts import (
    AsyncAcceptances,
    AsyncAgentKeys,
    AsyncCampaigns,
    AsyncDatasets,
    AsyncDefaults,
    AsyncDocumentation,
    AsyncExperiments,
    AsyncImports,
    AsyncIssues,
    AsyncPart,
    AsyncProjectAccess,
    AsyncSecrets,
    AsyncSlackLinks,
    AsyncWebhooks,
)
from hillclimb.client.client import (
    LOGS_PAUSE_S,
    RECONNECT_PAUSE_S,
    STREAM_TIMEOUT,
    Client,
)
from hillclimb.client.http import problem_of, read_payload
from hillclimb.client.paths import of_run
from hillclimb.client.stream.outages import RetryOutages
from hillclimb.client.stream.sse import ServerEvent, parse_stream
from hillclimb.process.network.abandoned import close_abandoned_of
from hillclimb.protocol.payloads.events import EventPayload
from hillclimb.protocol.payloads.results.logs import LogPayload
from hillclimb.stack.state.connection import Connection


class AsyncClient(AsyncPart):
    """A connection to one service as one key's owner, for asynchronous code.

    Every method raises what `Client`'s does. Requests run in threads; the streams of `follow` do
    not, so a cancelled one ends at once.
    """

    def __init__(
        self, connection: Connection, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.client = Client(connection, transport)
        super().__init__(self.client)
        self.url = connection.url
        self.access = AsyncProjectAccess(self.client.access)
        self.defaults = AsyncDefaults(self.client.defaults)
        self.secrets = AsyncSecrets(self.client.secrets)
        self.slack = AsyncSlackLinks(self.client.slack)
        self.webhooks = AsyncWebhooks(self.client.webhooks)
        self.datasets = AsyncDatasets(self.client.datasets)
        self.campaigns = AsyncCampaigns(self.client.campaigns)
        self.issues = AsyncIssues(self.client.issues)
        self.imports = AsyncImports(self.client.imports)
        self.experiments = AsyncExperiments(self.client.experiments)
        self.acceptance = AsyncAcceptances(self.client.acceptance)
        self.agent_keys = AsyncAgentKeys(self.client.agent_keys)
        self.documentation = AsyncDocumentation(self.client.documentation)
        self._streams = httpx.AsyncClient(
            base_url=connection.url,
            headers={"Authorization": f"Bearer {connection.api_key}"},
            timeout=STREAM_TIMEOUT,
        )
        close_abandoned_of(self._streams)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._streams.aclose()
        await anyio.to_thread.run_sync(self.client.close)

    acknowledge_guard = AsyncMethod(Client.acknowledge_guard)
    annotate = AsyncMethod(Client.annotate)
    budget = AsyncMethod(Client.budget)
    cancel = AsyncMethod(Client.cancel)
    delete = AsyncMethod(Client.delete)
    capsule = AsyncIteration(Client.capsule)
    checkpoint = AsyncMethod(Client.checkpoint)
    checkpoint_file = AsyncIteration(Client.checkpoint_file)
    checkpoints = AsyncMethod(Client.checkpoints)
    clear_cloud_exclusion = AsyncMethod(Client.clear_cloud_exclusion)
    cloud_exclusions = AsyncMethod(Client.cloud_exclusions)
    clusters = AsyncMethod(Client.clusters)
    compare = AsyncMethod(Client.compare)
    compute = AsyncMethod(Client.compute)
    evals = AsyncMethod(Client.evals)
    events = AsyncMethod(Client.events)
    extend_budget = AsyncMethod(Client.extend_budget)
    find_run = AsyncMethod(Client.find_run)
    fork = AsyncMethod(Client.fork)
    guards = AsyncMethod(Client.guards)
    judge_table = AsyncMethod(Client.judge_table)
    limits = AsyncMethod(Client.limits)
    logs = AsyncMethod(Client.logs)
    metrics = AsyncMethod(Client.metrics)
    orphans = AsyncMethod(Client.orphans)
    pattern_searches = AsyncMethod(Client.pattern_searches)
    patterns = AsyncMethod(Client.patterns)
    pause = AsyncMethod(Client.pause)
    plan = AsyncMethod(Client.plan)
    preset = AsyncMethod(Client.preset)
    presets = AsyncMethod(Client.presets)
    probe = AsyncMethod(Client.probe)
    project_clusters = AsyncMethod(Client.project_clusters)
    prompts = AsyncMethod(Client.prompts)
    ready = AsyncMethod(Client.ready)
    report = AsyncMethod(Client.report)
    rescore = AsyncMethod(Client.rescore)
    rescorings = AsyncMethod(Client.rescorings)
    resume = AsyncMethod(Client.resume)
    rollouts = AsyncIteration(Client.rollouts)
    run = AsyncMethod(Client.run)
    runs = AsyncMethod(Client.runs)
    search_patterns = AsyncMethod(Client.search_patterns)
    session_url = AsyncMethod(Client.session_url)
    set_limits = AsyncMethod(Client.set_limits)
    signal = AsyncMethod(Client.signal)
    skyrl_dump = AsyncIteration(Client.skyrl_dump)
    submit = AsyncMethod(Client.submit)
    timeline = AsyncMethod(Client.timeline)
    tokens = AsyncMethod(Client.tokens)
    tracking_files = AsyncIteration(Client.tracking_files)
    terminate_orphan = AsyncMethod(Client.terminate_orphan)
    trajectories = AsyncMethod(Client.trajectories)
    trajectory = AsyncMethod(Client.trajectory)
    validation = AsyncMethod(Client.validation)

    async def follow(self, run_id: str, *, after: int = 0) -> AsyncIterator[EventPayload]:
        """Yield events as they happen until the run has ended; reconnects without losing any."""
        retry = RetryOutages(self.url)
        while True:
            with retry:
                async for frame in self._stream_once(run_id, after):
                    retry.reset()
                    if frame.name == "end":
                        return
                    event = read_payload(EventPayload, frame.data, url=self.url)
                    after = event.seq
                    yield event
            await anyio.sleep(RECONNECT_PAUSE_S)

    async def _stream_once(self, run_id: str, after: int) -> AsyncIterator[ServerEvent]:
        headers = {"Last-Event-ID": str(after), "Accept": "text/event-stream"}
        path = of_run(run_id, "events", "stream")
        async with self._streams.stream("GET", path, headers=headers) as response:
            if response.is_error:
                await response.aread()
                raise problem_of(response)
            rest = ""
            async for chunk in response.aiter_text():
                *frames, rest = (rest + chunk.replace("\r\n", "\n")).split("\n\n")
                for frame in frames:
                    for event in parse_stream([*frame.split("\n"), ""]):
                        yield event

    async def follow_logs(
        self,
        run_id: str,
        *,
        attempt: int | None = None,
        filters: Mapping[str, str | None] | None = None,
    ) -> AsyncIterator[LogPayload]:
        """Yield pages of a growing log until its attempt has ended; retries as `follow` does."""
        retry, after = RetryOutages(self.url), 0
        while True:
            page: LogPayload | None = None
            with retry:
                page = await self.logs(run_id, attempt=attempt, after=after, filters=filters)
                retry.reset()
            if page is not None and page.next_offset > after:
                after = page.next_offset
                yield page
            elif page is not None and page.ended:
                return
            else:
                await anyio.sleep(LOGS_PAUSE_S)
