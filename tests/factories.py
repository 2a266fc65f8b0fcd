"""Valid specs, events and outcomes to build tests from; every field can be replaced."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from trainer.contract import events
from trainer.contract.outcomes import OutcomeRow, OutcomeStatus, StopReason
from trainer.contract.reasons import ReasonCode
from trainer.contract.rundir import checkpoint_name
from trainer.contract.spec import RunSpec

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def spec_body(**sections: object) -> dict[str, Any]:
    """The smallest useful spec, as a user writes it."""
    body: dict[str, Any] = {
        "name": "climb",
        "data": {"env_keys": ["booking"]},
        "schedule": {"total_steps": 3, "train_batch_size": 2, "mini_batch_size": 1},
    }
    return body | sections


def make_spec(**sections: object) -> RunSpec:
    return RunSpec.model_validate(spec_body(**sections))


def outcome(rollout_id: str, score: float | None = 1.0, **values: object) -> OutcomeRow:
    row: dict[str, Any] = {
        "rollout_id": rollout_id,
        "split": "train",
        "decoding": "train",
        "task_key": f"task-{rollout_id}",
        "env_key": "booking",
        "template": "book_room",
        "sample_index": 0,
        "status": OutcomeStatus.GRADED,
        "score": score,
        "stop_reason": StopReason.DONE,
        "num_turns": 2,
        "num_tool_calls": 1,
        "num_tool_errors": 0,
        "num_repeated_calls": 0,
        "num_tokens": 40,
        "duration_s": 0.5,
        "trajectory": "trajectories/step_000001.jsonl.gz",
        "trajectory_line": 0,
    }
    return OutcomeRow.model_validate(row | values)


def started(seq: int = 1, **values: object) -> events.TrainerStarted:
    facts: dict[str, Any] = {
        "trainer_seq": seq,
        "at": AT,
        "step": 0,
        "total_steps": 3,
        "config_hash": "0" * 64,
        "prompt_version": "1",
        "engine": "torch",
        "num_parameters": 1000,
        "num_train_tasks": 10,
        "num_eval_tasks": 10,
        "versions": {"python": "3.11"},
    }
    return events.TrainerStarted.model_validate(facts | values)


def phase(
    seq: int, name: str = "rollout", step: int = 0, *, left: int | None = None
) -> events.PhaseStarted:
    return events.PhaseStarted.model_validate(
        {"trainer_seq": seq, "at": AT, "step": step, "phase": name, "num_rollouts": left}
    )


def step(seq: int, number: int, *rows: OutcomeRow, **values: object) -> events.StepCompleted:
    facts: dict[str, Any] = {
        "trainer_seq": seq,
        "at": AT,
        "step": number,
        "metrics": {"reward/avg_raw_reward": 0.5},
        "outcomes": rows,
        "eta_s": 10.0,
    }
    return events.StepCompleted.model_validate(facts | values)


def evaluated(
    seq: int, number: int, *rows: OutcomeRow, decoding: str = "sampled"
) -> events.EvalCompleted:
    return events.EvalCompleted(
        trainer_seq=seq,
        at=AT,
        step=number,
        decoding=decoding,
        temperature=1.0,
        n_samples_per_prompt=1,
        pass_threshold=1.0,
        metrics={"eval/booking/pass_at_1": 0.5},
        outcomes=rows,
        duration_s=3.0,
    )


def saved(
    seq: int, number: int, attempt: int = 1, *, final: bool = False
) -> events.CheckpointSaved:
    return events.CheckpointSaved(
        trainer_seq=seq,
        at=AT,
        step=number,
        path=checkpoint_name(number, attempt),
        manifest_sha256="a" * 64,
        size_bytes=5_000_000_000,
        final=final,
    )


def ended(
    seq: int, reason: ReasonCode = ReasonCode.COMPLETED, message: str = "trained every step"
) -> events.TrainerEnded:
    return events.TrainerEnded(
        trainer_seq=seq, at=AT, step=3, reason=reason, message=message, training_seconds=1.0
    )
