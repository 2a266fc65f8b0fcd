"""MLflow's own server in a process, in an environment of its own, and questions to it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from hillclimb.stack.system.ports import find_free

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venv-mlflow" / "bin" / "python"
START_S, STOP_S = 300.0, 60.0


@dataclass(frozen=True, slots=True)
class MlflowStore:
    """What a server has stored."""

    url: str

    def _request(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        answer = httpx.request(method, f"{self.url}/api/2.0/mlflow/{path}", **options)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    def runs(self, experiment: str) -> list[dict[str, Any]]:
        """Return the runs of an experiment, the oldest first."""
        query = {"experiment_name": experiment}
        named = self._request("GET", "experiments/get-by-name", params=query)
        body = {
            "experiment_ids": [named["experiment"]["experiment_id"]],
            "order_by": ["attributes.start_time ASC"],
        }
        runs: list[dict[str, Any]] = self._request("POST", "runs/search", json=body).get("runs", [])
        return runs

    def histories(self, run: dict[str, Any]) -> dict[str, list[tuple[int, float]]]:
        """Return every value of every metric of a run, by name: pairs of step and value."""
        names = [each["key"] for each in run["data"].get("metrics", [])]
        return {name: sorted(self._history(run["info"]["run_id"], name)) for name in names}

    def _history(self, run_id: str, name: str) -> Iterator[tuple[int, float]]:
        query = {"run_id": run_id, "metric_key": name}
        for each in self._request("GET", "metrics/get-history", params=query)["metrics"]:
            yield int(each.get("step", 0)), float(each["value"])


def pairs(run: dict[str, Any], kind: str) -> dict[str, str]:
    """Return the tags or the params of a run."""
    return {each["key"]: each["value"] for each in run["data"].get(kind, [])}


@contextmanager
def mlflow_server(state: Path, database: str = "") -> Iterator[MlflowStore]:
    """Serve on loopback from the database at that address, or from a file of its own in `state`."""
    state.mkdir(parents=True, exist_ok=True)
    port = find_free()
    command = [
        *(str(PYTHON), "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)),
        *("--backend-store-uri", database or f"sqlite:///{state}/mlflow.db", "--workers", "1"),
        *("--artifacts-destination", str(state / "artifacts")),
    ]
    quiet = {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    with (state / "server.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            cwd=state,
            env=os.environ | quiet,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(process, url, state / "server.log")
        yield MlflowStore(url)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(STOP_S)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            if httpx.get(f"{url}/health", timeout=5.0).is_success:
                return
        except httpx.HTTPError:
            time.sleep(0.2)
    raise AssertionError("the server did not answer")
