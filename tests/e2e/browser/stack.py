"""A real stack of its own, and requests to it that fill its pages."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from hillclimb.minifleet.export import tasks_document
from hillclimb.minifleet.tasks import minifleet_tasks
from hillclimb.stack.state.connection import connection
from hillclimb.stack.system.poll import wait_until
from tests.hillclimb.cli.first_hour.own_stack import environment_in, stop_in

Json = dict[str, Any]
TERMINAL = ("succeeded", "failed", "cancelled")
START_S, RUN_S = 240.0, 900.0
SMALL: Mapping[str, Any] = {
    "model": {"source": "builtin:tiny-qwen3-a"},
    "engine": {"type": "torch"},
    "placement": {"type": "inline"},
    "data": {"env_keys": ["booking"], "train_tasks_per_env": 40, "eval_tasks_per_env": 16},
    "environment": {"max_turns": 6},
    "rollout": {"n_samples_per_prompt": 4},
    "schedule": {"total_steps": 2, "train_batch_size": 4, "mini_batch_size": 4},
    "eval": {"interval": 1, "decodings": [{"name": "sampled", "temperature": 1.0}]},
    "checkpoints": {"interval": 2, "qualify": False},
}
"""A run in one process that takes some ten seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnStack:
    """A started stack: its address, the key of its first project, its folder."""

    url: str
    key: str
    folder: Path
    http: httpx.Client

    def post(self, path: str, body: Mapping[str, Any]) -> Json:
        """Return the answer to a request that must be accepted."""
        return self._read(self.http.post(f"/v1{path}", json=body))

    def put(self, path: str, body: Mapping[str, Any]) -> Json:
        """Return the answer to a request that must be accepted."""
        return self._read(self.http.put(f"/v1{path}", json=body))

    def get(self, path: str) -> Json:
        """Return an answer."""
        return self._read(self.http.get(f"/v1{path}"))

    def submit(self, **spec: Any) -> str:
        """Submit a small run with these sections of its own; return its id."""
        return str(self.post("/runs", {**SMALL, **spec})["id"])

    def until_ended(self, *runs: str, deadline_s: float = RUN_S) -> None:
        """Wait for the end of the runs; each must have succeeded."""
        ended = wait_until(
            lambda: all(self.get(f"/runs/{run}")["status"] in TERMINAL for run in runs),
            deadline_s=deadline_s,
        )
        states = {run: self.get(f"/runs/{run}") for run in runs}
        wrong = [each for each in states.values() if each["status"] != "succeeded"]
        assert ended, self.logs()
        assert not wrong, f"{wrong}\n{self.logs()}"

    def until_step(self, run: str, step: int, *, deadline_s: float = RUN_S) -> None:
        """Wait until the run has completed the step."""
        reached = wait_until(
            lambda: self.get(f"/runs/{run}")["progress"]["step"] >= step, deadline_s=deadline_s
        )
        assert reached, self.logs()

    def register(self, name: str, env_keys: Sequence[str], number: int) -> int:
        """Register tasks of miniature apps as the next version of a dataset; return its number."""
        document = tasks_document(minifleet_tasks(tuple(env_keys), "train", number, seed=3))
        answer = self.http.post(
            f"/v1/datasets/{name}/versions",
            params={"options": json.dumps({"split": {"policy": "rank", "eval_ratio": 0.2}})},
            content=json.dumps(document).encode(),
        )
        return int(self._read(answer)["number"])

    def experiment(self, key: str, baseline: str, *variants: str) -> None:
        """Write an experiment about runs, and its entry in the changelog."""
        text = {"title": "larger learning rate", "hypothesis": "The learning rate is too low."}
        change = {"key": "optimizer.lr", "rationale": "no clipping was seen"}
        self.post("/experiments", {"key": key, **text, "changes": [change], "baseline": baseline})
        for variant in variants:
            self.post(f"/experiments/{key}/runs", {"run_id": variant, "role": "variant"})
        entry = {
            "works": ["Both arms learn from the first evaluation on."],
            "fails": ["Two seeds would be needed to say how much of it is luck."],
            "next_steps": ["Repeat both arms with three seeds."],
            "remarks": "The same tasks, the same model.",
        }
        self._read(self.http.patch(f"/v1/experiments/{key}", json=entry))

    def logs(self) -> str:
        """Return the end of each log of the stack."""
        logs = sorted((self.folder / "state" / "logs").glob("*.log"))
        return "\n".join(f"== {each.name}\n{each.read_text()[-1500:]}" for each in logs)

    def _read(self, answer: httpx.Response) -> Json:
        assert answer.is_success, f"{answer.request.url}: {answer.text}"
        body: Json = answer.json()
        return body


@contextmanager
def started(folder: Path) -> Iterator[OwnStack]:
    """Start a stack whose state is in the folder; it stops with the block."""
    environment = environment_in(folder) | {"OMP_NUM_THREADS": "1", "HILLCLIMB_RUNNER_SLOTS": "2"}
    try:
        done = subprocess.run(
            ["hillclimb", "up", "--detach"],
            env=environment,
            cwd=folder,
            check=False,
            capture_output=True,
            text=True,
            timeout=START_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        at = connection(folder / "state")
        assert at is not None
        headers = {"Authorization": f"Bearer {at.api_key}"}
        with httpx.Client(base_url=at.url, headers=headers, trust_env=False, timeout=60) as http:
            yield OwnStack(url=at.url, key=at.api_key, folder=folder, http=http)
    finally:
        stop_in(folder, environment)
