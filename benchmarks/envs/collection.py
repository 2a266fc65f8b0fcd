"""500 rollouts through the fleet provider, with an instance limit of 8 alone and under faults.

    .venv-trainer/bin/python benchmarks/envs/collection.py [ROLLOUTS]

Faults: 10 % of all requests are answered 502 without a word on whether they may be repeated, 2 %
hang, and the verifier is out for 30 s. The server of Fleet's contract is a process of its own, the
rollouts are the trainer's own code. Only the policy is scripted: it takes 50 ms for a turn and says
what minifleet's expert would, on every fourth task without the last call. So it is known what each
rollout is worth: a grade that differs would be a fault of the environment taken for the policy's.

Writes `benchmarks/results/fleet_collection.json`; exit code 1 when something that must hold does
not.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import torch

from hillclimb.environment.base import ToolCall
from hillclimb.environment.task import Task
from hillclimb.minifleet.experts import expert
from hillclimb.minifleet.tasks import minifleet_tasks
from hillclimb.protocol.outcomes import OutcomeRow
from hillclimb.spec.run import RunSpec
from hillclimb.stats.pass_rate import count_tasks, pass_rate
from trainer.engines.base import EngineStats
from trainer.envs.fleet.choice import fleet_provider
from trainer.envs.minifleet import MinifleetProvider
from trainer.rollouts.chat.chat import Chat, load_chat
from trainer.rollouts.chat.prompts import render_call
from trainer.rollouts.groups.collector import Collector
from trainer.rollouts.records.outcomes import outcome_rows
from trainer.rollouts.request import Rollout, RolloutRequest
from trainer.rollouts.worker import RolloutParts, RolloutWorker
from trainer.types import Sample, SamplingParams

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "benchmarks/results/fleet_collection.json"
MODEL = ROOT / "assets/tiny-qwen3-a"
KEY, DONE = "benchmark", "<done>"
ENV_KEYS = ("booking", "github", "outlook", "reddit", "ticketmaster")
SAMPLES, INSTANCE_LIMIT, TURN_S = 4, 8, 0.05
OUTAGE_S = 30.0
ENVIRONMENT = {
    "provider": "fleet",
    "max_turns": 24,
    "call_timeout_s": 10.0,
    "reset_timeout_s": 60.0,
    "verifier_timeout_s": 60.0,
}


def faults(outage_s: float) -> list[dict[str, Any]]:
    """The rules of the faulty run."""
    outage = {"on": ["verify"], "after_s": 5.0, "for_s": outage_s, "error_rate": 1.0}
    return [
        {"error_rate": 0.1, "error_status": 502, "retryable": None, "hang_rate": 0.02},
        {**outage, "error_status": 503},
    ]


@dataclass(slots=True)
class ScriptedEngine:
    """Says the turns of a script; the session names the task."""

    chat: Chat
    scripts: Mapping[str, Sequence[str]]
    turn_s: float
    weight_version: int = 0
    turns: Counter[str] = field(default_factory=Counter)

    async def sample(
        self, prompt_ids: Sequence[int], params: SamplingParams, *, session: str, prefix_key: str
    ) -> Sample:
        """Say the session's next turn; `.../task key/sample/retry` names it."""
        script = self.scripts["/".join(session.split("/")[4:-2])]
        turn = script[min(self.turns[session], len(script) - 1)]
        self.turns[session] += 1
        await asyncio.sleep(self.turn_s)
        ids = self.chat.encode_turn(turn)
        return Sample(
            token_ids=ids,
            logprobs=(-0.5,) * len(ids),
            stopped=True,
            weight_versions=(0,) * len(ids),
        )

    async def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        return torch.zeros(len(token_ids) - 1)

    def release(self, session: str) -> None:
        self.turns.pop(session, None)

    def stats(self) -> EngineStats:
        return EngineStats(
            num_sampled_tokens=0, num_prefill_tokens=0, num_cached_tokens=0, busy_s=0.0
        )

    async def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Work:
    """The tasks, what the policy says, and what that is worth."""

    tasks: tuple[Task, ...]
    scripts: Mapping[str, Sequence[str]]
    worth: Mapping[str, float]


