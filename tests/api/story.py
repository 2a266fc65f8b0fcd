"""A run told with realistic events: submitted, claimed, trained, evaluated, ended."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from api.database import Database
from api.runs import attempts, runners, store
from api.runs.record import record_push
from api.runs.submit import submit
from api.tables import Project
from trainer.contract import events
from trainer.contract.launch import AttemptEnd, LaunchPlan, RegisterRunner
from trainer.contract.outcomes import OutcomeRow, OutcomeStatus, StopReason
from trainer.contract.reasons import ReasonCode
from trainer.contract.rundir import checkpoint_name
from trainer.contract.spec import RUN_KINDS, RunSpec

PROJECT = "prj_story"
START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
ENVS = ("booking", "github", "outlook")
VERSIONS = {"python": "3.11", "torch": "2.13.0", "transformers": "5.19.0"}


def spec(
    name: str = "climb", *, env_keys: tuple[str, ...] = ENVS, channel: str | None = None
) -> RunSpec:
    notify = {"slack": {"channel": channel}} if channel else {}
    body = {"name": name, "data": {"env_keys": env_keys}, "notify": notify}
    return RunSpec.model_validate(body)


def rollout(
    env: str,
    task: int,
    *,
    passed: bool | None,
    decoding: str = "sampled",
    step: int = 0,
    stop: StopReason = StopReason.DONE,
    repeated: int = 0,
    sample: int = 0,
    attempt: int = 1,
    split: str = "eval",
) -> OutcomeRow:
    """One outcome; `passed=None` is an infra error. Every fourth task is of a held-out template."""
    graded = passed is not None
    return OutcomeRow.model_validate(
        {
            "rollout_id": f"{attempt}/{step}/{split}/{decoding}/{env}/eval/t/{task}/{sample}",
            "split": split,
            "decoding": decoding,
            "task_key": f"{env}-{task}",
            "env_key": env,
            "template": f"{env}.t{task % 4}",
            "held_out_template": task % 4 == 3,
            "sample_index": sample,
            "status": OutcomeStatus.GRADED if graded else OutcomeStatus.INFRA_ERROR,
            "score": float(passed) if passed is not None else None,
            "reason": None if graded else "connect_timeout",
            "stop_reason": stop if graded else StopReason.INFRA_ERROR,
            "num_turns": 4,
            "num_tool_calls": 3,
            "num_tool_errors": 0,
            "num_repeated_calls": repeated,
            "num_tokens": 120,
            "duration_s": 0.5,
            "trajectory": "trajectories/step.jsonl.gz",
            "trajectory_line": task,
        }
    )


@dataclass(slots=True)
class Story:
    """Tells runs of one project; the clock moves a second per event."""

    database: Database
    now: datetime = START
    rng: random.Random = field(default_factory=lambda: random.Random(7))
    plans: dict[str, LaunchPlan] = field(default_factory=dict)
    seqs: dict[str, int] = field(default_factory=dict)
    runner_id: str = ""

    def prepare(self) -> None:
        with self.database.transaction() as session:
            session.merge(Project(id=PROJECT, name=PROJECT))

    def submit(self, told: RunSpec | None = None, project_id: str = PROJECT) -> str:
        with self.database.transaction() as session:
            made = submit(
                session, told or spec(), project_id=project_id, actor="key:test", now=self.now
            )
            return made.id

    def launch(self, run_id: str) -> None:
        """Offer an attempt of the run and have a runner claim it."""
        body = RegisterRunner(
            name="box",
            hostname="box",
            slots=8,
            kinds=RUN_KINDS,
            attempts=self._held(except_for=run_id),
        )
        with self.database.transaction() as session:
            self.runner_id = runners.register(session, PROJECT, body, now=self.now).id
            attempts.offer(session, store.lock_run(session, run_id), now=self.now)
        with self.database.transaction() as session:
            runner = runners.get_runner(session, PROJECT, self.runner_id)
            plan = runners.claim(session, runner, ingest_url="http://x", now=self.now)
        assert plan is not None
        self.plans[run_id] = plan
        self.seqs[run_id] = 0

    def _held(self, *, except_for: str) -> tuple[str, ...]:
        return tuple(p.attempt_id for r, p in self.plans.items() if r != except_for)

    def running(self, told: RunSpec | None = None) -> str:
        """Return a run whose trainer has started."""
        run_id = self.submit(told)
        self.launch(run_id)
        self.push(run_id, self.started(run_id))
        return run_id

    def place(self, run_id: str, step: int) -> dict[str, Any]:
        """Return the fields every event has, moving the clock and the numbering on."""
        self.now += timedelta(seconds=1)
        self.seqs[run_id] += 1
        return {"trainer_seq": self.seqs[run_id], "at": self.now, "step": step}

    def push(self, run_id: str, *told: events.Event) -> None:
        with self.database.transaction() as session:
            record_push(session, self.plans[run_id].attempt_token, told, now=self.now)

    def started(self, run_id: str, resumed_from: int | None = None) -> events.TrainerStarted:
        return events.TrainerStarted(
            **self.place(run_id, resumed_from or 0),
            total_steps=self.plans[run_id].spec.schedule.total_steps,
            resumed_from_step=resumed_from,
            config_hash="0" * 64,
            prompt_version="p1",
            engine="torch",
            num_parameters=1_200_000,
            num_train_tasks=400,
            num_eval_tasks=60,
            versions=VERSIONS,
        )

    def phase(self, run_id: str, step: int, phase: str) -> events.PhaseStarted:
        return events.PhaseStarted.model_validate({**self.place(run_id, step), "phase": phase})

    def step(
        self, run_id: str, step: int, rates: Mapping[str, float], *, tasks: int = 4
    ) -> events.StepCompleted:
        """A training step: 8 rollouts of `tasks` tasks per environment, passing at these rates."""
        rows = tuple(
            rollout(
                env,
                task,
                passed=self.rng.random() < rate,
                decoding="train",
                split="train",
                step=step,
                sample=sample,
                attempt=self.plans[run_id].attempt,
            )
            for env, rate in rates.items()
            for task in range(tasks)
            for sample in range(8)
        )
        reward = sum(row.score or 0.0 for row in rows) / len(rows)
        total = self.plans[run_id].spec.schedule.total_steps
        return events.StepCompleted(
            **self.place(run_id, step),
            metrics={
                "reward/avg_raw_reward": reward,
                "policy/loss": 0.1 / step,
                "timing/step": 4.5,
            },
            outcomes=rows,
            eta_s=4.0 * (total - step),
        )

    def evaluation(
        self,
        run_id: str,
        step: int,
        rates: Mapping[str, float],
        *,
        decoding: str = "sampled",
        tasks: int = 60,
        infra_share: float = 0.0,
    ) -> events.EvalCompleted:
        """An evaluation in which the first `rate * tasks` tasks of each environment pass."""
        attempt = self.plans[run_id].attempt
        rows = tuple(
            self._outcome(env, task, rate * tasks, (decoding, step, attempt), infra_share)
            for env, rate in rates.items()
            for task in range(tasks)
        )
        return events.EvalCompleted(
            **self.place(run_id, step),
            decoding=decoding,
            temperature=0.0 if decoding == "greedy" else 1.0,
            n_samples_per_prompt=1,
            pass_threshold=1.0,
            metrics={"eval/all/pass_at_1": 0.5},
            outcomes=rows,
            duration_s=3.0,
        )

    def probed(
        self,
        run_id: str,
        passes: Mapping[str, int],
        *,
        tasks: int = 40,
        k: int = 8,
        complete: bool = True,
    ) -> events.ProbeCompleted:
        """A probe in which so many of the k rollouts of every task pass; -1 is an infra error."""
        attempt = self.plans[run_id].attempt
        rows = tuple(
            rollout(
                env,
                task,
                passed=None if passed < 0 else sample < passed,
                decoding="probe",
                split="train",
                sample=sample,
                attempt=attempt,
            )
            for env, passed in passes.items()
            for task in range(tasks)
            for sample in range(k)
        )
        answered = {"num": 10, "num_failed": 0, "p50_s": 0.004, "p95_s": 0.012}
        health = {"num_tools": 4, "prompt_tokens_p50": 310.0, "prompt_tokens_max": 350}
        health |= dict.fromkeys(("reset", "call", "verification"), answered)
        return events.ProbeCompleted.model_validate(
            {
                **self.place(run_id, 0),
                "complete": complete,
                "n_samples_per_prompt": k,
                "group_size": 8,
                "pass_threshold": 1.0,
                "temperatures": dict.fromkeys(passes, 1.0),
                "environments": {
                    env: health | {"infra_errors": {"connect_timeout": k} if passed < 0 else {}}
                    for env, passed in passes.items()
                },
                "outcomes": rows,
                "duration_s": 9.0,
            }
        )

    def validated(
        self, run_id: str, summary: Mapping[str, Any], *, complete: bool = True
    ) -> events.ValidationCompleted:
        """A validation; its rows are a file that the test stores."""
        use = {"num_requests": 9, "num_retries": 1, "input_tokens": 900, "output_tokens": 80}
        return events.ValidationCompleted.model_validate(
            {
                **self.place(run_id, 0),
                "complete": complete,
                "rows": "validation.jsonl.gz",
                "summary": dict(summary),
                "teacher": use,
                "duration_s": 4.0,
            }
        )

    def _outcome(
        self, env: str, task: int, passing: float, where: tuple[str, int, int], infra_share: float
    ) -> OutcomeRow:
        decoding, step, attempt = where
        passed: bool | None = task < passing
        if infra_share and self.rng.random() < infra_share:
            passed = None
        stop = StopReason.MAX_TURNS if task % 2 and not passed else StopReason.DONE
        return rollout(
            env, task, passed=passed, decoding=decoding, step=step, stop=stop, attempt=attempt
        )

    def checkpoint(self, run_id: str, step: int) -> events.CheckpointSaved:
        return events.CheckpointSaved(
            **self.place(run_id, step),
            path=checkpoint_name(step, self.plans[run_id].attempt),
            manifest_sha256="0" * 64,
            size_bytes=5_400_000,
        )

    def finish(
        self,
        run_id: str,
        step: int,
        reason: ReasonCode = ReasonCode.COMPLETED,
        *,
        message: str = "",
        training_seconds: float = 120.0,
    ) -> None:
        """The trainer's last event, and the runner's report that it is gone."""
        ended = events.TrainerEnded(
            **self.place(run_id, step),
            reason=reason,
            message=message,
            training_seconds=training_seconds,
        )
        self.push(run_id, ended)
        self.report(run_id, reason, message=message)

    def report(self, run_id: str, reason: ReasonCode, *, message: str = "") -> None:
        end = AttemptEnd(reason=reason, message=message, last_trainer_seq=self.seqs[run_id])
        plan = self.plans.pop(run_id)
        with self.database.transaction() as session:
            runner = runners.get_runner(session, PROJECT, self.runner_id)
            runners.report_end(session, runner, plan.attempt_id, end, now=self.now)
