"""The ladders `gpu` and `cluster`: two tiny rounds as a run through the normal path."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from hillclimb.client.client import Client
from hillclimb.client.errors import ApiProblem, HillclimbError
from hillclimb.process.acceptance.ladder import AcceptanceCheck, CheckFailed
from hillclimb.protocol.payloads.events import EventPayload
from hillclimb.spec.preflight.accepted_paths import GPU_SETTINGS, AcceptablePath
from hillclimb.spec.rules.experimental_features import experimental_features
from hillclimb.spec.run import RunSpec

Json = dict[str, Any]
ROUNDS = 2
POLL_S = 1.0
ANSWER_S, START_S, ROUNDS_S = 60.0, 3600.0, 3600.0
ENDED = frozenset({"succeeded", "failed", "cancelled", "paused"})
CANARY = "policy/canary_logprobs_abs_diff_mean"
SEE_LOG = "read the run's log (`hillclimb logs`) and docs/runbook.md"
LATE = "see what it waits for (`hillclimb status`, `hillclimb clusters`); it is cancelled now"


def tiny_spec(name: str, model: str) -> Json:
    """Return the spec of two rounds of a model on one miniature app; a checkpoint at the end."""
    return {
        "name": name,
        "tags": ["accept"],
        "experimental": True,
        "data": {"env_keys": ["booking"], "eval_tasks_per_env": 8},
        "environment": {"overrides": {"booking": {"max_turns": 6}}},
        "model": {"source": model},
        "schedule": {"total_steps": ROUNDS, "train_batch_size": 4, "mini_batch_size": 2},
        "rollout": {"n_samples_per_prompt": 8},
        "eval": {"interval": 0},
        "checkpoints": {"interval": ROUNDS},
    }


class RoundsLadder:
    """Submits the run, follows it and looks at what it left; a run that goes on is cancelled."""

    def __init__(self, client: Client, spec: Json, target: Literal["gpu", "cluster"]) -> None:
        self._client, self._spec, self._target = client, spec, target
        self._started: EventPayload | None = None
        self._resolved: Json = {}
        self.run_id: str | None = None
        self.subject = ""
        """GPU or machines, once they were seen."""
        self.versions: dict[str, str] = {}
        """The trainer's own, once it has started."""

    @property
    def checks(self) -> Sequence[AcceptanceCheck]:
        """The checks, in order."""
        return (
            self._check("plan", self._plan, ANSWER_S),
            self._check("submitted", self._submit, ANSWER_S),
            self._check("started", self._await_start, START_S),
            self._check("machines", self._look_at_machines, ANSWER_S),
            self._check("rounds", self._await_end, ROUNDS_S),
            self._check("graded", self._look_at_grades, ANSWER_S),
            self._check("saved", self._look_at_checkpoint, ANSWER_S),
            self._check("canary", self._look_at_canary, ANSWER_S),
        )

    @property
    def paths(self) -> tuple[AcceptablePath, ...]:
        """The experimental paths that the run used."""
        features = experimental_features(RunSpec.model_validate(self._resolved))
        used = {feature.path for feature in features}
        gpu: tuple[AcceptablePath, ...] = ("gpu",) if "gpu" in self.versions else ()
        cluster: tuple[AcceptablePath, ...] = ("cluster",) if self._target == "cluster" else ()
        return cluster + gpu + tuple(each for each in GPU_SETTINGS if each in used and gpu)

    def spent_usd(self) -> float | None:
        """Return what the run's machines cost so far; null while a price is not known."""
        spent = self._client.clusters(self._id).spent
        return spent.usd if spent.is_complete else None

    async def close(self) -> None:
        """Cancel the run unless it has ended."""
        if self.run_id is not None:
            await asyncio.to_thread(self._cancel, self.run_id)

    def _cancel(self, run_id: str) -> None:
        if self._client.run(run_id).status not in ENDED:
            self._client.cancel(run_id)

    def _check(self, name: str, act: Callable[[], str], limit_s: float) -> AcceptanceCheck:
        async def explained() -> str:
            try:
                return await asyncio.to_thread(act)
            except ApiProblem as problem:
                raise CheckFailed("the service refuses", str(problem)) from problem
            except HillclimbError as error:
                raise CheckFailed(
                    str(error), "start the service, or correct its address"
                ) from error

        return AcceptanceCheck(name=name, act=explained, limit_s=limit_s + 30.0, late=LATE)

    def _plan(self) -> str:
        plan = self._client.plan(self._spec)
        self._resolved = plan.spec
        if plan.hardware is None:
            return f"accepted; it would be number {plan.queue.position} of those that wait"
        labels = [each.label for each in plan.hardware.candidates if not each.why_not]
        price = plan.hardware.hourly_usd
        usd = "unknown" if price is None else f"up to {price.high:.2f}"
        return f"{', '.join(labels)}; USD an hour: {usd}, for {plan.hardware.max_hours:g} h at most"

    def _submit(self) -> str:
        key = f"accept-{uuid.uuid4().hex}"
        self.run_id = self._client.submit(self._spec, idempotency_key=key).id
        return f"accepted as run {self.run_id}"

    def _await_start(self) -> str:
        event = self._wait(lambda: self._newest("trainer.started"), START_S)
        if event is None:
            raise self._ended("before its trainer started")
        self._started = event
        versions = event.data.get("versions")
        known = versions if isinstance(versions, dict) else {}
        self.versions = {
            name: str(known[name])
            for name in ("hillclimb", "python", "torch", "transformers", "cuda", "driver", "gpu")
            if name in known
        } | {name: str(known[name]) for name in ("vllm", "ray") if name in known}
        engine = event.data.get("engine")
        return f"torch {known.get('torch', '?')}, engine {engine}"

    def _look_at_machines(self) -> str:
        gpu = self.versions.get("gpu")
        if self._target == "gpu":
            if gpu is None:
                raise CheckFailed(
                    "the trainer saw no GPU",
                    "start the runner where torch sees one (docs/own-gpu.md), or rent one:"
                    " `--infra CLOUD --accelerators NAME:1`",
                )
            self.subject = gpu
            return f"{gpu}, driver {self.versions.get('driver', '?')}"
        clusters = self._client.clusters(self._id).data
        if not clusters or clusters[-1].num_nodes < 2:
            raise CheckFailed(
                "the run was on one machine", "rent two or more: `--infra CLOUD --nodes 2`"
            )
        newest = clusters[-1]
        self.subject = str(newest.infra or self._infra())
        price = "" if newest.hourly_usd is None else f" at {newest.hourly_usd:.2f} USD an hour"
        return f"{newest.num_nodes} machines of {self.subject}{price}{f', {gpu}' if gpu else ''}"

    def _infra(self) -> str:
        skypilot = self._resolved["backend"]["skypilot"]
        return str(skypilot["candidates"][0]["infra"])

    def _await_end(self) -> str:
        self._wait(lambda: None, ROUNDS_S)
        run = self._client.run(self._id)
        if run.status != "succeeded":
            raise self._ended("before its two rounds")
        steps = self._events("step.completed")
        updates = sum(float(each.data["metrics"].get("policy/num_updates", 0.0)) for each in steps)
        if len(steps) < ROUNDS:
            raise CheckFailed(f"{len(steps)} rounds were reported", SEE_LOG)
        if not updates:
            raise CheckFailed(
                "no rollout carried a gradient, so no update was taken",
                "name a model that solves some tasks of booking (`--model`), or draw more:"
                " `--set rollout.n_samples_per_prompt=16`",
            )
        return f"{len(steps)} rounds, {updates:g} updates"

    def _look_at_grades(self) -> str:
        rates = [each.data["all"] for each in self._events("step.completed")]
        rollouts = sum(int(each["num_rollouts"]) for each in rates)
        graded = sum(int(each["n"]) for each in rates)
        if not rollouts or graded < rollouts:
            raise CheckFailed(f"{graded} of {rollouts} rollouts were graded", SEE_LOG)
        passes = sum(int(each["passes"]) for each in rates)
        return f"{graded} rollouts graded, {passes} passed"

    def _look_at_checkpoint(self) -> str:
        saved = [each for each in self._client.checkpoints(self._id).data if each.step == ROUNDS]
        if not saved:
            raise CheckFailed(f"no checkpoint of step {ROUNDS}", SEE_LOG)
        return f"{saved[0].size_bytes / 2**20:.1f} MiB at step {saved[0].step}"

    def _look_at_canary(self) -> str:
        gaps = [
            float(each.data["metrics"][CANARY])
            for each in self._events("step.completed")
            if CANARY in each.data["metrics"]
        ]
        if not gaps:
            raise CheckFailed(
                "the engine's log-probs were not compared with the learner's", SEE_LOG
            )
        return f"engine and learner differ by at most {max(gaps):.2g} nat"

    def _wait(self, look: Callable[[], EventPayload | None], limit_s: float) -> EventPayload | None:
        """Return what `look` returns first; None once the run has ended without it."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            has_ended = self._client.run(self._id).status in ENDED
            if (seen := look()) is not None or has_ended:
                return seen
            time.sleep(POLL_S)
        raise CheckFailed(f"no end within {limit_s:g} s", LATE)

    def _ended(self, when: str) -> CheckFailed:
        run = self._client.run(self._id)
        reason = run.end_reason.message if run.end_reason is not None else ""
        return CheckFailed(f"the run is {run.status} {when}: {reason or 'no reason'}", SEE_LOG)

    def _newest(self, kind: str) -> EventPayload | None:
        return next(iter(reversed(self._events(kind))), None)

    def _events(self, kind: str) -> list[EventPayload]:
        events: list[EventPayload] = []
        after, has_more = 0, True
        while has_more:
            page = self._client.events(self._id, after=after, types=kind)
            events += page.data
            after = page.data[-1].seq if page.data else after
            has_more = bool(page.data) and page.has_more
        return events

    @property
    def _id(self) -> str:
        assert self.run_id is not None
        return self.run_id


def is_for_runner(spec: Json) -> bool:
    """Tell whether the run of a spec goes to a runner, and to no rented machine."""
    backend = spec.get("backend")
    return not isinstance(backend, Mapping) or backend.get("type", "runner") == "runner"


def num_gpus_of(accelerators: str) -> int:
    """Return the GPUs of one node, of `H100:1` or `H100`."""
    number = accelerators.partition(":")[2]
    return int(number) if number.isdecimal() else 1


def on_one_gpu(spec: Json) -> Json:
    """Return the spec with its engine and learner on one GPU, unless it says otherwise."""
    engine = dict(spec.get("engine") or {})
    if {"weight_transport", "tensor_parallel_size"} & engine.keys():
        return spec
    if engine.get("type", "vllm") != "vllm":
        return spec
    return spec | {"engine": {"type": "vllm", "weight_transport": "ipc"} | engine}


def rented(spec: Json, machines: Mapping[str, Any], *, nodes: int, max_usd: float) -> Json:
    """Return the spec on rented machines, for an hour and so many dollars at most."""
    skypilot = {"candidates": [dict(machines)], "num_nodes": nodes, "max_hours": 1}
    return spec | {
        "backend": {"type": "skypilot", "skypilot": skypilot},
        "budget": {"usd": max_usd, "hours": 1},
    }
