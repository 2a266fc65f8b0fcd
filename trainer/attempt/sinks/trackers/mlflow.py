"""MLflow: a run per attempt, over its REST API (https://mlflow.org/docs/latest/rest-api.html)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import httpx

from hillclimb.spec.monitoring.reporting import MlflowSpec
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
MAX_METRICS, MAX_PARAMS, MAX_VALUE_CHARS = 1000, 100, 500
"""Limits of `runs/log-batch`, and of a parameter's value in old servers."""
ALREADY_EXISTS = "RESOURCE_ALREADY_EXISTS"
TIMEOUT_S = 10.0
PAUSES_S = (0.5, 1.0, 2.0)
"""Before each further try at a server that is away or overloaded."""

T = TypeVar("T")


class MlflowRefused(Exception):
    """The server refuses a request, or does not answer."""


def open_mlflow(plan: TrackingPlan, mlflow: MlflowSpec, environ: Mapping[str, str]) -> MlflowRun:
    """Create the attempt's run in the experiment, which is created too if it is not there.

    Raises:
        MlflowRefused: the server refuses or does not answer.
    """
    client = _Client(mlflow.tracking_uri, environ)
    experiment_id = _experiment(client, mlflow.experiment)
    tags = {
        "hillclimb.run": plan.attempt_dir.run_dir.name,
        "hillclimb.attempt": str(plan.attempt_dir.attempt),
        "mlflow.runName": plan.run_id,
    }
    body = {
        "experiment_id": experiment_id,
        "run_name": plan.run_id,
        "start_time": _now_ms(),
        "tags": _pairs(tags),
    }
    run_id = str(client.post("runs/create", body)["run"]["info"]["run_id"])
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
        for key, value in _flat("", facts):
            tag = {"run_id": self._run_id, "key": key, "value": value}
            self._client.post("runs/set-tag", tag)

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Send the values of one global step."""
        at = _now_ms()
        values = [
            {"key": key, "value": value, "timestamp": at, "step": step}
            for key, value in metrics.items()
        ]
        for part in _parts(values, MAX_METRICS):
            self._client.post("runs/log-batch", {"run_id": self._run_id, "metrics": part})

    def finish(self, summary: Mapping[str, object], *, succeeded: bool) -> None:
        """Set the end of the run."""
        self.describe(summary)
        status = "FINISHED" if succeeded else "FAILED"
        end = {"run_id": self._run_id, "status": status, "end_time": _now_ms()}
        self._client.post("runs/update", end)
        self._client.close()


class _Client:
    """Requests to one server, with the credentials of the environment where they are for it."""

    def __init__(self, uri: str, environ: Mapping[str, str]) -> None:
        self.uri = uri.rstrip("/")
        is_theirs = environ.get(ADDRESS, "").rstrip("/") == self.uri
        token, user = (environ.get(TOKEN), environ.get(USERNAME)) if is_theirs else (None, None)
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            auth=(user, environ.get(PASSWORD, "")) if user and not token else None,
            timeout=TIMEOUT_S,
        )

    def post(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        """Send a request. Raises MlflowRefused."""
        return _json(self._send("POST", path, json=body))

    def get(self, path: str, params: Mapping[str, str]) -> dict[str, Any]:
        """Send a query. Raises MlflowRefused."""
        return _json(self._send("GET", path, params=params))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401
        """Send a request, again after a pause while the server is away or overloaded."""
        problem = ""
        for pause_s in (*PAUSES_S, None):
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
        raise MlflowRefused(f"{self.uri} does not take {path}: {problem}")


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
        yield prefix, str(value)[:MAX_VALUE_CHARS]


def _pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in values.items()]


def _parts(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    return (items[start : start + most] for start in range(0, len(items), most))


def _now_ms() -> int:
    return int(time.time() * 1000)
