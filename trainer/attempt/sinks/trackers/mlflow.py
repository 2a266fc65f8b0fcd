"""MLflow: a run per attempt, over its REST API (https://mlflow.org/docs/latest/rest-api.html)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import httpx

from hillclimb.process.network.connections import BlockingTransport
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.spec.monitoring.reporting import MlflowSpec
from trainer.attempt.destinations import allowed_hosts
from trainer.attempt.sinks.trackers.plan import TrackingPlan
from trainer.attempt.sinks.tracking import TrackedRun

API = "/api/2.0/mlflow"
TOKEN, USERNAME, PASSWORD = (
    "MLFLOW_TRACKING_TOKEN",
    "MLFLOW_TRACKING_USERNAME",
    "MLFLOW_TRACKING_PASSWORD",
)
"""Variables of MLflow's own client."""
ADDRESS = "MLFLOW_TRACKING_URI"
"""The one address to which the environment's credentials go. A spec names any address, but no
secret of a project can set this variable (hillclimb.spec.hosts): it is the operator's."""
MAX_METRICS, MAX_PARAMS, MAX_TAGS, MAX_VALUE_CHARS = 1000, 100, 100, 500
"""Limits of `runs/log-batch`, and of a parameter's value in old servers."""
NOT_IN_NAMES = re.compile(r"[^\w .:/-]")
"""Characters that MLflow refuses in the name of a metric, a parameter or a tag."""
ALREADY_EXISTS = "RESOURCE_ALREADY_EXISTS"
RUN, ATTEMPT = "hillclimb.run", "hillclimb.attempt"
"""Tags by which a process finds the runs of its own run."""
RUNNING, KILLED = "RUNNING", "KILLED"
STOPPED = frozenset(
    {
        ReasonCode.CANCELLED_BY_USER, ReasonCode.PAUSED_BY_USER, ReasonCode.PAUSED_BY_GUARD,
        ReasonCode.STOPPED_BY_GUARD, ReasonCode.RUNNER_STOPPED, ReasonCode.ATTEMPT_SUPERSEDED,
        ReasonCode.CLUSTER_TIME_UP, ReasonCode.BUDGET_EXHAUSTED,
    }
)  # fmt: skip
"""Ends of attempts that did not fail: somebody stopped them."""
TIMEOUT_S = 10.0
PAUSES_S = (0.5, 1.0, 2.0)
"""Before each further try at a server that is away or overloaded."""

T = TypeVar("T")


class MlflowRefused(Exception):
    """The server refuses a request, or does not answer."""


class MlflowAway(MlflowRefused):
    """The server does not answer, or is overloaded: it may have done what was requested."""


def open_mlflow(plan: TrackingPlan, mlflow: MlflowSpec, environ: Mapping[str, str]) -> MlflowRun:
    """Open the attempt's run in the experiment; what is not there yet is created.

    A process that restarts continues the run of the one before. Runs of earlier attempts that were
    killed without an end are ended.

    Raises:
        MlflowRefused: the server refuses or does not answer.
    """
    client = _Client(mlflow.tracking_uri, environ)
    experiment_id = _experiment(client, mlflow.experiment)
    run_id = _run_of_attempt(client, experiment_id, plan)
    _end_earlier(client, experiment_id, plan)
    for params in _parts(_pairs(dict(_flat("", plan.config()))), MAX_PARAMS):
        client.post("runs/log-batch", {"run_id": run_id, "params": params})
    url = f"{client.uri}/#/experiments/{experiment_id}/runs/{run_id}"
    return MlflowRun(client, run_id, TrackedRun("mlflow", plan.run_id, url))


class MlflowRun:
    """Sends figures to one run of an MLflow server."""

    def __init__(self, client: _Client, run_id: str, run: TrackedRun) -> None:
        self._client, self._run_id, self.run = client, run_id, run

    def describe(self, facts: Mapping[str, object]) -> None:
        """Add facts as tags."""
        for tags in _parts(_pairs(dict(_flat("", facts))), MAX_TAGS):
            self._client.post("runs/log-batch", {"run_id": self._run_id, "tags": tags})

    def log(self, metrics: Mapping[str, float], *, step: int, at: datetime) -> None:
        """Send the values of one global step.

        The server keeps one of two equal values with the same step and time: a process that
        restarts sends its events again, and none is there twice.
        """
        measured_ms = int(at.timestamp() * 1000)
        values = [
            {"key": _named(key), "value": value, "timestamp": measured_ms, "step": step}
            for key, value in metrics.items()
        ]
        for part in _parts(values, MAX_METRICS):
            self._client.post("runs/log-batch", {"run_id": self._run_id, "metrics": part})

    def finish(self, summary: Mapping[str, object], *, succeeded: bool) -> None:
        """Set the end of the run."""
        self.describe(summary)
        failed = KILLED if summary.get("end_reason") in STOPPED else "FAILED"
        status = "FINISHED" if succeeded else failed
        _end(self._client, self._run_id, status)
        self._client.close()