async def make_work(num_rollouts: int) -> Work:
    """Play every script in this process to know its worth."""
    per_env = -(-num_rollouts // (SAMPLES * len(ENV_KEYS)))
    tasks = minifleet_tasks(ENV_KEYS, "train", per_env, seed=11)[: num_rollouts // SAMPLES]
    scripts: dict[str, list[str]] = {}
    worth: dict[str, float] = {}
    for number, task in enumerate(tasks):
        calls = await expert_calls(task)
        calls = calls[:-1] if number % 4 == 3 else calls
        env = MinifleetProvider().make(task)
        await env.reset()
        for call in calls:
            await env.call(call.name, call.arguments)
        worth[task.key] = (await env.score()).score or 0.0
        scripts[task.key] = [render_call(call.name, call.arguments) for call in calls] + [DONE]
    return Work(tasks, scripts, worth)


async def expert_calls(task: Task) -> list[ToolCall]:
    """What the expert calls to solve a task."""
    env, calls = MinifleetProvider().make(task), []
    await env.reset()
    run = expert(task)
    call = next(run)
    while True:
        calls.append(call)
        try:
            call = run.send(await env.call(call.name, call.arguments))
        except StopIteration:
            return calls


async def collect(
    url: str, work: Work, turn_s: float, **environment: Any
) -> tuple[list[Rollout], float]:
    """Roll out everything and close the provider; return the rollouts and the seconds."""
    spec = RunSpec.model_validate(
        {
            "name": "collection",
            "data": {"env_keys": ENV_KEYS},
            "environment": {**ENVIRONMENT, "fleet": {"base_url": url}, **environment},
            "rollout": {
                "max_input_length": 60_000,
                "max_generate_length": 1000,
                "max_sequence_length": 61_000,
            },
        }
    )
    vocab_size = json.loads((MODEL / "config.json").read_text())["vocab_size"]
    chat = load_chat(MODEL, vocab_size)
    provider = fleet_provider(spec, "benchmark.collection", {"FLEET_API_KEY": KEY})
    worker = RolloutWorker(
        RolloutParts(
            engine=ScriptedEngine(chat, work.scripts, turn_s),
            chat=chat,
            provider=provider,
            environment=spec.environment,
            rollout=spec.rollout,
            seed=0,
            attempt=1,
        )
    )
    collector = Collector(worker, max_concurrent_rollouts=spec.environment.max_concurrent_rollouts)
    begun = time.perf_counter()
    groups = await collector.collect(work.tasks, REQUEST)
    seconds = time.perf_counter() - begun
    await worker.close()
    return [rollout for group in groups for rollout in group], seconds


REQUEST = RolloutRequest(
    step=1,
    split="train",
    decoding="train",
    n_samples_per_prompt=SAMPLES,
    temperatures=dict.fromkeys(ENV_KEYS, 1.0),
)


def told(
    rollouts: Sequence[Rollout], work: Work, seconds: float, stats: dict[str, Any]
) -> dict[str, Any]:
    """What a run came to."""
    rows: Sequence[OutcomeRow] = outcome_rows(rollouts, REQUEST, trajectory_key="none")
    rate = pass_rate(count_tasks(rows, pass_threshold=1.0), k=1)
    measured: Counter[str] = Counter()
    for rollout in rollouts:
        measured.update({k: v for k, v in rollout.measures.items() if k.startswith("num_")})
    limits = [rollout.measures["concurrency_limit"] for rollout in rollouts if rollout.measures]
    return {
        "seconds": round(seconds, 1),
        "rollouts_per_s": round(len(rows) / seconds, 2),
        "outcomes": dict(Counter(row.status.value for row in rows)),
        "reasons": dict(Counter(row.reason for row in rows if row.score is None)),
        "tries_that_failed": dict(Counter(code for r in rollouts for code in r.infra_errors)),
        "coverage": round(rate.coverage, 4),
        "pass_at_1": None if rate.value is None else round(rate.value, 4),
        "bound_if_failed": round(rate.bound_if_failed, 4),
        "bound_if_passed": round(rate.bound_if_passed, 4),
        "wrong_grades": sum(
            row.score is not None and row.score != work.worth[row.task_key] for row in rows
        ),
        "provider": {name: int(value) for name, value in sorted(measured.items())},
        "concurrency_limit": {"least": min(limits), "most": max(limits)},
        "server": stats,
    }


@contextmanager
def serving(instance_limit: int, rules: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A server as a process of its own."""
    options = ["--api-key", KEY, "--instance-limit", str(instance_limit)]
    command = [sys.executable, "-m", "hillclimb.minifleet.server", "serve", "--json", *options]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            url = json.loads(server.stdout.readline())["base_url"]
            asked(url, "PUT", "/admin/faults", json={"seed": 5, "rules": list(rules)})
            yield url
        finally:
            server.terminate()


def asked(url: str, method: str, path: str, **more: Any) -> Any:
    headers = {"Authorization": f"Bearer {KEY}"}
    return httpx.request(method, url + path, headers=headers, **more).raise_for_status().json()


def run(
    work: Work, rules: Sequence[Mapping[str, Any]], *, turn_s: float = TURN_S, **environment: Any
) -> dict[str, Any]:
    """One run on a server of its own."""
    with serving(INSTANCE_LIMIT, rules) as url:
        rollouts, seconds = asyncio.run(collect(url, work, turn_s, **environment))
        return told(rollouts, work, seconds, asked(url, "GET", "/admin/stats"))


def broken(found: Mapping[str, Any], num_rollouts: int) -> list[str]:
    """What must hold and does not."""
    claims = {
        "every rollout has an outcome": sum(found["outcomes"].values()) == num_rollouts,
        "no grade is another than the policy earned": found["wrong_grades"] == 0,
        "no instance is left": found["server"]["instances"]["running"] == 0,
        "the bounds hold what is missing": found["bound_if_failed"]
        <= (found["pass_at_1"] or 0.0)
        <= found["bound_if_passed"],
    }
    return [claim for claim, holds in claims.items() if not holds]


def main() -> int:
    num_rollouts = int((*sys.argv[1:], "500")[0]) // SAMPLES * SAMPLES
    work = asyncio.run(make_work(num_rollouts))
    found: dict[str, Any] = {
        "rollouts": num_rollouts,
        "load_average": [round(each, 1) for each in os.getloadavg()],
        "cores": os.cpu_count(),
        "instance_limit": INSTANCE_LIMIT,
        "turn_s": TURN_S,
        "environment": ENVIRONMENT,
        "faults": faults(OUTAGE_S),
    }
    for name, rules in (("without_faults", []), ("under_faults", faults(OUTAGE_S))):
        found[name] = run(work, rules)
    speeds = [found[name]["rollouts_per_s"] for name in ("under_faults", "without_faults")]
    found["throughput_ratio"] = round(speeds[0] / speeds[1], 3)
    problems = [
        f"{name}: {claim}"
        for name in ("without_faults", "under_faults")
        for claim in broken(found[name], num_rollouts)
    ]
    found["broken"] = problems
    print(json.dumps(found, indent=2))
    if num_rollouts == 500:
        RESULT.write_text(json.dumps(found, indent=2) + "\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