class _Client:
    """Requests to one server, with the credentials of the environment where they are for it."""

    def __init__(self, uri: str, environ: Mapping[str, str]) -> None:
        self.uri = uri.rstrip("/")
        is_theirs = environ.get(ADDRESS, "").rstrip("/") == self.uri
        allowed = allowed_hosts(environ, operators_url=self.uri if is_theirs else None)
        token, user = (environ.get(TOKEN), environ.get(USERNAME)) if is_theirs else (None, None)
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            auth=(user, environ.get(PASSWORD, "")) if user and not token else None,
            timeout=TIMEOUT_S,
            transport=BlockingTransport(allowed, self.uri),
        )

    def post(
        self, path: str, body: Mapping[str, object], *, pauses_s: Sequence[float] = PAUSES_S
    ) -> dict[str, Any]:
        """Send a request, again after each pause. Raises MlflowRefused."""
        return _json(self._send("POST", path, pauses_s, json=body))

    def get(self, path: str, params: Mapping[str, str]) -> dict[str, Any]:
        """Send a query. Raises MlflowRefused."""
        return _json(self._send("GET", path, PAUSES_S, params=params))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _send(
        self,
        method: str,
        path: str,
        pauses_s: Sequence[float],
        **options: Any,  # noqa: ANN401
    ) -> httpx.Response:
        """Send a request, again after a pause while the server is away or overloaded."""
        problem = ""
        for pause_s in (*pauses_s, None):
            try:
                response = self._http.request(method, f"{self.uri}{API}/{path}", **options)
            except httpx.TransportError as error:
                problem = f"{type(error).__name__}: {error}"
            else:
                if response.status_code < 500 and response.status_code != 429:
                    return response
                problem = f"status {response.status_code}"
            if pause_s is not None:
                time.sleep(pause_s)
        raise MlflowAway(f"{self.uri} does not take {path}: {problem}")


def _run_of_attempt(client: _Client, experiment_id: str, plan: TrackingPlan) -> str:
    """Return the id of the attempt's run, which is created unless it is there.

    A creation whose answer was lost is not repeated before the server was searched.
    """
    tags = {RUN: plan.attempt_dir.run_dir.name, ATTEMPT: str(plan.attempt_dir.attempt)}
    body = {
        "experiment_id": experiment_id,
        "run_name": plan.run_id,
        "start_time": _now_ms(),
        "tags": _pairs({**tags, "mlflow.runName": plan.run_id}),
    }
    for pause_s in (*PAUSES_S, None):
        if earlier := _search(client, experiment_id, tags):
            client.post("runs/update", {"run_id": earlier[0], "status": RUNNING})
            return earlier[0]
        try:
            created = client.post("runs/create", body, pauses_s=())
            return str(created["run"]["info"]["run_id"])
        except MlflowAway:
            if pause_s is None:
                raise
            time.sleep(pause_s)
    raise AssertionError("the last try returns or raises")


def _end_earlier(client: _Client, experiment_id: str, plan: TrackingPlan) -> None:
    """End the runs of earlier attempts whose process was killed before it could."""
    name = plan.attempt_dir.run_dir.name
    for attempt in range(1, plan.attempt_dir.attempt):
        tags = {RUN: name, ATTEMPT: str(attempt)}
        for run_id in _search(client, experiment_id, tags, status=RUNNING):
            _end(client, run_id, KILLED)


def _search(
    client: _Client, experiment_id: str, tags: Mapping[str, str], *, status: str | None = None
) -> list[str]:
    """Return the ids of the runs with these tags."""
    parts = [f"tags.`{key}` = '{value}'" for key, value in tags.items()]
    parts += [f"attributes.status = '{status}'"] if status else []
    body = {"experiment_ids": [experiment_id], "filter": " and ".join(parts), "max_results": 10}
    return [str(run["info"]["run_id"]) for run in client.post("runs/search", body).get("runs", ())]


def _end(client: _Client, run_id: str, status: str) -> None:
    end = {"run_id": run_id, "status": status, "end_time": _now_ms()}
    client.post("runs/update", end)


def _experiment(client: _Client, name: str) -> str:
    try:
        return str(client.post("experiments/create", {"name": name})["experiment_id"])
    except MlflowRefused as error:
        if ALREADY_EXISTS not in str(error):
            raise
    named = client.get("experiments/get-by-name", {"experiment_name": name})
    return str(named["experiment"]["experiment_id"])


def _json(response: httpx.Response) -> dict[str, Any]:
    if response.is_error:
        raise MlflowRefused(f"status {response.status_code}: {response.text[:300]}")
    try:
        answer = response.json()
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise MlflowRefused("the answer is not that of an MLflow server")
    return answer


def _flat(prefix: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield the leaves of nested mappings by dotted keys, as text that MLflow takes."""
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), below)
    else:
        yield _named(prefix), str(value)[:MAX_VALUE_CHARS]


def _named(name: str) -> str:
    return NOT_IN_NAMES.sub("_", name)


def _pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in values.items()]


def _parts(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    return (items[start : start + most] for start in range(0, len(items), most))


def _now_ms() -> int:
    return int(time.time() * 1000)
